"""Which instants are to be evaluated next.

Queries that share a unit may slide by different lengths, and each set of slides has reached an
instant of its own: when the input ends, the one that slides by ten minutes is evaluated further ahead
than the one that slides by one, which has to go on from where it was if more input arrives after all.
Runs of instants at which all windows are empty, and nothing is emitted, are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Range
from headwater.runtime.catalog import Segment
from headwater.runtime.catalog.records import INSTANTS
from headwater.runtime.compile.plan import SlideSets
from headwater.runtime.compile.windows import FOREVER, last_multiple_of, next_multiple_of
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import TIME


@dataclass(frozen=True)
class DueInstants:
    """The last instant that was evaluated, and those that are to be now."""

    before: int | None
    instants: Sequence[int]


# ---- how far a unit is evaluated


def last_instants(
    slide_sets: SlideSets, cursors: Mapping[str, Any]
) -> dict[frozenset[int], int | None]:
    """The last instant that was emitted for each set of slides; a new set begins after the last of
    all, as no query is accepted that would need an earlier one."""
    recorded = cursors.get(INSTANTS, {"reached": {}})["reached"]
    return {
        slides: recorded.get(_slides_key(slides), cursors.get("instant")) for slides in slide_sets
    }


def earliest_last_instant(slide_sets: SlideSets, cursors: Mapping[str, Any]) -> int | None:
    """The instant after which rows may still be emitted; None if none was evaluated yet."""
    instants = last_instants(slide_sets, cursors).values()
    return None if None in instants else min(t for t in instants if t is not None)


def reset_new_slides(
    evaluated: Mapping[frozenset[int], int | None],
    cursors: Mapping[str, Any],
    tuples: Sequence[ScannedTuples],
) -> dict[frozenset[int], int | None]:
    """The same, but None for a set of slides that is new and has no instant yet: no tuple had arrived
    by the last multiple of its slides. An aggregate of all tuples would else be NULL or 0 there."""
    recorded = cursors.get(INSTANTS, {"reached": {}})["reached"]
    segments = [(s, scanned.since) for scanned in tuples for s in scanned.segments]
    adjusted = dict(evaluated)
    for slides, time in evaluated.items():
        last = last_instant_until(slides, time)
        if (
            _slides_key(slides) not in recorded
            and last is not None
            and segments
            and _first_event(segments) > last
        ):
            adjusted[slides] = None
    return adjusted


def last_instant_until(slides: frozenset[int], until: int | None) -> int | None:
    """The last instant of a set of slides up to a time."""
    if until is None or not slides:
        return until
    return max(last_multiple_of(until, slide) for slide in slides)


def instants_cursor(due: Mapping[frozenset[int], DueInstants], more: bool) -> dict[str, Any]:
    """The cursor of a unit that has emitted what was due."""
    evaluated = {
        _slides_key(slides): slide_due.instants[-1] if slide_due.instants else slide_due.before
        for slides, slide_due in due.items()
    }
    return {"reached": evaluated, "more": more}


def _slides_key(slides: frozenset[int]) -> str:
    return ",".join(str(slide) for slide in sorted(slides))


# ---- what is next


@dataclass(frozen=True)
class ScannedTuples:
    """The tuples that a scan sees: segments, the least time that it looks back on, and for how long
    after its time a tuple may be in its window (None for ever)."""

    segments: Sequence[Segment]
    since: int | None
    window_span: int | None


def scanned_tuples(scan: Scan, segments: Sequence[Segment], since: int | None) -> ScannedTuples:
    window = scan.window
    stays = None
    if isinstance(window, Range) and window.size is not None:
        stays = window.size + (window.slide or 0)
    return ScannedTuples([s for s in segments if s.rows], since, stays)


def due_instants(
    slide_sets: SlideSets,
    tuples: Sequence[ScannedTuples],
    before: Mapping[frozenset[int], int | None],
    ready: int | None,
    limit: int,
) -> tuple[dict[frozenset[int], DueInstants], bool]:
    """The instants whose input is complete, for each set of slides those after the one it has reached,
    at most `limit` of them; and whether that left out any.

    `slide_sets` says of each set whether something is emitted at every instant. What is left out of one
    set is left out of all: up to the last instant that is due for any, nothing is passed over.
    """
    # One more than the limit, to see whether any are left out.
    following = {
        slides: next_instants(slides, tuples, before[slides], ready, limit + 1, always)
        for slides, always in slide_sets.items()
    }
    cut = [instants[limit - 1] for instants in following.values() if len(instants) > limit]
    last = min(cut, default=FOREVER)
    due = {
        slides: DueInstants(before[slides], instants[: bisect_right(instants, last)])
        for slides, instants in following.items()
    }
    return due, bool(cut)


def next_instants(
    slides: frozenset[int],
    tuples: Sequence[ScannedTuples],
    before: int | None,
    ready: int | None,
    limit: int,
    always: bool,
) -> Sequence[int]:
    """The instants after `before` whose input is complete, at most `limit` of them; those at which all
    windows are empty only if there is `always` something to emit."""
    segments = [(s, scanned.since) for scanned in tuples for s in scanned.segments]
    if ready is None or not segments:
        return []
    last = max(s.largest_time or 0 for s, _ in segments)
    if not slides:
        return _event_instants(segments, before, min(ready, last), limit)
    end = min(ready, max(next_multiple_of(last, slide) for slide in slides))
    first = _first_event(segments) if before is None else before + 1
    instants = _multiples(slides, first, end, limit)
    if always or len(instants) < limit:  # few enough: finding the empty ones would cost more
        return instants
    # The slack covers the instant at which a window has just become empty: rows leave there.
    busy = _busy_intervals(tuples, first, 2 * max(slides))
    spans = ((max(low, first), min(high, end)) for low, high in busy)
    sparse = (t for low, high in spans for t in _multiples(slides, low, high, limit))
    return list(islice(sparse, limit))


def _multiples(slides: frozenset[int], first: int, end: int, limit: int) -> Sequence[int]:
    """The first multiples of any of the slides between two times."""
    ranges = [range(next_multiple_of(first, slide), end + 1, slide)[:limit] for slide in slides]
    return ranges[0] if len(ranges) == 1 else sorted(set().union(*ranges))[:limit]


# ---- when windows hold anything


def _busy_intervals(
    tuples: Sequence[ScannedTuples], first: int, slack: int
) -> list[tuple[int, int]]:
    """The stretches of time, from a moment on, in which a window may hold a tuple, or has just lost its
    last one; ascending and apart."""
    intervals: list[tuple[int, int]] = []
    for scanned in tuples:
        stays = FOREVER if scanned.window_span is None else scanned.window_span + slack
        for segment in scanned.segments:
            intervals += _segment_intervals(segment, scanned.since, stays)
    return list(_merge_intervals((low, high) for low, high in sorted(intervals) if high >= first))


def _segment_intervals(
    segment: Segment, since: int | None, stays: int
) -> Iterator[tuple[int, int]]:
    """When the tuples of a segment are in a window. The times of tuples are read only if they may be
    far apart."""
    least, largest = segment.least_time or 0, segment.largest_time or 0
    # Even if the tuples were evenly spread, windows would leave no gap: reading the times cannot
    # help.
    if segment.rows * stays >= largest - least:
        yield max(least, -FOREVER if since is None else since), largest + stays
        return
    times = np.unique(segment_files.read_arrow(segment, [TIME])[TIME].to_numpy())
    if since is not None:
        times = times[times >= since]
    if not len(times):
        return
    # In a gap that is longer than a tuple stays, its window is empty.
    ends = np.flatnonzero(np.diff(times) > stays)
    lows = times[np.concatenate(([0], ends + 1))]
    highs = times[np.concatenate((ends, [len(times) - 1]))]
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        yield low, high + stays


def _merge_intervals(stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ascending stretches, those that touch as one."""
    start: int | None = None
    end = 0
    for low, high in stretches:
        if start is None:
            start, end = low, high
        elif low <= end:
            end = max(end, high)
        else:
            yield start, end
            start, end = low, high
    if start is not None:
        yield start, end


def _first_event(segments: Sequence[tuple[Segment, int | None]]) -> int:
    """The time of the first tuple that is not too old to be looked back on."""
    times: list[int] = []
    for segment, low in segments:
        least = segment.least_time or 0
        if low is not None and least < low:
            column = segment_files.read_arrow(segment, [TIME])[TIME]
            least = pc.min(column.filter(pc.greater_equal(column, low))).as_py()
        times.append(least)
    return min(times)


def _event_instants(
    segments: Sequence[tuple[Segment, int | None]], before: int | None, until: int, limit: int
) -> list[int]:
    """The distinct event times of tuples that are looked back on."""
    times = []
    for segment, low in segments:
        least = max(
            [t for t in (low, None if before is None else before + 1) if t is not None]
            or [-FOREVER]
        )
        if (segment.largest_time or 0) >= least:
            column = segment_files.read_arrow(segment, [TIME])[TIME]
            is_due = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, until))
            times.append(pc.unique(column.filter(is_due)))
    if not times:
        return []
    instants: list[int] = pc.unique(pa.concat_arrays(times)).sort().to_pylist()[:limit]
    return instants
