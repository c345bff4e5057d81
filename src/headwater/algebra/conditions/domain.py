"""Sets of values of one type: the values of a single term for which a condition is true.

In every type each value has a successor: integers and times count in steps of one, decimals in
units of their last digit, floats go from neighbour to neighbour up to NaN, which is the largest,
and the next string after `s` is `s` followed by a zero character. So a set is the sorted list of
cuts at which membership changes on the way up, and equal sets are equal objects.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from headwater.algebra.expressions import FALSE, Call, Column, Expr, Literal
from headwater.algebra.types import BOOLEAN, DOUBLE, Type, Value
from headwater.errors import AlgebraError

Constant = bool | int | float | Decimal | Fraction | str
Cut = Any
"""A position between two neighbours, named by the upper one: an int or, for STRING, a str."""

BOTTOM = -math.inf  # a cut below all values; in STRING the empty text is the least already
DAY = 86_400_000_000

_INTEGER_TYPES = frozenset(
    ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "TIMESTAMP", "DATE", "INTERVAL")
)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of values; None where it has no end."""

    low: Value
    high: Value
    low_in: bool = True
    high_in: bool = True

    def __str__(self) -> str:
        left, right = "[" if self.low_in else "(", "]" if self.high_in else ")"
        low = "" if self.low is None else str(self.low)
        return f"{left}{low}..{'' if self.high is None else self.high}{right}"


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of values of `type`, and whether NULL is in it. Build it with the functions below.

    Going up, every cut switches between outside and inside: (3, 6, 8) holds 3, 4, 5 and all from 8
    on. A first cut at the bottom includes all values below; cuts at limits of the type are left
    out.
    """

    type: Type
    cuts: tuple[Cut, ...]
    null: bool = False

    def __str__(self) -> str:
        inside = ["NULL"] if self.null else []
        return f"{self.type}{{{' '.join([*inside, *map(repr, self.cuts)])}}}"

    # ---- questions

    @property
    def is_empty(self) -> bool:
        return not self.cuts and not self.null

    @property
    def is_all(self) -> bool:
        """Every value is in it, NULL too."""
        return self.null and self.has_all_values

    @property
    def has_all_values(self) -> bool:
        """Every value but perhaps NULL is in it."""
        return len(self.cuts) == 1 and self.cuts[0] == _bottom(self.type)

    @property
    def is_point(self) -> bool:
        """One value is in it, and not NULL."""
        if self.null or not 0 < len(self.cuts) <= 2:
            return False
        low, high = self.cuts[0], self.cuts[-1]
        # The common case; the general one also knows that a set may end at a limit of its type.
        if isinstance(low, int) and isinstance(high, int) and low < high:
            return high == low + 1
        return self._is_points()

    @property
    def point(self) -> Literal | None:
        """Its only value, which may be NULL; None if it has several or none."""
        if not self.cuts:
            return Literal(None, self.type) if self.null else None
        return value_at(self.type, next(self._pairs())[0]) if self.is_point else None

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Its values as disjoint intervals, from low to high."""
        return tuple(_interval(self.type, low, high) for low, high in self._open_pairs())

    @property
    def inner_cuts(self) -> tuple[Cut, ...]:
        """Its cuts, without one below all values."""
        return self.cuts[1:] if self.cuts and self.cuts[0] == _bottom(self.type) else self.cuts

    def numeric_ranges(self) -> list[tuple[Fraction | None, Fraction | None]]:
        """Least and largest number of each interval, for exact types; None where it has no end."""
        unit = 10**self.type.scale
        return [
            (
                None if low == BOTTOM else Fraction(low, unit),
                None if high is None else Fraction(high - 1, unit),
            )
            for low, high in self._open_pairs()
        ]

    def values(self, limit: int) -> tuple[Literal, ...] | None:
        """All its values in order, NULL aside; None if there are more than `limit`."""
        literals: list[Literal] = []
        for low, high in self._pairs():
            while low != high:
                if len(literals) == limit or high is None or low == BOTTOM:
                    return None
                # Between two different texts there are infinitely many, unless they are neighbours.
                if isinstance(low, str) and high != _next(low):
                    return None
                literals.append(value_at(self.type, low))
                low = _next(low)
        return tuple(literals)

    def count_values(self, limit: int) -> int | None:
        """How many values it has, NULL aside; None if there are more than `limit`."""
        if len(self.cuts) > 2 * limit:  # each range has one value at least
            return None
        number = 0
        for low, high in self._pairs():
            if high is None or low == BOTTOM:
                return None
            if isinstance(low, str):
                if high != _next(low):
                    return None
                number += 1
            else:
                number += high - low
            if number > limit:
                return None
        return number

    def contains(self, value: Constant | None) -> bool:
        """Whether a value, which may be of another numeric type, is in it."""
        if value is None:
            return self.null
        cut = cut_before(self.type, value)
        # 1.5 is no INT, though the cut before it lies inside of 1..2.
        return _has_value(self.type, value) and bisect_right(self.cuts, cut) % 2 == 1

    def outcomes(self, other: Domain) -> int:
        """How a value of it can compare with one of the other: sum of less 1, equal 2, greater 4."""
        if not self.cuts or not other.cuts:
            return 0
        mine, others = list(self._pairs()), list(other._pairs())
        # Less is possible if the least of one set is below the largest of the other, which is the
        # value before its last cut.
        less = others[-1][1] is None or _next(mine[0][0]) < others[-1][1]
        greater = mine[-1][1] is None or _next(others[0][0]) < mine[-1][1]
        equal = bool(_intersect_cuts(self.cuts, other.cuts))
        return less + 2 * equal + 4 * greater

    def __le__(self, other: Domain) -> bool:
        """Whether all that is in it is in the other."""
        if self.null and not other.null:
            return False
        if self.cuts == other.cuts:
            return True
        if len(self.cuts) == 2:  # one range: the usual case
            return _covers_range(other.cuts, *self.cuts)
        return all(_covers_range(other.cuts, low, high) for low, high in self._open_pairs())

    # ---- operations

    def intersect(self, other: Domain) -> Domain:
        """What is in both."""
        if self == other:
            return self
        _check_types(self, other)
        return Domain(self.type, _intersect_cuts(self.cuts, other.cuts), self.null and other.null)

    def union(self, other: Domain) -> Domain:
        """What is in either."""
        if self == other:
            return self
        _check_types(self, other)
        return Domain(self.type, _combine_cuts(self.cuts, other.cuts, 1), self.null or other.null)

    def complement(self) -> Domain:
        """The values, NULL aside, that are not in it: the domain of the negated condition."""
        bottom = _bottom(self.type)
        if self.cuts and self.cuts[0] == bottom:
            return Domain(self.type, self.cuts[1:])
        return Domain(self.type, (bottom, *self.cuts))

    def outside(self) -> Domain:
        """All that is not in it, NULL included."""
        return replace(self.complement(), null=not self.null)

    def hull(self) -> Domain:
        """The least single interval that holds its values; NULL stays as it is."""
        if len(self.cuts) <= 2:
            return self
        ends = (self.cuts[0], self.cuts[-1]) if len(self.cuts) % 2 == 0 else self.cuts[:1]
        return Domain(self.type, ends, self.null)

    def fill_gaps(self, pieces: int) -> Domain:
        """The domain with its smallest gaps filled until it has at most that many pieces; texts have
        no distances, so that of too many only the hull is left."""
        excess = (len(self.cuts) + 1) // 2 - pieces
        if excess <= 0:
            return self
        if isinstance(self.cuts[0], str):
            return self.hull()
        gaps = list(zip(self.cuts[1::2], self.cuts[2::2], strict=False))
        filled = set(sorted(gaps, key=lambda gap: gap[1] - gap[0])[:excess])
        dropped = {cut for gap in filled for cut in gap}
        return Domain(self.type, tuple(c for c in self.cuts if c not in dropped), self.null)

    def with_null(self, null: bool) -> Domain:
        return self if self.null == null else Domain(self.type, self.cuts, null)

    def simplify_within(self, context: Domain) -> Domain:
        """The simplest set with `context & result == context & self`.

        Ends and gaps that the context has too are left out: [3..9] within [1..9] is [3..], and
        within itself is everything. Single values stay: {5} within {5, 7} is {5}.
        """
        common = self.intersect(context)
        if common == context:
            return full_domain(self.type)
        cuts, ends = common.cuts, frozenset((_bottom(self.type), None, *common.cuts))
        if not cuts or common._is_points():
            return common
        for low, high in context.complement()._open_pairs():
            if low in ends and high in ends:
                gap = (low,) if high is None else (low, high)
                cuts = _combine_cuts(cuts, gap, 1)
        result = Domain(self.type, cuts, common.null)
        # Where the context has no NULL, nothing has to be checked if all values pass.
        return result.with_null(True) if result.has_all_values and not context.null else result

    # ---- as a condition

    def as_expr(self, term: Expr) -> Expr | None:
        """The shortest condition that is true where the term is in it; None if it always is."""
        if self.has_all_values:
            always = self.null or (isinstance(term, Column) and not term.nullable)
            return None if always else Call("not", (_is_null(term),), BOOLEAN)
        if not self.cuts:
            return _is_null(term) if self.null else FALSE
        condition = self._condition(term)
        if not self.null:
            return condition
        if isinstance(condition, Call) and condition.name == "or":
            return Call("or", (*condition.args, _is_null(term)), BOOLEAN)
        return Call("or", (condition, _is_null(term)), BOOLEAN)

    def _condition(self, term: Expr) -> Expr:
        pieces = len(self._open_pairs())
        # A list of values is shorter than ranges only while it has few values for each of them.
        points = self.values(4 * pieces)
        if points is not None and (pieces > 1 or len(points) <= 2):
            return _membership(term, points)
        if pieces > 1:
            hull = self.hull()
            holes = self.complement().intersect(hull).values(2 * (pieces - 1))
            if holes is not None:
                around = () if hull.has_all_values else _between(term, hull._open_pairs()[0])
                return _conjunction((*around, _non_membership(term, holes)))
        return _ranges_condition(term, self)

    # ---- inside

    def _open_pairs(self) -> list[tuple[Cut, Cut | None]]:
        """The first cut of each interval and the one behind it; None if it does not end."""
        ends: list[Cut | None] = [*self.cuts, None] if len(self.cuts) % 2 else list(self.cuts)
        return list(zip(ends[::2], ends[1::2], strict=True))

    def _pairs(self) -> Iterator[tuple[Cut, Cut | None]]:
        """The same with the limits of the type in place."""
        limits = _limits(self.type)
        for low, high in self._open_pairs():
            if limits is None:
                yield low, high
            else:
                yield max(low, limits[0]), limits[1] + 1 if high is None else high

    def _is_points(self) -> bool:
        return all(h is not None and low != BOTTOM and h == _next(low) for low, h in self._pairs())


