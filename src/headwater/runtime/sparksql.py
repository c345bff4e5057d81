"""Expressions as Spark SQL.

Sessions run with `spark.sql.ansi.enabled = false`, in which a failed cast and a division by zero are
NULL; integer overflow wraps there, so integer arithmetic is written with the `try_` functions, and
casts with `try_cast`. An INTERVAL is a BIGINT of microseconds. So an expression has the value that
the reference evaluator gives it, and no row can fail a step.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import AggregateCall
from headwater.algebra.types import DATE, INTERVAL, TIMESTAMP, Type

Naming = Callable[[Column], str]


def quoted(name: str) -> str:
    """An identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def text_sql(value: str) -> str:
    """A text as a literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def spark_type(type_: Type) -> str:
    """The Spark type in which values of a type are kept; NULL alone becomes a STRING."""
    return {"INTERVAL": "BIGINT", "NULL": "STRING"}.get(type_.name, str(type_))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a column in a segment."""
    if type_.is_decimal:
        return pa.decimal128(type_.precision, type_.scale)
    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "INTERVAL": pa.int64(),
    }.get(type_.name, pa.string())


def sql(expr: Expr, naming: Naming) -> str:
    """The expression as Spark SQL, columns named by `naming`."""
    match expr:
        case Column():
            return naming(expr)
        case Literal():
            return _literal(expr)
        case Call():
            args = [sql(arg, naming) for arg in expr.args]
            if expr.name in _INFIX:
                return f"({f' {_INFIX[expr.name]} '.join(args)})"
            if expr.name in ("+", "-", "*"):
                return _arithmetic(expr, args)
            special = _SPECIAL.get(expr.name)
            return f"{expr.name}({', '.join(args)})" if special is None else special(expr, args)


def aggregate_sql(call: AggregateCall, naming: Naming, condition: str = "") -> str:
    """An aggregate as Spark SQL; `condition` says which rows count at all."""
    name = {"sum": "try_sum", "avg": "try_avg"}.get(call.name, call.name)
    arg = "*" if call.arg is None else sql(call.arg, naming)
    if call.name == "sum" and call.arg is not None and call.arg.type.is_floating:
        name, arg = "sum", f"CAST({arg} AS DOUBLE)"
    conditions = [condition] if condition else []
    if call.filter is not None:
        conditions.append(sql(call.filter, naming))
    kept = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    return f"{name}({'DISTINCT ' if call.distinct else ''}{arg}){kept}"


_INFIX = {
    "=": "=",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "<=>",
    "and": "AND",
    "or": "OR",
    "/": "/",
    "%": "%",
    "div": "div",
    "like": "LIKE",
    "rlike": "RLIKE",
}

_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


def _literal(expr: Literal) -> str:
    value, type_ = expr.value, expr.type
    if value is None:
        return f"CAST(NULL AS {spark_type(type_)})"
    match type_.name:
        case "BOOLEAN":
            return "TRUE" if value else "FALSE"
        case "TIMESTAMP":
            return f"timestamp_micros({value}L)"
        case "DATE":
            return f"date_from_unix_date({value})"
        case "FLOAT" | "DOUBLE":
            return f"CAST('{value!r}' AS {type_})"
        case "DECIMAL":
            assert isinstance(value, Decimal)
            return f"CAST('{value:f}' AS {type_})"
        case "STRING":
            return text_sql(str(value))
        case _:
            return f"CAST({value} AS {spark_type(type_)})" if type_.name != "INT" else f"({value})"


def _arithmetic(expr: Call, args: list[str]) -> str:
    """Times are moved as microseconds; integers do not wrap."""
    left, right = expr.args
    if TIMESTAMP in (left.type, right.type) or (
        expr.type == INTERVAL and DATE in (left.type, right.type)
    ):
        micros = [_micros(e, a) for e, a in zip(expr.args, args, strict=True)]
        moved = f"{_TRY[expr.name]}({micros[0]}, {micros[1]})"
        return f"timestamp_micros({moved})" if expr.type == TIMESTAMP else moved
    if expr.type == DATE:
        return f"date_{'add' if expr.name == '+' else 'sub'}({args[0]}, CAST({args[1]} AS INT))"
    if expr.type.is_integer or expr.type == INTERVAL:
        return f"{_TRY[expr.name]}({args[0]}, {args[1]})"
    return f"({args[0]} {expr.name} {args[1]})"


def _micros(expr: Expr, text: str) -> str:
    if expr.type == TIMESTAMP:
        return f"unix_micros({text})"
    if expr.type == DATE:
        return f"unix_micros(CAST({text} AS TIMESTAMP))"
    return text


def _case(expr: Call, args: list[str]) -> str:
    branches = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
    return f"CASE {branches} ELSE {args[-1]} END"


def _negated(expr: Call, args: list[str]) -> str:
    if expr.type.is_integer or expr.type == INTERVAL:
        return f"try_subtract(CAST(0 AS {spark_type(expr.type)}), {args[0]})"
    return f"(-{args[0]})"


def _absolute(expr: Call, args: list[str]) -> str:
    if expr.type.bounds is None:
        return f"abs({args[0]})"
    least = f"CAST({expr.type.bounds[0]} AS {expr.type})"
    return f"abs(nullif({args[0]}, {least}))"


_SPECIAL: dict[str, Callable[[Call, list[str]], str]] = {
    "not": lambda e, a: f"(NOT {a[0]})",
    "is_null": lambda e, a: f"({a[0]} IS NULL)",
    "in": lambda e, a: f"({a[0]} IN ({', '.join(a[1:])}))",
    "case": _case,
    "cast": lambda e, a: f"try_cast({a[0]} AS {spark_type(e.type)})",
    "neg": _negated,
    "abs": _absolute,
    "sign": lambda e, a: f"signum({a[0]})",
    **{
        name: lambda e, a: f"{e.name}(CAST({a[0]} AS TIMESTAMP))"
        for name in ("unix_seconds", "unix_millis", "unix_micros")
    },
    "split_part": lambda e, a: f"split_part({a[0]}, {a[1]}, nullif({a[2]}, 0))",
}
