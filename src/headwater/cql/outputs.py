"""The SELECT list of a block: what its columns are, what they are called, how they are grouped."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headwater.algebra.expressions import Column, Expr, columns_of, conjunction, substitute
from headwater.algebra.nodes import Aggregate, Item, Relation, Select
from headwater.cql.expressions import Aggregates, Binder, called
from headwater.cql.names import Scope
from headwater.cql.refusals import Node, Place, name_of, operands, unwrapped

MAX_COLUMNS = 4_000
RESERVED = "_tau"

NOTHING: frozenset[str] = frozenset()


class Output:
    """A column of a SELECT list: the name it was given with AS, or else one of its own."""

    __slots__ = ("column", "expr", "given", "node", "own")

    def __init__(
        self, node: object, expr: Expr, given: str, own: str, is_call: bool = False
    ) -> None:
        self.node = node
        self.expr = expr
        self.column = expr if isinstance(expr, Column) and not is_call else None
        self.given = given
        self.own = own

    @property
    def key(self) -> str:
        return (self.given or self.own).lower()


def read_outputs(place: Place, node: Node, binder: Binder) -> list[Output]:
    """The columns of the SELECT list, * taken apart."""
    outputs: list[Output] = []
    for part in node.args.get("expressions") or []:
        if type(part) is exp.Star:
            place.check_parts(part, NOTHING)
            outputs.extend(Output(part, e, "", n) for n, e in binder.scope.all_columns())
        elif type(part) is exp.Column and type(part.args.get("this")) is exp.Star:
            outputs.extend(_of_alias(place, part, binder.scope))
        else:
            outputs.append(_output(place, part, binder))
        if len(outputs) > MAX_COLUMNS:
            raise place.error(f"a SELECT has at most {MAX_COLUMNS:,} columns", part)
    if not outputs:
        raise place.error("a SELECT needs at least one column", node)
    return outputs


def _of_alias(place: Place, part: Node, scope: Scope) -> list[Output]:
    place.check_parts(part, frozenset({"this", "table"}))
    place.check_parts(part.args["this"], NOTHING)
    alias = name_of(part.args.get("table")) or ""
    source = place.build(part, scope.source, alias)
    if source is None:
        raise place.refused(scope.no_source(alias), part.args["table"])
    return [Output(part, column, "", column.name) for column in source.columns.values()]


def _output(place: Place, part: Any, binder: Binder) -> Output:
    if type(part) is not exp.Alias:
        bound = binder.bind(part)
        is_call = type(unwrapped(part)) is not exp.Column
        return Output(part, bound, "", _own_name(part, bound), is_call)
    place.check_parts(part, frozenset({"this", "alias"}))
    identifier = part.args.get("alias")
    name = name_of(identifier) or ""
    if not name.strip():
        raise place.error("expected a name after AS", part)
    if name.lower() == RESERVED:
        raise place.error(
            f"{RESERVED} is the instant of every result row", identifier, "choose another name"
        )
    return Output(part, binder.bind(part.args.get("this")), name, "")


def _own_name(node: Any, bound: Expr) -> str:
    """The name of an output that was given none: a column's own, or the function and its column."""
    node = unwrapped(node)
    if type(node) is exp.TryCast:
        node = unwrapped(node.args.get("this"))
        return _column_name(node)
    if type(node) is exp.Column:
        return bound.name if isinstance(bound, Column) else _column_name(node)
    if type(node) is exp.Filter:
        node = node.args.get("this")
    function = called(node)
    if function is None:
        return ""
    args = node.args.get("expressions") or []
    if len(args) == 1 and type(args[0]) is exp.Distinct:
        args = args[0].args.get("expressions") or []
    column = _column_name(args[0]) if len(args) == 1 else ""
    return f"{function}_{column}" if column else function


def _column_name(node: Any) -> str:
    return name_of(node.args.get("this")) or "" if type(node) is exp.Column else ""


