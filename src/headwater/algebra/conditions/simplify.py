"""One form for scalar expressions that have the same value on every row.

A rule may change an expression only if the value stays exactly the same, NULL included: the logic
has three values, arithmetic that overflows is NULL, comparison is a total order (NaN is the largest
float and equal to itself). So operands are swapped but sums are never regrouped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headwater.algebra.conditions.domain import DAY, comparable_value, comparison_domain
from headwater.algebra.expressions import FALSE, TRUE, Call, Column, Expr, Literal
from headwater.algebra.functions import COMPARISONS, MIRRORED, NEGATED, cast
from headwater.algebra.times import parse_date, parse_timestamp
from headwater.algebra.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    Type,
    Value,
)
from headwater.errors import AlgebraError

UNKNOWN = Literal(None, BOOLEAN)


def simplify(expr: Expr) -> Expr:
    """The canonical expression with the same value for every row.

    NOT (a < 5 AND b = 1)   ->  a >= 5 OR b <> 1
    5 < a                   ->  a > 5
    a = 2 OR a = 1          ->  a IN (1, 2)
    1 + 2 * 3               ->  7
    """
    if not isinstance(expr, Call):
        return expr
    args = tuple(simplify(arg) for arg in expr.args)
    rule = _RULES.get(expr.name)
    same = all(a is b for a, b in zip(args, expr.args, strict=True))
    simple = expr if same else Call(expr.name, args, expr.type)
    return simple if rule is None else rule(simple)


def negate(expr: Expr) -> Expr:
    """NOT of a simplified expression, simplified."""
    if isinstance(expr, Literal):
        return UNKNOWN if expr.value is None else FALSE if expr.value else TRUE
    if isinstance(expr, Call):
        if expr.name in NEGATED:
            return _comparison(Call(NEGATED[expr.name], expr.args, BOOLEAN))
        if expr.name == "not":
            return expr.args[0]
        if expr.name in ("and", "or"):
            other = "or" if expr.name == "and" else "and"
            return simplify_logic(other, [negate(arg) for arg in expr.args])
    return Call("not", (expr,), BOOLEAN)


def may_be_null(expr: Expr) -> bool:
    """Whether an expression may be NULL; True if that is not known."""
    if isinstance(expr, Column):
        return expr.nullable
    if isinstance(expr, Literal):
        return expr.value is None
    if expr.name in ("is_null", "<=>"):
        return False
    if expr.name in COMPARISONS or expr.name in ("and", "or", "not", "in"):
        return any(map(may_be_null, expr.args))
    if expr.name in ("coalesce", "greatest", "least"):
        return all(map(may_be_null, expr.args))
    if expr.name == "case":
        return any(map(may_be_null, (*expr.args[1::2], expr.args[-1])))
    return True


# ---- text


def canonical_text(expr: Expr) -> str:
    """A text that differs for different expressions: it orders operands, and is part of digests."""
    if isinstance(expr, Column):
        relation, name, type_ = expr.relation, expr.name, expr.type
        if not (relation.isidentifier() and name.isidentifier()):
            relation, name = _quote(relation), _quote(name)
        return f"{relation}.{name}:{type_ if type_.scale or type_.precision else type_.name}"
    if isinstance(expr, Literal):
        return _literal_text(expr)
    args = ",".join(map(canonical_text, expr.args))
    if expr.name == "cast" or expr.type.is_decimal:
        return f"{expr.name}({args} as {expr.type})"
    return f"{expr.name}({args})"


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal_text(constant: Literal) -> str:
    value, type_ = constant.value, constant.type
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None:
        return f"NULL:{type_}"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Decimal):
        digits = f"{value:f}" if value else "0"
        return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}:{type_}"
    if type_ in (INT, DOUBLE):
        return repr(value)
    return f"{value!r}:{type_}"


def sort_key(expr: Expr) -> tuple[bool, str]:
    """Constants come last, everything else is ordered by text."""
    return (isinstance(expr, Literal), canonical_text(expr))


# ---- logic


def simplify_logic(name: str, parts: Iterable[Expr]) -> Expr:
    """AND or OR of simplified conditions, simplified."""
    unit, zero = (TRUE, FALSE) if name == "and" else (FALSE, TRUE)
    flat: dict[Expr, None] = {}
    for part in parts:
        if isinstance(part, Call) and part.name == name:
            flat.update(dict.fromkeys(part.args))
        elif part != unit:
            # A NULL written without type is the same condition as one of type BOOLEAN.
            flat[UNKNOWN if isinstance(part, Literal) and part.value is None else part] = None
    if zero in flat:
        return zero
    merged = _merge_parts(name, list(flat))
    if len(merged) > 1:
        return Call(name, tuple(sorted(merged, key=canonical_text)), BOOLEAN)
    return merged[0] if merged else unit


def _merge_parts(name: str, parts: list[Expr]) -> list[Expr]:
    """The parts, merged where they share a term (x = 1 OR x IN (2, 3)) or pair (x < y OR x = y)."""
    groups: dict[object, list[Call]] = {}
    for part in parts:
        key = _subject(name, part)
        if key is not None and isinstance(part, Call):
            groups.setdefault(key, []).append(part)
    result = parts
    for key, group in groups.items():
        if len(group) > 1:
            joined = (
                _merge_comparisons(name, group)
                if isinstance(key, tuple)
                else _merge_lists(name, group)
            )
            if joined is not None:
                result = [joined, *(part for part in result if part not in group)]
    return result


def _subject(name: str, part: Expr) -> object:
    """The term or pair that a condition is about, if it can be merged with others."""
    if not isinstance(part, Call):
        return None
    if name == "and" and part.name == "not" and isinstance(part.args[0], Call):
        inner = part.args[0]
        return inner.args[0] if _is_list(inner) else None
    if part.name == ("=" if name == "or" else "<>") and isinstance(part.args[1], Literal):
        return part.args[0]
    if name == "or" and _is_list(part):
        return part.args[0]
    if part.name in OUTCOMES and not isinstance(part.args[1], Literal):
        return part.args
    return None


def _is_list(call: Call) -> bool:
    return call.name == "in" and all(isinstance(arg, Literal) for arg in call.args[1:])


def _merge_lists(name: str, group: Sequence[Call]) -> Expr:
    calls = [c.args[0] if c.name == "not" else c for c in group]
    members = [arg for c in calls if isinstance(c, Call) for arg in c.args[1:]]
    first = calls[0]
    assert isinstance(first, Call)
    merged = _in(Call("in", (first.args[0], *members), BOOLEAN))
    return merged if name == "or" else negate(merged)


OUTCOMES = {"<": 1, "=": 2, "<=": 3, ">": 4, "<>": 5, ">=": 6}
"""A comparison as the set of its outcomes: less is 1, equal 2, greater 4."""

COMPARISON_OF = {outcomes: name for name, outcomes in OUTCOMES.items()}


def _merge_comparisons(name: str, group: Sequence[Call]) -> Expr | None:
    outcomes = 0 if name == "or" else 7
    for part in group:
        outcome = OUTCOMES[part.name]
        outcomes = outcomes | outcome if name == "or" else outcomes & outcome
    # x < y AND x > y is false, or NULL where one of them is; no single comparison says that.
    if outcomes not in COMPARISON_OF:
        return None
    return _comparison(Call(COMPARISON_OF[outcomes], group[0].args, BOOLEAN))


# ---- comparisons


def _comparison(call: Call) -> Expr:
    name, (a, b) = call.name, call.args
    if isinstance(a, Literal) and not isinstance(b, Literal):
        return _comparison(Call(MIRRORED[name], (b, a), BOOLEAN))
    if isinstance(b, Literal):
        return _with_constant(call, a, b)
    if a == b:
        return _with_itself(call, a)
    if canonical_text(b) < canonical_text(a):
        call = Call(MIRRORED[name], (b, a), BOOLEAN)
    if name == "<=>" and not may_be_null(a) and not may_be_null(b):
        return Call("=", call.args, BOOLEAN)
    return call


def _with_constant(call: Call, a: Expr, b: Literal) -> Expr:
    name = call.name
    if b.value is None or (isinstance(a, Literal) and a.value is None):
        other = a if b.value is None else b
        return UNKNOWN if name != "<=>" else _is_null(Call("is_null", (other,), BOOLEAN))
    if isinstance(a, Literal):
        return _compare_constants(name, a, b) or _compare_constants(MIRRORED[name], b, a) or call
    if name == "<=>" and not may_be_null(a):
        name = "="
    if a.type == BOOLEAN and isinstance(b.value, bool) and name in ("=", "<>"):
        return a if b.value == (name == "=") else negate(a)
    typed = _as_type(b, a.type)
    return call if typed is b and name == call.name else Call(name, (a, typed), BOOLEAN)


def _compare_constants(name: str, a: Literal, b: Literal) -> Literal | None:
    value = comparable_value(a.type, b)
    return (
        None if value is None else _truth(comparison_domain(a.type, name, value).contains(a.value))
    )


def _with_itself(call: Call, a: Expr) -> Expr:
    """x = x is true unless x is NULL; <= and >= mean the same, and <>, < and > the opposite."""
    name = "=" if OUTCOMES.get(call.name, 2) & 2 else "<>"
    if call.name == "<=>" or not may_be_null(a):
        return _truth(name == "=")
    return Call(name, call.args, BOOLEAN)


def _truth(value: bool) -> Literal:
    return TRUE if value else FALSE


def _as_type(constant: Literal, type_: Type) -> Literal:
    """The constant as one of the type it is compared with, if it exists there."""
    if constant.type == type_ or constant.value is None or type_.name == "FLOAT":
        return constant
    value = comparable_value(type_, constant)
    if value is None:
        return constant
    domain = comparison_domain(type_, "=", value)
    return domain.point or constant


def _in(call: Call) -> Expr:
    term, *members = call.args
    unique = dict.fromkeys(_as_type(m, term.type) if isinstance(m, Literal) else m for m in members)
    if isinstance(term, Literal) and (folded := _constant_in(term, list(unique))) is not None:
        return folded
    if len(unique) == 1:
        return _comparison(Call("=", (term, *unique), BOOLEAN))
    return Call("in", (term, *sorted(unique, key=_member_key)), BOOLEAN)


def _member_key(member: Expr) -> tuple[int, str, Any, str]:
    """Constants of one type by value, then all else by its text."""
    # NULL and NaN (which is not equal to itself in Python) have no order by value.
    if isinstance(member, Literal) and member.value is not None and member.value == member.value:
        return (0, str(member.type), member.value, "")
    return (1, "", 0, canonical_text(member))


def _constant_in(term: Literal, members: Sequence[Expr]) -> Literal | None:
    if term.value is None:
        return UNKNOWN
    answers = [_comparison(Call("=", (term, m), BOOLEAN)) for m in members]
    if TRUE in answers:
        return TRUE
    if all(isinstance(answer, Literal) for answer in answers):
        return UNKNOWN if UNKNOWN in answers else FALSE
    return None


def _is_null(call: Call) -> Expr:
    arg = call.args[0]
    if isinstance(arg, Literal):
        return _truth(arg.value is None)
    if not may_be_null(arg):
        return FALSE
    if isinstance(arg, Call) and (arg.name in OUTCOMES or arg.name == "not"):
        return simplify_logic(
            "or", [_is_null(Call("is_null", (part,), BOOLEAN)) for part in arg.args]
        )
    return call


# ---- arithmetic


def _commutative(call: Call) -> Expr:
    a, b = call.args
    # A day plus a number is a date; a number plus a day is not in the language.
    if DATE not in (a.type, b.type) and sort_key(b) < sort_key(a):
        call = Call(call.name, (b, a), call.type)
    return _arithmetic(call)


def _arithmetic(call: Call) -> Expr:
    if any(isinstance(arg, Literal) and arg.value is None for arg in call.args):
        return Literal(None, call.type)
    if all(isinstance(arg, Literal) for arg in call.args) and call.type.is_exact:
        return _fold_constants(call)
    last = call.args[-1]
    # Only in exact types (-0.0 + 0 is 0.0), and only if the call has the type of what is left.
    neutral = {"+": 0, "-": 0, "*": 1}.get(call.name)
    is_neutral = isinstance(last, Literal) and last.type.is_exact and last.value == neutral
    if len(call.args) == 2 and is_neutral and call.args[0].type == call.type and call.type.is_exact:
        return call.args[0]
    return call


def _fold_constants(call: Call) -> Expr:
    """The value of exact arithmetic on constants; the call itself where rounding would decide."""
    numbers = [_number(arg) for arg in call.args if isinstance(arg, Literal)]
    if call.name == "-" and call.type == INTERVAL:
        numbers = [
            n * DAY if a.type == DATE else n for n, a in zip(numbers, call.args, strict=True)
        ]
    compute = _OPERATIONS.get(call.name)
    if compute is None:
        return call
    result = compute(*numbers)
    return Literal(None, call.type) if result is None else exact_literal(result, call.type) or call


_OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": lambda a, b: _truncate(a / b) if b else None,
    "%": lambda a, b: a - b * _truncate(a / b) if b else None,
}


def _truncate(number: Fraction) -> Fraction:
    """Round towards zero."""
    return Fraction(int(number))


def _number(literal: Literal) -> Fraction:
    assert isinstance(literal.value, int | Decimal)
    return Fraction(literal.value)


def exact_literal(number: Fraction, type_: Type) -> Literal | None:
    """A number as a constant: NULL beyond the limits of the type, None if it would be rounded."""
    point = comparison_domain(type_, "=", number).point
    if point is not None:
        # Times have no `bounds`; the evaluator holds them in 64 bits, and dates in 32.
        in_reach = type_.bounds is not None or type_.is_decimal or abs(number) < 2**63
        return point if in_reach and (type_ != DATE or abs(number) < 2**31) else None
    is_whole = number.denominator == 1 and not type_.is_decimal
    return Literal(None, type_) if is_whole else None


# ---- casts


def _cast(call: Call) -> Expr:
    arg, target = call.args[0], call.type
    if arg.type == target:
        return arg
    if not isinstance(arg, Literal):
        return call
    if arg.value is None:
        return Literal(None, target)
    return _cast_constant(arg.value, arg.type, target) or call


def _cast_constant(value: Value, source: Type, target: Type) -> Literal | None:
    if isinstance(value, str):
        return _parse_constant(value, target)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if source == DATE and target == TIMESTAMP:
        return exact_literal(Fraction(value) * DAY, target)
    if not source.is_numeric:
        return None
    if target.is_integer:
        return exact_literal(Fraction(int(value)), target)
    if target.is_decimal:
        return exact_literal(Fraction(value), target)
    if isinstance(value, Decimal):
        return None
    # From 2**53 on a DOUBLE would round the integer.
    if target == DOUBLE and abs(value) < 2**53:
        return Literal(float(value), target)
    return Literal(str(value), STRING) if target == STRING else None


_INTEGER = re.compile(r"-?[0-9]{1,30}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?")


def _parse_constant(value: str, target: Type) -> Literal | None:
    """A text as a constant, if it has the plain form that every reader accepts; otherwise None."""
    try:
        if target.is_integer and _INTEGER.fullmatch(value):
            return exact_literal(Fraction(int(value)), target)
        if target == DATE and _DATE.fullmatch(value):
            return Literal(parse_date(value), DATE)
        if target == TIMESTAMP and _TIMESTAMP.fullmatch(value):
            return Literal(parse_timestamp(value), TIMESTAMP)
    except AlgebraError:
        return None
    return None


# ---- choices


def _case(call: Call) -> Expr:
    branches: list[Expr] = []
    otherwise = call.args[-1]
    for condition, value in zip(call.args[:-1:2], call.args[1::2], strict=True):
        if condition == TRUE:
            otherwise = value
            break
        if not isinstance(condition, Literal):
            branches += (condition, value)
    # From the end only: an earlier branch with the value of ELSE keeps rows from the later ones.
    while branches and branches[-1] == otherwise:
        del branches[-2:]
    if not branches:
        return _with_type(otherwise, call.type)
    return Call("case", (*branches, otherwise), call.type)


def _coalesce(call: Call) -> Expr:
    values: dict[Expr, None] = {}
    for arg in call.args:
        # Of another type it would cast its own arguments first, perhaps to NULL.
        same = isinstance(arg, Call) and arg.name == "coalesce" and arg.type == call.type
        for part in arg.args if same and isinstance(arg, Call) else (arg,):
            if isinstance(part, Literal) and part.value is None:
                continue
            values[part] = None
            if not may_be_null(part):
                return _choice(call, values)
    return _choice(call, values)


def _extreme(call: Call) -> Expr:
    """GREATEST and LEAST, which pass over NULLs."""
    values: dict[Expr, None] = {}
    for arg in call.args:
        same = isinstance(arg, Call) and arg.name == call.name and arg.type == call.type
        for part in arg.args if same and isinstance(arg, Call) else (arg,):
            if not (isinstance(part, Literal) and part.value is None):
                values[part] = None
    return _choice(call, dict.fromkeys(sorted(values, key=sort_key)))


def _choice(call: Call, values: dict[Expr, None]) -> Expr:
    if not values:
        return Literal(None, call.type)
    if len(values) == 1:
        return _with_type(next(iter(values)), call.type)
    return Call(call.name, tuple(values), call.type)


def _with_type(expr: Expr, type_: Type) -> Expr:
    result = cast(expr, type_)
    return _cast(result) if isinstance(result, Call) and result.name == "cast" else result


_RULES: dict[str, Callable[[Call], Expr]] = {
    **dict.fromkeys(COMPARISONS, _comparison),
    "and": lambda call: simplify_logic("and", call.args),
    "or": lambda call: simplify_logic("or", call.args),
    "not": lambda call: negate(call.args[0]),
    "in": _in,
    "is_null": _is_null,
    "+": _commutative,
    "*": _commutative,
    "-": _arithmetic,
    "/": _arithmetic,
    "neg": _arithmetic,
    "div": _arithmetic,
    "%": _arithmetic,
    "case": _case,
    "coalesce": _coalesce,
    "greatest": _extreme,
    "least": _extreme,
    "cast": _cast,
}
