"""Scalar expressions: from sqlglot's syntax tree to the algebra.

A table maps every kind of node to a rule and to the parts of the node that the rule handles; a node
or a part that is not in the table is refused, so nothing of a query is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headwater.algebra import functions
from headwater.algebra.expressions import TRUE, Call, Column, Expr, Literal, conjunction
from headwater.algebra.functions import AGGREGATES, FUNCTIONS, AggregateCall, build_aggregate
from headwater.algebra.types import BOOLEAN, DATE, DOUBLE, FLOAT, NULL, STRING, TIMESTAMP, Type
from headwater.cql import constants
from headwater.cql.binding.names import Scope
from headwater.cql.binding.refusals import (
    ErrorLocator,
    Node,
    name_of,
    operands,
    strip_parens,
    walk_nodes,
)
from headwater.cql.syntax import FUNCTION_MARK
from headwater.errors import AlgebraError, suggest

MAX_DEPTH = 150  # every level takes several frames of the Python stack, here and in later passes


class AggregateCollector:
    """The aggregates of a SELECT block; above the aggregation each is a column of `alias`."""

    __slots__ = ("alias", "calls")

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.calls: list[AggregateCall] = []

    def column(self, call: AggregateCall) -> Column:
        if call not in self.calls:
            self.calls.append(call)
        index = self.calls.index(call)
        return Column(self.alias, f"a{index}", call.type, call.name != "count")


class Binder:
    """Binds the expressions of one clause: WHERE, ON, SELECT, ...

    `aggregates` is None where none are allowed. `outputs` holds, for HAVING, the columns of the
    SELECT list by name: they can be named too, unless a column that is a group key has the same
    name.
    """

    __slots__ = ("aggregates", "clause", "depth", "inside", "keys", "locator", "outputs", "scope")

    def __init__(
        self,
        locator: ErrorLocator,
        scope: Scope,
        clause: str,
        aggregates: AggregateCollector | None = None,
        outputs: dict[str, Expr] | None = None,
        keys: tuple[Expr, ...] = (),
    ) -> None:
        self.locator = locator
        self.scope = scope
        self.clause = clause
        self.aggregates = aggregates
        self.outputs = outputs
        self.keys = keys
        self.depth = 0
        self.inside = ""

    def bind(self, node: Any) -> Expr:
        """The expression; raises CqlError."""
        kind = type(node)
        # Columns are the most frequent node, and no level of nesting.
        if kind is exp.Column:
            return self.column(node)
        rule = _RULES.get(kind)
        if rule is None:
            raise self.locator.unsupported(node, f"an expression in {self.clause}")
        self.locator.check_parts(node, rule[1])
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.locator.error(f"an expression nested more than {MAX_DEPTH} deep", node)
        bound = rule[0](self, node)
        self.depth -= 1
        return bound

    def condition(self, node: Any) -> Expr:
        """The expression, which must be true or false."""
        bound = self.bind(node)
        if bound.type not in (BOOLEAN, NULL):
            raise self.locator.error(f"{self.clause} takes a condition, this is {bound.type}", node)
        return bound

    def call(self, node: object, name: str, *args: Expr) -> Expr:
        try:
            return functions.build_call(name, *args)
        except AlgebraError as problem:
            raise self.locator.locate_error(problem, node) from None

    def column(self, node: Node) -> Expr:
        args = node.args
        name = name_of(args.get("this"))
        if name is None:
            raise self.locator.error("* is allowed only in a SELECT list and in COUNT(*)", node)
        if len(args) > 2:
            self.locator.check_parts(node, _COLUMN_PARTS)
        table = args.get("table")
        try:
            if table is not None:
                return self.scope.qualified_column(name_of(table) or "", name)
            # Inside an aggregate a name is that of a column of FROM: an output may hold the
            # aggregate.
            if self.outputs is not None and not self.inside:
                return self._column_or_output(name)
            return self.scope.column(name)
        except AlgebraError as problem:
            about_column = table is None or str(problem).startswith("no column")
            raise self.locator.locate_error(
                problem, args["this"] if about_column else table
            ) from None

    def _column_or_output(self, name: str) -> Expr:
        assert self.outputs is not None
        output = self.outputs.get(name.lower())
        if output is None:
            return self.scope.column(name)
        column = self.scope.find_column(name)
        return column if column is not None and column in self.keys else output


# ---- rules, one for each kind of node

Rule = Callable[[Binder, Any], Expr]


def _binary(name: str) -> Rule:
    def rule(binder: Binder, node: Node) -> Expr:
        left = binder.bind(node.args.get("this"))
        return binder.call(node, name, left, binder.bind(node.args.get("expression")))

    return rule


def _negated_binary(name: str) -> Rule:
    plain = _binary(name)
    return lambda binder, node: binder.call(node, "not", plain(binder, node))


def _chain(name: str, kind: type[Node]) -> Rule:
    """AND, OR: one flat call, however the operands were nested."""

    def rule(binder: Binder, node: Node) -> Expr:
        args: list[Expr] = []
        for part in operands(node, kind):
            bound = binder.bind(part)
            args.extend(bound.args if isinstance(bound, Call) and bound.name == name else (bound,))
        return binder.call(node, name, *args)

    return rule


def _concat(binder: Binder, node: Node) -> Expr:
    parts: list[Any] = []
    while type(node) is exp.DPipe:
        parts.append(node.args.get("expression"))
        node = node.args["this"]
    return binder.call(node, "concat", *map(binder.bind, [node, *reversed(parts)]))


def _literal(binder: Binder, node: Node) -> Expr:
    written = node.args["this"]
    if node.args.get("is_string"):
        return Literal(written, STRING)
    return binder.locator.build(node, constants.number_literal, written)


def _negate(binder: Binder, node: Node) -> Expr:
    inner = node.args.get("this")
    # The sign belongs to the constant: -9223372036854775808 is a BIGINT, without it a DECIMAL.
    if type(inner) is exp.Literal and not inner.args.get("is_string"):
        return binder.locator.build(inner, constants.number_literal, inner.args["this"], True)
    return binder.call(node, "neg", binder.bind(inner))


def _not(binder: Binder, node: Node) -> Expr:
    return binder.call(node, "not", binder.bind(node.args.get("this")))


def _is(binder: Binder, node: Node) -> Expr:
    value = binder.bind(node.args.get("this"))
    what = node.args.get("expression")
    if type(what) is exp.Null:
        return binder.call(node, "is_null", value)
    if type(what) is exp.Boolean:
        # IS TRUE is never NULL, so it is not =.
        return binder.call(node, "<=>", value, Literal(bool(what.args["this"]), BOOLEAN))
    raise binder.locator.error("IS goes with [NOT] NULL, TRUE or FALSE", node)


def _like(binder: Binder, node: Node) -> Expr:
    like = _binary("like")(binder, node)
    return binder.call(node, "not", like) if node.args.get("negate") else like


def _between(binder: Binder, node: Node) -> Expr:
    # sqlglot accepts BETWEEN without AND, so it is looked for in the text.
    low_end, high_start = binder.locator.gap(node.args.get("low"), node.args.get("high"))
    if not re.search(r"\band\b", binder.locator.text[low_end:high_start], re.I):
        raise binder.locator.error("expected AND after the first value of BETWEEN", node)
    value = binder.bind(node.args.get("this"))
    low = binder.call(node, ">=", value, binder.bind(node.args.get("low")))
    return binder.call(
        node, "and", low, binder.call(node, "<=", value, binder.bind(node.args.get("high")))
    )


def _in(binder: Binder, node: Node) -> Expr:
    if node.args.get("query"):
        raise binder.locator.error(
            "IN (SELECT ..) is allowed only in WHERE, alone or joined to other conditions by AND",
            node,
        )
    value = binder.bind(node.args.get("this"))
    listed = node.args.get("expressions") or []
    if not listed:
        raise binder.locator.error("IN needs at least one value", node)
    return binder.call(node, "in", value, *map(binder.bind, listed))


def _case(binder: Binder, node: Node) -> Expr:
    args: list[Expr] = []
    subject = node.args.get("this")
    value = None if subject is None else binder.bind(subject)
    for branch in node.args.get("ifs") or []:
        binder.locator.check_parts(branch, _BRANCH_PARTS)
        test = binder.bind(branch.args.get("this"))
        args.append(test if value is None else binder.call(branch, "=", value, test))
        args.append(binder.bind(branch.args.get("true")))
    default = node.args.get("default")
    args.append(Literal(None, NULL) if default is None else binder.bind(default))
    return binder.call(node, "case", *args)


def _try_cast(binder: Binder, node: Node) -> Expr:
    value = binder.bind(node.args.get("this"))
    return binder.locator.build(
        node, functions.cast, value, _type(binder, node, node.args.get("to"))
    )


# sqlglot's Spark parser makes TryCast of what is written CAST, and Cast of DATE '..' and the like.
def _typed_literal(binder: Binder, node: Node) -> Expr:
    """DATE '..' and TIMESTAMP '..'."""
    written = node.args.get("this")
    type_ = _type(binder, node, node.args.get("to"))
    if type(written) is exp.Literal and written.args.get("is_string"):
        if type_ == DATE:
            return binder.locator.build(written, constants.date_literal, written.args["this"])
        if type_ == TIMESTAMP:
            return binder.locator.build(written, constants.timestamp_literal, written.args["this"])
    raise binder.locator.error(f"a constant of type {type_} is not written so", node, "use CAST")


_DTYPES = {
    **{getattr(exp.DType, name): name for name in constants.TYPES if hasattr(exp.DType, name)},
    exp.DType.TEXT: "STRING",
    exp.DType.TIMESTAMPTZ: "TIMESTAMP",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMP",
    exp.DType.DECIMAL: "DECIMAL",
}


def _type(binder: Binder, node: Node, written: Any) -> Type:
    if type(written) is not exp.DataType:
        raise binder.locator.error("expected a type", node)
    binder.locator.check_parts(written, frozenset({"this", "expressions"}))
    kind = written.args.get("this")
    numbers = []
    for part in written.args.get("expressions") or []:
        number = part.args.get("this") if type(part) is exp.DataTypeParam else None
        digits = number.args["this"] if type(number) is exp.Literal else ""
        if not (digits.isdecimal() and len(digits) < 4):
            raise binder.locator.error("DECIMAL takes a precision and a scale", node)
        numbers.append(int(digits))
    name = _DTYPES.get(kind, getattr(kind, "name", str(kind)))
    return binder.locator.build(node, constants.read_type, name, numbers)


def _interval(binder: Binder, node: Node) -> Expr:
    count, unit = node.args.get("this"), node.args.get("unit")
    if type(count) is not exp.Literal or type(unit) is not exp.Var:
        raise binder.locator.error(
            "an interval is a constant and one unit", node,
            "write it like INTERVAL '5' MINUTE; for a variable length x * INTERVAL '1' MINUTE",
        )  # fmt: skip
    return binder.locator.build(
        node, constants.interval_literal, count.args["this"], str(unit.args["this"])
    )


_EXTRACTED = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
    "doy": "dayofyear",
    "dayofyear": "dayofyear",
}


def _extract(binder: Binder, node: Node) -> Expr:
    part = node.args.get("this")
    name = str(part.args.get("this")).lower() if isinstance(part, exp.Expr) else ""
    if name not in _EXTRACTED:
        raise binder.locator.error(f"EXTRACT has no part {name}", node, suggest(name, _EXTRACTED))
    return binder.call(node, _EXTRACTED[name], binder.bind(node.args.get("expression")))


# ---- functions

_ALIASES = {
    "power": "pow",
    "ceiling": "ceil",
    "substr": "substring",
    "signum": "sign",
    "mod": "%",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "dayofmonth": "day",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "log": "ln",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "ucase": "upper",
    "lcase": "lower",
    "negative": "neg",
    "isnull": "is_null",
}
_AGGREGATE_ALIASES = {
    "mean": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "count_if": "count",
}
_CLOCKS = ("now", "current_timestamp", "current_date", "localtimestamp", "unix_timestamp")
# Functions of the algebra that have a syntax of their own and are not called by name.
_INTERNAL = frozenset({"and", "or", "not", "in", "case", "is_null", "neg", "div"})
_FUNCTION_NAMES = frozenset(n for n in FUNCTIONS if n[0].isalpha()) - _INTERNAL
_CASTS = {
    **{name.lower(): type_ for name, type_ in constants.TYPES.items()},
    "to_date": DATE,
    "to_timestamp": TIMESTAMP,
}


def known_functions() -> list[str]:
    """The names that can be called."""
    aggregates = {*AGGREGATES, *_AGGREGATE_ALIASES}
    return sorted({*_FUNCTION_NAMES, *_ALIASES, *aggregates, "if", "nullif"})


def _aggregate_name(called: str | None) -> str | None:
    """The aggregate that a name calls; None if it calls none."""
    name = _AGGREGATE_ALIASES.get(called or "", called)
    return name if name in AGGREGATES else None


def called_function(node: Any) -> str | None:
    """The name of the called function in lower case; None if the node is no call."""
    if type(node) is exp.Anonymous:
        name = node.args.get("this")
        if isinstance(name, str) and name.startswith(FUNCTION_MARK):
            return name[len(FUNCTION_MARK) :]
    return None


def is_aggregate(node: object) -> bool:
    """Whether there is a call of an aggregate in the expression."""
    return any(_aggregate_name(called_function(part)) for part in walk_nodes(node))


def _function(binder: Binder, node: Node) -> Expr:
    name = called_function(node)
    args = node.args.get("expressions") or []
    if name is None:
        raise binder.locator.error("a function's name goes without backquotes", node)
    if _aggregate_name(name):
        return _aggregate(binder, node, None)
    if name == "if":
        return _if(binder, node, args)
    bound = [binder.bind(arg) for arg in args]
    if name in _CASTS and len(bound) == 1:
        return _cast_call(binder, node, bound[0], _CASTS[name])
    if name == "isnotnull" and len(bound) == 1:
        return binder.call(node, "not", binder.call(node, "is_null", *bound))
    # A named error: "unknown function now" would send people looking for another spelling.
    if name in _CLOCKS:
        hint = "compare event times instead"
        raise binder.locator.error("a continuous query has no current time", node, hint)
    function = _ALIASES.get(name, name)
    if name not in _ALIASES and name not in _FUNCTION_NAMES:
        raise binder.locator.error(
            f"unknown function {name}", node, suggest(name, known_functions())
        )
    return binder.call(node, function, *bound)


def _if(binder: Binder, node: Node, args: list[Any]) -> Expr:
    if len(args) not in (2, 3):
        raise binder.locator.error(f"if takes 2 or 3 arguments, not {len(args)}", node)
    bound = [binder.bind(arg) for arg in args]
    return binder.call(node, "case", *bound, *([Literal(None, NULL)] if len(args) == 2 else []))


def _cast_call(binder: Binder, node: Node, value: Expr, type_: Type) -> Expr:
    """int(x) is CAST(x AS INT); double('NaN') and its like are constants."""
    if type_ in (DOUBLE, FLOAT) and isinstance(value, Literal) and isinstance(value.value, str):
        constant = constants.non_finite_literal(value.value, type_)
        if constant is not None:
            return constant
    return binder.locator.build(node, functions.cast, value, type_)


def _filter(binder: Binder, node: Node) -> Expr:
    call, where = node.args.get("this"), node.args.get("expression")
    if not _aggregate_name(called_function(call)) or type(where) is not exp.Where:
        raise binder.locator.error("FILTER (WHERE ..) is allowed only after an aggregate", node)
    return _aggregate(binder, call, where)


def _aggregate(binder: Binder, node: Any, where: Node | None) -> Expr:
    name = called_function(node) or ""
    if binder.inside:
        raise binder.locator.error(f"{name} is nested in {binder.inside}", node,
                                 "an aggregate of aggregates needs a subquery in FROM")  # fmt: skip
    if binder.aggregates is None:
        hint = "use HAVING" if binder.clause == "WHERE" else "use a subquery in FROM"
        raise binder.locator.error(f"{binder.clause} cannot hold an aggregate", node, hint)
    args, distinct = _aggregate_args(binder, node, name)
    clause, binder.inside = binder.clause, name
    bound = None if args is None else binder.bind(args)
    condition = None
    if where is not None:
        binder.clause = "FILTER"
        condition = binder.condition(where.args.get("this"))
    binder.clause, binder.inside = clause, ""
    if name == "count_if":
        bound, condition = _count_if(binder, node, bound, condition)
    call = binder.locator.build(
        node, build_aggregate, _AGGREGATE_ALIASES.get(name, name), bound, distinct, condition
    )
    return binder.aggregates.column(call)


def _count_if(
    binder: Binder, node: Node, tested: Expr | None, condition: Expr | None
) -> tuple[None, Expr]:
    if tested is None or tested.type not in (BOOLEAN, NULL):
        raise binder.locator.error("count_if takes a condition", node)
    if condition is None:
        return None, tested
    return None, conjunction((condition, tested)) or TRUE


def _aggregate_args(binder: Binder, node: Node, name: str) -> tuple[Any, bool]:
    """The argument (None for *), and whether it is DISTINCT."""
    args = node.args.get("expressions") or []
    distinct = len(args) == 1 and type(args[0]) is exp.Distinct
    if distinct:
        binder.locator.check_parts(args[0], frozenset({"expressions"}))
        args = args[0].args.get("expressions") or []
    if len(args) != 1:
        raise binder.locator.error(f"{name} takes 1 argument, not {len(args)}", node)
    if type(args[0]) is exp.Star:
        binder.locator.check_parts(args[0], frozenset())
        if distinct or name != "count":
            raise binder.locator.error(f"{name} takes an expression, not *", node)
        return None, False
    if distinct and name == "count_if":
        raise binder.locator.error("count_if takes no DISTINCT", node)
    return args[0], distinct


_COLUMN_PARTS = frozenset({"this", "table"})
_BRANCH_PARTS = frozenset({"this", "true"})
_TWO = frozenset({"this", "expression"})
_ONE = frozenset({"this"})


def _constant_rule(value: Literal) -> Rule:
    return lambda binder, node: value


_RULES: dict[type[Any], tuple[Rule, frozenset[str]]] = {
    **{
        kind: (_binary(name), _TWO)
        for kind, name in {
            exp.EQ: "=",
            exp.NEQ: "<>",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "<=>",
            exp.Add: "+",
            exp.Sub: "-",
            exp.Mul: "*",
            exp.Mod: "%",
            exp.IntDiv: "div",
        }.items()
    },
    # `typed` and `safe` are flags of the dialect, not something that was written.
    exp.Div: (_binary("/"), frozenset({"this", "expression", "typed", "safe"})),
    exp.RegexpLike: (_binary("rlike"), _TWO),
    exp.NullSafeNEQ: (_negated_binary("<=>"), _TWO),
    exp.And: (_chain("and", exp.And), _TWO),
    exp.Or: (_chain("or", exp.Or), _TWO),
    exp.Not: (_not, _ONE),
    exp.Neg: (_negate, _ONE),
    exp.Paren: (lambda binder, node: binder.bind(strip_parens(node)), _ONE),
    exp.DPipe: (_concat, frozenset({"this", "expression", "safe"})),
    exp.Literal: (_literal, frozenset({"this", "is_string"})),
    exp.Null: (_constant_rule(Literal(None, NULL)), frozenset()),
    exp.Boolean: (lambda binder, node: Literal(bool(node.args["this"]), BOOLEAN), _ONE),
    exp.Is: (_is, _TWO),
    exp.Like: (_like, frozenset({"this", "expression", "negate"})),
    exp.Between: (_between, frozenset({"this", "low", "high"})),
    exp.In: (_in, frozenset({"this", "expressions", "query"})),
    exp.Case: (_case, frozenset({"this", "ifs", "default"})),
    exp.TryCast: (_try_cast, frozenset({"this", "to", "safe"})),
    exp.Cast: (_typed_literal, frozenset({"this", "to"})),
    exp.Interval: (_interval, frozenset({"this", "unit"})),
    exp.Extract: (_extract, _TWO),
    exp.Anonymous: (_function, frozenset({"this", "expressions"})),
    exp.Filter: (_filter, _TWO),
}
