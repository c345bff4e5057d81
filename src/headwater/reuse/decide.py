"""What an operator costs, and where a query goes for that: to one that runs, relaxed for it if it has to
be, or to a new one.

Work is seconds in a second, of one core: a step of a unit costs the same whatever it does, and every row
that is read, joined or emitted costs a little more. A query stays with its operator afterwards, so
assignments do not oscillate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from headwater.algebra.conditions.domain import Domain
from headwater.algebra.conditions.predicate import Box
from headwater.algebra.expressions import Expr, columns_of
from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Range
from headwater.reuse.operator import Containment, Operator
from headwater.reuse.signature import spans_sources

SECOND = 1_000_000

POINT_SHARE, RANGE_SHARE, EXCLUSION_SHARE, TERM_SHARE = 0.01, 0.3, 0.9, 0.3
"""The assumed fraction of rows that have one given value of a term; that are within ranges of it; that are
not among a few excluded values; that meet any other condition."""

JOIN_SHARE = 0.01
"""The assumed fraction of pairs of tuples that join."""

# The length at which a window without an end is priced: any finite value keeps loads comparable.
UNBOUNDED_SECONDS = 3_600.0


@dataclass(frozen=True)
class SharingCosts:
    """Seconds of work for a step and for a row, steps in a second, and rows of streams in one."""

    step_seconds: float = 0.2
    row_seconds: float = 4e-6
    steps_per_second: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Alternative:
    """What else could have been done with a query, in a few words, and the work that it would add."""

    plan: str
    load: float


@dataclass(frozen=True)
class SharingChoice:
    """What a query is to the operator of that name (None: a new one), which then is `operator`.

    `added_load` is the work per second that it adds, `standalone_load` that of an operator of its own.
    `alternatives` are dearer plans; `revisit` says that rates were not known.
    """

    name: str | None
    containment: Containment | None
    operator: Operator
    changes: tuple[str, ...]
    added_load: float
    standalone_load: float
    alternatives: tuple[Alternative, ...] = ()
    revisit: bool = False


def estimate_load(operator: Operator, costs: SharingCosts) -> float:
    """The work of an operator in a second.

    A row meets those of the others that lie in their windows; a bound on what joins them is a bound
    on the row, and then changes nothing about how many it meets.
    """
    rates = [costs.rates.get(scan.stream.lower(), 0.0) for scan in operator.scans]
    shares = [estimate_selectivity(operator.where, scan.alias) for scan in operator.scans]
    rows_read = [rate * fraction for rate, fraction in zip(rates, shares, strict=True)]
    rows_matched = [
        JOIN_SHARE
        * rate
        * _window_seconds(scan)
        * estimate_selectivity(operator.where, scan.alias, own_only=True)
        for rate, scan in zip(rates, operator.scans, strict=True)
    ]
    rows_emitted = 0.0
    for position, rows in enumerate(rows_read):
        # As in `cost.rates.join_rate`: each new row meets what the windows of the other sources
        # hold.
        rows_emitted += rows * prod(
            others for n, others in enumerate(rows_matched) if n != position
        )
    rows_emitted *= _pair_selectivity(operator.where)
    return costs.steps_per_second * costs.step_seconds + costs.row_seconds * (
        sum(rows_read) + rows_emitted
    )


def _pair_selectivity(where: Box) -> float:
    """The part of joined rows that meets the conditions on several sources beside equalities."""
    shares = [TERM_SHARE for term in where.terms if spans_sources(term)]
    shares += [
        _domain_selectivity(constraint.domain)
        for constraint in where.constraints
        if len(constraint.terms) == 1 and spans_sources(constraint.terms[0])
    ]
    return prod(shares)


def _window_seconds(scan: Scan) -> float:
    assert isinstance(scan.window, Range)
    size = scan.window.size
    return UNBOUNDED_SECONDS if size is None else size / SECOND


def estimate_selectivity(where: Box, alias: str, own_only: bool = False) -> float:
    """The part of a stream's rows that meets what a condition says of that source, or of it alone;
    never smaller for a condition that covers another."""
    shares = []
    for constraint in where.constraints:
        own = [term for term in constraint.terms if _refers_only_to(term, alias)]
        # With `own_only`, a bound on a join column is left out: the row that arrives has the same
        # value in that column, so the bound was counted for it already.
        if own and not (own_only and len(own) < len(constraint.terms)):
            shares += [_domain_selectivity(constraint.domain), *(TERM_SHARE for _ in own[1:])]
    shares += [TERM_SHARE for term in where.terms if _refers_only_to(term, alias)]
    return prod(shares)


def _refers_only_to(term: Expr, alias: str) -> bool:
    return {column.relation for column in columns_of(term)} == {alias}


@lru_cache(maxsize=4096)
def _domain_selectivity(domain: Domain) -> float:
    if domain.has_all_values:
        return 1.0
    # Up to as many values as make a range: beyond that the estimate stays at RANGE_SHARE, so that a
    # wider domain never counts as the smaller one.
    points = domain.values(round(RANGE_SHARE / POINT_SHARE))
    if points is not None:
        return min(RANGE_SHARE, POINT_SHARE * (len(points) + domain.null))
    pieces = domain.intervals
    without_ends = pieces[0].low is None and pieces[-1].high is None
    return EXCLUSION_SHARE if without_ends else RANGE_SHARE
