"""Expressions as Spark SQL.

Sessions run with `spark.sql.ansi.enabled = false`, where a failed cast and a division by zero are
NULL. Integer overflow wraps there, so integer arithmetic is written with the `try_` functions, and
casts with `try_cast`. An INTERVAL is a BIGINT of microseconds. Where a function of Spark would
still fail, wrap or fill the memory, its arguments are guarded. So an expression has the value that
the reference evaluator computes, and no row can fail a step.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.lengths import MAX_TEXT, max_length
from headwater.algebra.patterns import like_parts, like_regex
from headwater.algebra.types import BIGINT, DATE, INTERVAL, TIMESTAMP, Type

DAY = 86_400_000_000
FIRST_YEAR = 367 * DAY  # a leap year and a day: at least the first year that timestamps reach
Naming = Callable[[Column], str]


def quote_identifier(name: str) -> str:
    """An identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(value: str) -> str:
    """A text as a string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def spark_type(type_: Type) -> str:
    """The Spark type that stores values of a type; an untyped NULL is a STRING."""
    return {"INTERVAL": "BIGINT", "NULL": "STRING"}.get(type_.name, str(type_))


def expression_sql(expr: Expr, naming: Naming) -> str:
    """The expression as Spark SQL, columns named by `naming`."""
    match expr:
        case Column():
            return naming(expr)
        case Literal():
            return _literal(expr)
        case Call():
            args = _dates_as_timestamps(expr, [expression_sql(arg, naming) for arg in expr.args])
            if expr.name in _INFIX:
                return f"({f' {_INFIX[expr.name]} '.join(args)})"
            if expr.name in ("+", "-", "*"):
                return _arithmetic(expr, args)
            special = _SPECIAL.get(expr.name)
            return f"{expr.name}({', '.join(args)})" if special is None else special(expr, args)


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
            return quote_text(str(value))
        case _:
            return f"CAST({value} AS {spark_type(type_)})" if type_.name != "INT" else f"({value})"


def _arithmetic(expr: Call, args: list[str]) -> str:
    """Arithmetic on times as microseconds; integer overflow is NULL."""
    left, right = expr.args
    args = [_unchained(expr.name, e, a) for e, a in zip(expr.args, args, strict=True)]
    if TIMESTAMP in (left.type, right.type) or (
        expr.type == INTERVAL and DATE in (left.type, right.type)
    ):
        micros = [_as_micros(e, a) for e, a in zip(expr.args, args, strict=True)]
        moved = f"{_TRY[expr.name]}({micros[0]}, {micros[1]})"
        return f"timestamp_micros({moved})" if expr.type == TIMESTAMP else moved
    if expr.type == DATE:
        # As BIGINT, so that a day beyond INT becomes NULL and does not wrap.
        days = f"{_TRY[expr.name]}(CAST(unix_date({args[0]}) AS BIGINT), CAST({args[1]} AS BIGINT))"
        return f"date_from_unix_date(try_cast({days} AS INT))"
    if expr.type.is_integer or expr.type == INTERVAL:
        return f"{_TRY[expr.name]}({args[0]}, {args[1]})"
    return f"({args[0]} {expr.name} {args[1]})"


def _unchained(operator: str, expr: Expr, text: str) -> str:
    """An argument of a sum or product, so that Spark does not see that it is one itself.

    Spark takes chains of either for the same expression in whatever order, and computes one of those in a
    statement for all of them; but whether a chain overflows, and how it is rounded, depends on its order.
    """
    if not (isinstance(expr, Call) and expr.name == operator and operator in "+*"):
        return text
    if expr.type.is_integer or expr.type == INTERVAL:
        return f"({text} | CAST(0 AS {spark_type(expr.type)}))"
    return f"greatest({text}, CAST(NULL AS {spark_type(expr.type)}))"


def _as_micros(expr: Expr, text: str) -> str:
    if expr.type in (TIMESTAMP, DATE):
        return f"unix_micros({_as_timestamp(expr, text)})"
    return text


def _as_timestamp(expr: Expr, text: str) -> str:
    """A DATE as TIMESTAMP; NULL for a day out of range, where Spark's cast would fail."""
    if expr.type != DATE:
        return text
    return f"timestamp_micros(try_multiply(CAST(unix_date({text}) AS BIGINT), {DAY}L))"


_TIME_FUNCTIONS = ("hour", "minute", "second", "date_trunc", "date_format")


def _dates_as_timestamps(expr: Call, args: list[str]) -> list[str]:
    """The arguments, with dates as timestamps where the function needs timestamps."""
    types = {arg.type for arg in expr.args}
    if DATE not in types or expr.name == "nullif":
        return args
    if TIMESTAMP not in types and expr.name not in _TIME_FUNCTIONS:
        return args
    if expr.name in _TRY:
        return args
    return [_as_timestamp(arg, text) for arg, text in zip(expr.args, args, strict=True)]


