"""The engine on Spark gives what the reference evaluator gives, whatever the cuts and crashes."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_helpers import (
    Rows,
    Stop,
    as_csv_keeps,
    declare,
    expected,
    feed,
    opened,
    pieces,
    settle,
    stop_at,
    submit,
    told,
)
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from sample_queries import KINDS, QUIET, TABLES, sample

from headwater.algebra.nodes import Query
from headwater.cql import parse_query, unparse
from headwater.runtime.catalog import unit_log
from headwater.runtime.compile import frames
from headwater.runtime.maintenance.stream_logs import sweep_orphans
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.segment_files import describe, drop_empty_batches
from strategies import SOURCES, queries, streams, tables

pytestmark = pytest.mark.spark


def check(
    spark: Any, query: Query, streams: Rows, tables: Rows, seed: int, catalog: str | None = None
) -> None:
    check_all(spark, [query], streams, tables, seed, catalog)


def check_all(
    spark: Any,
    queries: Sequence[Query],
    streams: Rows,
    tables: Rows,
    seed: int,
    catalog: str | None = None,
) -> None:
    """Queries over the same tuples at once; each must have what it would have alone."""
    tables = as_csv_keeps(tables)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with opened(state / "state", spark, catalog) as headwater:
            declare(headwater, state / "items", tables)
            for n, query in enumerate(queries):
                submit(headwater, f"q{n}", query)
            feed(headwater, random.Random(seed), streams)
            for n, query in enumerate(queries):
                wanted = expected(query, streams, tables)
                assert told(headwater, f"q{n}", query) == wanted, unparse(query)


@given(queries(), streams(), tables(), st.integers(0, 2**32))
@settings(QUIET, max_examples=12)
def test_random_queries(spark: Any, query: Query, streams: Rows, tables: Rows, seed: int) -> None:
    check(spark, query, streams, tables, seed)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_table_of_which_no_column_is_told(spark: Any, tmp_path: Path, format: str) -> None:
    """Its malformed rows still do not count, though nobody asks for the column they spoil."""
    lines = {
        "csv": "item,label\n1,a\n2,b\nspoilt,c\n",
        "json": '{"item": 1, "label": "a"}\n{"item": 2}\n{"item": "spoilt", "label": "c"}\n',
    }
    folder = tmp_path / "items"
    folder.mkdir()
    (folder / f"items.{format}").write_text(lines[format])
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE TABLE items (item INT, label STRING)
                FROM files(path => '{folder}', format => '{format}');
            CREATE QUERY crossed AS SELECT v FROM s CROSS JOIN items;
            """)
        headwater.push("s", [{"v": 7, "ts": "2026-01-01T00:00:00Z"}], timestamp_unit="us")
        headwater.run(until_idle=True)
        assert [row["v"] for row in headwater.query("crossed").results()] == [7, 7]


