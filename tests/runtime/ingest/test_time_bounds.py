"""Events too far from the clock are refused with the reason, and move no watermark; and a warning is
given when much of what comes is late or refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_helpers import Clock
from engine_helpers import expected, opened, result_rows, settle
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.catalog import Stream
from headwater.algebra.times import format_timestamp, parse_timestamp
from headwater.cql import CreateQuery, CreateStream, parse
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import BatchRejects, Statistic
from headwater.runtime.ingest.client_push import push
from headwater.runtime.ingest.share_alarms import (
    MIN_ROWS,
    SHARE_SECONDS,
    recent_counts,
    share_alarms,
)
from headwater.runtime.ingest.time_bounds import LATE, EventTimeBounds
from headwater.runtime.settings import Settings

NOW = parse_timestamp("2026-11-01T12:00:00Z")
MINUTE = 60_000_000
HOUR = 60 * MINUTE
S = "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 1 MINUTE {} FROM {}"


def stream(clauses: str = "", source: str = "CLIENT") -> Stream:
    (declared,) = parse(S.format(clauses, source))
    assert isinstance(declared, CreateStream)
    return declared.stream


@pytest.mark.parametrize(
    ("clauses", "source", "ahead", "behind"),
    [
        ("", "CLIENT", HOUR, None),
        ("", "kafka(servers => 'b:1', topic => 't')", HOUR, None),
        ("", "socket(host => 'h', port => 1)", HOUR, None),
        ("", "rate(rows_per_second => 1)", HOUR, None),
        ("", "files(path => 'in')", None, None),
        ("", "replay(path => 'in')", None, None),
        ("AHEAD UNBOUNDED", "CLIENT", None, None),
        ("AHEAD 5 MIN BEHIND 1 HOUR", "files(path => 'in')", 5 * MINUTE, HOUR),
    ],
)
def test_what_holds_if_nothing_is_said(
    clauses: str, source: str, ahead: int | None, behind: int | None
) -> None:
    declared = stream(clauses, source)
    assert (declared.ahead, declared.behind) == (ahead, behind)


@given(
    st.integers(-3 * HOUR, 3 * HOUR),
    st.none() | st.integers(0, 2 * HOUR),
    st.none() | st.integers(0, 2 * HOUR),
    st.none() | st.integers(-2 * HOUR, 2 * HOUR),
)
def test_the_bounds_say_why(
    off: int, ahead: int | None, behind: int | None, mark: int | None
) -> None:
    declared = Stream("s", stream().schema, "ts", 0, 0, ahead, behind)
    bounds = EventTimeBounds.of(declared, None if mark is None else NOW + mark, NOW / 1e6)
    why = bounds.rejection_reason(NOW + off)
    if ahead is not None and off > ahead:
        assert why is not None and "ahead of the clock" in why and "AHEAD" in why
    elif behind is not None and -off > behind:
        assert why is not None and "behind the clock" in why and "BEHIND" in why
    else:
        assert why == (LATE if mark is not None and off < mark else None)


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as opened:
        yield opened


def send(headwater: Headwater, *times: int) -> int:
    declared = headwater.definitions.streams["s"].stream
    rows = [(n, at) for n, at in enumerate(times)]
    return push(headwater.catalog, headwater.state, declared, rows, "us", lambda: NOW / 1e6)


def test_an_event_of_the_year_9999_moves_nothing(headwater: Headwater) -> None:
    headwater.execute(S.format("", "CLIENT"))
    wrong = parse_timestamp("9999-12-31T00:00:00Z")
    assert send(headwater, NOW, wrong, NOW + HOUR, NOW + HOUR + 1, NOW - MINUTE) == 3
    row = headwater.catalog.stream("s")
    assert row is not None and row.max_event_time == NOW + HOUR
    assert (row.malformed, row.late) == (2, 0)
    reasons = {reject.reason for reject in headwater.catalog.rejects("s")}
    clock = format_timestamp(NOW)
    assert reasons == {f"more than 1 HOUR ahead of the clock, {clock}; see AHEAD of CREATE STREAM"}
    assert send(headwater, NOW + HOUR, NOW) == 1 and headwater.catalog.stream("s").late == 1  # type: ignore[union-attr]


def test_bounds_can_be_taken_off_and_set(headwater: Headwater) -> None:
    headwater.execute(S.format("AHEAD UNBOUNDED BEHIND 1 HOUR", "CLIENT"))
    assert send(headwater, 0, NOW - HOUR - 1, NOW - HOUR, NOW + 1000 * HOUR) == 2
    (behind,) = {reject.reason for reject in headwater.catalog.rejects("s")}
    assert behind.startswith("more than 1 HOUR behind the clock, ")


@pytest.mark.spark
@pytest.mark.parametrize("format", ["json", "csv"])
def test_results_are_those_over_the_ingested_tuples(
    spark: Any, tmp_path: Path, format: str
) -> None:
    """Read by the driver and by Spark."""
    times = [NOW, NOW + MINUTE, NOW + 5 * HOUR, NOW + 2 * MINUTE, 0, NOW + 9 * MINUTE]
    records = [{"a": n, "ts": format_timestamp(at)} for n, at in enumerate(times)]
    (tmp_path / "in").mkdir()
    lines = [json.dumps(record) for record in records]
    if format == "csv":
        lines = ["a,ts", *(f"{record['a']},{record['ts']}" for record in records)]
    (tmp_path / "in" / "one").write_text("\n".join(lines) + "\n")
    clock = Clock()
    clock.now = NOW / 1e6
    source = f"files(path => '{tmp_path}/in', format => '{format}')"
    text = f"""{S.format("AHEAD 1 HOUR BEHIND 1 DAY", source)};
        CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 2 MINUTES SLIDE 1 MINUTE]"""
    query = parse(text)[1]
    assert isinstance(query, CreateQuery)
    with opened(tmp_path / "state", spark, clock=clock) as headwater:
        headwater.execute(text)
        settle(headwater)
        headwater.execute("END STREAM s")
        settle(headwater)
        row = headwater.catalog.stream("s")
        assert row is not None and (row.malformed, row.late) == (2, 0)
        kept = [(n, at) for n, at in enumerate(times) if 0 < at < NOW + 5 * HOUR]
        assert result_rows(headwater, "q", query.query) == expected(query.query, {"s": kept}, {})


# ---- warnings


def test_a_warning_comes_once_and_again_after_it_was_over(
    headwater: Headwater, caplog: pytest.LogCaptureFixture
) -> None:
    headwater.execute(S.format("", "CLIENT"))
    headwater.execute("SET late_share = 0.25")

    def kinds() -> list[str]:
        found = [event.kind for event in headwater.catalog.events(subject="s")]
        return [kind for kind in found if kind.endswith("-share")]

    send(headwater, *[NOW] * 60)
    send(headwater, *[NOW - HOUR] * 15)
    assert kinds() == [], "a fifth"
    send(headwater, *[NOW - HOUR] * 30)
    send(headwater, *[NOW - HOUR] * 30)
    assert kinds() == ["late-share"]
    send(headwater, *[NOW] * 2000)
    assert kinds() == ["late-share"]
    send(headwater, *[NOW - HOUR] * 4000, *[NOW + 9 * HOUR] * 4000)
    assert sorted(kinds()) == ["late-share", "late-share", "reject-share"]
    (rejects,) = headwater.catalog.events(kind="reject-share")
    assert "ahead of the clock" in rejects.detail["reason"]
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([w for w in warned if w.startswith("stream s: ") and "were late" in w]) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 300)), max_size=30))
def test_a_warning_is_raised_when_the_share_passes_its_limit(
    batches: list[tuple[int, int, float]],
) -> None:
    known: dict[str, Statistic] = {}
    now, raised = 1_000.0, False
    weights: list[tuple[float, int, int]] = []
    for good, late, passed in batches:
        now += passed
        refused = BatchRejects("s", 0, late, ())
        weights.append((now, good + late, late))
        counted = recent_counts(known, good, refused, now)
        alarms, changed = share_alarms(known, counted, Settings(), refused)
        known |= {name: Statistic(v, now) for name, v in (counted | changed).items()}
        fading = [(2.718281828459045 ** ((at - now) / SHARE_SECONDS), n, m) for at, n, m in weights]
        rows, bad = (sum(f[0] * f[k] for f in fading) for k in (1, 2))
        near = abs(rows - MIN_ROWS) < 1e-6 or min(abs(bad - rows * x) for x in (0.1, 0.05)) < 1e-6
        if near:  # either is right
            return
        should = not raised and rows >= MIN_ROWS and bad > 0.1 * rows
        assert [alarm.kind for alarm in alarms] == (["late-share"] if should else [])
        raised = should or (raised and bad >= 0.05 * rows)