# ---- making domains


def full_domain(type_: Type, null: bool = True) -> Domain:
    """All values of a type."""
    return Domain(type_, (_bottom(type_),), null)


def empty_domain(type_: Type) -> Domain:
    return Domain(type_, ())


def union_of(domains: Sequence[Domain]) -> Domain:
    """What is in any of some domains of one type."""
    while len(domains) > 1:
        # In pairs, and pairs of pairs: one after the other would copy all cuts each time.
        pairs = [domains[at : at + 2] for at in range(0, len(domains), 2)]
        domains = [pair[0].union(pair[-1]) for pair in pairs]
    return domains[0]


def null_domain(type_: Type) -> Domain:
    return Domain(type_, (), True)


def comparison_domain(type_: Type, op: str, value: Constant | None) -> Domain:
    """The values x for which `x op value` is true, compared as numbers are, or as NULLs are.

    For INT, `< Fraction(9, 2)` gives all values up to 4, and `= Fraction(9, 2)` none.
    """
    if value is None:
        return empty_domain(type_)
    match op:
        case "=" | "<=>":
            cuts: tuple[Cut, ...] = (cut_before(type_, value), cut_after(type_, value))
        case "<>":
            return comparison_domain(type_, "=", value).complement()
        case "<":
            cuts = (_bottom(type_), cut_before(type_, value))
        case "<=":
            cuts = (_bottom(type_), cut_after(type_, value))
        case ">":
            cuts = (cut_after(type_, value),)
        case _:
            cuts = (cut_before(type_, value),)
    return Domain(type_, _clamp(type_, cuts))