def _case(expr: Call, args: list[str]) -> str:
    branches = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
    return f"CASE {branches} ELSE {args[-1]} END"


def _negate(expr: Call, args: list[str]) -> str:
    if expr.type.is_integer or expr.type == INTERVAL:
        return f"try_subtract(CAST(0 AS {spark_type(expr.type)}), {args[0]})"
    return f"(-{args[0]})"


def _abs(expr: Call, args: list[str]) -> str:
    if expr.type.bounds is None:
        return f"abs({args[0]})"
    # The smallest integer has no absolute value in its type: Spark's would wrap to itself.
    least = f"CAST({expr.type.bounds[0]} AS {expr.type})"
    return f"abs(nullif({args[0]}, {least}))"


def _is_simple(expr: Expr) -> bool:
    return isinstance(expr, Column | Literal)


def _let(expr: Call, args: list[str], body: Callable[..., str]) -> str:
    """An expression that uses its arguments more than once, with each of them written once.

    Copies of nested arguments would grow exponentially with the depth; SQL has no LET, so a lambda
    over an array of one element binds them.
    """
    if all(map(_is_simple, expr.args)):
        return body(*args)
    fields = ", ".join(f"'a{i}', {arg}" for i, arg in enumerate(args))
    named = (f"x.a{i}" for i in range(len(args)))
    return f"transform(array(named_struct({fields})), x -> {body(*named)})[0]"


def _ceil_or_floor(expr: Call, args: list[str]) -> str:
    """CEIL and FLOOR of a DOUBLE: NULL beyond BIGINT, where Spark returns the nearest BIGINT."""
    if not expr.args[0].type.is_floating:
        return f"{expr.name}({args[0]})"

    def body(x: str) -> str:
        fits = f"{x} >= -9223372036854775808D AND {x} < 9223372036854775808D"
        return f"CASE WHEN isnan({x}) THEN 0L WHEN {fits} THEN {expr.name}({x}) END"

    return _let(expr, args, body)


def _pmod(expr: Call, args: list[str]) -> str:
    """PMOD; by a negative number it is the plain remainder, as Spark's own sum may wrap."""
    divisor = expr.args[1]
    value = divisor.value if isinstance(divisor, Literal) else None
    by_positive = isinstance(value, int) and value > 0
    if not expr.type.is_integer or by_positive:
        return f"pmod({args[0]}, {args[1]})"
    return _let(
        expr, args, lambda a, b: f"CASE WHEN {b} < 0 THEN {a} % {b} ELSE pmod({a}, {b}) END"
    )


def _like(expr: Call, args: list[str]) -> str:
    """LIKE; a pattern with many % becomes a regular expression that does not backtrack.

    Spark tries every possible split of the text, which takes exponential time.
    """
    pattern = expr.args[1].value if isinstance(expr.args[1], Literal) else None
    if isinstance(pattern, str) and len(like_parts(pattern)) > 3:
        return f"({args[0]} RLIKE {quote_text(like_regex(pattern))})"
    return f"({args[0]} LIKE {args[1]})"


def _concat(expr: Call, args: list[str]) -> str:
    joined = f"concat({', '.join(args)})"
    length = max_length(expr)
    if length is not None and length <= MAX_TEXT:
        return joined
    if all(map(_is_simple, expr.args)):
        return f"CASE WHEN length({joined}) <= {MAX_TEXT} THEN {joined} END"
    return f"transform(array({joined}), x -> CASE WHEN length(x) <= {MAX_TEXT} THEN x END)[0]"


def _replace(expr: Call, args: list[str]) -> str:
    lengths = [len(str(arg.value)) for arg in expr.args[1:] if isinstance(arg, Literal)]
    # Then the text cannot grow.
    if len(lengths) == 2 and lengths[1] <= lengths[0]:
        return f"replace({', '.join(args)})"

    def body(text: str, old: str, new: str) -> str:
        matches = f"(length({text}) - length(replace({text}, {old}, ''))) div length({old})"
        length = f"length({text}) + {matches} * (length({new}) - length({old}))"
        return (
            f"CASE WHEN length({old}) = 0 OR {length} <= {MAX_TEXT}"
            f" THEN replace({text}, {old}, {new}) END"
        )

    return _let(expr, args, body)


def _repeat(expr: Call, args: list[str]) -> str:
    def body(text: str, times: str) -> str:
        short = f"CAST(length({text}) AS BIGINT) * {times} <= {MAX_TEXT}"
        return f"CASE WHEN {short} THEN repeat({text}, {times}) END"

    return _let(expr, [args[0], _as_int(expr.args[1], args[1])], body)


