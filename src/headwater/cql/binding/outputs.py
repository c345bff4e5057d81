"""The SELECT list of a block: its columns, their names, and how they are grouped."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headwater.algebra.expressions import Column, Expr, columns_of, conjunction, substitute
from headwater.algebra.nodes import Aggregate, Item, Relation, Select
from headwater.cql.binding.expressions import AggregateCollector, Binder, called_function
from headwater.cql.binding.names import Scope
from headwater.cql.binding.refusals import ErrorLocator, Node, name_of, operands, strip_parens

MAX_COLUMNS = 4_000  # * multiplies: nested queries could double the columns with every level
RESERVED_NAME = "_tau"

NO_PARTS: frozenset[str] = frozenset()


class OutputColumn:
    """A column of a SELECT list: its name from AS, or a default name."""

    __slots__ = ("alias", "column", "default_name", "expr", "node")

    def __init__(
        self, node: object, expr: Expr, alias: str, default_name: str, is_call: bool = False
    ) -> None:
        self.node = node
        self.expr = expr
        self.column = expr if isinstance(expr, Column) and not is_call else None
        self.alias = alias
        self.default_name = default_name

    @property
    def key(self) -> str:
        return (self.alias or self.default_name).lower()


def read_outputs(locator: ErrorLocator, node: Node, binder: Binder) -> list[OutputColumn]:
    """The columns of the SELECT list, with * expanded."""
    outputs: list[OutputColumn] = []
    for part in node.args.get("expressions") or []:
        if type(part) is exp.Star:
            locator.check_parts(part, NO_PARTS)
            outputs.extend(OutputColumn(part, e, "", n) for n, e in binder.scope.all_columns())
        elif type(part) is exp.Column and type(part.args.get("this")) is exp.Star:
            outputs.extend(_alias_star(locator, part, binder.scope))
        else:
            outputs.append(_output(locator, part, binder))
        if len(outputs) > MAX_COLUMNS:
            raise locator.error(f"a SELECT has at most {MAX_COLUMNS:,} columns", part)
    if not outputs:
        raise locator.error("a SELECT needs at least one column", node)
    return outputs


def _alias_star(locator: ErrorLocator, part: Node, scope: Scope) -> list[OutputColumn]:
    locator.check_parts(part, frozenset({"this", "table"}))
    locator.check_parts(part.args["this"], NO_PARTS)
    alias = name_of(part.args.get("table")) or ""
    source = locator.build(part, scope.source, alias)
    if source is None:
        raise locator.locate_error(scope.unknown_source_error(alias), part.args["table"])
    return [OutputColumn(part, column, "", column.name) for column in source.columns.values()]


def _output(locator: ErrorLocator, part: Any, binder: Binder) -> OutputColumn:
    if type(part) is not exp.Alias:
        bound = binder.bind(part)
        is_call = type(strip_parens(part)) is not exp.Column
        return OutputColumn(part, bound, "", _default_name(part, bound), is_call)
    locator.check_parts(part, frozenset({"this", "alias"}))
    identifier = part.args.get("alias")
    name = name_of(identifier) or ""
    if not name.strip():
        raise locator.error("expected a name after AS", part)
    if name.lower() == RESERVED_NAME:
        raise locator.error(
            f"{RESERVED_NAME} is the instant of every result row", identifier, "choose another name"
        )
    return OutputColumn(part, binder.bind(part.args.get("this")), name, "")


def _default_name(node: Any, bound: Expr) -> str:
    """The name of an output without AS: that of the column, or the function and its column."""
    node = strip_parens(node)
    if type(node) is exp.TryCast:
        node = strip_parens(node.args.get("this"))
        return _column_name(node)
    if type(node) is exp.Column:
        return bound.name if isinstance(bound, Column) else _column_name(node)
    if type(node) is exp.Filter:
        node = node.args.get("this")
    function = called_function(node)
    if function is None:
        return ""
    args = node.args.get("expressions") or []
    if len(args) == 1 and type(args[0]) is exp.Distinct:
        args = args[0].args.get("expressions") or []
    column = _column_name(args[0]) if len(args) == 1 else ""
    return f"{function}_{column}" if column else function


def _column_name(node: Any) -> str:
    return name_of(node.args.get("this")) or "" if type(node) is exp.Column else ""


def name_outputs(locator: ErrorLocator, outputs: list[OutputColumn]) -> tuple[Item, ...]:
    """The columns with their names: as given, or generated so that no two are the same."""
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for output in outputs:
        # Names that were given come first: a generated one gives way to them, wherever they stand.
        if output.alias and output.key in taken:
            raise locator.error(
                f"two columns are called {output.alias}", output.node, "rename one with AS"
            )
        if output.alias:
            taken.add(output.key)
        counts[output.key] = counts.get(output.key, 0) + 1
    items: list[Item] = []
    for index, output in enumerate(outputs):
        name = output.alias
        if not name:
            name = output.default_name or f"_c{index}"
            if output.column is not None and counts[output.key] > 1:
                name = f"{output.column.relation}_{name}"
            name = _unused_name(name, taken)
            if name.lower() == RESERVED_NAME:
                raise locator.error(
                    f"{RESERVED_NAME} is the instant of every result row",
                    output.node,
                    "rename it with AS",
                )
        items.append(Item(name, output.expr))
    return tuple(items)


def _unused_name(name: str, taken: set[str]) -> str:
    """The name, with a number appended if it is taken; the result is added to `taken`."""
    unused, count = name, 1
    while unused.lower() in taken:
        count += 1
        unused = f"{name}_{count}"
    taken.add(unused.lower())
    return unused


def number_outputs(outputs: list[OutputColumn]) -> tuple[Item, ...]:
    """The columns called c0, c1, .."""
    return tuple(Item(f"c{index}", output.expr) for index, output in enumerate(outputs))


# ---- GROUP BY and HAVING


def bind_grouping(
    locator: ErrorLocator,
    node: Node,
    relation: Relation,
    scope: Scope,
    outputs: list[OutputColumn],
    aggregates: AggregateCollector,
) -> Relation:
    """The relation with the aggregation and HAVING of the block; the outputs are rewritten over the
    columns of the aggregation."""
    keys = _keys(locator, node, outputs, scope)
    clause = node.args.get("having")
    having = None
    if clause is not None:
        # Reversed, so that the first output of a name is the one that it refers to.
        named_outputs = {output.key: output.expr for output in reversed(outputs)}
        binder = Binder(locator, scope, "HAVING", aggregates, named_outputs, keys)
        having = conjunction(
            [binder.condition(part) for part in operands(clause.args.get("this"), exp.And)]
        )
    # After HAVING was bound, because an aggregate may occur there only.
    if not keys and not aggregates.calls:
        if clause is not None:
            raise locator.error("HAVING needs GROUP BY or an aggregate", clause)
        return relation
    aggregation = locator.build(
        node, Aggregate, relation, keys, tuple(aggregates.calls), aggregates.alias
    )
    above = dict(zip(keys, aggregation.columns, strict=False))
    for output in outputs:
        output.expr = _over_aggregation(locator, output.node, output.expr, above, aggregates.alias)
    if having is None:
        return aggregation
    having = _over_aggregation(locator, clause, having, above, aggregates.alias)
    return locator.build(clause, Select, aggregation, having)


def _keys(
    locator: ErrorLocator, node: Node, outputs: list[OutputColumn], scope: Scope
) -> tuple[Expr, ...]:
    clause = node.args.get("group")
    if clause is None:
        return ()
    locator.check_parts(clause, frozenset({"expressions"}))
    listed = clause.args.get("expressions") or []
    if not listed:
        raise locator.error("GROUP BY needs at least one column", node)
    by_name = {output.key: output for output in reversed(outputs)}
    binder = Binder(locator, scope, "GROUP BY")
    keys = {_key(locator, part, outputs, by_name, binder): None for part in listed}
    return tuple(keys)


def _key(
    locator: ErrorLocator,
    part: Any,
    outputs: list[OutputColumn],
    by_name: dict[str, OutputColumn],
    binder: Binder,
) -> Expr:
    """A key: the number or the name of an output, or an expression over FROM."""
    output: OutputColumn | None = None
    if type(part) is exp.Literal and not part.args.get("is_string"):
        written = str(part.args["this"])
        if not (written.isdecimal() and len(written) < 6 and 1 <= int(written) <= len(outputs)):
            raise locator.error(
                f"GROUP BY {written[:20]}: the SELECT list has {len(outputs)} columns", part
            )
        output = outputs[int(written) - 1]
    elif type(part) is exp.Column and not part.args.get("table"):
        name = _column_name(part)
        # A column of FROM comes before an output of the same name.
        if locator.build(part, binder.scope.find_column, name) is None:
            output = by_name.get(name.lower())
    if output is None:
        return binder.bind(part)
    # No other alias contains $, so such a column is an aggregate.
    if any(column.relation.endswith("$agg") for column in columns_of(output.expr)):
        raise locator.error("GROUP BY cannot hold an aggregate", part)
    return output.expr


def _over_aggregation(
    locator: ErrorLocator, node: object, expr: Expr, above: dict[Expr, Column], alias: str
) -> Expr:
    """The expression over the columns of the aggregation."""
    rewritten = substitute(expr, dict(above))
    loose = sorted({str(column) for column in columns_of(rewritten) if column.relation != alias})
    if loose:
        verb = "is" if len(loose) == 1 else "are"
        raise locator.error(
            f"{', '.join(loose)} {verb} neither grouped nor in an aggregate",
            node,
            "add it to GROUP BY, or use an aggregate like max(..)",
        )
    return rewritten