def domain_of(type_: Type, values: Iterable[Constant | None]) -> Domain:
    """The set of these values; NULL if None is among them."""
    items = list(values)
    cuts: list[Cut] = []
    for cut in sorted(
        {cut_before(type_, v) for v in items if v is not None and _has_value(type_, v)}
    ):
        if cuts and cuts[-1] == cut:
            cuts[-1] = _next(cut)
        else:
            cuts += (cut, _next(cut))
    return Domain(type_, _clamp(type_, tuple(cuts)), None in items)


def comparable_value(type_: Type, constant: Literal) -> Constant | None:
    """The constant as a number that compares with values of `type_` as the language does.

    None if that is not exact: a BIGINT beside a DOUBLE of 2**53 or more, a DECIMAL beside a DOUBLE.
    """
    value, other = constant.value, constant.type
    if value is None or other == type_:
        return value
    if isinstance(value, float):
        # An integer beside a DOUBLE is compared as a DOUBLE, which is exact below 2**53 only.
        whole = type_.is_integer and (not math.isfinite(value) or abs(value) < 2**53)
        return value if whole or type_.is_floating else None
    if type_.is_numeric and other.is_numeric and isinstance(value, int | Decimal):
        return float(value) if type_.is_floating else value
    if (type_.name, other.name) == ("TIMESTAMP", "DATE"):
        return value * DAY if isinstance(value, int) else None
    if (type_.name, other.name) == ("DATE", "TIMESTAMP"):
        return Fraction(value, DAY) if isinstance(value, int) else None
    return None


