"""Taking a watermark back: what was taken in wrongly leaves the log, and queries that read it begin again
as if they were submitted then, which the reference evaluator judges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, result_rows, settle
from typer.testing import CliRunner

from headwater.algebra.times import format_timestamp, parse_timestamp
from headwater.cli import app
from headwater.cql import CreateQuery, parse
from headwater.errors import HeadwaterError
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.storage.columns import TIME
from headwater.runtime.storage.segment_files import read_arrow

T0 = parse_timestamp("2026-03-01T08:00:00Z")
MINUTE = 60_000_000
WRONG = parse_timestamp("9999-01-01T00:00:00Z")
S = """CREATE STREAM s (k INT, a INT, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 1 MINUTE KEEP 2 HOURS
    AHEAD UNBOUNDED FROM CLIENT;"""
QUERIES = {
    "some": "SELECT k, a FROM s [NOW] WHERE a > 3",
    "pairs": "SELECT x.a AS x, y.a AS y FROM s [RANGE 2 MIN] AS x, s [NOW] AS y WHERE x.k = y.k",
    "counts": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 MIN SLIDE 5 MIN] GROUP BY k",
    "latest": "SELECT MAX(a) AS m FROM s [ROWS 3]",
}


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as state:
        state.execute(S)
        yield state


def push(headwater: Headwater, *rows: tuple[int, int, int]) -> int:
    return headwater.push("s", rows, timestamp_unit="us")


def times(headwater: Headwater) -> list[int]:
    segments = headwater.catalog.segments(stream_log("s"))
    return sorted(at for s in segments for at in read_arrow(s)[TIME].to_pylist())


def rewind(headwater: Headwater, to: int, more: str = "") -> str:
    at = format_timestamp(to)
    (said,) = headwater.execute(f"REWIND STREAM s TO TIMESTAMP '{at}' {more}")
    return said


def test_what_nobody_has_read_is_taken_back(headwater: Headwater) -> None:
    push(headwater, (1, 1, T0), (1, 2, WRONG), (1, 3, T0 + MINUTE))
    assert push(headwater, (1, 4, T0 + 2 * MINUTE)) == 0, "all that follows is late"
    before = headwater.catalog.stream("s")
    assert before is not None
    assert "1 tuple moved to its rejects" in rewind(headwater, T0 + MINUTE)
    row = headwater.catalog.stream("s")
    assert row is not None and row.max_event_time == T0 + MINUTE
    assert headwater.catalog.log_ends()[stream_log("s")].watermark == T0
    assert row.malformed == before.malformed + 1
    assert headwater.catalog.log_stats(stream_log("s")).total_rows == 2
    assert times(headwater) == [T0, T0 + MINUTE]
    reasons = [reject.reason for reject in headwater.catalog.rejects("s")]
    assert any(reason.startswith("removed by REWIND STREAM") for reason in reasons)
    assert push(headwater, (1, 4, T0 + 2 * MINUTE)) == 1
    assert "has nothing after" in rewind(headwater, T0 + 2 * MINUTE)
    (event,) = headwater.catalog.events(kind="stream rewound")
    assert event.subject == "s"


def test_all_of_a_stream_can_be_taken_back(headwater: Headwater) -> None:
    push(headwater, (1, 1, WRONG))
    rewind(headwater, T0)
    row = headwater.catalog.stream("s")
    assert row is not None and row.watermark is None and times(headwater) == []
    assert push(headwater, (1, 4, T0)) == 1 and times(headwater) == [T0]


def test_it_is_refused_while_another_process_runs_the_state(headwater: Headwater) -> None:
    push(headwater, (1, 1, WRONG))
    headwater.catalog.acquire("unit:x", "elsewhere:7", 60)
    with pytest.raises(HeadwaterError, match="elsewhere:7 runs this state: stop it"):
        rewind(headwater, T0)
    with pytest.raises(HeadwaterError, match="there is no stream t"):
        headwater.execute("REWIND STREAM t TO TIMESTAMP '2026-01-01'")


def test_from_the_command_line(headwater: Headwater) -> None:
    push(headwater, (1, 1, T0), (1, 2, WRONG))
    place = ["--state", str(headwater.state)]
    done = CliRunner().invoke(app, ["rewind", "s", format_timestamp(T0), *place])
    assert (done.exit_code, "1 tuple moved to its rejects" in done.output) == (0, True), done.output
    done = CliRunner().invoke(app, ["rewind", "t", format_timestamp(T0), *place])
    assert done.exit_code == 1 and "there is no stream t" in done.output


def query_of(name: str) -> CreateQuery:
    query = parse(f"{S} CREATE QUERY {name} AS {QUERIES[name]}")[1]
    assert isinstance(query, CreateQuery)
    return query


def make_rows(rng: random.Random, first: int, count: int) -> list[tuple[int, int, int]]:
    """Tuples after a moment, in order."""
    at = first
    rows = []
    for _ in range(count):
        at += rng.randrange(MINUTE)
        rows.append((rng.randrange(2), rng.randrange(9), at))
    return rows


@pytest.mark.spark
def test_queries_begin_again_as_if_submitted_then(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    good, later = make_rows(rng, T0, 12), make_rows(rng, T0 + 15 * MINUTE, 12)
    until = good[-1][2]
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(S)
        for name, text in QUERIES.items():
            headwater.execute(f"CREATE QUERY {name} AS {text}")
        push(headwater, *good)
        settle(headwater)
        push(headwater, (1, 5, WRONG))
        headwater.engine.tick()
        assert push(headwater, *later) == 0
        with pytest.raises(HeadwaterError, match="RESTART QUERIES starts them again there"):
            rewind(headwater, until)
        said = rewind(headwater, until, "RESTART QUERIES")
        assert "1 tuple moved to its rejects" in said and "started again there: " in said
        assert push(headwater, *later) == len(later)
        settle(headwater)
        headwater.execute("END STREAM s")
        settle(headwater)
        for name in QUERIES:
            query = query_of(name)
            rows = {"s": [*good, *later]}
            want = expected(query.query, rows, {}, start=until, keep={"s": 120 * MINUTE})
            assert result_rows(headwater, name, query.query) == want, name
            assert want
        row = headwater.catalog.query("some")
        assert row is not None and "STARTING" not in row.definition
        headwater.execute(f"CREATE QUERY some AS {QUERIES['some']}")  # the same words are known
