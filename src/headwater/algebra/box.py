"""Boxes: conjunctions in normal form, and what they say about single terms.

Each constraint bounds a term, or several columns known to be equal, by a domain; what is no such
bound stays as an opaque term. As in WHERE, only true counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.domain import Domain, everything, of
from headwater.algebra.expressions import FALSE, Call, Column, Expr, Literal, conjunction
from headwater.algebra.functions import MIRRORED
from headwater.algebra.linear import (
    columns_of_difference,
    difference_term,
    is_bound,
    mirrored,
    on_difference,
    sign,
    spread,
)
from headwater.algebra.simplify import COMPARISON_OF, OUTCOMES, may_be_null, simplify, text
from headwater.algebra.types import BOOLEAN


@dataclass(frozen=True)
class Constraint:
    """Terms that are equal (one of any kind, or columns sorted by text), and in the domain."""

    terms: tuple[Expr, ...]
    domain: Domain


@dataclass(frozen=True)
class Box:
    """Constraints and opaque terms, both sorted by text; `predicate.normalize` makes it."""

    constraints: tuple[Constraint, ...]
    terms: tuple[Expr, ...]
    empty: bool = False

    @cached_property
    def known(self) -> Known:
        return Known(self)


ANYTHING = Box((), ())
NOTHING = Box((), (), empty=True)


# ---- what a box knows


class Known:
    """A box made ready for questions about single terms."""

    def __init__(self, box: Box) -> None:
        self.domains: dict[Expr, Domain] = {c.terms[0]: c.domain for c in box.constraints}
        self.heads: dict[Expr, Expr] = {
            term: c.terms[0] for c in box.constraints for term in c.terms[1:]
        }
        self.terms = frozenset(box.terms)
        self.pairs = {
            t.args: OUTCOMES[t.name]
            for t in box.terms
            if isinstance(t, Call) and t.name in OUTCOMES
        }
        self.needed = needed(self.domains, box.terms)

    @property
    def subjects(self) -> tuple[Expr, ...]:
        """The terms of which more is known than their type."""
        columns = (term for term in self.needed if isinstance(term, Column))
        return (*self.domains, *self.heads, *columns)

    def head(self, term: Expr) -> Expr:
        """The column that stands for all that are equal to it."""
        return self.heads.get(term, term)

    def domain(self, term: Expr) -> Domain:
        """The values that a term can have."""
        if isinstance(term, Call):
            if (xy := columns_of_difference(term)) is not None:
                return self._of_difference(term, *xy)
            term = replaced_term(term, self.heads)
        if isinstance(term, Literal):
            return of(term.type, [term.value])
        head = self.head(term)
        found = self.domains.get(head)
        if found is None:
            found = everything(head.type, may_be_null(head))
        return found.with_null(False) if head in self.needed else found

    def _of_difference(self, term: Expr, x: Column, y: Column) -> Domain:
        a, b = self.head(x), self.head(y)
        if a == b:
            return on_difference(term, x, "=", 0)
        assert isinstance(a, Column) and isinstance(b, Column)
        of_a, of_b = self.domain(a), self.domain(b)
        is_turned = text(b) < text(a)
        stored = self.domains.get(_difference(b, a) if is_turned else _difference(a, b))
        found = everything(term.type, of_a.null or of_b.null)
        if stored is not None:
            found = mirrored(stored, x) if is_turned else stored
        return found.intersect(spread(term, x, of_a, of_b).with_null(found.null))

    def outcomes(self, a: Expr, b: Expr) -> int | None:
        """How two terms can compare (see `simplify.OUTCOMES`); None if one may be NULL."""
        a, b = replaced_term(a, self.heads), replaced_term(b, self.heads)
        found = self.pairs.get((a, b), 7)
        turned = self.pairs.get((b, a), 7)
        found &= turned if turned == 7 else OUTCOMES[MIRRORED[COMPARISON_OF[turned]]]
        if found < 7:
            return found
        of_a, of_b = self.domain(a), self.domain(b)
        if of_a.null or of_b.null:
            return None
        if a == b:
            return 2
        return of_a.outcomes(of_b) if a.type == b.type else 7


def _difference(x: Column, y: Column) -> Expr:
    term = difference_term(x, y)
    assert term is not None
    return term


_LENIENT = frozenset(("and", "or", "is_null", "<=>", "coalesce", "case", "greatest", "least"))
"""Functions that can have a value though an argument is NULL."""


def needed(domains: Mapping[Expr, Domain], terms: Iterable[Expr]) -> frozenset[Expr]:
    """What cannot be NULL because of other facts: x, where upper(x) = 'A' or x < y."""
    found: set[Expr] = set()
    for term, domain in domains.items():
        if isinstance(term, Call) and not domain.null:
            for arg in _strict_args(term):
                found.update(_strict_parts(arg))
    for term in terms:
        found.update(_strict_parts(term))
    return frozenset(found)


def _strict_parts(expr: Expr) -> Iterator[Expr]:
    """The expression, and all that must have a value if it has one."""
    if not isinstance(expr, Literal):
        yield expr
    if isinstance(expr, Call):
        for arg in _strict_args(expr):
            yield from _strict_parts(arg)


def _strict_args(call: Call) -> tuple[Expr, ...]:
    if call.name in _LENIENT:
        return ()
    return call.args[:1] if call.name in ("in", "nullif") else call.args


# ---- equals for equals


def replaced(expr: Expr, heads: Mapping[Expr, Expr]) -> Expr:
    """A simplified condition with columns replaced by the heads of their classes, simplified.

    Comparisons of linear expressions are exact and other arithmetic is NULL where it overflows, so
    a comparison that would become linear only by this (x + y > 5, where x = y) stays as it is.
    """
    if not heads or not isinstance(expr, Call):
        return heads.get(expr, expr)
    args = tuple(replaced(arg, heads) for arg in expr.args)
    if args == expr.args:
        return expr
    new = simplify(Call(expr.name, args, expr.type))
    return expr if _is_newly_linear(new, expr) else new


def replaced_term(term: Expr, heads: Mapping[Expr, Expr]) -> Expr:
    """The same for a term that a domain bounds."""
    new = replaced(term, heads)
    if new is term or not isinstance(new, Call):
        return new
    zero = Literal(0, term.type)
    comparisons = (Call("=", (side, zero), BOOLEAN) for side in (new, term))
    return term if _is_newly_linear(*comparisons) else new


def _is_newly_linear(new: Expr, old: Expr) -> bool:
    has_arithmetic = isinstance(new, Call) and any(isinstance(arg, Call) for arg in new.args)
    return has_arithmetic and is_bound(new) and not is_bound(old)


# ---- as a condition


def to_expr(box: Box) -> Expr | None:
    """The condition that a box stands for: `normalize(to_expr(box)) == box`.

    None for ANYTHING, FALSE for NOTHING.
    """
    if box.empty:
        return FALSE
    parts = [part for c in box.constraints for part in conditions(c)]
    return conjunction((*parts, *box.terms))


def conditions(constraint: Constraint) -> list[Expr]:
    """The conjuncts that a constraint stands for."""
    first, *others = constraint.terms
    domain = constraint.domain
    if (xy := columns_of_difference(first)) is not None:
        return [_difference_condition(first, *xy, domain)]
    if others and not domain.is_point:
        equalities: list[Expr] = [Call("=", (first, other), BOOLEAN) for other in others]
        rest = None if domain.has_all_values else domain.as_expr(first)
        return equalities if rest is None else [*equalities, rest]
    found = (domain.as_expr(term) for term in constraint.terms)
    return [condition for condition in found if condition is not None]


def _difference_condition(term: Expr, x: Column, y: Column, domain: Domain) -> Expr:
    """x < y rather than x - y < 0."""
    if (op := sign(term, x, domain)) is not None:
        return Call(op, (x, y), BOOLEAN)
    condition = domain.as_expr(term)
    assert condition is not None
    return condition
