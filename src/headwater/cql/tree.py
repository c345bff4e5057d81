"""The logical form of a query as an indented tree, one line for each operator."""

from __future__ import annotations

from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Join,
    OuterJoin,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)
from headwater.cql.writer import call_text, expr_text, window_text


def tree(what: Relation | Query) -> list[str]:
    """The lines of the tree, inputs below the operator that reads them."""
    if isinstance(what, Query):
        return [what.output.value, *_input_lines([what.root])]
    return [_line(what), *_input_lines(list(what.inputs))]


def _input_lines(inputs: list[Relation]) -> list[str]:
    lines: list[str] = []
    for index, relation in enumerate(inputs):
        last = index == len(inputs) - 1
        first, *others = tree(relation)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in others]
    return lines


def _line(relation: Relation) -> str:
    match relation:
        case Scan():
            # CQL leaves out the window that is the default; the tree says it.
            window = window_text(relation.window) or "[RANGE UNBOUNDED]"
            return f"Scan {relation.stream} {window}{_as(relation.alias, relation.stream)}"
        case TableScan():
            return f"Table {relation.table}{_as(relation.alias, relation.table)}"
        case Select():
            return f"Select {_text(relation.condition)}"
        case Project():
            items = ", ".join(_item(item.name, item.expr) for item in relation.items)
            return f"Project{_as(relation.alias)}: {items}"
        case Join():
            return f"Join{_on(relation.condition)}"
        case OuterJoin():
            return f"{'FullJoin' if relation.full else 'LeftJoin'}{_on(relation.condition)}"
        case SemiJoin():
            return f"{'AntiJoin' if relation.anti else 'SemiJoin'}{_on(relation.condition)}"
        case Aggregate():
            parts = [", ".join(call_text(call, str) for call in relation.calls)]
            if relation.keys:
                parts.append("by " + ", ".join(map(_text, relation.keys)))
            return f"Aggregate{_as(relation.alias)}: {' '.join(filter(None, parts))}"
        case Distinct():
            return "Distinct"
        case UnionAll():
            return f"UnionAll{_as(relation.alias)}"


def _text(expr: Expr) -> str:
    return expr_text(expr, str)


def _as(alias: str, name: str = "") -> str:
    return f" AS {alias}" if alias != name else ""


def _on(condition: Expr | None) -> str:
    return "" if condition is None else f" ON {_text(condition)}"


def _item(name: str, expr: Expr) -> str:
    same = isinstance(expr, Column) and expr.name == name
    return _text(expr) if same else f"{_text(expr)} AS {name}"
