"""How queries end and go on: lifetimes, ended streams, streams that are reopened."""

from __future__ import annotations

import csv
import itertools
import random
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import (
    Rows,
    Stop,
    as_csv_keeps,
    expected,
    feed,
    opened,
    result_rows,
    settle,
    stop_at,
)
from engine_helpers import declare as declare_with_tables
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sample_queries import KINDS, QUIET, sample

from headwater.algebra.nodes import Query, Scan, walk_relations
from headwater.cql import CreateQuery, CreateStream, parse_query, unparse
from headwater.cql.statements import EARLIEST, Connector
from headwater.errors import CatalogError, InputError
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import LogPosition, NewSegment, UnitRow, stream_log
from headwater.runtime.lifecycle import (
    FOREVER,
    complete_until,
    finish_queries,
    input_streams,
    is_stopped_for_good,
    reopen_stream,
    settle_ends,
)
from strategies import ASKS, BIDS, SOURCES, queries, streams, tables

SECOND = 1_000_000

# ---- decided from the catalog, without Spark

TEXT = """
CREATE STREAM a (v INT, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 2 SECONDS FROM CLIENT;
CREATE STREAM b (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY short LIFETIME 10 SECONDS AS SELECT v FROM a;
CREATE QUERY both LIFETIME 10 SECONDS AS SELECT a.v FROM a, b WHERE a.v = b.v;
CREATE QUERY long AS SELECT v FROM a;
"""


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
        yield headwater


def push(headwater: Headwater, stream: str, *seconds: int) -> None:
    headwater.push(stream, [(1, second * SECOND) for second in seconds], timestamp_unit="us")


def end_of(headwater: Headwater, name: str) -> int | None:
    settle_ends(headwater.catalog)
    return headwater.query(name).row.end_at


def read_all(headwater: Headwater, name: str) -> None:
    """Move the unit of a query to the end of its inputs."""
    unit = headwater.catalog.unit(headwater.query(name).row.unit_id)
    assert unit is not None
    cursors = {}
    for row in headwater.catalog.streams():
        if stream_log(row.name) in unit.inputs and row.next_seq > 1:
            position = {"seq": row.next_seq - 1, "watermark": row.watermark}
            cursors[unit.id, stream_log(row.name)] = position
    headwater.catalog.commit(None, cursors=cursors)


def serves(headwater: Headwater, unit: UnitRow) -> set[str]:
    return {query.digest for query in headwater.catalog.subscribers(unit.id)}


def ended(
    headwater: Headwater, name: str, watermark: int | None = FOREVER, idle: bool = True
) -> Any:
    """The names that finish, and the states of the query and its unit after."""
    unit = headwater.catalog.unit(headwater.query(name).row.unit_id)
    assert unit is not None
    streams = input_streams(headwater.catalog, unit)
    names = finish_queries(
        headwater.catalog, unit, serves(headwater, unit), streams, watermark, idle
    )
    after = headwater.catalog.unit(unit.id)
    assert after is not None
    return names, headwater.query(name).row.state, after.state


def test_a_lifetime_counts_from_the_first_data(headwater: Headwater) -> None:
    assert end_of(headwater, "short") is None
    push(headwater, "a", 5, 6)
    assert end_of(headwater, "short") is None, "second 4 may still come"
    push(headwater, "a", 4, 7)
    assert end_of(headwater, "short") == 14 * SECOND
    push(headwater, "a", 50)
    assert end_of(headwater, "short") == 14 * SECOND


def test_a_lifetime_waits_for_every_input(headwater: Headwater) -> None:
    push(headwater, "a", 5, 9)
    assert end_of(headwater, "both") is None
    push(headwater, "b", 3)
    assert end_of(headwater, "both") == 13 * SECOND


def test_an_input_that_ended_empty_holds_no_lifetime_up(headwater: Headwater) -> None:
    push(headwater, "a", 5)
    headwater.execute("END STREAM b")
    assert end_of(headwater, "both") is None
    headwater.execute("END STREAM a")
    assert end_of(headwater, "both") == 15 * SECOND


def test_a_query_without_a_lifetime_has_no_end(headwater: Headwater) -> None:
    push(headwater, "a", 5, 9)
    assert end_of(headwater, "long") is None


