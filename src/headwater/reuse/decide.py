"""Where a new query goes: to an operator as it is, to one that is relaxed for it, or to a new one.

Each choice is priced by the seconds of work that it adds in a second, of one core: a step of a unit
costs the same whatever it does, and every row that is read, joined or told costs a little more. The
cheapest choice is taken; a query keeps its place afterwards, so nothing goes back and forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from headwater.algebra.domain import Domain
from headwater.algebra.expressions import Expr, columns_of
from headwater.algebra.nodes import Scan
from headwater.algebra.predicate import Box
from headwater.algebra.windows import Range
from headwater.reuse.form import Form
from headwater.reuse.operator import Operator, Relation, operator_of, relation, relaxed
from headwater.reuse.words import changes

SECOND = 1_000_000

POINT, STRETCH, MOST, TERM = 0.01, 0.3, 0.9, 0.3
"""The part of all rows that has one value of a term, lies in stretches of it, is not among a few that
are left out, meets another condition."""

MATCHING = 0.01
"""The part of all pairs of tuples that joins."""

UNBOUNDED_SECONDS = 3_600.0


@dataclass(frozen=True)
class Prices:
    """Seconds of work for a step and for a row, steps in a second, and rows of streams in one."""

    step: float = 0.2
    row: float = 4e-6
    steps_a_second: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What a query is to the operator of that name (None: a new one), which then is `operator`.

    `added` is the work that it adds in a second, `alone` what it would be in an operator of its own.
    """

    name: str | None
    relation: Relation | None
    operator: Operator
    relaxed: tuple[str, ...]
    added: float
    alone: float


def decide(form: Form, running: Iterable[tuple[str, Operator]], prices: Prices) -> Choice:
    """The cheapest way to serve a query, of those that the operators of its base offer; the first
    that adds nothing ends the search."""
    own = operator_of(form)
    alone = price(own, prices)
    best = Choice(None, None, own, (), alone, alone)
    for name, operator in running:
        after = relaxed(operator, form)
        added = price(after, prices) - price(operator, prices) if after is not operator else 0.0
        if added < best.added or (added == best.added and best.name is None):
            said = tuple(changes(operator, after)) if after is not operator else ()
            best = Choice(name, relation(form, operator), after, said, added, alone)
            if added <= 0.0:
                break
    return best


def price(operator: Operator, prices: Prices) -> float:
    """The work of an operator in a second.

    A row meets those of the others that lie in their windows; a bound on what joins them is a bound
    on the row, and then changes nothing about how many it meets.
    """
    rates = [prices.rates.get(scan.stream.lower(), 0.0) for scan in operator.scans]
    shares = [share(operator.where, scan.alias) for scan in operator.scans]
    read = [rate * part for rate, part in zip(rates, shares, strict=True)]
    met = [
        MATCHING * rate * _seconds(scan) * share(operator.where, scan.alias, alone=True)
        for rate, scan in zip(rates, operator.scans, strict=True)
    ]
    told = 0.0
    for at, rows in enumerate(read):
        told += rows * prod(others for n, others in enumerate(met) if n != at)
    return prices.steps_a_second * prices.step + prices.row * (sum(read) + told)


def _seconds(scan: Scan) -> float:
    assert isinstance(scan.window, Range)
    size = scan.window.size
    return UNBOUNDED_SECONDS if size is None else size / SECOND


def share(where: Box, alias: str, alone: bool = False) -> float:
    """The part of a stream's rows that meets what a condition says of that source, or of it alone;
    never smaller for a condition that covers another."""
    parts = []
    for constraint in where.constraints:
        own = [term for term in constraint.terms if _speaks_of(term, alias)]
        if own and not (alone and len(own) < len(constraint.terms)):
            parts += [_of_domain(constraint.domain), *(TERM for _ in own[1:])]
    parts += [TERM for term in where.terms if _speaks_of(term, alias)]
    return prod(parts)


def _speaks_of(term: Expr, alias: str) -> bool:
    return {column.relation for column in columns_of(term)} == {alias}


@lru_cache(maxsize=4096)
def _of_domain(domain: Domain) -> float:
    if domain.has_all_values:
        return 1.0
    points = domain.values(round(STRETCH / POINT))
    if points is not None:
        return min(STRETCH, POINT * (len(points) + domain.null))
    pieces = domain.intervals
    without_ends = pieces[0].low is None and pieces[-1].high is None
    return MOST if without_ends else STRETCH
