"""The scalar and aggregate functions of the language, with their argument and result types.

The table is the whole list: a function that is not here is refused when a query is submitted. An
expression that has no value for its arguments (division by zero, overflow, a cast that fails) is
NULL, so no row can stop a query, and no result depends on the order in which conditions are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from headwater.algebra.expressions import Call, Expr, Literal
from headwater.algebra.lengths import MAX_TEXT, exact_length
from headwater.algebra.patterns import compile_regex, format_tokens, like_parts
from headwater.algebra.times import parse_date, parse_timestamp
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    Type,
    as_decimal,
    bounded_decimal,
    clipped_decimal,
    common_type,
    decimal,
)
from headwater.errors import AlgebraError, suggest

Rule = Callable[[str, Sequence[Expr]], Type]

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Function:
    """How many arguments a function takes, and the rule that computes its type or refuses them."""

    name: str
    min_args: int
    max_args: int | None
    rule: Rule


def build_call(name: str, *args: Expr) -> Call:
    """The function applied to the arguments; raises AlgebraError if it is unknown or they do not fit."""
    function = FUNCTIONS.get(name)
    if function is None:
        names = [n for n in FUNCTIONS if n[0].isalpha()]
        raise AlgebraError(f"unknown function {name}; {suggest(name, names)}")
    if len(args) < function.min_args or (
        function.max_args is not None and len(args) > function.max_args
    ):
        raise AlgebraError(f"{name} takes {_arity_text(function)}, not {len(args)}")
    if name in COMPARISONS or name == "in":
        args = _read_time_constants(args)
    return Call(name, args, function.rule(name, args))


def cast(expr: Expr, type_: Type) -> Expr:
    """CAST(expr AS type); no call at all if it has the type already."""
    if expr.type == type_:
        return expr
    if expr.type == NULL and isinstance(expr, Literal):
        return Literal(None, type_)
    if not _can_cast(expr.type, type_):
        raise AlgebraError(f"a {expr.type} cannot be cast to {type_}")
    return Call("cast", (expr,), type_)


def _can_cast(source: Type, target: Type) -> bool:
    if source == NULL or target == STRING:
        return source != INTERVAL
    if source == STRING:
        return target not in (NULL, INTERVAL)
    if source.is_numeric or source == BOOLEAN:
        return target.is_numeric or target == BOOLEAN
    return {source, target} == {DATE, TIMESTAMP}


def _arity_text(function: Function) -> str:
    if function.max_args is None:
        return f"{function.min_args} arguments or more"
    if function.min_args == function.max_args:
        return f"{function.min_args} argument" + ("" if function.min_args == 1 else "s")
    return f"{function.min_args} to {function.max_args} arguments"


def _read_time_constants(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """Text constants that are compared with a time become times: ts > '2026-01-31'."""
    types = {arg.type for arg in args}
    target = TIMESTAMP if TIMESTAMP in types else DATE if DATE in types else None
    if target is None:
        return tuple(args)

    def read(arg: Expr) -> Expr:
        if isinstance(arg, Literal) and isinstance(arg.value, str) and arg.type == STRING:
            if target == TIMESTAMP:
                return Literal(parse_timestamp(arg.value), TIMESTAMP)
            return Literal(parse_date(arg.value), DATE)
        return arg

    return tuple(read(arg) for arg in args)


def _argument_error(name: str, args: Sequence[Expr], expected: str) -> AlgebraError:
    got = ", ".join(str(arg.type) for arg in args)
    return AlgebraError(f"{name} takes {expected}, not {got}")


def _common_type_of(name: str, args: Sequence[Expr]) -> Type:
    result = args[0].type
    for arg in args[1:]:
        common = common_type(result, arg.type)
        if common is None:
            raise AlgebraError(
                f"{name}: {result} and {arg.type} have no common type; CAST one of them"
            )
        result = common
    return result


def _compare(name: str, args: Sequence[Expr]) -> Type:
    _common_type_of(name, args)
    return BOOLEAN


def _takes(expected: str, fits: Callable[[Type], bool], result: Type | None = None) -> Rule:
    """A rule for arguments of one kind; the result is the common type unless one is given."""

    def rule(name: str, args: Sequence[Expr]) -> Type:
        if not all(fits(arg.type) or arg.type == NULL for arg in args):
            raise _argument_error(name, args, expected)
        return _common_type_of(name, args) if result is None else result

    return rule


def _numeric(type_: Type) -> bool:
    return type_.is_numeric


def _one_of(*types: Type) -> Callable[[Type], bool]:
    return lambda type_: type_ in types


def _signature(*types: Type, result: Type) -> Rule:
    """A rule that names the type of each argument; any integer type fits where INT is expected."""
    text = ", ".join(map(str, types))

    def rule(name: str, args: Sequence[Expr]) -> Type:
        for arg, want in zip(args, types, strict=False):
            if arg.type in (want, NULL) or (want == INT and arg.type.is_integer):
                continue
            if want == TIMESTAMP and arg.type == DATE:
                continue
            raise _argument_error(name, args, text)
        return result

    return rule


_SIZED_INTEGERS = (
    SMALLINT,
    INT,
    BIGINT,
)  # beside a decimal, their constants have as many digits as written: Spark types them so


def _as_decimal(arg: Expr, type_: Type) -> Type:
    """The decimal type that an operand counts as; `type_` is its own, or beside a NULL the other's."""
    if isinstance(arg, Literal) and isinstance(arg.value, int) and arg.type in _SIZED_INTEGERS:
        return decimal(len(str(abs(arg.value))), 0)
    return as_decimal(type_)