def named(place: Place, outputs: list[Output]) -> tuple[Item, ...]:
    """The columns with their names: as given, or made so that no two are the same."""
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for output in outputs:
        if output.given and output.key in taken:
            raise place.error(
                f"two columns are called {output.given}", output.node, "rename one with AS"
            )
        if output.given:
            taken.add(output.key)
        counts[output.key] = counts.get(output.key, 0) + 1
    made: list[Item] = []
    for index, output in enumerate(outputs):
        name = output.given
        if not name:
            name = output.own or f"_c{index}"
            if output.column is not None and counts[output.key] > 1:
                name = f"{output.column.relation}_{name}"
            name = _free(name, taken)
            if name.lower() == RESERVED:
                raise place.error(
                    f"{RESERVED} is the instant of every result row",
                    output.node,
                    "rename it with AS",
                )
        made.append(Item(name, output.expr))
    return tuple(made)


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken; from then on it is."""
    made, count = name, 1
    while made.lower() in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made.lower())
    return made


def numbered(outputs: list[Output]) -> tuple[Item, ...]:
    """The columns called c0, c1, .."""
    return tuple(Item(f"c{index}", output.expr) for index, output in enumerate(outputs))


# ---- GROUP BY and HAVING


def grouped(
    place: Place,
    node: Node,
    relation: Relation,
    scope: Scope,
    outputs: list[Output],
    aggregates: Aggregates,
) -> Relation:
    """The relation with the aggregation and HAVING that the block asks for; the outputs then
    speak of the columns of the aggregation."""
    keys = _keys(place, node, outputs, scope)
    clause = node.args.get("having")
    having = None
    if clause is not None:
        named_outputs = {output.key: output.expr for output in reversed(outputs)}
        binder = Binder(place, scope, "HAVING", aggregates, named_outputs, keys)
        having = conjunction(
            [binder.condition(part) for part in operands(clause.args.get("this"), exp.And)]
        )
    if not keys and not aggregates.calls:
        if clause is not None:
            raise place.error("HAVING needs GROUP BY or an aggregate", clause)
        return relation
    made = place.build(node, Aggregate, relation, keys, tuple(aggregates.calls), aggregates.alias)
    above = dict(zip(keys, made.columns, strict=False))
    for output in outputs:
        output.expr = _above(place, output.node, output.expr, above, aggregates.alias)
    if having is None:
        return made
    having = _above(place, clause, having, above, aggregates.alias)
    return place.build(clause, Select, made, having)


def _keys(place: Place, node: Node, outputs: list[Output], scope: Scope) -> tuple[Expr, ...]:
    clause = node.args.get("group")
    if clause is None:
        return ()
    place.check_parts(clause, frozenset({"expressions"}))
    listed = clause.args.get("expressions") or []
    if not listed:
        raise place.error("GROUP BY needs at least one column", node)
    by_name = {output.key: output for output in reversed(outputs)}
    binder = Binder(place, scope, "GROUP BY")
    keys = {_key(place, part, outputs, by_name, binder): None for part in listed}
    return tuple(keys)


def _key(
    place: Place, part: Any, outputs: list[Output], by_name: dict[str, Output], binder: Binder
) -> Expr:
    """A key: the number or the name of an output, or an expression over FROM."""
    output: Output | None = None
    if type(part) is exp.Literal and not part.args.get("is_string"):
        written = str(part.args["this"])
        if not (written.isdecimal() and len(written) < 6 and 1 <= int(written) <= len(outputs)):
            raise place.error(
                f"GROUP BY {written[:20]}: the SELECT list has {len(outputs)} columns", part
            )
        output = outputs[int(written) - 1]
    elif type(part) is exp.Column and not part.args.get("table"):
        name = _column_name(part)
        if place.build(part, binder.scope.find, name) is None:
            output = by_name.get(name.lower())
    if output is None:
        return binder.bind(part)
    if any(column.relation.endswith("$agg") for column in columns_of(output.expr)):
        raise place.error("GROUP BY cannot hold an aggregate", part)
    return output.expr


def _above(place: Place, node: object, expr: Expr, above: dict[Expr, Column], alias: str) -> Expr:
    """The expression over the columns of the aggregation."""
    made = substitute(expr, dict(above))
    loose = sorted({str(column) for column in columns_of(made) if column.relation != alias})
    if loose:
        verb = "is" if len(loose) == 1 else "are"
        raise place.error(
            f"{', '.join(loose)} {verb} neither grouped nor in an aggregate",
            node,
            "add it to GROUP BY, or use an aggregate like max(..)",
        )
    return made
