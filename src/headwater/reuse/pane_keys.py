"""Whether two grouped queries would make more panes together than apart.

Shared panes are grouped by the keys of all their queries. Where one query's keys are among the other's, panes
are those of the finer query. Otherwise their values multiply: users and pages make a pane for each pair,
up to one for each row, and a query that would read a few hundred panes reads as much as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import expm1, inf, log1p, prod

from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Expr, columns_of
from headwater.algebra.nodes import Scan
from headwater.algebra.types import BOOLEAN
from headwater.algebra.windows import Range
from headwater.cost.rates import DEFAULT_DISTINCT
from headwater.reuse.operator import Operator, minimal_operator, relax
from headwater.reuse.signature import QuerySignature, SharingKind

SECOND = 1_000_000

MAX_PANES_PER_ROW = 0.5
"""Panes that are more than this part of the rows do not pay: reading them costs as much as the rows."""

Rate = Callable[[str], float]
"""The rows of a stream in a second; 0 if unknown."""

Distinct = Callable[[str, str], float | None]
"""How many values a column of a stream has at most; None if that is unknown."""


def keys_multiply(
    operator: Operator, signature: QuerySignature, rate: Rate, distinct: Distinct
) -> bool:
    """Whether a grouped query should have panes of its own beside those of an operator: together they would
    be nearly as many as rows, apart they are fewer.

    While no stream has a rate, nothing is known against sharing.
    A column of which nothing is known counts as one of `DEFAULT_DISTINCT` values.
    """
    own = minimal_operator(signature)
    ours, theirs = _by_text(own.keys), _by_text(operator.keys)
    if signature.kind is not SharingKind.GROUP or ours <= theirs or theirs <= ours:
        return False
    granule = pane_length(relax(operator, signature))
    if granule is None:  # each event time has panes of its own anyway
        return False
    rows = max(rate(scan.stream) for scan in operator.scans) * granule / SECOND

    def panes(keys: Iterable[Expr]) -> float:
        return expected_groups(rows, _number_of_values(operator, tuple(keys), distinct))

    together = panes({canonical_text(key): key for key in (*own.keys, *operator.keys)}.values())
    return together > MAX_PANES_PER_ROW * rows and panes(own.keys) + panes(operator.keys) < together


def pane_length(operator: Operator) -> int | None:
    """How much time a pane holds, in microseconds; None where windows do not slide."""
    slides = [scan.window.slide for scan in operator.scans if isinstance(scan.window, Range)]
    return min((slide for slide in slides if slide), default=None)


def expected_groups(rows: float, values: float) -> float:
    """How many different ones of so many values are among rows, if all are equally likely."""
    if values <= 1.0 or rows <= 1.0:
        return min(rows, values)
    # Then each row has a value of its own.
    if values == inf:
        return rows
    # values * (1 - (1 - 1/values) ** rows), written so that a large number of values loses no
    # digits.
    return -values * expm1(rows * log1p(-1.0 / values))


def _by_text(keys: Iterable[Expr]) -> set[str]:
    return set(map(canonical_text, keys))


def _number_of_values(operator: Operator, keys: Sequence[Expr], distinct: Distinct) -> float:
    """How many different values keys have together, at most."""
    streams = {
        source.alias: source.stream for source in operator.sources if isinstance(source, Scan)
    }
    columns = {c for key in keys if key.type != BOOLEAN for c in columns_of(key)}
    flags = sum(key.type == BOOLEAN for key in keys)
    known = (
        distinct(streams[column.relation], column.name) if column.relation in streams else None
        for column in columns
    )
    return 2.0**flags * prod(max(1.0, DEFAULT_DISTINCT if n is None else n) for n in known)