def _arithmetic(name: str, args: Sequence[Expr]) -> Type:
    a, b = args[0].type, args[1].type
    if NULL in (a, b):
        a, b = (b, b) if a == NULL else (a, a)
    if (moved := _time_arithmetic(name, a, b)) is not None:
        return moved
    if not (a.is_numeric and b.is_numeric):
        raise _argument_error(name, args, "numbers")
    common = common_type(a, b)
    assert common is not None
    if name == "/" and not common.is_decimal:
        return DOUBLE
    if not common.is_decimal:
        return common
    x, y = _as_decimal(args[0], a), _as_decimal(args[1], b)
    integral = max(x.precision - x.scale, y.precision - y.scale)
    match name:
        case "+" | "-":
            scale = max(x.scale, y.scale)
            return bounded_decimal(integral + scale + 1, scale)
        case "*":
            return bounded_decimal(x.precision + y.precision + 1, x.scale + y.scale)
        case "/":
            scale = max(6, x.scale + y.precision + 1)
            return bounded_decimal(x.precision - x.scale + y.scale + scale, scale)
        case _:
            scale = max(x.scale, y.scale)
            least = min(x.precision - x.scale, y.precision - y.scale)
            return bounded_decimal(least + scale, scale)


def _time_arithmetic(name: str, a: Type, b: Type) -> Type | None:
    if name == "-" and a == b and a in (TIMESTAMP, DATE):
        return INTERVAL
    if name == "-" and {a, b} == {TIMESTAMP, DATE}:
        return INTERVAL
    if name in "+-" and b == INTERVAL and a in (TIMESTAMP, INTERVAL):
        return a
    if name == "+" and a == INTERVAL and b == TIMESTAMP:
        return TIMESTAMP
    if name in "+-" and a == DATE and b.is_integer:
        return DATE
    if name == "*" and a == INTERVAL and b.is_integer:
        return INTERVAL
    if name == "*" and a.is_integer and b == INTERVAL:
        return INTERVAL
    return None


def _whole_division(name: str, args: Sequence[Expr]) -> Type:
    if not all(arg.type.is_integer or arg.type == NULL for arg in args):
        raise _argument_error(name, args, "integers")
    return BIGINT


def _negate(name: str, args: Sequence[Expr]) -> Type:
    if not (args[0].type.is_numeric or args[0].type == INTERVAL):
        raise _argument_error(name, args, "a number or an interval")
    return args[0].type


def _round_up_or_down(name: str, args: Sequence[Expr]) -> Type:
    type_ = args[0].type
    if not type_.is_numeric:
        raise _argument_error(name, args, "a number")
    if type_.is_decimal:
        return bounded_decimal(max(type_.precision - type_.scale + 1, 1), 0)
    return BIGINT


