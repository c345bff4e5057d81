"""Boxes: conjunctions in normal form, and what they imply about single terms.

Each constraint bounds a term, or several columns that are equal, by a domain; a condition that is
no such bound stays as an opaque term. As in WHERE, only true counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.conditions.domain import Domain, domain_of, full_domain
from headwater.algebra.conditions.linear import (
    columns_of_difference,
    difference_domain,
    difference_range,
    difference_term,
    is_bounding_comparison,
    negate_domain,
    sign_comparison,
)
from headwater.algebra.conditions.simplify import (
    COMPARISON_OF,
    OUTCOMES,
    canonical_text,
    may_be_null,
    simplify,
)
from headwater.algebra.expressions import FALSE, Call, Column, Expr, Literal, conjunction
from headwater.algebra.functions import MIRRORED
from headwater.algebra.types import BOOLEAN


@dataclass(frozen=True)
class Constraint:
    """Terms that are equal (one of any kind, or columns sorted by text), and in the domain."""

    terms: tuple[Expr, ...]
    domain: Domain


@dataclass(frozen=True)
class Box:
    """Constraints and opaque terms, both sorted by text; built by `predicate.normalize`."""

    constraints: tuple[Constraint, ...]
    terms: tuple[Expr, ...]
    empty: bool = False

    @cached_property
    def index(self) -> BoxIndex:
        return BoxIndex(self)


ANYTHING = Box((), ())
NOTHING = Box((), (), empty=True)


# ---- what a box knows


class BoxIndex:
    """A box indexed by term, to look up what it implies about single terms."""

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
        self.not_null = terms_not_null(self.domains, box.terms)

    @property
    def subjects(self) -> tuple[Expr, ...]:
        """The terms that the box restricts beyond their type."""
        columns = (term for term in self.not_null if isinstance(term, Column))
        return (*self.domains, *self.heads, *columns)

    def head(self, term: Expr) -> Expr:
        """The representative of the columns that are equal to this one."""
        return self.heads.get(term, term)

    def domain(self, term: Expr) -> Domain:
        """The values that a term can have."""
        if isinstance(term, Call):
            if (xy := columns_of_difference(term)) is not None:
                return self._difference_domain(term, *xy)
            term = substitute_heads_in_term(term, self.heads)
        if isinstance(term, Literal):
            return domain_of(term.type, [term.value])
        head = self.head(term)
        domain = self.domains.get(head)
        if domain is None:
            domain = full_domain(head.type, may_be_null(head))
        return domain.with_null(False) if head in self.not_null else domain

    def _difference_domain(self, term: Expr, x: Column, y: Column) -> Domain:
        a, b = self.head(x), self.head(y)
        if a == b:
            return difference_domain(term, x, "=", 0)
        assert isinstance(a, Column) and isinstance(b, Column)
        of_a, of_b = self.domain(a), self.domain(b)
        # A difference is stored once, with its columns in order of text; the other is its negative.
        is_turned = canonical_text(b) < canonical_text(a)
        stored = self.domains.get(_difference(b, a) if is_turned else _difference(a, b))
        domain = full_domain(term.type, of_a.null or of_b.null)
        if stored is not None:
            domain = negate_domain(stored, x) if is_turned else stored
        return domain.intersect(difference_range(term, x, of_a, of_b).with_null(domain.null))

    def outcomes(self, a: Expr, b: Expr) -> int | None:
        """How two terms can compare (see `simplify.OUTCOMES`); None if one may be NULL."""
        a, b = substitute_heads_in_term(a, self.heads), substitute_heads_in_term(b, self.heads)
        # 7 is less, equal or greater: nothing is known.
        outcomes = self.pairs.get((a, b), 7)
        turned = self.pairs.get((b, a), 7)
        outcomes &= turned if turned == 7 else OUTCOMES[MIRRORED[COMPARISON_OF[turned]]]
        if outcomes < 7:
            return outcomes
        of_a, of_b = self.domain(a), self.domain(b)
        # Only here, because a stored comparison holds and so neither side of it is NULL.
        if of_a.null or of_b.null:
            return None
        if a == b:
            return 2
        return of_a.outcomes(of_b) if a.type == b.type else 7


def _difference(x: Column, y: Column) -> Expr:
    term = difference_term(x, y)
    assert term is not None
    return term


_NULL_TOLERANT = frozenset(("and", "or", "is_null", "<=>", "coalesce", "case", "greatest", "least"))
"""Functions that can have a value even if an argument is NULL."""


def terms_not_null(domains: Mapping[Expr, Domain], terms: Iterable[Expr]) -> frozenset[Expr]:
    """Terms that other facts show not to be NULL: x, where upper(x) = 'A' or x < y."""
    result: set[Expr] = set()
    for term, domain in domains.items():
        if isinstance(term, Call) and not domain.null:
            for arg in _strict_args(term):
                result.update(_strict_parts(arg))
    for term in terms:
        result.update(_strict_parts(term))
    return frozenset(result)


def _strict_parts(expr: Expr) -> Iterator[Expr]:
    """The expression, and all that must have a value if it has one."""
    if not isinstance(expr, Literal):
        yield expr
    if isinstance(expr, Call):
        for arg in _strict_args(expr):
            yield from _strict_parts(arg)


def _strict_args(call: Call) -> tuple[Expr, ...]:
    if call.name in _NULL_TOLERANT:
        return ()
    # 1 IN (1, y) is true and nullif(1, y) is 1 where y is NULL.
    return call.args[:1] if call.name in ("in", "nullif") else call.args


# ---- equals for equals


def substitute_heads(expr: Expr, heads: Mapping[Expr, Expr]) -> Expr:
    """A simplified condition with columns replaced by the heads of their classes, simplified.

    Comparisons of linear expressions are exact and other arithmetic is NULL where it overflows, so
    a comparison that would become linear only by this (x + y > 5, where x = y) stays as it is.
    """
    if not heads or not isinstance(expr, Call):
        return heads.get(expr, expr)
    args = tuple(substitute_heads(arg, heads) for arg in expr.args)
    if args == expr.args:
        return expr
    new = simplify(Call(expr.name, args, expr.type))
    return expr if _is_newly_linear(new, expr) else new


def substitute_heads_in_term(term: Expr, heads: Mapping[Expr, Expr]) -> Expr:
    """The same for a term that a domain bounds."""
    new = substitute_heads(term, heads)
    if new is term or not isinstance(new, Call):
        return new
    zero = Literal(0, term.type)
    comparisons = (Call("=", (side, zero), BOOLEAN) for side in (new, term))
    return term if _is_newly_linear(*comparisons) else new


def _is_newly_linear(new: Expr, old: Expr) -> bool:
    has_arithmetic = isinstance(new, Call) and any(isinstance(arg, Call) for arg in new.args)
    return has_arithmetic and is_bounding_comparison(new) and not is_bounding_comparison(old)


# ---- as a condition


def to_expr(box: Box) -> Expr | None:
    """The condition of a box: `normalize(to_expr(box)) == box`.

    None for ANYTHING, FALSE for NOTHING.
    """
    if box.empty:
        return FALSE
    parts = [part for c in box.constraints for part in constraint_conjuncts(c)]
    return conjunction((*parts, *box.terms))


def constraint_conjuncts(constraint: Constraint) -> list[Expr]:
    """The conjuncts of a constraint."""
    first, *others = constraint.terms
    domain = constraint.domain
    if (xy := columns_of_difference(first)) is not None:
        return [_difference_condition(first, *xy, domain)]
    # Columns of one single value are written x = 5 AND y = 5: that implies x = y.
    if others and not domain.is_point:
        equalities: list[Expr] = [Call("=", (first, other), BOOLEAN) for other in others]
        rest = None if domain.has_all_values else domain.as_expr(first)
        return equalities if rest is None else [*equalities, rest]
    parts = (domain.as_expr(term) for term in constraint.terms)
    return [condition for condition in parts if condition is not None]


def _difference_condition(term: Expr, x: Column, y: Column, domain: Domain) -> Expr:
    """x < y rather than x - y < 0."""
    if (op := sign_comparison(term, x, domain)) is not None:
        return Call(op, (x, y), BOOLEAN)
    condition = domain.as_expr(term)
    assert condition is not None
    return condition
