"""Whether a step computes the lanes of a shared join apart, or all of them as one join.

Apart, every lane is planned, scans its sources and broadcasts some of them, whatever it finds there. At
once, each pair of equal keys is compared with what the lanes want, which costs little as long as these
pairs are few. So they are counted first, from the keys of the tuples that the step would read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.expressions import Column

COUNTED_ROWS = 100_000
"""The keys of at most this many tuples are counted: of more, lanes are cheap beside the tuples."""

PAIRS_PER_LANE = 250_000
"""The lanes are joined at once while that compares at most this many pairs for each of them."""

Equalities = Sequence[tuple[Column, Column]]
ReadKeys = Callable[[str, str], pa.ChunkedArray]
"""The values of a column of a source, of the tuples that a term reads."""


def count_compared_pairs(
    order: Sequence[str], equalities: Equalities, read_keys: ReadKeys
) -> float | None:
    """About how many pairs of equal keys a term compares that joins its sources in that order; None if
    a source has no key by which it is joined, or keys of a type of its own."""
    compared = 0.0
    rows: float | None = None
    for at, alias in enumerate(order[1:], 1):
        met = [
            _count_meetings(read_keys(other.relation, other.name), read_keys(alias, own.name))
            for own, other in equalities
            if own.relation == alias and other.relation in order[:at]
            if own.type == other.type or (own.type.is_integer and other.type.is_integer)
        ]
        if not met:
            return None
        pairs, other_rows = min(met)
        # Later joins meet what earlier ones have left, as often as the source that they are tied to.
        rows = pairs if rows is None else rows * pairs / max(other_rows, 1)
        compared += rows
    return compared


def _count_meetings(keys: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[int, int]:
    """The pairs of equal values of two columns, and how many values the first one has."""
    counts, others = _value_counts(keys), _value_counts(other)
    return sum(n * others.get(value, 0) for value, n in counts.items()), len(keys)


def _value_counts(values: pa.ChunkedArray) -> Mapping[object, int]:
    # NULL is equal to nothing, so these rows are compared with none.
    counted = pc.value_counts(values.drop_null())
    return dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