def test_a_lifetime_from_a_known_start_has_its_end_at_once(headwater: Headwater) -> None:
    push(headwater, "a", 9)
    headwater.execute("CREATE QUERY later LIFETIME 3 SECONDS AS SELECT v FROM a WHERE v > 1")
    row = headwater.query("later").row
    assert (row.start_at, row.end_at) == (7 * SECOND, 10 * SECOND)


def test_nothing_is_finished_before_its_time(headwater: Headwater) -> None:
    push(headwater, "a", 1, 13)
    assert end_of(headwater, "short") == 11 * SECOND
    assert ended(headwater, "short") == ([], "running", "running"), "nothing was read"
    read_all(headwater, "short")
    assert ended(headwater, "short") == ([], "running", "running"), "second 11 may still come"


def test_a_query_is_finished_with_its_lifetime_and_the_others_go_on(headwater: Headwater) -> None:
    push(headwater, "a", 1, 14)
    settle_ends(headwater.catalog)
    read_all(headwater, "short")
    assert ended(headwater, "short", watermark=10 * SECOND, idle=False)[0] == []
    assert ended(headwater, "short", watermark=11 * SECOND, idle=False)[0] == ["short"]
    assert ended(headwater, "short") == ([], "finished", "running"), "long goes on in the unit"
    headwater.execute("DROP QUERY long")
    unit = headwater.catalog.units()[0]
    assert is_stopped_for_good(headwater.catalog, unit)
    assert unit.state == "paused"
    with pytest.raises(CatalogError, match="query short is finished and cannot be"):
        headwater.execute("RESUME QUERY short")
    headwater.execute("DROP QUERY short")


def test_a_unit_that_stopped_for_good_takes_no_new_query(headwater: Headwater) -> None:
    headwater.execute("DROP QUERY long")
    push(headwater, "a", 1, 14)
    settle_ends(headwater.catalog)
    read_all(headwater, "short")
    ended(headwater, "short")
    headwater.execute("CREATE QUERY fresh AS SELECT v FROM a")
    assert headwater.query("fresh").row.unit_id != headwater.query("short").row.unit_id


def test_an_end_that_comes_during_a_step_finishes_nothing_yet(headwater: Headwater) -> None:
    """The step knew nothing of it, so that it found nothing to do says nothing."""
    push(headwater, "a", 1)
    read_all(headwater, "long")
    unit = headwater.catalog.unit(headwater.query("long").row.unit_id)
    assert unit is not None
    before = input_streams(headwater.catalog, unit)
    headwater.execute("END STREAM a")
    known = serves(headwater, unit)
    assert finish_queries(headwater.catalog, unit, known, before, None, idle=True) == []
    assert (
        finish_queries(
            headwater.catalog, unit, (), input_streams(headwater.catalog, unit), None, True
        )
        == []
    )
    after = input_streams(headwater.catalog, unit)
    assert finish_queries(headwater.catalog, unit, known, after, None, idle=True) == [
        "long",
        "short",
    ]
    assert headwater.query("short").row.end_at == 11 * SECOND


def test_nothing_is_appended_to_an_ended_stream(headwater: Headwater) -> None:
    """Not by a batch either that was on its way when the end was declared."""
    row = headwater.catalog.stream("a")
    assert row is not None
    headwater.execute("END STREAM a")
    segment = NewSegment(stream_log("a"), "x.parquet", 1, 1, SECOND, SECOND, SECOND)
    with pytest.raises(CatalogError, match="has ended"):
        headwater.catalog.commit(None, segments=[segment], stream_progress=("a", SECOND))
    assert headwater.catalog.segments(stream_log("a")) == []


def test_a_query_is_finished_when_all_its_streams_ended(headwater: Headwater) -> None:
    push(headwater, "a", 1)
    headwater.execute("END STREAM a")
    assert ended(headwater, "long")[0] == [], "nothing was read"
    read_all(headwater, "long")
    assert ended(headwater, "long", watermark=None, idle=False)[0] == []
    settle_ends(headwater.catalog)
    assert ended(headwater, "long")[0] == ["long", "short"]
    assert ended(headwater, "both")[0] == [], "b is open"


