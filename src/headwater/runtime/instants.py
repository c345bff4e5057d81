"""Which instants are to be evaluated next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.runtime import files
from headwater.runtime.catalog import Segment
from headwater.runtime.compile import TIME
from headwater.runtime.compile.windows import next_multiple_of

FAR = 2**62


def next_instants(
    slides: frozenset[int],
    segments: Mapping[str, Sequence[Segment]],
    since: Mapping[str, int | None],
    before: int | None,
    ready: int | None,
    limit: int,
) -> Sequence[int]:
    """The instants after `before` whose input is complete, at most `limit` of them."""
    held = [(s, since[view]) for view, found in segments.items() for s in found if s.rows]
    if ready is None or not held:
        return []
    last = max(s.largest_time or 0 for s, _ in held)
    if not slides:
        return _event_instants(held, before, min(ready, last), limit)
    end = min(ready, max(next_multiple_of(last, slide) for slide in slides))
    first = _first_event(held) if before is None else before + 1
    ranges = [range(next_multiple_of(first, slide), end + 1, slide)[:limit] for slide in slides]
    return ranges[0] if len(ranges) == 1 else sorted(set().union(*ranges))[:limit]


def _first_event(held: Sequence[tuple[Segment, int | None]]) -> int:
    """The time of the first tuple that is not too old to be looked back on."""
    times: list[int] = []
    for held_segment, low in held:
        least = held_segment.least_time or 0
        if low is not None and least < low:
            column = files.read_arrow(held_segment.path, [TIME])[TIME]
            least = pc.min(column.filter(pc.greater_equal(column, low))).as_py()
        times.append(least)
    return min(times)


def _event_instants(
    held: Sequence[tuple[Segment, int | None]], before: int | None, until: int, limit: int
) -> list[int]:
    """The distinct event times of tuples that are looked back on."""
    times = []
    for held_segment, low in held:
        least = max(
            [t for t in (low, None if before is None else before + 1) if t is not None] or [-FAR]
        )
        if (held_segment.largest_time or 0) >= least:
            column = files.read_arrow(held_segment.path, [TIME])[TIME]
            wanted = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, until))
            times.append(pc.unique(column.filter(wanted)))
    if not times:
        return []
    found: list[int] = pc.unique(pa.concat_arrays(times)).sort().to_pylist()[:limit]
    return found