def _as_int(expr: Expr, text: str) -> str:
    """An integer as INT; NULL if it does not fit."""
    return f"try_cast({text} AS INT)" if expr.type == BIGINT else text


def _pad(expr: Call, args: list[str]) -> str:
    """LPAD and RPAD; NULL for lengths above MAX_TEXT.

    Adding and subtracting the distance from MAX_TEXT to the largest INT overflows for those, so the
    length need not be written twice.
    """
    beyond = 2**31 - 1 - MAX_TEXT
    length = _as_int(expr.args[1], args[1])
    if not isinstance(expr.args[1], Literal):
        length = f"try_subtract(try_add(CAST({length} AS INT), {beyond}), {beyond})"
    return f"{expr.name}({args[0]}, {length}, {args[2]})"


def _with_int_positions(expr: Call, args: list[str]) -> str:
    """A function of texts and positions; Spark would truncate a BIGINT position to 32 bits."""
    int_args = (_as_int(arg, text) for arg, text in zip(expr.args, args, strict=True))
    return f"{expr.name}({', '.join(int_args)})"


def _split_part(expr: Call, args: list[str]) -> str:
    """SPLIT_PART; index 0 is NULL, and the smallest INT, which overflows, is replaced."""
    index = _as_int(expr.args[2], args[2])
    index = f"CASE WHEN {index} = -2147483648 THEN -2147483647 ELSE {index} END"
    return f"split_part({args[0]}, {args[1]}, nullif({index}, 0))"


def _integer_division(expr: Call, args: list[str]) -> str:
    """DIV; the one quotient that overflows, the smallest BIGINT by -1, is NULL."""
    dividend, divisor = expr.args
    if dividend.type != BIGINT or (isinstance(divisor, Literal) and divisor.value != -1):
        return f"({args[0]} div {args[1]})"

    def body(a: str, b: str) -> str:
        return f"CASE WHEN {b} = -1 THEN try_subtract(CAST(0 AS BIGINT), {a}) ELSE {a} div {b} END"

    return _let(expr, args, body)


def _date_trunc(expr: Call, args: list[str]) -> str:
    """DATE_TRUNC; NULL in the first year that timestamps reach, where Spark's fails.

    There the subtraction overflows to NULL; elsewhere the addition undoes it.
    """
    moved = f"try_subtract(unix_micros({args[1]}), {FIRST_YEAR}L)"
    return f"date_trunc({args[0]}, timestamp_micros(try_add({moved}, {FIRST_YEAR}L)))"


def _timestamp_from_count(count: str, size: int) -> str:
    return f"timestamp_micros(try_multiply(CAST({count} AS BIGINT), {size}L))"


def _nullif(expr: Call, args: list[str]) -> str:
    if {arg.type for arg in expr.args} != {DATE, TIMESTAMP}:
        return f"nullif({', '.join(args)})"

    def body(a: str, b: str) -> str:
        one, other = _as_timestamp(expr.args[0], a), _as_timestamp(expr.args[1], b)
        return f"CASE WHEN {one} = {other} THEN NULL ELSE {a} END"

    return _let(expr, args, body)


_SPECIAL: dict[str, Callable[[Call, list[str]], str]] = {
    "not": lambda e, a: f"(NOT {a[0]})",
    "is_null": lambda e, a: f"({a[0]} IS NULL)",
    "in": lambda e, a: f"({a[0]} IN ({', '.join(a[1:])}))",
    "case": _case,
    "cast": lambda e, a: (
        _as_timestamp(e.args[0], a[0])
        if (e.args[0].type, e.type) == (DATE, TIMESTAMP)
        else f"try_cast({a[0]} AS {spark_type(e.type)})"
    ),
    "neg": _negate,
    "abs": _abs,
    "sign": lambda e, a: f"signum({a[0]})",
    **{
        name: lambda e, a: f"{e.name}({_as_timestamp(e.args[0], a[0])})"
        for name in ("unix_seconds", "unix_millis", "unix_micros")
    },
    "timestamp_seconds": lambda e, a: _timestamp_from_count(a[0], 1_000_000),
    "timestamp_millis": lambda e, a: _timestamp_from_count(a[0], 1_000),
    "date_trunc": _date_trunc,
    "nullif": _nullif,
    "div": _integer_division,
    "pmod": _pmod,
    "ceil": _ceil_or_floor,
    "floor": _ceil_or_floor,
    "like": _like,
    "concat": _concat,
    "replace": _replace,
    "repeat": _repeat,
    "lpad": _pad,
    "rpad": _pad,
    "substring": _with_int_positions,
    "left": _with_int_positions,
    "right": _with_int_positions,
    "split_part": _split_part,
}
