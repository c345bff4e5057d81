"""Which instants are due: against all instants walked one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.nodes import Scan
from headwater.algebra.types import INT, TIMESTAMP, Field, Schema
from headwater.algebra.windows import Range
from headwater.runtime.catalog import Segment
from headwater.runtime.catalog.records import INSTANTS
from headwater.runtime.compile.evaluation_times import (
    due_instants,
    earliest_last_instant,
    instants_cursor,
    last_instants,
    reset_new_slides,
    scanned_tuples,
)
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import TIME

SCHEMA = Schema((Field("v", INT), Field("ts", TIMESTAMP)))
TIMES = st.lists(
    st.one_of(st.integers(0, 60), st.sampled_from([500, 501, 3_000])), min_size=1, max_size=6
)


def written(folder: str, times: list[int]) -> Segment:
    table = pa.table({TIME: pa.array(times, pa.int64())})
    file = segment_files.write_arrow(table, Path(folder), (TIME, TIME))
    assert file is not None
    return Segment(
        **dict.fromkeys(Segment.__dataclass_fields__)
        | {"path": file.path, "rows": file.rows, "bytes": file.bytes, "id": 1, "seq": 1}
        | {"least_time": file.least_time, "largest_time": file.largest_time}
    )


def walked(slides: frozenset[int], times: list[int], before: int | None, ready: int) -> list[int]:
    first = min(times) if before is None else before + 1
    end = min(ready, max(-(-max(times) // slide) * slide for slide in slides))
    return [t for t in range(first, end + 1) if any(t % slide == 0 for slide in slides)]


def is_quiet(window: Range, times: list[int], instant: int, slides: frozenset[int]) -> bool:
    """Whether a window is empty at an instant and was at the one before."""
    assert window.slide is not None and window.size is not None
    before = max((instant - 1) // slide * slide for slide in slides)

    def holds(t: int) -> bool:
        at = t // window.slide * window.slide
        return any(at - window.size <= time <= at for time in times)

    return not holds(instant) and not holds(before)


@settings(deadline=None)
@given(
    TIMES,
    st.integers(0, 20),
    st.sampled_from([1, 2, 3, 5, 10]),
    st.sets(st.sampled_from([1, 2, 3, 4, 10]), min_size=1, max_size=2),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 80)),
    st.integers(0, 4_000),
    st.integers(1, 40),
)
def test_only_quiet_instants_are_left_out(
    times: list[int],
    size: int,
    slide: int,
    others: set[int],
    always: bool,
    before: int | None,
    ready: int,
    limit: int,
) -> None:
    slides, coarse = frozenset((slide,)), frozenset((*others, slide))
    with tempfile.TemporaryDirectory() as folder:
        window = Range(size, slide)
        scan = Scan("s", SCHEMA, "ts", window, "s")
        tuples = [scanned_tuples(scan, [written(folder, times)], None)]
        rhythms = {slides: always, coarse: always}
        due, more = due_instants(rhythms, tuples, dict.fromkeys(rhythms, before), ready, limit)
    last = max((one.instants[-1] for one in due.values() if one.instants), default=None)
    for rhythm, one in due.items():
        every = walked(rhythm, times, before, ready)
        found = list(one.instants)
        assert found == sorted(set(found)) and set(found) <= set(every)
        assert len(found) <= limit
        until = last if more and last is not None else max(every, default=0)
        missed = {t for t in every if t <= until} - set(found)
        assert not (always and missed)
        assert all(is_quiet(window, times, t, rhythm) for t in missed)


def test_each_set_of_slides_goes_on_from_where_it_was() -> None:
    fine, coarse = frozenset((1,)), frozenset((10,))
    with tempfile.TemporaryDirectory() as folder:
        scan = Scan("s", SCHEMA, "ts", Range(60, 1), "s")
        tuples = [scanned_tuples(scan, [written(folder, [2])], None)]
        rhythms = {fine: True, coarse: True}
        due, more = due_instants(rhythms, tuples, {fine: None, coarse: None}, 2**62, 100)
        assert {s: list(d.instants) for s, d in due.items()} == {fine: [2], coarse: [10]}
        cursors = {"instant": 10, "instants": instants_cursor(due, more)}
        assert last_instants(rhythms, cursors) == {fine: 2, coarse: 10}
        assert earliest_last_instant(rhythms, cursors) == 2
        assert last_instants({frozenset((5,)): True}, cursors) == {frozenset((5,)): 10}


def test_an_event_of_a_far_year_is_not_walked_to() -> None:
    """Thousands of years of empty windows lie between the two events."""
    minute, far = 60_000_000, 253_402_300_000_000_000
    slides = frozenset((minute,))
    with tempfile.TemporaryDirectory() as folder:
        scan = Scan("s", SCHEMA, "ts", Range(10 * minute, minute), "s")
        tuples = [scanned_tuples(scan, [written(folder, [5 * minute, far])], None)]
        due, more = due_instants({slides: False}, tuples, {slides: None}, 2**62, 1_000)
        assert not more and 10 < len(due[slides].instants) < 20
        _, more = due_instants({slides: True}, tuples, {slides: None}, 2**62, 1_000)
        assert more


@settings(deadline=None)
@given(TIMES, st.integers(1, 20), st.integers(0, 80), st.booleans())
def test_a_new_set_of_slides_has_an_instant_behind_it_only_if_a_tuple_had_come(
    times: list[int], slide: int, came_to: int, is_known: bool
) -> None:
    cursors = {"instant": came_to}
    if is_known:
        cursors[INSTANTS] = {"reached": {str(slide): came_to}, "more": False}
    slides = frozenset([slide])
    scan = Scan("s", SCHEMA, "ts", Range(slide, slide), "s")
    with tempfile.TemporaryDirectory() as folder:
        tuples = [scanned_tuples(scan, [written(folder, times)], None)]
        at = reset_new_slides(last_instants({slides: False}, cursors), cursors, tuples)
    had_one = any(t % slide == 0 for t in range(min(times), came_to + 1))
    assert at == {slides: came_to if is_known or had_one else None}