def test_a_paused_query_is_not_finished(headwater: Headwater) -> None:
    headwater.execute("PAUSE QUERY long; PAUSE QUERY short; END STREAM a")
    assert ended(headwater, "long") == ([], "paused", "paused")


def test_nothing_can_be_pushed_after_the_end(headwater: Headwater) -> None:
    headwater.execute("END STREAM a")
    with pytest.raises(InputError, match="a has ended"):
        push(headwater, "a", 1)


def test_complete_until(headwater: Headwater) -> None:
    push(headwater, "a", 5)
    row = headwater.catalog.stream("a")
    assert row is not None
    log = stream_log("a")
    assert complete_until([row], {}) is None
    assert complete_until([row], {log: LogPosition(1, 3)}) == 2
    done = replace(row, ended=True)
    assert complete_until([done], {}) is None
    assert complete_until([done], {log: LogPosition(1, 3)}) == FOREVER
    assert complete_until([], {}) == FOREVER


def taken_as_ended(headwater: Headwater) -> None:
    push(headwater, "a", 1, 6)
    headwater.catalog.end_stream("a", reopens=True)
    read_all(headwater, "long")
    settle_ends(headwater.catalog)
    assert ended(headwater, "long")[0] == ["long", "short"]


def test_a_reopened_stream_takes_its_queries_along(headwater: Headwater) -> None:
    taken_as_ended(headwater)
    row = headwater.catalog.stream("a")
    assert row is not None
    unit = headwater.catalog.unit(headwater.query("long").row.unit_id)
    assert unit is not None and not is_stopped_for_good(headwater.catalog, unit)
    reopen_stream(headwater.catalog, row)
    again = headwater.catalog.stream("a")
    assert again is not None
    assert (again.ended, again.reopens, again.watermark) == (False, False, 4 * SECOND)
    assert [headwater.query(name).row.state for name in ("long", "short")] == ["running"] * 2
    after = headwater.catalog.unit(unit.id)
    assert after is not None and after.state == "running"


def test_a_query_whose_lifetime_is_over_stays_so(headwater: Headwater) -> None:
    push(headwater, "a", 1, 20)
    headwater.catalog.end_stream("a", reopens=True)
    read_all(headwater, "long")
    settle_ends(headwater.catalog)
    assert ended(headwater, "long")[0] == ["long", "short"]
    row = headwater.catalog.stream("a")
    assert row is not None
    reopen_stream(headwater.catalog, row)
    assert [headwater.query(name).row.state for name in ("long", "short")] == [
        "running",
        "finished",
    ]


def test_emitted_instants_stay_emitted(headwater: Headwater) -> None:
    taken_as_ended(headwater)
    unit = headwater.query("long").row.unit_id
    headwater.catalog.commit(None, cursors={(unit, "instant"): 10 * SECOND})
    row = headwater.catalog.stream("a")
    assert row is not None
    reopen_stream(headwater.catalog, row)
    again = headwater.catalog.stream("a")
    assert again is not None
    assert again.watermark == 10 * SECOND + 1
    push(headwater, "a", 9, 10, 11)
    after = headwater.catalog.stream("a")
    assert after is not None
    assert (after.late, after.watermark) == (2, 10 * SECOND + 1)
    assert headwater.catalog.segments(stream_log("a"))[-1].watermark == 10 * SECOND + 1


def test_a_stream_that_was_ended_by_a_statement_is_not_reopened(headwater: Headwater) -> None:
    taken_as_ended(headwater)
    headwater.execute("END STREAM a")
    row = headwater.catalog.stream("a")
    assert row is not None and not row.reopens
    unit = headwater.catalog.unit(headwater.query("long").row.unit_id)
    assert unit is not None and is_stopped_for_good(headwater.catalog, unit)


def test_results_wait_until_the_end_is_known(headwater: Headwater) -> None:
    """Otherwise a reader could be shown what turns out to be after the end."""
    from headwater.runtime.inspect.status import Observer
    from headwater.runtime.results import reader

    row = headwater.query("short").row
    segment = NewSegment(f"unit:{row.unit_id}", "x.parquet", 1, 1, 5 * SECOND, 5 * SECOND)
    headwater.catalog.commit(None, segments=[segment])
    table, after = reader.read(headwater.catalog, row)
    assert (table.num_rows, after) == (0, 0)
    assert Observer(headwater.catalog).count_results(row) == 0


