"""Collecting the conjuncts of a condition until they are a box.

Every conjunct becomes a fact: a domain of a term, an equality of columns, a comparison of two terms,
a disjunction, or something opaque. Closing brings facts together until nothing follows that is not
said: equal columns share one domain and stand for each other in all other facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from headwater.algebra.box import (
    NOTHING,
    Box,
    Constraint,
    needed,
    replaced,
    replaced_term,
)
from headwater.algebra.domain import (
    Domain,
    comparable,
    compare,
    everything,
    of,
    only_null,
)
from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import MIRRORED
from headwater.algebra.linear import (
    Linear,
    beside,
    bounds,
    columns_of_difference,
    difference,
    difference_term,
    linear,
    mirrored,
    on_column,
    on_difference,
    sign,
    spread,
)
from headwater.algebra.simplify import (
    COMPARISON_OF,
    OUTCOMES,
    may_be_null,
    negate,
    simplify,
    text,
)
from headwater.algebra.types import BOOLEAN

_YES = compare(BOOLEAN, "=", True)
_NO = compare(BOOLEAN, "=", False)


class Facts:
    """Conjuncts in the making; disjunctions are kept apart, in `ors`."""

    __slots__ = ("domains", "empty", "ors", "pairs", "parents", "terms")

    def __init__(self, *boxes: Box) -> None:
        self.domains: dict[Expr, Domain] = {}
        self.parents: dict[Expr, Expr] = {}
        self.pairs: dict[tuple[Expr, ...], int] = {}
        self.terms: dict[Expr, None] = {}
        self.ors: dict[Call, None] = {}
        self.empty = False
        for box in boxes:
            self.include(box)

    # ---- taking in

    def condition(self, expr: Expr) -> None:
        """Any condition is true."""
        if isinstance(expr, Call):
            if expr.name == "and":
                for part in expr.args:
                    self.condition(part)
                return
            if self._plain(expr):
                return
        self.simple(simplify(expr))

    def _plain(self, call: Call) -> bool:
        """Take in a comparison of a column with constants or with a column, if it is plain."""
        name, first, second = call.name, call.args[0], call.args[-1]
        if not isinstance(first, Column):
            return False
        if name in OUTCOMES:
            if isinstance(second, Literal) and _alike(first, second):
                self.meet(first, compare(first.type, name, second.value))
                return True
            if name == "=" and first is not second and _can_be_equal(first, second):
                self.equal(first, second)
                return True
        elif name == "in" and (domain := _set_of(first, call.args[1:])) is not None:
            self.meet(first, domain.with_null(False))
            return True
        return False

    def simple(self, expr: Expr) -> None:
        """A simplified condition is true."""
        if isinstance(expr, Literal):
            self.empty |= expr.value is not True
        elif isinstance(expr, Column):
            self.meet(expr, _YES)
        else:
            _COLLECT.get(expr.name, Facts._opaque)(self, expr)

    def include(self, box: Box) -> None:
        """All that a box says."""
        self.empty |= box.empty
        for c in box.constraints:
            self.equal_in(c.terms, c.domain)
        for term in box.terms:
            self.simple(term)

    def know(self, term: Expr, domain: Domain) -> None:
        """The term is in the domain."""
        if isinstance(term, Literal):
            self.empty |= not domain.contains(term.value)
        elif isinstance(term, Call) and term.type == BOOLEAN:
            self._know_condition(term, domain)
        else:
            self.meet(term, domain)

    def meet(self, term: Expr, domain: Domain) -> None:
        """The same for a term that is neither a constant nor a condition."""
        known = self.domains.get(term)
        if known is not None:
            domain = known.intersect(domain)
        elif domain.null and not may_be_null(term):
            domain = domain.with_null(False)
        self.domains[term] = domain
        self.empty |= domain.is_empty

    def equal_in(self, terms: Sequence[Expr], domain: Domain) -> None:
        """The terms are equal, and in the domain."""
        self.meet(terms[0], domain)
        for term in terms[1:]:
            self.equal(terms[0], term)

    def differ(self, x: Expr, y: Expr, domain: Domain) -> None:
        """The difference of two columns is in the domain."""
        assert isinstance(x, Column) and isinstance(y, Column)
        if x == y:
            self._differ_not(x, domain)
            return
        if text(y) < text(x):
            x, y, domain = y, x, mirrored(domain, x)
        term = difference_term(x, y)
        assert term is not None
        self.meet(term, domain)

    def _differ_not(self, x: Column, domain: Domain) -> None:
        if not domain.contains(0):
            self.meet(x, only_null(x.type).with_null(domain.null))
        elif not domain.null:
            self.meet(x, everything(x.type, null=False))

    def equal(self, x: Expr, y: Expr) -> None:
        """Two columns of one type are equal."""
        a, b = self._root(x), self._root(y)
        self.parents.setdefault(a, a)
        self.parents[b] = a

    def _root(self, x: Expr) -> Expr:
        while (parent := self.parents.get(x, x)) != x:
            x = parent
        return x

    def _know_condition(self, term: Call, domain: Domain) -> None:
        condition = domain.as_expr(term)
        if condition is None:
            return
        simple, is_null = simplify(condition), Call("is_null", (term,), BOOLEAN)
        if simple in (is_null, negate(is_null)):
            self.meet(term, domain)
        else:
            self.simple(simple)

    # ---- kinds of conditions

    def _opaque(self, call: Call) -> None:
        self.terms[call] = None

    def _and(self, call: Call) -> None:
        for part in call.args:
            self.simple(part)

    def _or(self, call: Call) -> None:
        self.ors[call] = None

    def _not(self, call: Call) -> None:
        inner = call.args[0]
        if isinstance(inner, Column):
            self.meet(inner, _NO)
        elif isinstance(inner, Call) and inner.name in _NEGATIONS:
            _NEGATIONS[inner.name](self, inner)
        else:
            self._opaque(call)

    def _null(self, call: Call) -> None:
        self.know(call.args[0], only_null(call.args[0].type))

    def _not_null(self, call: Call) -> None:
        self.know(call.args[0], everything(call.args[0].type, null=False))

    def _in(self, call: Call) -> None:
        term, *members = call.args
        if (domain := _set_of(term, members)) is not None:
            self.know(term, domain.with_null(False))
        else:
            self._or(Call("or", alternatives(call), BOOLEAN))

    def _not_in(self, call: Call) -> None:
        term, *members = call.args
        if (domain := _set_of(term, members)) is not None:
            self.empty |= domain.null
            self.know(term, domain.complement())
        else:
            for member in members:
                self.simple(simplify(Call("<>", (term, member), BOOLEAN)))

    def _same(self, call: Call) -> None:
        if isinstance(call.args[1], Literal):
            self.simple(simplify(Call("=", call.args, BOOLEAN)))
        else:
            self._opaque(call)

    def _not_same(self, call: Call) -> None:
        term, domain = call.args[0], _set_of(call.args[0], call.args[1:])
        if domain is None:
            self._opaque(Call("not", (call,), BOOLEAN))
        else:
            self.know(term, domain.outside())

    def _comparison(self, call: Call) -> None:
        op, (a, b) = call.name, call.args
        if a == b:
            self._with_itself(op, a)
        elif (form := difference(a, b)) is not None and bounds(form):
            self._linear(form, op)
        elif isinstance(b, Literal) and (value := comparable(a.type, b)) is not None:
            self.know(a, compare(a.type, op, value))
        elif op == "=" and _can_be_equal(a, b):
            self.equal(a, b)
        else:
            outcomes = self.pairs.get((a, b), 7) & OUTCOMES[op]
            self.pairs[(a, b)] = outcomes
            self.empty |= not outcomes

    def _with_itself(self, op: str, term: Expr) -> None:
        if OUTCOMES[op] & 2:
            self.know(term, everything(term.type, null=False))
        else:
            self.empty = True

    def _linear(self, form: Linear, op: str) -> None:
        """form op 0, for a form that bounds one column or a difference."""
        used = [part for part in form.parts.items() if part[1]]
        for column, factor in form.parts.items():
            if not factor:
                self.meet(column, everything(column.type, null=False))
        if not used:
            sign = 1 if form.constant < 0 else 4 if form.constant > 0 else 2
            self.empty |= not OUTCOMES[op] & sign
        elif len(used) == 1:
            self.meet(used[0][0], on_column(*used[0], op, form.constant))
        else:
            (x, factor), (y, _) = sorted(used, key=lambda part: text(part[0]))
            bound = Fraction(-form.constant) / factor
            self._difference(x, y, op if factor > 0 else MIRRORED[op], bound)

    def _difference(self, x: Column, y: Column, op: str, bound: Fraction) -> None:
        """x - y op bound, for x before y."""
        if op == "=" and not bound and x.type == y.type:
            self.equal(x, y)
        else:
            term = difference_term(x, y)
            assert term is not None
            self.meet(term, on_difference(term, x, op, bound))

    # ---- closing

    def close(self) -> Box:
        """The box of all facts but the disjunctions."""
        while not self.empty:
            heads = self._merge()
            if not self._rewrite(heads) and not self._settle():
                return self._box(heads)
        return NOTHING

    def _merge(self) -> dict[Expr, Expr]:
        """Give every class of equal columns one domain; return the head of each other member."""
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
            head, *others = sorted(members, key=text)
            self.meet(head, everything(head.type, null=False))
            for other in others:
                heads[other] = head
                if other in self.domains:
                    self.meet(head, self.domains.pop(other))
        return heads

    def _join_points(self) -> bool:
        """Columns of one type with the same single value are equal."""
        holders: dict[Domain, Expr] = {}
        joined = False
        for term, domain in self.domains.items():
            if isinstance(term, Column) and not term.type.is_floating and domain.is_point:
                holder = holders.setdefault(domain, term)
                if holder is not term:
                    self.equal(holder, term)
                    joined = True
        return joined

    def _rewrite(self, heads: dict[Expr, Expr]) -> bool:
        """Say all else of heads; whether anything has changed."""
        if not heads:
            return False
        changed = self._rewrite_domains(heads)
        for pair in list(self.pairs):
            call = Call(COMPARISON_OF[self.pairs[pair]], pair, BOOLEAN)
            if (new := replaced(call, heads)) != call:
                del self.pairs[pair]
                self.simple(new)
                changed = True
        for term in list(self.terms):
            if (new := replaced(term, heads)) != term:
                del self.terms[term]
                self.simple(new)
                changed = True
        return changed

    def _rewrite_domains(self, heads: dict[Expr, Expr]) -> bool:
        changed = False
        for term in [term for term in self.domains if isinstance(term, Call)]:
            if (xy := columns_of_difference(term)) is not None:
                x, y = (heads.get(column, column) for column in xy)
                if (x, y) != xy:
                    self.differ(x, y, self.domains.pop(term))
                    changed = True
            elif (new := replaced_term(term, heads)) != term:
                self.know(new, self.domains.pop(term))
                changed = True
        return changed

    def _settle(self) -> bool:
        """Leave out comparisons of two terms that their domains decide; whether more follows."""
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
            self.meet(y, beside(value_x, x, y, self.domains.pop(term)))
        elif value_y is not None:
            self.meet(x, beside(value_y, y, x, mirrored(self.domains.pop(term), x)))
        elif x in self.domains or y in self.domains or self._is_decided(term, x):
            self._narrow(term, x, y)

    def _is_decided(self, term: Expr, x: Column) -> bool:
        domain = self.domains[term]
        return domain.has_all_values or sign(term, x, domain) == "="

    def _number(self, column: Expr) -> Fraction | None:
        """The single value that a column can have."""
        domain = self.domains.get(column)
        if domain is None or not domain.is_point or domain.point is None:
            return None
        value = domain.point.value
        return Fraction(value) if isinstance(value, int | Decimal) else None

    def _narrow(self, term: Expr, x: Column, y: Column) -> None:
        """Say of a difference what the domains of its columns do not say."""
        domain = self.domains.pop(term)
        known = spread(term, x, self._domain(x), self._domain(y)).with_null(domain.null)
        left, said = domain.intersect(known), domain.within(known)
        self.empty |= left.is_empty
        if x.type == y.type and sign(term, x, left) == "=":
            self.equal(x, y)
        elif not said.has_all_values:
            self.domains[term] = said
        elif not domain.null:
            self.meet(x, everything(x.type, null=False))
            self.meet(y, everything(y.type, null=False))

    def _settle_pair(self, a: Expr, b: Expr) -> None:
        if a.type != b.type:
            return
        of_a, of_b = self._domain(a), self._domain(b)
        possible = of_a.outcomes(of_b)
        outcomes = self.pairs.pop((a, b)) & possible
        if not outcomes:
            self.empty = True
        elif outcomes == possible:
            self.know(a, everything(a.type, null=False))
            self.know(b, everything(b.type, null=False))
        elif of_a.point is not None and not _is_linear(b):
            op = MIRRORED[COMPARISON_OF[outcomes]]
            self.know(b, compare(b.type, op, of_a.point.value))
        elif of_b.point is not None and not _is_linear(a):
            self.know(a, compare(a.type, COMPARISON_OF[outcomes], of_b.point.value))
        elif outcomes == 2 and _can_be_equal(a, b):
            self.equal(a, b)
        else:
            self.pairs[(a, b)] = outcomes

    def _domain(self, term: Expr) -> Domain:
        return self.domains.get(term) or everything(term.type)

    def _box(self, heads: dict[Expr, Expr]) -> Box:
        terms = dict(self.terms)
        for pair, outcomes in self.pairs.items():
            terms[Call(COMPARISON_OF[outcomes], pair, BOOLEAN)] = None
        if any(isinstance(t, Call) and t.name == "not" and t.args[0] in terms for t in terms):
            return NOTHING
        present = needed(self.domains, terms)
        members = _members(heads)
        constraints = []
        for term, domain in self.domains.items():
            is_present = bool(present) and term in present
            if is_present:
                domain = domain.with_null(False)
            if domain.is_empty:
                return NOTHING
            if members and term in members:
                constraints.append(Constraint(members[term], domain))
            elif not _is_plain(term, domain, is_present):
                constraints.append(Constraint((term,), domain))
        constraints.sort(key=lambda c: text(c.terms[0]))
        return Box(tuple(constraints), tuple(sorted(terms, key=text)))


def _members(heads: dict[Expr, Expr]) -> dict[Expr, tuple[Expr, ...]]:
    """All columns that a head stands for, in order."""
    members: dict[Expr, list[Expr]] = {head: [head] for head in heads.values()}
    for member, head in heads.items():
        members[head].append(member)
    return {head: tuple(sorted(terms, key=text)) for head, terms in members.items()}


def alternatives(condition: Expr) -> tuple[Expr, ...]:
    """The conditions of which one must be true: the parts of an OR, and of a list that is no set."""
    if not isinstance(condition, Call):
        return (condition,)
    if condition.name == "or":
        return tuple(part for arg in condition.args for part in alternatives(arg))
    term, *members = condition.args
    if condition.name == "in" and _set_of(term, members) is None:
        return tuple(simplify(Call("=", (term, member), BOOLEAN)) for member in members)
    return (condition,)


def _is_plain(term: Expr, domain: Domain, is_present: bool) -> bool:
    """Whether a domain says nothing."""
    return domain.has_all_values and (domain.null or is_present or not may_be_null(term))


def _alike(a: Column, b: Literal) -> bool:
    """Whether a constant compares with a column just by its value."""
    return a.type == b.type or (a.type.is_integer and b.type.is_integer)


def _can_be_equal(a: Expr, b: Expr) -> bool:
    """Whether two terms are columns of which an equality makes a class."""
    if not (isinstance(a, Column) and isinstance(b, Column)):
        return False
    return a.type == b.type and not a.type.is_floating


def _is_linear(term: Expr) -> bool:
    """Whether comparing a term with a constant says something about its columns instead."""
    return isinstance(term, Call) and linear(term) is not None


def _set_of(term: Expr, members: Sequence[Expr]) -> Domain | None:
    """The values that the members are, NULL if one is; None if that cannot be said."""
    if isinstance(term, Literal) or _is_linear(term):
        return None
    values = []
    for member in members:
        if not isinstance(member, Literal):
            return None
        value = comparable(term.type, member)
        if value is None and member.value is not None:
            return None
        values.append(value)
    return of(term.type, values)


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
