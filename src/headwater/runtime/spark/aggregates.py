"""Aggregates as Spark SQL, over rows and over panes: one record for each.

An aggregate whose value follows from partial results is kept as these: the columns of a pane, each with
the aggregate that merges it, and SQL over the merged columns. CONTRIBUTING.md says how to add one; its
typing is in `headwater.algebra.functions`, its meaning in `headwater.reference.aggregates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headwater.algebra.functions import (
    AggregateCall,
    AggregateFunction,
    add_aggregate,
    is_mergeable,
    remove_aggregate,
)
from headwater.algebra.types import Type
from headwater.reference.aggregates import Summary, add_summary, remove_summary
from headwater.runtime.spark.sql import Naming, expression_sql, spark_type


@dataclass(frozen=True)
class PaneColumn:
    """A column of a pane: how it is made of rows, and by which aggregate panes are merged: `merge` is the
    name of a function, or SQL with `{}` for the column."""

    name: str
    build: str
    merge: str

    def merge_sql(self, column: str) -> str:
        """SQL of the aggregate that merges the column of several panes."""
        return self.merge.format(column) if "{}" in self.merge else f"{self.merge}({column})"


FinishSql = Callable[[Callable[[str], str]], str]
"""SQL of the value of an aggregate, from the SQL of its merged columns by their names."""


@dataclass(frozen=True)
class ValueSums:
    """An aggregate of distinct values as sums over them: columns made of a value `v` of that type in SQL,
    which can be subtracted exactly, and SQL over these sums."""

    value_type: str
    columns: tuple[PaneColumn, ...]
    finish_sql: FinishSql


@dataclass(frozen=True)
class PartialAggregate:
    """An aggregate as parts, and as SQL over the merged parts."""

    columns: tuple[PaneColumn, ...]
    finish_sql: FinishSql
    can_subtract: bool = False
    """Whether what leaves can be subtracted, exactly."""
    of_values: ValueSums | None = None
    """The same from the distinct values of a group, where the one column is their set."""


@dataclass(frozen=True)
class SqlCall:
    """A call in SQL: the function, and the argument with `{}` for the value."""

    function: str
    argument: str = "{}"


PartialRule = Callable[[AggregateCall, int, str], PartialAggregate | None]
"""The parts of a call over the columns x<i>, with SQL of a FILTER behind each aggregate, or none."""


def _needs_all_rows(_call: AggregateCall, _i: int, _filter_sql: str) -> None:
    return None


@dataclass(frozen=True)
class AggregateSql:
    """An aggregate in SQL: the call by the type of its argument (None for *), and its parts, for calls
    that are mergeable."""

    call: Callable[[Type | None], SqlCall]
    partial: PartialRule = _needs_all_rows


def aggregate_sql(call: AggregateCall, naming: Naming, condition: str = "") -> str:
    """An aggregate as Spark SQL; `condition` says which rows count at all."""
    sql = AGGREGATE_SQL[call.name].call(None if call.arg is None else call.arg.type)
    arg = "*" if call.arg is None else sql.argument.format(expression_sql(call.arg, naming))
    conditions = [condition] if condition else []
    if call.filter is not None:
        conditions.append(expression_sql(call.filter, naming))
    filter_clause = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    return f"{sql.function}({'DISTINCT ' if call.distinct else ''}{arg}){filter_clause}"


def partial_aggregate(call: AggregateCall, i: int) -> PartialAggregate | None:
    """The parts of an aggregate over columns x and f; None if it needs all rows."""
    if not is_mergeable(call):
        return None
    filter_sql = "" if call.filter is None else f" FILTER (WHERE f{i})"
    return AGGREGATE_SQL[call.name].partial(call, i, filter_sql)


def merged_by(function: str) -> PartialRule:
    """The rule of an aggregate whose parts are merged by the same aggregate: the least of the least."""

    def rule(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate:
        part = PaneColumn(f"m{i}", f"{function}(x{i}){filter_sql}", function)
        return PartialAggregate((part,), lambda merged: merged(part.name))

    return rule


def _named(function: str) -> Callable[[Type | None], SqlCall]:
    return lambda argument: SqlCall(function)


# ---- the aggregates that come with Headwater


UNION_OF_SETS = "array_distinct(flatten(collect_list({})))"
"""The aggregate that merges the sets of values of several panes."""


def _distinct_values(call: AggregateCall, i: int, filter_sql: str) -> PaneColumn:
    """The values of a DISTINCT argument as a set: never more than the rows that it stands for."""
    assert call.arg is not None
    # In a set of Spark -0.0 and 0.0 are two values.
    value = f"CAST(x{i} AS DOUBLE) + 0.0D" if call.arg.type.is_floating else f"x{i}"
    return PaneColumn(f"v{i}", f"array_distinct(collect_set({value}){filter_sql})", UNION_OF_SETS)


def _set_type(call: AggregateCall) -> str:
    assert call.arg is not None
    return "DOUBLE" if call.arg.type.is_floating else spark_type(call.arg.type)


def _count_parts(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate:
    if call.distinct:
        values = _distinct_values(call, i, filter_sql)
        number = PaneColumn(f"d{i}", "1L", "sum")
        return PartialAggregate(
            (values,),
            lambda merged: f"CAST(size({merged(values.name)}) AS BIGINT)",
            of_values=ValueSums(
                _set_type(call), (number,), lambda merged: f"coalesce({merged(number.name)}, 0L)"
            ),
        )
    counted = "*" if call.arg is None else f"x{i}"
    part = PaneColumn(f"n{i}", f"count({counted}){filter_sql}", "sum")
    return PartialAggregate((part,), lambda merged: f"coalesce({merged(part.name)}, 0L)", True)


def _sum_sql(argument: Type | None) -> SqlCall:
    if argument is not None and argument.is_floating:
        return SqlCall("sum", "CAST({} AS DOUBLE)")
    return SqlCall("try_sum")


def _sum_parts(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate | None:
    assert call.arg is not None
    type_ = call.arg.type
    if call.distinct:
        return _distinct_sum_parts(call, i, filter_sql)
    number = PaneColumn(f"n{i}", f"count(x{i}){filter_sql}", "sum")
    if type_.is_floating:
        # Never subtracted: a double that was added and taken away again leaves its rounding behind.
        total = PaneColumn(f"s{i}", f"sum(CAST(x{i} AS DOUBLE)){filter_sql}", "sum")
        return _null_safe_sum(call, number, (total,), lambda merged: merged(total.name), False)
    if type_.is_decimal:
        wide = f"DECIMAL(38, {type_.scale})"
        total = PaneColumn(f"s{i}", f"CAST(sum(x{i}){filter_sql} AS {wide})", "sum")
        return _null_safe_sum(call, number, (total,), lambda merged: merged(total.name), True)
    if type_.name in ("BIGINT", "INTERVAL"):
        # In two halves, each of which adds up without overflow, so that what leaves can be
        # subtracted.
        high = PaneColumn(f"h{i}", f"sum(shiftright(x{i}, 32)){filter_sql}", "sum")
        low = PaneColumn(f"l{i}", f"sum(x{i} & 4294967295L){filter_sql}", "sum")

        def whole(merged: Callable[[str], str]) -> str:
            upper = f"CAST({merged(high.name)} AS DECIMAL(20, 0))"
            return f"({upper} * 4294967296L + {merged(low.name)})"

        return _null_safe_sum(call, number, (high, low), whole, True)
    if type_.is_integer:
        total = PaneColumn(f"s{i}", f"sum(CAST(x{i} AS BIGINT)){filter_sql}", "sum")
        return _null_safe_sum(call, number, (total,), lambda merged: merged(total.name), True)
    return None


def _distinct_sum_parts(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate:
    """The sum or average of a set; as a decimal, which no order of adding changes."""
    assert call.arg is not None
    wide = f"DECIMAL(38, {call.arg.type.scale if call.arg.type.is_decimal else 0})"
    values = _distinct_values(call, i, filter_sql)

    def finish(merged: Callable[[str], str]) -> str:
        added = f"(a, v) -> CAST(a + CAST(v AS {wide}) AS {wide})"
        # Bound to a name once, as it is used twice: x -> .. of the one element is Spark's `let`.
        total = f"aggregate(s, CAST(0 AS {wide}), {added})"
        value = f"try_cast({total} AS {spark_type(call.type)})"
        if call.name == "avg":
            value = f"CAST({total} AS DOUBLE) / size(s)"
        whole = f"CASE WHEN size(s) > 0 THEN {value} END"
        return f"transform(array({merged(values.name)}), s -> {whole})[0]"

    number = PaneColumn(f"d{i}", "1L", "sum")
    added_up = PaneColumn(f"e{i}", f"CAST(v AS {wide})", "sum")
    sums = _null_safe_sum(call, number, (added_up,), lambda merged: merged(added_up.name), True)
    return PartialAggregate(
        (values,), finish, of_values=ValueSums(_set_type(call), sums.columns, sums.finish_sql)
    )


def _null_safe_sum(
    call: AggregateCall,
    number: PaneColumn,
    totals: tuple[PaneColumn, ...],
    total: Callable[[Callable[[str], str]], str],
    can_shrink: bool,
) -> PartialAggregate:
    """A sum or an average that is NULL where nothing was counted."""

    def finish(merged: Callable[[str], str]) -> str:
        value = f"try_cast({total(merged)} AS {spark_type(call.type)})"
        if call.name == "avg":
            value = f"CAST({total(merged)} AS DOUBLE) / {merged(number.name)}"
        return f"CASE WHEN {merged(number.name)} > 0 THEN {value} END"

    return PartialAggregate((number, *totals), finish, can_shrink)


# ---- the variance and the standard deviation

MAX_EXACT_DIGITS = 9
"""Numbers of up to so many digits are squared and added without rounding: the sum of squares of 10^10 of
them, times their number, has 38 digits."""


def _spread_parts(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate:
    assert call.arg is not None
    type_ = call.arg.type
    if type_.is_decimal and type_.precision <= MAX_EXACT_DIGITS:
        return _exact_spread_parts(call, i, filter_sql, type_.scale)
    if type_.is_integer and type_.name != "BIGINT":
        return _exact_spread_parts(call, i, filter_sql, 0)
    return _rounded_spread_parts(call, i, filter_sql)


def _exact_spread_parts(
    call: AggregateCall, i: int, filter_sql: str, scale: int
) -> PartialAggregate:
    """The spread of whole numbers (of decimals, their digits): their number, sum and sum of squares, all
    exact, so that what leaves can be subtracted."""
    whole = f"CAST(x{i} * {10**scale}L AS BIGINT)" if scale else f"CAST(x{i} AS BIGINT)"
    number = PaneColumn(f"n{i}", f"count(x{i}){filter_sql}", "sum")
    total = PaneColumn(f"s{i}", f"sum({whole}){filter_sql}", "sum")
    square = f"CAST({whole} * {whole} AS DECIMAL(19, 0))"
    squares = PaneColumn(
        f"q{i}", f"CAST(sum({square}){filter_sql} AS {WHOLE})", f"CAST(sum({{}}) AS {WHOLE})"
    )

    def finish(merged: Callable[[str], str]) -> str:
        n, s, q = (f"CAST({merged(part.name)} AS {WHOLE})" for part in (number, total, squares))
        divisor = f"{n} * ({n} - 1)" if call.name.endswith("_samp") else f"{n} * {n}"
        above, below = f"{n} * {q} - {s} * {s}", f"{divisor} * CAST({100**scale} AS {WHOLE})"
        variance = f"CAST({above} AS DOUBLE) / CAST({below} AS DOUBLE)"
        return _spread_sql(call, merged(number.name), variance)

    return PartialAggregate((number, total, squares), finish, True)


WHOLE = "DECIMAL(38, 0)"


def _rounded_spread_parts(call: AggregateCall, i: int, filter_sql: str) -> PartialAggregate:
    """The spread of doubles: number, mean, and sum of squared distances from it, of each part; two parts are
    merged as by Chan, Golub and LeVeque (1979), which does not cancel where the mean is large."""
    value = f"CAST(x{i} AS DOUBLE)"
    least, most = f"min({value}){filter_sql}", f"max({value}){filter_sql}"
    # The mean of equal values is that value, without rounding: their spread is 0.
    mean = f"CASE WHEN {least} = {most} THEN {least} ELSE avg({value}){filter_sql} END"
    count = f"count(x{i}){filter_sql}"
    struct = _moments_sql(count, mean, f"var_pop({value}){filter_sql} * {count}")
    build = f"CASE WHEN {count} > 0 THEN {struct} END"
    n, distance = "(a.n + b.n)", "(b.mean - a.mean)"
    added = _moments_sql(
        n,
        f"a.mean + {distance} * b.n / {n}",
        f"a.m2 + b.m2 + {distance} * {distance} * a.n * b.n / {n}",
    )
    none = "CAST(NULL AS STRUCT<n: BIGINT, mean: DOUBLE, m2: DOUBLE>)"
    merge = f"aggregate(collect_list({{}}), {none}, (a, b) -> CASE WHEN a IS NULL THEN b ELSE {added} END)"
    moments = PaneColumn(f"m{i}", build, merge)

    def finish(merged: Callable[[str], str]) -> str:
        divisor = "(m.n - 1)" if call.name.endswith("_samp") else "m.n"
        value = _spread_sql(call, "m.n", f"m.m2 / {divisor}")
        return f"transform(array({merged(moments.name)}), m -> {value})[0]"

    return PartialAggregate((moments,), finish)


def _moments_sql(number: str, mean: str, m2: str) -> str:
    return f"named_struct('n', {number}, 'mean', {mean}, 'm2', {m2})"


def _spread_sql(call: AggregateCall, number: str, variance: str) -> str:
    """The variance or its root; NULL where there are too few values."""
    least = 1 if call.name.endswith("_samp") else 0
    value = f"sqrt({variance})" if call.name.startswith("stddev") else variance
    return f"CASE WHEN {number} > {least} THEN {value} END"


_sql: dict[str, AggregateSql] = {
    "count": AggregateSql(_named("count"), _count_parts),
    "sum": AggregateSql(_sum_sql, _sum_parts),
    "avg": AggregateSql(_named("try_avg"), _sum_parts),
    **{
        name: AggregateSql(_named(name), merged_by(name))
        for name in ("min", "max", "bool_and", "bool_or")
    },
    **{
        name: AggregateSql(_named(name), _spread_parts)
        for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
    },
}

AGGREGATE_SQL: Mapping[str, AggregateSql] = MappingProxyType(_sql)
"""Every aggregate in SQL, by its name."""


@dataclass(frozen=True)
class AggregateSpec:
    """An aggregate: its typing, its meaning (`summary`: for the types of argument and result, a function of
    the values of a group that are not NULL), and its SQL."""

    function: AggregateFunction
    summary: Callable[[Type, Type], Summary]
    sql: AggregateSql


def register_aggregate(aggregate: AggregateSpec) -> None:
    """Add an aggregate, for queries, the reference evaluator and Spark; raises AlgebraError if its name
    is taken."""
    add_aggregate(aggregate.function)
    add_summary(aggregate.function.name, aggregate.summary)
    _sql[aggregate.function.name] = aggregate.sql


def unregister_aggregate(name: str) -> None:
    """Remove an aggregate; raises AlgebraError if there is none. Queries that call it cannot be read
    until it is back."""
    remove_aggregate(name)
    remove_summary(name)
    del _sql[name]