# ---- the line of values


def cut_before(type_: Type, value: Constant) -> Cut:
    """The cut just below a value; a value between two neighbours is above both of its cuts."""
    return _cut(type_, value, 0)


def cut_after(type_: Type, value: Constant) -> Cut:
    """The cut just above a value."""
    return _cut(type_, value, 1)


def _cut(type_: Type, value: Constant, above: int) -> Cut:
    if isinstance(value, int) and type_.name in _INTEGER_TYPES:
        return value + above
    if isinstance(value, str):
        return value + "\0" if above else value
    if type_.is_floating:
        return _float_ordinal(float(value)) + above
    if isinstance(value, float) and not math.isfinite(value):
        # NaN is above all numbers, as infinity is.
        limits = _limits(type_)
        assert limits is not None
        return BOTTOM if value == -math.inf else limits[1] + 1
    over, under = value.as_integer_ratio()
    over *= 10**type_.scale
    return over // under + 1 if above else -(-over // under)


def _has_value(type_: Type, value: Constant) -> bool:
    """Whether the type has this very value, as INT has neither 1.5 nor 2**31."""
    cut, limits = cut_before(type_, value), _limits(type_)
    if limits is not None and not limits[0] <= cut <= limits[1]:
        return False
    return bool(cut != cut_after(type_, value))


def _next(cut: Cut) -> Cut:
    return cut + "\0" if isinstance(cut, str) else cut + 1


def _bottom(type_: Type) -> Cut:
    return "" if type_.name == "STRING" else BOTTOM


@lru_cache(maxsize=256)
def _limits(type_: Type) -> tuple[int, int] | None:
    """Least and largest ordinal of the type; None if it has none."""
    if type_.is_floating:
        return (_float_ordinal(-math.inf), _float_ordinal(math.nan))
    if type_.is_decimal:
        return (1 - 10**type_.precision, 10**type_.precision - 1)
    return type_.bounds