def _round(name: str, args: Sequence[Expr]) -> Type:
    type_ = args[0].type
    if not type_.is_numeric:
        raise _argument_error(name, args, "a number, and how many digits to keep")
    digits = 0
    if len(args) == 2:
        digits_arg = args[1]
        if not (
            isinstance(digits_arg, Literal)
            and isinstance(digits_arg.value, int)
            and 0 <= digits_arg.value <= 30
        ):
            # A constant, because the type of the result depends on it.
            raise AlgebraError(f"{name}: the number of digits is a constant from 0 to 30")
        digits = digits_arg.value
    if type_.is_decimal:
        scale = min(type_.scale, digits)
        return clipped_decimal(type_.precision - type_.scale + 1 + scale, scale)
    return type_


def _case(name: str, args: Sequence[Expr]) -> Type:
    conditions, values = args[0:-1:2], (*args[1::2], args[-1])
    if len(args) % 2 == 0 or not all(c.type in (BOOLEAN, NULL) for c in conditions):
        raise AlgebraError("case: every WHEN is a condition")
    return _common_type_of("case", values)


def _common_rule(name: str, args: Sequence[Expr]) -> Type:
    return _common_type_of(name, args)


_DATE_PARTS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")


def _date_trunc(name: str, args: Sequence[Expr]) -> Type:
    unit = args[0]
    if not (isinstance(unit, Literal) and str(unit.value).lower() in _DATE_PARTS):
        raise AlgebraError(f"date_trunc: the unit is one of {', '.join(_DATE_PARTS)} in quotes")
    if args[1].type not in (TIMESTAMP, DATE, NULL):
        raise _argument_error(name, args, "a unit and a TIMESTAMP")
    return TIMESTAMP


def _constant_text(name: str, what: str, arg: Expr) -> str | None:
    """The text of a pattern, None for NULL; one that comes with the data could stop every query."""
    if isinstance(arg, Literal) and (isinstance(arg.value, str) or arg.value is None):
        return arg.value
    raise AlgebraError(
        f"{name}: the {what} is a constant text; for a text from a column use contains, startswith,"
        " endswith or ="
    )


def _pattern(read: Callable[[str], object]) -> Rule:
    """A rule for a text and a constant pattern, which `read` must accept."""

    def rule(name: str, args: Sequence[Expr]) -> Type:
        _two_texts(name, args)
        pattern = _constant_text(name.upper(), "pattern", args[1])
        if pattern is not None:
            read(pattern)
        return BOOLEAN

    return rule


def _date_format(name: str, args: Sequence[Expr]) -> Type:
    result = _signature(TIMESTAMP, STRING, result=STRING)(name, args)
    if not isinstance(args[1], Literal):
        raise AlgebraError("date_format: the format is a constant text, like 'yyyy-MM-dd'")
    if isinstance(args[1].value, str):
        list(format_tokens(args[1].value))
    return result


def _check_length(rule: Rule) -> Rule:
    """The rule, which also refuses a text that is too long by its constants alone."""

    def checked(name: str, args: Sequence[Expr]) -> Type:
        result = rule(name, args)
        length = exact_length(name, tuple(args))
        if length is not None and length > MAX_TEXT:
            raise AlgebraError(
                f"{name} would make a text of {length:,} characters;"
                f" a text has at most {MAX_TEXT:,}, and is NULL beyond"
            )
        return result

    return checked


_number = _takes("a number", _numeric)
_real = _takes("numbers", _numeric, DOUBLE)
_text = _takes("STRING", _one_of(STRING), STRING)
_condition = _takes("conditions", _one_of(BOOLEAN), BOOLEAN)
_part_of_time = _takes("a TIMESTAMP or DATE", _one_of(TIMESTAMP, DATE), INT)
_two_texts = _takes("STRING", _one_of(STRING), BOOLEAN)