def test_a_sink_gets_nothing_before_the_end_is_known(headwater: Headwater, tmp_path: Path) -> None:
    from headwater.runtime.results.sink_progress import pending_deliveries

    headwater.execute(f"""
        CREATE QUERY sent LIFETIME 10 SECONDS TO files(path => '{tmp_path / "out"}', format => 'json')
        AS SELECT v FROM a WHERE v > 0;
    """)
    row = headwater.query("sent").row
    segment = NewSegment(f"unit:{row.unit_id}", "x.parquet", 1, 1, 5 * SECOND, 5 * SECOND)
    headwater.catalog.commit(None, segments=[segment])
    assert pending_deliveries(headwater.catalog) == []
    push(headwater, "a", 5, 9)
    settle_ends(headwater.catalog)
    assert [one.query.name for one in pending_deliveries(headwater.catalog)] == ["sent"]


# ---- on Spark, against the reference


def declare(headwater: Headwater, lateness: int) -> None:
    for stream in (BIDS, ASKS):
        headwater.execute(unparse(CreateStream(replace(stream, lateness=lateness), None)))


@pytest.mark.spark
@pytest.mark.parametrize("lateness", [0, 3 * SECOND])
@pytest.mark.parametrize("kind", ["select", "join", "aggregate", "changes"])
def test_lifetimes_that_begin_with_the_data(
    spark: Any, tmp_path: Path, kind: str, lateness: int
) -> None:
    data = sample(3)
    query = parse_query(KINDS[kind], SOURCES)
    lifetime = 5 * SECOND
    read = {scan.lower() for scan in ("bids", "asks") if scan in KINDS[kind]}
    first = min(row[-1] for name, rows in data.items() if name.lower() in read for row in rows)
    wanted = expected(query, data, {}, end=first + lifetime)
    assert wanted and wanted != expected(query, data, {})
    for seed in (None, 1, 2):
        with opened(tmp_path / f"state {seed}", spark) as headwater:
            declare(headwater, lateness)
            headwater.execute(unparse(CreateQuery("q", query, lifetime=lifetime)))
            if seed is None:
                for name, rows in data.items():
                    headwater.push(name, rows, timestamp_unit="us")
                    headwater.execute(f"END STREAM {name}")
                settle(headwater)
            else:
                feed(headwater, random.Random(seed), data)
            assert result_rows(headwater, "q", query) == wanted
            assert headwater.query("q").row.state == "finished"


def check_lifetime(
    spark: Any, query: Query, streams: Rows, tables: Rows, lifetime: int, seed: int
) -> None:
    """A query with a lifetime, accepted before any data, in random pieces."""
    tables = as_csv_keeps(tables)
    note(unparse(query))
    read = {node.stream.lower() for node in walk_relations(query.root) if isinstance(node, Scan)}
    times = [row[-1] for name, rows in streams.items() if name.lower() in read for row in rows]
    end = min(times) + lifetime if times else None
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder) / "state", spark) as headwater,
    ):
        declare_with_tables(headwater, Path(folder) / "items", tables)
        headwater.execute(unparse(CreateQuery("q", query, lifetime=lifetime)))
        feed(headwater, random.Random(seed), streams)
        assert result_rows(headwater, "q", query) == expected(query, streams, tables, end=end)
        assert headwater.query("q").row.state == "finished"


@pytest.mark.spark
@given(queries(), streams(), tables(), st.integers(1, 10 * SECOND), st.integers(0, 2**32))
@settings(QUIET, max_examples=4)
def test_random_lifetimes(
    spark: Any, query: Query, streams: Rows, tables: Rows, lifetime: int, seed: int
) -> None:
    check_lifetime(spark, query, streams, tables, lifetime, seed)