def _clamp(type_: Type, cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    limits = _limits(type_)
    if limits is not None:
        low, high = limits
        cuts = tuple(BOTTOM if cut <= low else cut for cut in cuts if cut <= high)
    # Nothing between them: the type does not have the value (4.5, in INT), or only beyond a limit.
    if len(cuts) >= 2 and cuts[0] >= cuts[1]:
        cuts = cuts[2:]
    return cuts


_INFINITE: int = struct.unpack("<q", struct.pack("<d", math.inf))[0]


def _float_ordinal(value: float) -> int:
    """The position of a float among all floats: zero is 0, its neighbours 1 and -1, NaN last."""
    if value != value:
        return _INFINITE + 1
    # The bits of doubles that are not negative rise with their value; the sign bit mirrors them,
    # and -0.0 falls on 0.
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _float_at(ordinal: int) -> float:
    if ordinal > _INFINITE:
        return math.nan
    value: float = struct.unpack("<d", struct.pack("<q", abs(ordinal)))[0]
    return value if ordinal >= 0 else -value


def value_at(type_: Type, cut: Cut) -> Literal:
    """The value at a position; one of a FLOAT column as DOUBLE, which compares exactly."""
    if type_.is_floating:
        return Literal(_float_at(cut), DOUBLE)
    if type_.is_decimal:
        # From digits, because arithmetic would round to the 28 digits of the default context.
        digits = tuple(map(int, str(abs(cut))))
        return Literal(Decimal((int(cut < 0), digits, -type_.scale)), type_)
    return Literal(bool(cut) if type_ == BOOLEAN else cut, type_)


def _intersect_cuts(a: Sequence[Cut], b: Sequence[Cut]) -> tuple[Cut, ...]:
    """The cuts of what is inside both."""
    if not a or not b:
        return ()
    # Single intervals are nearly all that is intersected: no loop for them.
    if len(a) > 2 or len(b) > 2:
        return _combine_cuts(a, b, 2)
    low = max(a[0], b[0])
    if len(a) == len(b) == 1:
        return (low,)
    high = min(a[-1], b[-1]) if len(a) == len(b) else a[1] if len(a) == 2 else b[1]
    return (low, high) if low < high else ()


def _combine_cuts(a: Sequence[Cut], b: Sequence[Cut], needed: int) -> tuple[Cut, ...]:
    """The cuts of what is inside at least `needed` of the two."""
    result: list[Cut] = []
    i = j = 0
    while i < len(a) or j < len(b):
        cut = a[i] if j == len(b) or (i < len(a) and a[i] <= b[j]) else b[j]
        i += i < len(a) and a[i] == cut
        j += j < len(b) and b[j] == cut
        if (i % 2 + j % 2 >= needed) != (len(result) % 2 == 1):
            result.append(cut)
    return tuple(result)


def _covers_range(cuts: Sequence[Cut], low: Cut, high: Cut | None) -> bool:
    """Whether one interval of the cuts holds everything from low to before high."""
    at = bisect_right(cuts, low)
    if at % 2 == 0:
        return False
    return at == len(cuts) or (high is not None and bool(high <= cuts[at]))


def _check_types(a: Domain, b: Domain) -> None:
    if a.type != b.type:
        raise AlgebraError(f"a domain of {a.type} does not meet one of {b.type}")


# ---- writing conditions


def _interval(type_: Type, low: Cut, high: Cut | None) -> Interval:
    bottom = low == _bottom(type_)
    above, first = (">=", None) if bottom else _lower_bound(type_, low)
    below, last = ("<=", None) if high is None else _upper_bound(type_, high)
    return Interval(
        None if first is None else first.value,
        None if last is None else last.value,
        above == ">=" and not bottom,
        below == "<=" and high is not None,
    )


def _lower_bound(type_: Type, cut: Cut) -> tuple[str, Literal]:
    """The comparison that is true from a cut on."""
    if isinstance(cut, str):
        return (
            (">", value_at(type_, cut[:-1])) if cut.endswith("\0") else (">=", Literal(cut, type_))
        )
    # > 0.1 rather than >= 0.10000000000000002, which is the same.
    if type_.is_floating and _is_shorter(cut - 1, cut):
        return (">", value_at(type_, cut - 1))
    return (">=", value_at(type_, cut))


def _upper_bound(type_: Type, cut: Cut) -> tuple[str, Literal]:
    """The comparison that is true up to a cut."""
    if isinstance(cut, str):
        return (
            ("<=", value_at(type_, cut[:-1])) if cut.endswith("\0") else ("<", Literal(cut, type_))
        )
    if type_.is_floating and _is_shorter(cut, cut - 1):
        return ("<", value_at(type_, cut))
    return ("<=", value_at(type_, cut - 1))


def _is_shorter(a: int, b: int) -> bool:
    return len(repr(_float_at(a))) < len(repr(_float_at(b)))


def _is_null(term: Expr) -> Call:
    return Call("is_null", (term,), BOOLEAN)


def _membership(term: Expr, values: Sequence[Literal]) -> Expr:
    if len(values) > 1:
        return Call("in", (term, *values), BOOLEAN)
    if term.type == BOOLEAN:
        return term if values[0].value else Call("not", (term,), BOOLEAN)
    return Call("=", (term, values[0]), BOOLEAN)


def _non_membership(term: Expr, values: Sequence[Literal]) -> Expr:
    if len(values) > 1:
        return Call("not", (Call("in", (term, *values), BOOLEAN),), BOOLEAN)
    return Call("<>", (term, values[0]), BOOLEAN)


def _between(term: Expr, ends: tuple[Cut, Cut | None]) -> tuple[Expr, ...]:
    low, high = ends
    parts = []
    if low != _bottom(term.type):
        parts.append(_lower_bound(term.type, low))
    if high is not None:
        parts.append(_upper_bound(term.type, high))
    return tuple(Call(op, (term, value), BOOLEAN) for op, value in parts)


def _conjunction(parts: tuple[Expr, ...]) -> Expr:
    return parts[0] if len(parts) == 1 else Call("and", parts, BOOLEAN)


def _ranges_condition(term: Expr, domain: Domain) -> Expr:
    """An OR of intervals, with the single values together in one IN."""
    single: list[Literal] = []
    stretches: list[Expr] = []
    for ends in domain._open_pairs():
        values = Domain(domain.type, tuple(c for c in ends if c is not None)).values(1)
        if values is None:
            stretches.append(_conjunction(_between(term, ends)))
        else:
            single += values
    parts = [*stretches, _membership(term, single)] if single else stretches
    return parts[0] if len(parts) == 1 else Call("or", tuple(parts), BOOLEAN)