_TABLE: list[tuple[str, int, int | None, Rule]] = [
    *((name, 2, 2, _compare) for name in COMPARISONS),
    ("in", 2, None, _compare),
    ("and", 2, None, _condition),
    ("or", 2, None, _condition),
    ("not", 1, 1, _condition),
    ("is_null", 1, 1, lambda name, args: BOOLEAN),
    ("case", 3, None, _case),
    *((name, 2, 2, _arithmetic) for name in ("+", "-", "*", "/", "%")),
    ("div", 2, 2, _whole_division),
    ("neg", 1, 1, _negate),
    ("pmod", 2, 2, _arithmetic),
    ("abs", 1, 1, _number),
    ("ceil", 1, 1, _round_up_or_down),
    ("floor", 1, 1, _round_up_or_down),
    ("round", 1, 2, _round),
    ("sign", 1, 1, _real),
    *((name, 1, 1, _real) for name in ("sqrt", "exp", "ln", "log10", "log2")),
    ("pow", 2, 2, _real),
    ("greatest", 2, None, _common_rule),
    ("least", 2, None, _common_rule),
    ("coalesce", 1, None, _common_rule),
    # The common type is computed only to refuse values that cannot be compared.
    ("nullif", 2, 2, lambda name, args: (_common_type_of(name, args), args[0].type)[1]),
    *(
        (name, 1, 1, _text)
        for name in ("upper", "lower", "trim", "ltrim", "rtrim", "reverse", "initcap")
    ),
    ("length", 1, 1, _takes("STRING", _one_of(STRING), INT)),
    ("concat", 1, None, _check_length(_text)),
    ("replace", 3, 3, _text),
    ("translate", 3, 3, _text),
    ("substring", 2, 3, _signature(STRING, INT, INT, result=STRING)),
    ("left", 2, 2, _signature(STRING, INT, result=STRING)),
    ("right", 2, 2, _signature(STRING, INT, result=STRING)),
    ("repeat", 2, 2, _check_length(_signature(STRING, INT, result=STRING))),
    ("lpad", 3, 3, _check_length(_signature(STRING, INT, STRING, result=STRING))),
    ("rpad", 3, 3, _check_length(_signature(STRING, INT, STRING, result=STRING))),
    ("split_part", 3, 3, _signature(STRING, STRING, INT, result=STRING)),
    ("instr", 2, 2, _takes("STRING", _one_of(STRING), INT)),
    *((name, 2, 2, _two_texts) for name in ("startswith", "endswith", "contains")),
    ("like", 2, 2, _pattern(like_parts)),
    ("rlike", 2, 2, _pattern(compile_regex)),
    *(
        (n, 1, 1, _part_of_time)
        for n in ("year", "quarter", "month", "day", "dayofweek", "dayofyear")
    ),
    *((n, 1, 1, _signature(TIMESTAMP, result=INT)) for n in ("hour", "minute", "second")),
    ("date_trunc", 2, 2, _date_trunc),
    ("date_format", 2, 2, _date_format),
    *(
        (n, 1, 1, _signature(TIMESTAMP, result=BIGINT))
        for n in ("unix_seconds", "unix_millis", "unix_micros")
    ),
    *(
        (n, 1, 1, _signature(INT, result=TIMESTAMP))
        for n in ("timestamp_seconds", "timestamp_millis", "timestamp_micros")
    ),
]

FUNCTIONS = {name: Function(name, least, most, rule) for name, least, most, rule in _TABLE}


