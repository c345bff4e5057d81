"""A delta reads only the segments that can meet it, and a merged segment lies by its join key."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Segment, stream_log
from headwater.runtime.compile import DeltaJoin, compile_query
from headwater.runtime.compile.frames import StepInput, _term_inputs
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.maintenance.stream_logs import (
    LogReader,
    RetainedLog,
    compact_log,
    join_keys,
)
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import stream_folder

JOIN = """SELECT a.v, b.v AS w FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS]
    WHERE a.k = b.k AND a.v < 100"""


@pytest.fixture
def headwater(tmp_path: Path) -> Headwater:
    opened = open_state(tmp_path)
    for name in "ab":
        opened.execute(
            f"CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
        )
    opened.execute(f"CREATE QUERY q AS {JOIN}")
    return opened


def plan_of(headwater: Headwater) -> DeltaJoin:
    plan = compile_query(canonicalize(headwater.definitions.query(JOIN)))
    assert isinstance(plan, DeltaJoin)
    return plan


def push(headwater: Headwater, name: str, rows: list[tuple[int | None, int]]) -> Segment:
    """Rows of a key and a second."""
    headwater.push(
        name,
        [(k, n, second * 1_000_000) for n, (k, second) in enumerate(rows)],
        timestamp_unit="us",
    )
    return headwater.catalog.segments(stream_log(name))[-1]


def test_segments_far_in_time_or_key_are_not_read(headwater: Headwater) -> None:
    with headwater:
        plan = plan_of(headwater)
        early = push(headwater, "b", [(1, 0), (5, 1)])
        other = push(headwater, "b", [(100, 20), (200, 21)])
        met = push(headwater, "b", [(3, 22), (None, 22), (50, 23)])
        delta = push(headwater, "a", [(2, 24), (7, 25)])
        inputs = {}
        for alias, scan in plan.scans:
            is_a = scan.stream.lower() == "a"
            inputs[alias] = StepInput(() if is_a else (early, other, met), (delta,) if is_a else ())
        place = next(n for n, (_, scan) in enumerate(plan.scans) if scan.stream.lower() == "a")
        parts = _term_inputs(plan, inputs, place)
        assert parts is not None
        (theirs,) = [part for alias, part in parts.items() if alias != plan.scans[place][0]]
        assert theirs.segments == (met,)
        assert theirs.ranges == {"k": (2, 7)}
        assert (theirs.least, theirs.largest) == (14_000_000, 35_000_000)


def test_nothing_is_read_where_no_segment_can_be_met(headwater: Headwater) -> None:
    with headwater:
        plan = plan_of(headwater)
        other = push(headwater, "b", [(100, 20), (200, 21)])
        delta = push(headwater, "a", [(2, 24)])
        inputs = {
            alias: StepInput((), (delta,))
            if scan.stream.lower() == "a"
            else StepInput((other,), ())
            for alias, scan in plan.scans
        }
        place = next(n for n, (_, scan) in enumerate(plan.scans) if scan.stream.lower() == "a")
        assert _term_inputs(plan, inputs, place) is None


def test_keys_that_are_all_null_are_not_known(headwater: Headwater) -> None:
    with headwater:
        found = push(headwater, "b", [(None, 20), (None, 21)])
        assert found.keys == {"v": [0, 1]}


def test_merged_segments_lie_by_their_join_key(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 5)
    rng = random.Random(1)
    with headwater:
        log = stream_log("b")
        for second in range(20):
            push(headwater, "b", [(rng.randrange(50), second) for _ in range(3)])
        held = [row for s in headwater.catalog.segments(log) for row in _rows(s)]
        readers = [LogReader(plan_of(headwater), {log: {"seq": 20, "watermark": 0}})]
        assert join_keys(log, readers) == ["k"]
        row = headwater.catalog.stream("b")
        assert row is not None
        folder = stream_folder(headwater.state, "b")
        assert compact_log(
            headwater.catalog, RetainedLog(row, stream_log(row.name), folder), readers, None
        )
        (merged,) = headwater.catalog.segments(log)
        keys = [k for k, _, _ in _rows(merged)]
        assert keys == sorted(keys)
        assert sorted(_rows(merged)) == sorted(held)
        assert merged.keys["k"] == [min(keys), max(keys)]


def _rows(segment: Segment) -> list[tuple[int, int, int]]:
    table = segment_files.read_arrow(segment)
    return list(zip(*(table[c].to_pylist() for c in ("k", "v", "_ts")), strict=True))
