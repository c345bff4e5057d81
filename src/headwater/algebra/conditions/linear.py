"""Linear forms: sums of columns times constants, on types whose arithmetic is exact.

A comparison of linear expressions is decided as in mathematics, so `v + 1 > 6` is `v > 5` and `a.ts
<= b.ts + INTERVAL 5 MINUTES` bounds the difference of two columns. An intermediate result that
would overflow does not make such a comparison NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from headwater.algebra.conditions.domain import (
    BOTTOM,
    DAY,
    Domain,
    comparison_domain,
    empty_domain,
    full_domain,
)
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import COMPARISONS, MIRRORED, cast
from headwater.algebra.types import (
    BIGINT,
    DATE,
    INTERVAL,
    MAX_DECIMAL,
    TIMESTAMP,
    Type,
    as_decimal,
    decimal,
)

Number = int | Fraction

MAX_RANGE_PAIRS = 16
"""How many pairs of intervals of two columns are combined to bound their difference."""


@dataclass(frozen=True, slots=True)
class LinearForm:
    """The sum of `parts` (columns with their factors, zero too) and a constant."""

    parts: dict[Column, Number]
    constant: Number = 0

    def plus(self, other: LinearForm, sign: int = 1) -> LinearForm:
        parts = dict(self.parts)
        for column, factor in other.parts.items():
            # A column that cancels out stays, with factor 0: x - x is NULL where x is.
            parts[column] = parts.get(column, 0) + sign * factor
        return LinearForm(parts, self.constant + sign * other.constant)

    def times(self, factor: Number) -> LinearForm:
        return LinearForm({c: f * factor for c, f in self.parts.items()}, self.constant * factor)


def linear_form(expr: Expr) -> LinearForm | None:
    """The linear form of a simplified expression; None if it has none.

    Days are counted in a DATE, microseconds in a TIMESTAMP or an INTERVAL.
    """
    if isinstance(expr, Column):
        return LinearForm({expr: 1}) if expr.type.is_exact else None
    if isinstance(expr, Literal):
        exact = expr.type.is_exact and isinstance(expr.value, int | Decimal)
        return LinearForm({}, _number(expr)) if exact else None
    rule = _RULES.get(expr.name)
    return rule(expr) if rule is not None and expr.type.is_exact else None


def linear_difference(a: Expr, b: Expr) -> LinearForm | None:
    """The linear form of a - b for two sides of a comparison."""
    x, y = linear_form(a), linear_form(b)
    if x is None or y is None:
        return None
    if a.type != b.type:
        x, y = _in_micros(a, x, b), _in_micros(b, y, a)
    return x.plus(y, -1)


def _in_micros(expr: Expr, form: LinearForm, other: Expr) -> LinearForm:
    return form.times(DAY) if expr.type == DATE and other.type == TIMESTAMP else form


def _number(constant: Literal) -> Number:
    value = constant.value
    assert isinstance(value, int | Decimal)
    return value if isinstance(value, int) else Fraction(value)


def _sum(call: Call) -> LinearForm | None:
    a, b = linear_form(call.args[0]), linear_form(call.args[1])
    # Constants alone are left to `simplify`, where arithmetic that overflows is NULL.
    if a is None or b is None or not (a.parts or b.parts):
        return None
    if call.name == "-" and call.type == INTERVAL:
        a, b = (
            form.times(DAY) if arg.type == DATE else form
            for form, arg in zip((a, b), call.args, strict=True)
        )
    return a.plus(b, -1 if call.name == "-" else 1)


def _product(call: Call) -> LinearForm | None:
    a, b = linear_form(call.args[0]), linear_form(call.args[1])
    if a is None or b is None or bool(a.parts) == bool(b.parts):
        return None
    return a.times(b.constant) if a.parts else b.times(a.constant)


def _negation(call: Call) -> LinearForm | None:
    form = linear_form(call.args[0])
    return None if form is None else form.times(-1)


def _widening(call: Call) -> LinearForm | None:
    """A cast that keeps every value."""
    source, target = call.args[0].type, call.type
    if source == DATE and target == TIMESTAMP:
        form = linear_form(call.args[0])
        return None if form is None else form.times(DAY)
    return linear_form(call.args[0]) if _can_hold(target, source) else None


def _can_hold(target: Type, source: Type) -> bool:
    if target.is_integer and source.is_integer:
        return _highest(target) >= _highest(source)
    if target.is_decimal and (source.is_integer or source.is_decimal):
        inner = as_decimal(source)
        whole = target.precision - target.scale >= inner.precision - inner.scale
        return whole and target.scale >= inner.scale
    return False


def _highest(type_: Type) -> int:
    return 0 if type_.bounds is None else type_.bounds[1]


_RULES: dict[str, Callable[[Call], LinearForm | None]] = {
    "+": _sum,
    "-": _sum,
    "*": _product,
    "neg": _negation,
    "cast": _widening,
}


# ---- one column, and the difference of two


def is_bounding(form: LinearForm) -> bool:
    """Whether `form op 0` bounds one column, or the difference of two."""
    used = [part for part in form.parts.items() if part[1]]
    if len(used) < 2:
        return True
    (x, first), (y, second) = used[0], used[1]
    return len(used) == 2 and first == -second and difference_term(x, y) is not None


def is_bounding_comparison(call: Expr) -> bool:
    """Whether a comparison is linear and bounds one column, or the difference of two."""
    if not isinstance(call, Call) or call.name not in (*COMPARISONS, "in"):
        return False
    form = linear_difference(call.args[0], call.args[1])
    return form is not None and is_bounding(form)


def column_domain(column: Column, factor: Number, op: str, constant: Number) -> Domain:
    """The values of a column for which `factor * column + constant op 0`."""
    return comparison_domain(
        column.type, op if factor > 0 else MIRRORED[op], Fraction(-constant) / factor
    )


def difference_term(x: Column, y: Column) -> Expr | None:
    """x - y, in a type that holds every result; None if there is none.

    Both are numbers, or both times of one type; x comes before y in order of text.
    """
    if x.type == y.type and x.type in (TIMESTAMP, DATE, INTERVAL):
        return Call("-", (x, y), INTERVAL)
    if x.type.is_integer and y.type.is_integer and BIGINT not in (x.type, y.type):
        return Call("-", (cast(x, BIGINT), cast(y, BIGINT)), BIGINT)
    # Two BIGINTs can differ by more than a BIGINT holds, so their difference is a DECIMAL.
    exact = all(t.is_integer or t.is_decimal for t in (x.type, y.type))
    if not exact:  # a difference of floating numbers is rounded
        return None
    a, b = as_decimal(x.type), as_decimal(y.type)
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if digits > MAX_DECIMAL:
        return None
    return Call("-", (cast(x, a), cast(y, b)), decimal(digits, scale))


def difference_domain(term: Expr, x: Column, op: str, bound: Number) -> Domain:
    """The values of `difference_term(x, ..)` for which x - y `op bound`, in units of x.

    Dates differ by whole days, so a cut between two days is put just above the lower one.
    """
    if x.type != DATE:
        return comparison_domain(term.type, op, Fraction(bound))
    days = comparison_domain(DATE, op, Fraction(bound))
    return Domain(
        term.type, tuple(cut if cut == BOTTOM else (cut - 1) * DAY + 1 for cut in days.cuts)
    )


def sign_comparison(term: Expr, x: Column, domain: Domain) -> str | None:
    """The comparison of x with y that a domain of `difference_term(x, y)` is equal to, if any."""
    return _sign_domains(term.type, x.type).get(domain) if len(domain.cuts) < 4 else None


@lru_cache(maxsize=64)
def _sign_domains(type_: Type, of_x: Type) -> dict[Domain, str]:
    term, x = Literal(None, type_), Column("", "", of_x)
    return {difference_domain(term, x, op, 0): op for op in ("=", "<>", "<", "<=", ">", ">=")}


def negate_domain(domain: Domain, x: Column) -> Domain:
    """The values -v for those v of a `difference_term(x, ..)` that are in the domain."""
    step = DAY if x.type == DATE else 1
    # "From c on" becomes "up to -c", whose cut is the next one: 1 - c, or for dates the next that
    # `difference_domain` can make. A set without upper end becomes one without lower end.
    cuts = [2 - step - cut for cut in reversed(domain.cuts) if cut != BOTTOM]
    if len(domain.cuts) % 2:
        cuts.insert(0, BOTTOM)
    return Domain(domain.type, tuple(cuts), domain.null)


def difference_range(term: Expr, x: Column, of_x: Domain, of_y: Domain) -> Domain:
    """The possible values of x - y over these domains; with many intervals, over their hulls."""
    if len(of_x.cuts) * len(of_y.cuts) > 4 * MAX_RANGE_PAIRS:
        of_x, of_y = of_x.hull(), of_y.hull()
    result = empty_domain(term.type)
    for low_x, high_x in of_x.numeric_ranges():
        for low_y, high_y in of_y.numeric_ranges():
            part = full_domain(term.type, null=False)
            if low_x is not None and high_y is not None:
                part = part.intersect(difference_domain(term, x, ">=", low_x - high_y))
            if high_x is not None and low_y is not None:
                part = part.intersect(difference_domain(term, x, "<=", high_x - low_y))
            result = result.union(part)
    return result


def solve_difference(value: Fraction, x: Column, y: Column, domain: Domain) -> Domain:
    """The values of y for which x - y is in the domain, where x has that value."""
    result = empty_domain(y.type)
    for low, high in _ranges_in_units(domain, x):
        part = full_domain(y.type, null=False)
        if low is not None:
            part = part.intersect(comparison_domain(y.type, "<=", value - low))
        if high is not None:
            part = part.intersect(comparison_domain(y.type, ">=", value - high))
        result = result.union(part)
    return result.with_null(domain.null)


def _ranges_in_units(domain: Domain, x: Column) -> list[tuple[Fraction | None, Fraction | None]]:
    """Least and largest of each interval of a `difference_term(x, ..)`, in units of x."""
    if x.type != DATE:
        return domain.numeric_ranges()
    cuts = tuple(cut if cut == BOTTOM else (cut - 1) // DAY + 1 for cut in domain.cuts)
    return Domain(DATE, cuts).numeric_ranges()


def columns_of_difference(term: Expr) -> tuple[Column, Column] | None:
    """The two columns of a term that `difference_term` built; None for any other term."""
    if not isinstance(term, Call) or term.name != "-":
        return None
    x, y = (
        arg.args[0] if isinstance(arg, Call) and arg.name == "cast" else arg for arg in term.args
    )
    if not isinstance(x, Column) or not isinstance(y, Column) or difference_term(x, y) != term:
        return None
    return (x, y) if canonical_text(x) < canonical_text(y) else None