@pytest.mark.spark
@pytest.mark.slow
@given(queries(), streams(), tables(), st.integers(1, 10 * SECOND), st.integers(0, 2**32))
@settings(QUIET, max_examples=200)
def test_random_lifetimes_in_the_long_run(
    spark: Any, query: Query, streams: Rows, tables: Rows, lifetime: int, seed: int
) -> None:
    check_lifetime(spark, query, streams, tables, lifetime, seed)


@pytest.mark.spark
def test_a_lifetime_ends_while_its_streams_go_on(spark: Any, tmp_path: Path) -> None:
    data = sample(5)
    kinds = ("select", "join", "aggregate", "changes")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in kinds}
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, 0)
        for name, query in found.items():
            headwater.execute(unparse(CreateQuery(name, query, lifetime=3 * SECOND)))
        for at in range(0, len(data["Bids"]), 10):
            for name, rows in data.items():
                headwater.push(name, rows[at : at + 10], timestamp_unit="us")
            settle(headwater)
        assert {row.state for row in headwater.catalog.queries()} == {"finished"}
        assert {row.state for row in headwater.catalog.units()} == {"paused"}
        assert not headwater.engine.tick(), "nothing is left to do"
        for name, query in found.items():
            first = min(row[-1] for rows in data.values() for row in rows)
            if name != "join":
                first = min(row[-1] for row in data["Bids"])
            assert result_rows(headwater, name, query) == expected(
                query, data, {}, end=first + 3 * SECOND
            ), name
        log = stream_log("bids")
        before = len(headwater.catalog.segments(log))
        far = max(row[-1] for row in data["Bids"]) + 2 * BIDS.keep
        headwater.push("Bids", [(1, 1, 1.0, "a", far)], timestamp_unit="us")
        headwater.engine.tidy()
        assert len(headwater.catalog.segments(log)) < before, "a finished query holds nothing back"
        for name in kinds:
            headwater.execute(f"DROP QUERY `{name}`")


class Folders:
    """The streams of `strategies` as folders of CSV files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def declare(self, headwater: Headwater, lateness: int = 0) -> None:
        for stream in (BIDS, ASKS):
            options = (("path", str(self.root / stream.name)), ("format", "csv"))
            declared = CreateStream(replace(stream, lateness=lateness), Connector("files", options))
            headwater.execute(unparse(declared))

    def add(self, data: Rows) -> None:
        from headwater.algebra.times import format_timestamp

        for stream in (BIDS, ASKS):
            self.count += 1
            (self.root / stream.name).mkdir(parents=True, exist_ok=True)
            file = self.root / stream.name / f".{self.count:04}.csv"
            with file.open("w", newline="") as opened_file:
                writer = csv.writer(opened_file)
                writer.writerow(stream.schema.names)
                for row in data[stream.name]:
                    writer.writerow([*row[:-1], format_timestamp(row[-1])])
            file.rename(file.with_name(file.name[1:]))


REOPENED = ("join", "aggregate", "changes", "distinct", "rows", "anti")


@pytest.mark.spark
@pytest.mark.parametrize("lateness", [0, 2 * SECOND])
def test_files_that_arrive_after_the_end_are_ingested(
    spark: Any, tmp_path: Path, lateness: int
) -> None:
    """Run until idle three times; the results are the reference's over all that was not refused."""
    data = sample(9, 60)
    folders = Folders(tmp_path / "in")
    found: dict[str, Query] = {kind: parse_query(KINDS[kind], SOURCES) for kind in REOPENED}
    bounds = [0, 4 * SECOND, 8 * SECOND, 100 * SECOND]
    for number, (low, high) in enumerate(itertools.pairwise(bounds)):
        folders.add({n: [r for r in rows if low <= r[-1] < high] for n, rows in data.items()})
        with opened(tmp_path / "state", spark, holder=f"h{number}") as headwater:
            if number == 0:
                folders.declare(headwater, lateness)
                for name, query in found.items():
                    headwater.execute(unparse(CreateQuery(name, query)))
            headwater.run(until_idle=True)
            assert {row.state for row in headwater.catalog.queries()} == {"finished"}
            assert {row.state for row in headwater.catalog.units()} == {"paused"}
            taken = accepted(headwater)
            for name, query in found.items():
                assert result_rows(headwater, name, query) == expected(query, taken, {}), name
    refused = sum(map(len, data.values())) - sum(map(len, taken.values()))
    with open_state(tmp_path / "state") as headwater:
        late = sum(row.late for row in headwater.catalog.streams())
    assert refused == late > 0, "the tuples up to the last instant that was emitted"
    assert all(len(rows) > 30 for rows in taken.values())


