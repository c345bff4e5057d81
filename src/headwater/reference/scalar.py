"""The meaning of every scalar function, as closures over a row.

An expression is compiled once, then called for each row. Functions are those of Spark SQL in ANSI
mode with one difference that the whole system shares: where Spark would stop with an error, the
value is NULL. Integer positions and counts outside INT are such a case.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import COMPARISONS, FUNCTIONS
from headwater.algebra.types import NULL, Type, Value
from headwater.algebra.types import common_type as common_of_two
from headwater.errors import EvaluationError, suggest
from headwater.reference.arithmetic import ARITHMETIC
from headwater.reference.casts import find_cast
from headwater.reference.datetime_functions import DATETIME_FUNCTIONS
from headwater.reference.string_functions import STRING_FUNCTIONS
from headwater.reference.values import Function, FunctionBuilder, Row, order_key, untyped

RowFunction = Callable[[Row], Value]


def compile_expr(expr: Expr, columns: Sequence[Column]) -> RowFunction:
    """The expression as a function of a row of those columns; raises EvaluationError for a missing
    column and for an unknown function."""
    positions = {(c.relation.lower(), c.name.lower()): i for i, c in enumerate(columns)}

    def compiled(part: Expr) -> RowFunction:
        if isinstance(part, Literal):
            value = part.value
            return lambda row: value
        if isinstance(part, Column):
            place = positions.get((part.relation.lower(), part.name.lower()))
            if place is None:
                raise EvaluationError(f"no column {part}; {suggest(str(part), map(str, columns))}")
            return itemgetter(place)
        args = [compiled(arg) for arg in part.args]
        if part.name in _NULL_AWARE:
            return _NULL_AWARE[part.name](part, args)
        if part.name not in _STRICT:
            raise EvaluationError(f"unknown function {part.name}; {suggest(part.name, FUNCTIONS)}")
        return _strict(part, args)

    return compiled(expr)


def compile_condition(expr: Expr, columns: Sequence[Column]) -> Callable[[Row], bool]:
    """A test whether a row satisfies the condition; NULL does not."""
    condition = compile_expr(expr, columns)
    return lambda row: condition(row) is True


def compile_cast(expr: Expr, target: Type, columns: Sequence[Column]) -> RowFunction:
    """The expression, cast to a type that it has in common with others."""
    return _with_cast(compile_expr(expr, columns), expr.type, target)


def common_type(types: Sequence[Type]) -> Type:
    """The type in which values of all the types can be compared."""
    result = types[0]
    for type_ in types[1:]:
        common = common_of_two(result, type_)
        if common is None:
            raise EvaluationError(f"{result} and {type_} have no common type")
        result = common
    return result


def supported_functions() -> frozenset[str]:
    """The names of all functions that are defined here."""
    return frozenset(_NULL_AWARE) | frozenset(_STRICT)


def _strict(call: Call, args: list[RowFunction]) -> RowFunction:
    """NULL if any argument is NULL, otherwise the function of the arguments."""
    # Before the function is built, because it would look for the rules of a type.
    if any(arg.type == NULL for arg in call.args):
        return lambda row: None
    function = _STRICT[call.name](call)
    if len(args) == 1:
        only = args[0]
        return lambda row: None if (a := only(row)) is None else function(a)
    if len(args) == 2:
        left, right = args

        def of_two(row: Row) -> Value:
            if (a := left(row)) is None or (b := right(row)) is None:
                return None
            return function(a, b)

        return of_two

    def of_many(row: Row) -> Value:
        values = [arg(row) for arg in args]
        return None if None in values else function(*values)

    return of_many


def _with_cast(arg: RowFunction, source: Type, target: Type) -> RowFunction:
    convert = find_cast(source, target)
    if convert is None:
        return arg
    return lambda row: None if (value := arg(row)) is None else convert(value)


def _cast_all(call: Call, args: Sequence[RowFunction], target: Type) -> list[RowFunction]:
    return [_with_cast(arg, expr.type, target) for arg, expr in zip(args, call.args, strict=True)]


# ---- functions that handle NULL themselves


def _and(call: Call, args: list[RowFunction]) -> RowFunction:
    def conjunction(row: Row) -> Value:
        result: Value = True
        for arg in args:
            value = arg(row)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return conjunction


def _or(call: Call, args: list[RowFunction]) -> RowFunction:
    def disjunction(row: Row) -> Value:
        result: Value = False
        for arg in args:
            value = arg(row)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return disjunction


def _is_null(call: Call, args: list[RowFunction]) -> RowFunction:
    (arg,) = args
    return lambda row: arg(row) is None


def _case(call: Call, args: list[RowFunction]) -> RowFunction:
    values = [
        _with_cast(args[i], call.args[i].type, call.type)
        for i in (*range(1, len(args), 2), len(args) - 1)
    ]
    branches = list(zip(args[0:-1:2], values, strict=False))

    def choose(row: Row) -> Value:
        for condition, value in branches:
            if condition(row) is True:
                return value(row)
        return values[-1](row)

    return choose


def _coalesce(call: Call, args: list[RowFunction]) -> RowFunction:
    converted = _cast_all(call, args, call.type)

    def first(row: Row) -> Value:
        return next((v for arg in converted if (v := arg(row)) is not None), None)

    return first


def _nullif(call: Call, args: list[RowFunction]) -> RowFunction:
    common = common_type([arg.type for arg in call.args])
    # Compared in the common type, but the result is the argument as it was.
    equal, shown = _COMPARE["="](common), args[0]
    a, b = _cast_all(call, args, common)

    def unless_equal(row: Row) -> Value:
        x, y = a(row), b(row)
        return None if x is not None and y is not None and equal(x, y) else shown(row)

    return unless_equal


def _in(call: Call, args: list[RowFunction]) -> RowFunction:
    common = common_type([arg.type for arg in call.args])
    equal = _COMPARE["="](common)
    subject, *members = _cast_all(call, args, common)

    def is_member(row: Row) -> Value:
        value = subject(row)
        if value is None:
            return None
        result: Value = False
        for member in members:
            other = member(row)
            if other is None:
                result = None
            elif equal(value, other):
                return True
        return result

    return is_member


def _null_safe_equal(call: Call, args: list[RowFunction]) -> RowFunction:
    common = common_type([arg.type for arg in call.args])
    equal = _COMPARE["="](common)
    a, b = _cast_all(call, args, common)

    def same(row: Row) -> Value:
        x, y = a(row), b(row)
        return x is y if x is None or y is None else equal(x, y)

    return same


def _extreme(call: Call, args: list[RowFunction]) -> RowFunction:
    converted = _cast_all(call, args, call.type)
    choose: Callable[..., Any] = max if call.name == "greatest" else min
    key = order_key(call.type)

    def extreme(row: Row) -> Value:
        values = [v for arg in converted if (v := arg(row)) is not None]
        return choose(values, key=key) if values else None

    return extreme


def _cast(call: Call, args: list[RowFunction]) -> RowFunction:
    return _with_cast(args[0], call.args[0].type, call.type)


_NULL_AWARE: dict[str, Callable[[Call, list[RowFunction]], RowFunction]] = {
    "and": _and,
    "or": _or,
    "is_null": _is_null,
    "case": _case,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "in": _in,
    "<=>": _null_safe_equal,
    "greatest": _extreme,
    "least": _extreme,
    "cast": _cast,
}


# ---- comparison


# Python's comparisons with NaN are all false; here NaN is the largest number and equal to itself.
def _less(a: float, b: float) -> bool:
    return a == a and (b != b or a < b)


def _same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


_FLOATING_ORDER: dict[str, Function] = {
    "=": _same,
    "<>": lambda a, b: not _same(a, b),
    "<": _less,
    "<=": lambda a, b: not _less(b, a),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: not _less(a, b),
}
_PLAIN_ORDER: dict[str, Function] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _order(name: str) -> Callable[[Type], Function]:
    return lambda type_: (_FLOATING_ORDER if type_.is_floating else _PLAIN_ORDER)[name]


_COMPARE = {name: _order(name) for name in COMPARISONS if name != "<=>"}


def _comparison(call: Call) -> Function:
    a, b = (arg.type for arg in call.args)
    common = common_type([a, b])
    compare, left, right = _COMPARE[call.name](common), find_cast(a, common), find_cast(b, common)
    if left is None and right is None:
        return compare

    def converted(x: Any, y: Any) -> Value:
        if left is not None:
            x = left(x)
        if right is not None:
            y = right(y)
        return None if x is None or y is None else compare(x, y)

    return converted


_STRICT: dict[str, FunctionBuilder] = {
    **dict.fromkeys(_COMPARE, _comparison),
    "not": untyped(operator.not_),
    **ARITHMETIC,
    **STRING_FUNCTIONS,
    **DATETIME_FUNCTIONS,
}