# ---- aggregates


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the rows of a group; `arg` is None in COUNT(*)."""

    name: str
    arg: Expr | None
    type: Type
    distinct: bool = False
    filter: Expr | None = None

    def __str__(self) -> str:
        inner = "*" if self.arg is None else f"{'distinct ' if self.distinct else ''}{self.arg}"
        return f"{self.name}({inner})" + ("" if self.filter is None else f" filter {self.filter}")


def build_aggregate(
    name: str, arg: Expr | None, distinct: bool = False, filter: Expr | None = None
) -> AggregateCall:
    """The aggregate call; raises AlgebraError if it is unknown or the argument does not fit."""
    function = AGGREGATES.get(name)
    if function is None:
        raise AlgebraError(f"unknown aggregate {name}; {suggest(name, AGGREGATES)}")
    if arg is None and name != "count":
        raise AlgebraError(f"{name} takes an expression, not *")
    if filter is not None and filter.type not in (BOOLEAN, NULL):
        raise AlgebraError(f"FILTER takes a condition, not {filter.type}")
    if distinct and arg is None:
        raise AlgebraError("COUNT(DISTINCT *): name the columns")
    result = BIGINT if arg is None else function.rule(name, (arg,))
    if function.ignores_distinct:
        distinct = False
    return AggregateCall(name, arg, result, distinct, filter)


def _sum(name: str, args: Sequence[Expr]) -> Type:
    type_ = args[0].type
    if type_.is_decimal:
        return clipped_decimal(type_.precision + 10, type_.scale)
    if type_.is_integer:
        return BIGINT
    if type_.is_floating or type_ == NULL:
        return DOUBLE
    if type_ == INTERVAL:
        return INTERVAL
    raise _argument_error(name, args, "a number")


def _avg(name: str, args: Sequence[Expr]) -> Type:
    type_ = args[0].type
    if type_.is_decimal:
        return clipped_decimal(type_.precision + 4, type_.scale + 4)
    if type_.is_numeric or type_ == NULL:
        return DOUBLE
    raise _argument_error(name, args, "a number")


def _always_merges(argument: Type | None) -> bool:
    return True


def _never_merges(argument: Type | None) -> bool:
    return False


def _sum_merges(argument: Type | None) -> bool:
    if argument is None:
        return False
    if argument.is_decimal:
        # A sum is kept with ten more digits: beyond 28 the parts of some panes would not fit in 38.
        return argument.precision <= 28
    return argument.is_floating or argument.is_integer or argument == INTERVAL


def _distinct_sum_merges(argument: Type | None) -> bool:
    return argument is not None and not argument.is_floating and _sum_merges(argument)


def _distinct_avg_merges(argument: Type | None) -> bool:
    return argument is not None and not argument.is_floating and _avg_merges(argument)


def _avg_merges(argument: Type | None) -> bool:
    return argument is not None and not argument.is_decimal and _sum_merges(argument)


def _spread_merges(argument: Type | None) -> bool:
    return argument is not None and argument.is_numeric


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate of the language: the rule that computes its type or refuses the argument, and
    the argument types for which the aggregate of all rows follows from those of parts (only such
    queries keep panes, and share them), also those for which it does with DISTINCT: then of the sets of
    values of parts. `ignores_distinct` if DISTINCT changes nothing."""

    name: str
    rule: Rule
    merges: Callable[[Type | None], bool] = _never_merges
    ignores_distinct: bool = False
    merges_distinct: Callable[[Type | None], bool] = _never_merges


def _first_type(name: str, args: Sequence[Expr]) -> Type:
    return args[0].type


def _count(name: str, args: Sequence[Expr]) -> Type:
    return BIGINT


_aggregates: dict[str, AggregateFunction] = {
    function.name: function
    for function in (
        AggregateFunction("count", _count, _always_merges, merges_distinct=_always_merges),
        AggregateFunction("sum", _sum, _sum_merges, merges_distinct=_distinct_sum_merges),
        AggregateFunction("avg", _avg, _avg_merges, merges_distinct=_distinct_avg_merges),
        AggregateFunction("min", _first_type, _always_merges, ignores_distinct=True),
        AggregateFunction("max", _first_type, _always_merges, ignores_distinct=True),
        *(
            AggregateFunction(name, _takes("a number", _numeric, DOUBLE), _spread_merges)
            for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
        ),
        AggregateFunction("bool_and", _condition, _always_merges),
        AggregateFunction("bool_or", _condition, _always_merges),
    )
}

AGGREGATES: Mapping[str, AggregateFunction] = MappingProxyType(_aggregates)
"""Every aggregate by its name. What it computes is defined twice, on purpose, by code that shares
nothing: in `headwater.reference.aggregates`, and as SQL in `headwater.runtime.spark.aggregates`."""


def add_aggregate(function: AggregateFunction) -> None:
    """Let queries call an aggregate; raises AlgebraError if its name is taken or invalid."""
    if function.name in FUNCTIONS or function.name in _aggregates:
        raise AlgebraError(f"there is a function {function.name} already")
    if not function.name.isidentifier() or function.name != function.name.lower():
        raise AlgebraError(f"an aggregate is named by one word in small letters: {function.name}")
    _aggregates[function.name] = function


def remove_aggregate(name: str) -> None:
    """Remove an aggregate from the language; raises AlgebraError if there is none of that name."""
    if _aggregates.pop(name, None) is None:
        raise AlgebraError(f"unknown aggregate {name}; {suggest(name, AGGREGATES)}")


def is_mergeable(call: AggregateCall) -> bool:
    """Whether the aggregate of all rows follows from those of parts."""
    argument = None if call.arg is None else call.arg.type
    function = AGGREGATES[call.name]
    return (function.merges_distinct if call.distinct else function.merges)(argument)