def accepted(headwater: Headwater) -> Rows:
    """What is in the logs, in the order of arrival."""
    from headwater.runtime.storage import segment_files

    found: Rows = {}
    for stream in (BIDS, ASKS):
        segments = headwater.catalog.segments(stream_log(stream.name))
        rows = [r for s in segments if s.rows for r in segment_files.read_arrow(s).to_pylist()]
        rows.sort(key=lambda row: row["_arrival"])
        names = stream.schema.names
        found[stream.name] = [(*(r[n] for n in names[:-1]), r["_ts"]) for r in rows]
    return found


@pytest.mark.spark
def test_without_instants_only_lateness_refuses(spark: Any, tmp_path: Path) -> None:
    """A query that emits results as soon as tuples arrive closes no time."""
    data = sample(4, 60)
    folders = Folders(tmp_path / "in")
    kinds = ("select", "join", "sliding join")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in kinds}
    with opened(tmp_path / "state", spark) as headwater:
        folders.declare(headwater)
        for name, query in found.items():
            headwater.execute(unparse(CreateQuery(name, query)))
        for low, high in ((0, 20), (20, 45), (45, 60)):
            folders.add({name: rows[low:high] for name, rows in data.items()})
            headwater.run(until_idle=True)
        for name, query in found.items():
            assert result_rows(headwater, name, query) == expected(query, data, {}), name
        assert sum(row.late for row in headwater.catalog.streams()) == 0


@pytest.mark.spark
@pytest.mark.parametrize("point", ["ingest: written", "ingest: committed", "unit: committed"])
def test_a_crash_while_a_stream_is_reopened(spark: Any, tmp_path: Path, point: str) -> None:
    data = sample(6, 40)
    folders = Folders(tmp_path / "in")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in ("join", "aggregate")}
    bounds = [0, 6 * SECOND, 100 * SECOND]
    for low, high in itertools.pairwise(bounds):
        folders.add({n: [r for r in rows if low <= r[-1] < high] for n, rows in data.items()})
        crash = stop_at(point, 1) if low else lambda met: None
        with opened(tmp_path / "state", spark, at_point=crash, holder=f"h{low}") as headwater:
            if not low:
                folders.declare(headwater)
                for name, query in found.items():
                    headwater.execute(unparse(CreateQuery(name, query)))
            with pytest.raises(Stop) if low else nullcontext():
                headwater.run(until_idle=True)
    with opened(tmp_path / "state", spark) as headwater:
        headwater.run(until_idle=True)
        taken = accepted(headwater)
        for name, query in found.items():
            assert result_rows(headwater, name, query) == expected(query, taken, {}), name
        assert {row.state for row in headwater.catalog.queries()} == {"finished"}
        late = sum(row.late for row in headwater.catalog.streams())
        assert sum(map(len, taken.values())) + late == sum(map(len, data.values()))


@pytest.mark.spark
def test_a_query_that_is_new_when_a_stream_is_reopened(spark: Any, tmp_path: Path) -> None:
    """It would find the stream ended, if it stepped before the stream is reopened."""
    data = sample(2, 40)
    folders = Folders(tmp_path / "in")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in ("join", "changes", "global")}
    with opened(tmp_path / "state", spark) as headwater:
        folders.declare(headwater)
        for (name, query), low in zip(found.items(), (0, 4, 8), strict=True):
            headwater.execute(unparse(CreateQuery(name, query, start=EARLIEST)))
            bounds = (low * SECOND, (low + 4) * SECOND if low < 8 else 100 * SECOND)
            folders.add(
                {n: [r for r in rows if bounds[0] <= r[-1] < bounds[1]] for n, rows in data.items()}
            )
            headwater.run(until_idle=True)
        taken = accepted(headwater)
        for name, query in found.items():
            assert result_rows(headwater, name, query) == expected(query, taken, {}), name
        assert {row.state for row in headwater.catalog.queries()} == {"finished"}
