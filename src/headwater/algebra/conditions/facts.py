"""Collecting the conjuncts of a condition until they are a box.

Every conjunct becomes a fact: a domain of a term, an equality of columns, a comparison of two terms,
a disjunction, or an opaque term. Closing combines facts until they imply nothing new: equal columns
share one domain, and one of them represents all in every other fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from headwater.algebra.conditions.box import (
    NOTHING,
    Box,
    Constraint,
    substitute_heads,
    substitute_heads_in_term,
    terms_not_null,
)
from headwater.algebra.conditions.domain import (
    Domain,
    comparable_value,
    comparison_domain,
    domain_of,
    full_domain,
    null_domain,
)
from headwater.algebra.conditions.linear import (
    LinearForm,
    column_domain,
    columns_of_difference,
    difference_domain,
    difference_range,
    difference_term,
    is_bounding,
    linear_difference,
    linear_form,
    negate_domain,
    sign_comparison,
    solve_difference,
)
from headwater.algebra.conditions.simplify import (
    COMPARISON_OF,
    OUTCOMES,
    canonical_text,
    may_be_null,
    negate,
    simplify,
)
from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import MIRRORED
from headwater.algebra.types import BOOLEAN

_YES = comparison_domain(BOOLEAN, "=", True)
_NO = comparison_domain(BOOLEAN, "=", False)


class Facts:
    """The facts collected so far; disjunctions are kept apart, in `ors`."""

    __slots__ = ("domains", "empty", "ors", "pairs", "parents", "terms")

    def __init__(self, *boxes: Box) -> None:
        self.domains: dict[Expr, Domain] = {}
        self.parents: dict[Expr, Expr] = {}
        self.pairs: dict[tuple[Expr, ...], int] = {}
        self.terms: dict[Expr, None] = {}
        self.ors: dict[Call, None] = {}
        self.empty = False
        for box in boxes:
            self.add_box(box)

    # ---- adding

    def add_condition(self, expr: Expr) -> None:
        """Add any condition."""
        if isinstance(expr, Call):
            if expr.name == "and":
                for part in expr.args:
                    self.add_condition(part)
                return
            # Most conjuncts are plain comparisons, which need none of the work of `simplify`.
            if self._add_plain(expr):
                return
        self.add_simplified(simplify(expr))

    def _add_plain(self, call: Call) -> bool:
        """Add a comparison of a column with constants or a column; False if it is not that."""
        name, first, second = call.name, call.args[0], call.args[-1]
        if not isinstance(first, Column):
            return False
        if name in OUTCOMES:
            if isinstance(second, Literal) and _is_directly_comparable(first, second):
                self.restrict_domain(first, comparison_domain(first.type, name, second.value))
                return True
            if name == "=" and first is not second and _can_be_equal(first, second):
                self.add_equality(first, second)
                return True
        elif name == "in" and (domain := _values_domain(first, call.args[1:])) is not None:
            self.restrict_domain(first, domain.with_null(False))
            return True
        return False

    def add_simplified(self, expr: Expr) -> None:
        """Add a condition that is simplified already."""
        if isinstance(expr, Literal):
            self.empty |= expr.value is not True
        elif isinstance(expr, Column):
            self.restrict_domain(expr, _YES)
        else:
            _COLLECT.get(expr.name, Facts._add_opaque)(self, expr)

    def add_box(self, box: Box) -> None:
        """Add all constraints and terms of a box."""
        self.empty |= box.empty
        for c in box.constraints:
            self.add_equal_terms(c.terms, c.domain)
        for term in box.terms:
            self.add_simplified(term)

    def add_domain(self, term: Expr, domain: Domain) -> None:
        """Add that the term is in the domain."""
        if isinstance(term, Literal):
            self.empty |= not domain.contains(term.value)
        elif isinstance(term, Call) and term.type == BOOLEAN:
            self._add_condition_domain(term, domain)
        else:
            self.restrict_domain(term, domain)

    def restrict_domain(self, term: Expr, domain: Domain) -> None:
        """The same as `add_domain`, for a term that is neither a constant nor a condition."""
        current = self.domains.get(term)
        if current is not None:
            domain = current.intersect(domain)
        elif domain.null and not may_be_null(term):
            domain = domain.with_null(False)
        self.domains[term] = domain
        self.empty |= domain.is_empty

    def add_equal_terms(self, terms: Sequence[Expr], domain: Domain) -> None:
        """Add that the terms are equal, and in the domain."""
        self.restrict_domain(terms[0], domain)
        for term in terms[1:]:
            self.add_equality(terms[0], term)

    def add_difference(self, x: Expr, y: Expr, domain: Domain) -> None:
        """Add that the difference of two columns is in the domain."""
        assert isinstance(x, Column) and isinstance(y, Column)
        if x == y:
            self._differ_not(x, domain)
            return
        if canonical_text(y) < canonical_text(x):
            x, y, domain = y, x, negate_domain(domain, x)
        term = difference_term(x, y)
        assert term is not None
        self.restrict_domain(term, domain)

    def _differ_not(self, x: Column, domain: Domain) -> None:
        # x - x is 0, or NULL where x is.
        if not domain.contains(0):
            self.restrict_domain(x, null_domain(x.type).with_null(domain.null))
        elif not domain.null:
            self.restrict_domain(x, full_domain(x.type, null=False))

    def add_equality(self, x: Expr, y: Expr) -> None:
        """Add that two columns of one type are equal."""
        a, b = self._root(x), self._root(y)
        self.parents.setdefault(a, a)
        self.parents[b] = a

    def _root(self, x: Expr) -> Expr:
        while (parent := self.parents.get(x, x)) != x:
            x = parent
        return x

    def _add_condition_domain(self, term: Call, domain: Domain) -> None:
        condition = domain.as_expr(term)
        if condition is None:
            return
        simple, is_null = simplify(condition), Call("is_null", (term,), BOOLEAN)
        # Added as a condition it would come back here, without end.
        if simple in (is_null, negate(is_null)):
            self.restrict_domain(term, domain)
        else:
            self.add_simplified(simple)

    # ---- kinds of conditions

    def _add_opaque(self, call: Call) -> None:
        self.terms[call] = None

    def _and(self, call: Call) -> None:
        for part in call.args:
            self.add_simplified(part)

    def _or(self, call: Call) -> None:
        self.ors[call] = None

    def _not(self, call: Call) -> None:
        inner = call.args[0]
        if isinstance(inner, Column):
            self.restrict_domain(inner, _NO)
        elif isinstance(inner, Call) and inner.name in _NEGATIONS:
            _NEGATIONS[inner.name](self, inner)
        else:
            self._add_opaque(call)

    def _null(self, call: Call) -> None:
        self.add_domain(call.args[0], null_domain(call.args[0].type))

    def _not_null(self, call: Call) -> None:
        self.add_domain(call.args[0], full_domain(call.args[0].type, null=False))

    def _in(self, call: Call) -> None:
        term, *members = call.args
        if (domain := _values_domain(term, members)) is not None:
            self.add_domain(term, domain.with_null(False))
        else:
            self._or(Call("or", alternatives(call), BOOLEAN))

    def _not_in(self, call: Call) -> None:
        term, *members = call.args
        if (domain := _values_domain(term, members)) is not None:
            # x NOT IN (.., NULL) is false or NULL, never true.
            self.empty |= domain.null
            self.add_domain(term, domain.complement())
        else:
            for member in members:
                self.add_simplified(simplify(Call("<>", (term, member), BOOLEAN)))

    def _same(self, call: Call) -> None:
        # `simplify` wrote x <=> NULL as x IS NULL, so this constant has a value.
        if isinstance(call.args[1], Literal):
            self.add_simplified(simplify(Call("=", call.args, BOOLEAN)))
        else:
            self._add_opaque(call)

    def _not_same(self, call: Call) -> None:
        term, domain = call.args[0], _values_domain(call.args[0], call.args[1:])
        if domain is None:
            self._add_opaque(Call("not", (call,), BOOLEAN))
        else:
            # With NULL: NOT (x <=> 5) is true where x is NULL.
            self.add_domain(term, domain.outside())

    def _comparison(self, call: Call) -> None:
        op, (a, b) = call.name, call.args
        # Linear first: `v + 1 > 6` must bound v exactly, not the term v + 1, which may overflow.
        if a == b:
            self._with_itself(op, a)
        elif (form := linear_difference(a, b)) is not None and is_bounding(form):
            self._linear(form, op)
        elif isinstance(b, Literal) and (value := comparable_value(a.type, b)) is not None:
            self.add_domain(a, comparison_domain(a.type, op, value))
        elif op == "=" and _can_be_equal(a, b):
            self.add_equality(a, b)
        else:
            outcomes = self.pairs.get((a, b), 7) & OUTCOMES[op]
            self.pairs[(a, b)] = outcomes
            self.empty |= not outcomes

    def _with_itself(self, op: str, term: Expr) -> None:
        if OUTCOMES[op] & 2:
            self.add_domain(term, full_domain(term.type, null=False))
        else:
            self.empty = True

    def _linear(self, form: LinearForm, op: str) -> None:
        """Add form op 0, for a form that bounds one column or a difference."""
        used = [part for part in form.parts.items() if part[1]]
        for column, factor in form.parts.items():
            # The column cancels out, but the comparison is NULL where it is.
            if not factor:
                self.restrict_domain(column, full_domain(column.type, null=False))
        if not used:
            sign = 1 if form.constant < 0 else 4 if form.constant > 0 else 2
            self.empty |= not OUTCOMES[op] & sign
        elif len(used) == 1:
            self.restrict_domain(used[0][0], column_domain(*used[0], op, form.constant))
        else:
            (x, factor), (y, _) = sorted(used, key=lambda part: canonical_text(part[0]))
            bound = Fraction(-form.constant) / factor
            self._difference(x, y, op if factor > 0 else MIRRORED[op], bound)

    def _difference(self, x: Column, y: Column, op: str, bound: Fraction) -> None:
        """Add x - y op bound, for x before y."""
        if op == "=" and not bound and x.type == y.type:
            self.add_equality(x, y)
        else:
            term = difference_term(x, y)
            assert term is not None
            self.restrict_domain(term, difference_domain(term, x, op, bound))

    # ---- closing

    def close(self) -> Box:
        """The box of all facts but the disjunctions."""
        while not self.empty:
            # Before every pass, because the last one may have found more columns equal.
            heads = self._merge()
            if not self._rewrite(heads) and not self._settle():
                return self._box(heads)
        return NOTHING

    def _merge(self) -> dict[Expr, Expr]:
        """Give every class of equal columns one domain; return the representative of the others."""
        heads = self._merge_classes()
        while self._join_points():
            heads = self._merge_classes()
        return heads

    def _merge_classes(self) -> dict[Expr, Expr]:
        classes: dict[Expr, list[Expr]] = {}
        for column in self.parents:
            classes.setdefault(self._root(column), []).append(column)
        heads: dict[Expr, Expr] = {}
        for members in classes.values():
            head, *others = sorted(members, key=canonical_text)
            # x = y is true only where both have a value.
            self.restrict_domain(head, full_domain(head.type, null=False))
            for other in others:
                heads[other] = head
                if other in self.domains:
                    self.restrict_domain(head, self.domains.pop(other))
        return heads

    def _join_points(self) -> bool:
        """Columns of one type with the same single value are equal."""
        holders: dict[Domain, Expr] = {}
        joined = False
        for term, domain in self.domains.items():
            if isinstance(term, Column) and not term.type.is_floating and domain.is_point:
                holder = holders.setdefault(domain, term)
                if holder is not term:
                    self.add_equality(holder, term)
                    joined = True
        return joined

    def _rewrite(self, heads: dict[Expr, Expr]) -> bool:
        """Rewrite all other facts in terms of representatives; whether anything has changed."""
        if not heads:
            return False
        changed = self._rewrite_domains(heads)
        for pair in list(self.pairs):
            call = Call(COMPARISON_OF[self.pairs[pair]], pair, BOOLEAN)
            if (new := substitute_heads(call, heads)) != call:
                del self.pairs[pair]
                self.add_simplified(new)
                changed = True
        for term in list(self.terms):
            if (new := substitute_heads(term, heads)) != term:
                del self.terms[term]
                self.add_simplified(new)
                changed = True
        return changed

    def _rewrite_domains(self, heads: dict[Expr, Expr]) -> bool:
        changed = False
        for term in [term for term in self.domains if isinstance(term, Call)]:
            if (xy := columns_of_difference(term)) is not None:
                x, y = (heads.get(column, column) for column in xy)
                if (x, y) != xy:
                    self.add_difference(x, y, self.domains.pop(term))
                    changed = True
            elif (new := substitute_heads_in_term(term, heads)) != term:
                self.add_domain(new, self.domains.pop(term))
                changed = True
        return changed

    def _settle(self) -> bool:
        """Drop comparisons of two terms that their domains decide; whether anything has changed."""
        differences = [
            (term, xy) for term in self.domains if (xy := columns_of_difference(term)) is not None
        ]
        if not differences and not self.pairs:
            return False
        before = dict(self.domains), dict(self.pairs), len(self.parents)
        for term, (x, y) in differences:
            self._settle_difference(term, x, y)
        for a, b in list(self.pairs):
            self._settle_pair(a, b)
        return (self.domains, self.pairs, len(self.parents)) != before

    def _settle_difference(self, term: Expr, x: Column, y: Column) -> None:
        value_x, value_y = self._number(x), self._number(y)
        if value_x is not None:
            self.restrict_domain(y, solve_difference(value_x, x, y, self.domains.pop(term)))
        elif value_y is not None:
            self.restrict_domain(
                x, solve_difference(value_y, y, x, negate_domain(self.domains.pop(term), x))
            )
        elif x in self.domains or y in self.domains or self._is_decided(term, x):
            self._narrow(term, x, y)

    def _is_decided(self, term: Expr, x: Column) -> bool:
        domain = self.domains[term]
        return domain.has_all_values or sign_comparison(term, x, domain) == "="

    def _number(self, column: Expr) -> Fraction | None:
        """The only value that a column can have; None if there are more."""
        domain = self.domains.get(column)
        if domain is None or not domain.is_point or domain.point is None:
            return None
        value = domain.point.value
        return Fraction(value) if isinstance(value, int | Decimal) else None

    def _narrow(self, term: Expr, x: Column, y: Column) -> None:
        """Reduce the domain of a difference to what the domains of its columns do not imply."""
        domain = self.domains.pop(term)
        implied = difference_range(term, x, self._domain(x), self._domain(y)).with_null(domain.null)
        left, remaining = domain.intersect(implied), domain.simplify_within(implied)
        self.empty |= left.is_empty
        if x.type == y.type and sign_comparison(term, x, left) == "=":
            self.add_equality(x, y)
        elif not remaining.has_all_values:
            self.domains[term] = remaining
        elif not domain.null:
            # The domains imply the comparison, but not that both sides have a value.
            self.restrict_domain(x, full_domain(x.type, null=False))
            self.restrict_domain(y, full_domain(y.type, null=False))

    def _settle_pair(self, a: Expr, b: Expr) -> None:
        if a.type != b.type:
            return
        of_a, of_b = self._domain(a), self._domain(b)
        possible = of_a.outcomes(of_b)
        outcomes = self.pairs.pop((a, b)) & possible
        if not outcomes:
            self.empty = True
        elif outcomes == possible:
            self.add_domain(a, full_domain(a.type, null=False))
            self.add_domain(b, full_domain(b.type, null=False))
        elif of_a.point is not None and not _is_linear(b):
            op = MIRRORED[COMPARISON_OF[outcomes]]
            self.add_domain(b, comparison_domain(b.type, op, of_a.point.value))
        elif of_b.point is not None and not _is_linear(a):
            self.add_domain(a, comparison_domain(a.type, COMPARISON_OF[outcomes], of_b.point.value))
        elif outcomes == 2 and _can_be_equal(a, b):
            self.add_equality(a, b)
        else:
            self.pairs[(a, b)] = outcomes

    def _domain(self, term: Expr) -> Domain:
        return self.domains.get(term) or full_domain(term.type)

    def _box(self, heads: dict[Expr, Expr]) -> Box:
        terms = dict(self.terms)
        for pair, outcomes in self.pairs.items():
            terms[Call(COMPARISON_OF[outcomes], pair, BOOLEAN)] = None
        # An opaque condition and its negation are never both true.
        if any(isinstance(t, Call) and t.name == "not" and t.args[0] in terms for t in terms):
            return NOTHING
        present = terms_not_null(self.domains, terms)
        members = _equal_terms(heads)
        constraints = []
        for term, domain in self.domains.items():
            is_present = bool(present) and term in present
            if is_present:
                domain = domain.with_null(False)
            if domain.is_empty:
                return NOTHING
            if members and term in members:
                constraints.append(Constraint(members[term], domain))
            elif not _is_trivial(term, domain, is_present):
                constraints.append(Constraint((term,), domain))
        constraints.sort(key=lambda c: canonical_text(c.terms[0]))
        return Box(tuple(constraints), tuple(sorted(terms, key=canonical_text)))


def _equal_terms(heads: dict[Expr, Expr]) -> dict[Expr, tuple[Expr, ...]]:
    """All columns of the class of each representative, in order."""
    members: dict[Expr, list[Expr]] = {head: [head] for head in heads.values()}
    for member, head in heads.items():
        members[head].append(member)
    return {head: tuple(sorted(terms, key=canonical_text)) for head, terms in members.items()}


def alternatives(condition: Expr) -> tuple[Expr, ...]:
    """The conditions of which one must be true: parts of an OR, or of IN with expressions."""
    if not isinstance(condition, Call):
        return (condition,)
    if condition.name == "or":
        return tuple(part for arg in condition.args for part in alternatives(arg))
    term, *members = condition.args
    if condition.name == "in" and _values_domain(term, members) is None:
        return tuple(simplify(Call("=", (term, member), BOOLEAN)) for member in members)
    return (condition,)


def _is_trivial(term: Expr, domain: Domain, is_present: bool) -> bool:
    """Whether a domain restricts nothing."""
    return domain.has_all_values and (domain.null or is_present or not may_be_null(term))


def _is_directly_comparable(a: Column, b: Literal) -> bool:
    """Whether a constant can be compared with a column by its value, without conversion."""
    return a.type == b.type or (a.type.is_integer and b.type.is_integer)


def _can_be_equal(a: Expr, b: Expr) -> bool:
    """Whether two terms are columns that can replace each other once they are equal."""
    if not (isinstance(a, Column) and isinstance(b, Column)):
        return False
    # 0.0 equals -0.0 but is written differently, so equal floats cannot replace each other.
    return a.type == b.type and not a.type.is_floating


def _is_linear(term: Expr) -> bool:
    """Whether a comparison of the term with a constant bounds its columns instead of the term."""
    return isinstance(term, Call) and linear_form(term) is not None


def _values_domain(term: Expr, members: Sequence[Expr]) -> Domain | None:
    """The set of the members, NULL if one is; None if a member is no constant of exact value."""
    if isinstance(term, Literal) or _is_linear(term):
        return None
    values = []
    for member in members:
        if not isinstance(member, Literal):
            return None
        value = comparable_value(term.type, member)
        if value is None and member.value is not None:
            return None
        values.append(value)
    return domain_of(term.type, values)


_COLLECT: dict[str, Callable[[Facts, Call], None]] = {
    **dict.fromkeys(OUTCOMES, Facts._comparison),
    "and": Facts._and,
    "or": Facts._or,
    "not": Facts._not,
    "is_null": Facts._null,
    "in": Facts._in,
    "<=>": Facts._same,
}

_NEGATIONS: dict[str, Callable[[Facts, Call], None]] = {
    "is_null": Facts._not_null,
    "in": Facts._not_in,
    "<=>": Facts._not_same,
}