def test_a_table_has_another_version_when_its_files_are_others(spark: Any, tmp_path: Path) -> None:
    """A step joins with what the table holds then, and says which version that was."""
    file = tmp_path / "t.csv"
    file.write_text("k,label\n1,old\n")
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE TABLE t (k INT, label STRING) FROM files(path => '{file}', format => 'csv');
            CREATE QUERY q AS SELECT t.label FROM s [NOW], t WHERE s.k = t.k;
        """)
        said = []
        for at, label in enumerate(("old", "old", "new")):
            file.write_text(f"k,label\n1,{label}\n") if label == "new" else None
            headwater.push("s", [(1, at * 1_000_000)], timestamp_unit="us")
            settle(headwater)
            (table,) = headwater.catalog.tables()
            said.append((table.version, headwater.query("q").placement().tables))
        assert said == [(1, {"t": 1}), (1, {"t": 1}), (2, {"t": 2})]
        assert "tables    t, version 2" in headwater.query("q").explain()
        rows = headwater.query("q").results()
        assert [row["label"] for row in rows] == ["old", "old", "new"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_random_queries_in_the_long_run(spark: Any, part: int) -> None:
    """A thousand and more, twenty at once."""
    seen = []

    @given(
        st.lists(queries(), min_size=20, max_size=20), streams(), tables(), st.integers(0, 2**32)
    )
    @settings(QUIET, max_examples=6)
    @seed(part)
    def some(asked: list[Query], streams: Rows, tables: Rows, chance: int) -> None:
        seen.append(len(asked))
        check_all(spark, asked, streams, tables, chance)

    some()
    assert sum(seen) >= 100


def test_results_with_an_empty_batch_become_a_frame_whole(spark: Any, tmp_path: Path) -> None:
    """PySpark takes an empty batch of an Arrow table for its end."""
    parts = [pa.table({"v": pa.array(values, pa.int32())}) for values in ([1, 2], [], [3])]
    table = drop_empty_batches(pa.concat_tables(parts))
    assert [batch.num_rows for batch in table.to_batches()] == [2, 1]
    assert (
        table.schema == parts[0].schema and drop_empty_batches(parts[1]).schema == parts[1].schema
    )
    with opened(tmp_path, spark) as headwater:
        headwater.execute("""
            CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE QUERY q AS SELECT v FROM s;
            """)
        for moment in range(3):
            headwater.push("s", [(moment, moment)], timestamp_unit="us")
            headwater.engine.tick()
        log = unit_log(headwater.query("q").row.unit_id)
        (_, middle, _) = headwater.catalog.segments(log)
        written = pq.read_table(middle.path)
        other = tmp_path / "other.parquet"
        with pq.ParquetWriter(other, written.schema) as writer:
            for rows in (written[:0], written, written[:0]):
                writer.write_table(rows)
        described = describe(other, ("_tau", "_tau"))
        assert described is not None
        headwater.catalog.replace_segments(None, [middle.id], build_segment(log, described, None))
        found = spark.createDataFrame(headwater.query("q").arrow())
        assert sorted(row.v for row in found.collect()) == [0, 1, 2]


# ---- one of each kind, and crashes


def test_every_kind_of_query_at_once(spark: Any, tmp_path: Path) -> None:
    check_every_kind(spark, tmp_path)


def check_every_kind(spark: Any, tmp_path: Path, catalog: str | None = None) -> None:
    data = sample(7)
    found = {name: parse_query(text, SOURCES) for name, text in KINDS.items()}
    with opened(tmp_path / "state", spark, catalog) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in found.items():
            submit(headwater, name, query)
        feed(headwater, random.Random(1), data)
        for name, query in found.items():
            assert told(headwater, name, query) == expected(query, data, TABLES), name
            assert expected(query, data, TABLES), f"{name}: nothing was compared"


BANDED = (
    KINDS["join"],
    KINDS["sliding join"],
    KINDS["self-join"],
    "SELECT b.item, a.item AS other FROM bids [RANGE 1 SEC] b, asks [NOW] a WHERE b.item < a.item",
    """SELECT b.bidder, a.note, c.note AS third FROM bids [RANGE 1 SEC] b, asks [RANGE 2 SEC] a,
        asks [RANGE 500 MILLISECONDS] c, items i WHERE b.item = a.item AND c.note = a.note AND i.item = b.item""",
    """SELECT b.item, a.note, u.item AS old FROM bids [RANGE 1 SEC] b, asks [RANGE 1 SEC] a,
        asks [RANGE UNBOUNDED] u WHERE b.item = a.item AND u.item = b.item""",
    """SELECT b.item, COUNT(*) AS n FROM bids [RANGE 1 SEC SLIDE 1 SEC] b, asks [RANGE 1 SEC SLIDE 1 SEC] a
        WHERE b.item = a.item GROUP BY b.item""",
)


def test_joins_by_bands_of_time(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a long delta is joined, with few rows; also of times before the epoch."""
    banded: list[str] = []
    bands_of = frames._choose_bands

    def bands(*given: Any) -> Any:
        found = bands_of(*given)
        banded.extend(found)
        return found

    for name in ("BANDED_ROWS", "BANDED_SPAN", "BANDED_MET"):
        monkeypatch.setattr(frames, name, 0)
    monkeypatch.setattr(frames, "_choose_bands", bands)
    data = {
        name: [(*row[:-1], row[-1] - 6_000_000) for row in rows]
        for name, rows in sample(1, size=60).items()
    }
    check_all(spark, [parse_query(text, SOURCES) for text in BANDED], data, TABLES, seed=1)
    assert len(banded) >= 7


POINTS = ["unit: written", "unit: committed"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_loses_and_doubles_nothing(spark: Any, tmp_path: Path, point: str) -> None:
    check_crashes(spark, tmp_path, point)


def check_crashes(spark: Any, tmp_path: Path, point: str, catalog: str | None = None) -> None:
    data = sample(11)
    kinds = ("join", "aggregate", "anti")
    found = {name: parse_query(KINDS[name], SOURCES) for name in kinds}
    rng = random.Random(point)
    left = pieces(rng, data)
    with opened(tmp_path / "state", spark, catalog) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in found.items():
            submit(headwater, name, query)
    crashes = 0
    while left:
        name, rows = left.pop(0)
        crash = stop_at(point, rng.randint(1, 3))
        options = {"at_point": crash, "holder": f"h{len(left)}"}
        with opened(tmp_path / "state", spark, catalog, **options) as headwater:
            headwater.push(name, rows, timestamp_unit="us")
            try:
                settle(headwater)
            except Stop:
                crashes += 1
    assert crashes
    with opened(tmp_path / "state", spark, catalog) as headwater:
        headwater.execute("END STREAM bids; END STREAM asks")
        settle(headwater)
        for name, query in found.items():
            assert told(headwater, name, query) == expected(query, data, TABLES), name
        sweep_orphans(headwater.catalog, headwater.state, grace=-1)
        named = {str(Path(path).resolve()) for path in headwater.catalog.all_paths()}
        there = {str(p.resolve()) for p in (tmp_path / "state" / "log").glob("*/*/*")}
        assert there == named


# ---- files


def test_files_late_and_malformed(spark: Any, tmp_path: Path) -> None:
    """Two files: the second brings a record that is late, and some that are no records."""
    inbox = tmp_path / "in"
    inbox.mkdir()

    def line(item: Any, second: int) -> str:
        return json.dumps({"item": item, "ts": f"2026-01-01T00:00:{second:02}Z"})

    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (item INT NOT NULL, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 5 SECONDS
              FROM files(path => '{inbox}', format => 'json');
            CREATE QUERY q AS SELECT item FROM s;
            """)
        (inbox / "1.jsonl").write_text("\n".join([line(1, 10), line(2, 20)]))
        settle(headwater)
        bad = ["{not json", line(None, 21), '{"item": 5}', line(3, 14), line(4, 15), line(6, 16)]
        (inbox / "2.jsonl").write_text("\n".join(bad))
        settle(headwater)
        rows = [row["item"] for row in headwater.query("q").results()]
        stream = headwater.catalog.stream("s")
        assert stream is not None
        assert sorted(rows) == [1, 2, 4, 6]
        assert (stream.malformed, stream.late) == (3, 1)
        reasons = [reject.reason for reject in headwater.catalog.rejects("s")]
        assert sorted(reason.split(":")[0] for reason in reasons) == [
            *("item is NULL", "late", "not JSON", "ts is NULL")
        ]
        settle(headwater)
        assert len(list(headwater.query("q").results())) == 4


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_formats_of_files(spark: Any, tmp_path: Path, format_: str) -> None:
    rows = [(1, 1.5, "a", 1_000_000), (2, None, "b, c", 2_500_000), (3, 0.25, None, 3_000_000)]
    inbox = tmp_path / "in"
    frame = spark.createDataFrame(rows, "v INT, d DOUBLE, s STRING, us BIGINT")
    frame = frame.selectExpr("s", "v", "d", "timestamp_micros(us) AS ts").coalesce(1)
    frame.write.format(format_).option("header", "true").save(str(inbox))
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (v INT, d DOUBLE, s STRING, ts TIMESTAMP) TIMESTAMP BY ts
              FROM files(path => '{inbox}', format => '{format_}');
            CREATE QUERY q AS SELECT v, d, s FROM s;
            """)
        settle(headwater)
        found = sorted((r["v"], r["d"], r["s"]) for r in headwater.query("q").results())
        assert found == [(1, 1.5, "a"), (2, None, "b, c"), (3, 0.25, None)]
