"""Operators, and what queries keep of their rows, as text for people.

Columns are named after the stream or table that they come from, not after the aliases of the canonical
form, and get a number where one stream is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.algebra.conditions.box import constraint_conjuncts
from headwater.algebra.conditions.predicate import Box
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Project, Relation, Scan, TableScan, walk_relations
from headwater.algebra.windows import format_duration
from headwater.cql.writer import call_text, expr_text
from headwater.reuse.join_subscribers import AGE, Shape
from headwater.reuse.lanes import Lane
from headwater.reuse.operator import Operator
from headwater.reuse.signature import Bound

ColumnNaming = Callable[[Column], str]


def describe_changes(before: Operator, after: Operator) -> list[str]:
    """How one operator was relaxed (or narrowed) into another, one line for each change."""
    name_of = column_naming(after.sources)
    lines = []
    for old, new in zip(before.scans, after.scans, strict=True):
        if old.window != new.window:
            lines.append(f"{new.stream} {old.window} -> {new.window}")
    was, now = _conjuncts(before.where, name_of), _conjuncts(after.where, name_of)
    removed, added = [c for c in was if c not in now], [c for c in now if c not in was]
    if removed or added:
        lines.append(f"{_conjunction_text(removed)} -> {_conjunction_text(added)}")
    outputs = [*sorted(map(name_of, after.columns - before.columns))]
    outputs += [call_text(call, name_of) for call in after.calls if call not in before.calls]
    if outputs:
        lines.append(f"+ {', '.join(outputs)}")
    if keys := [expr_text(key, name_of) for key in after.keys if key not in before.keys]:
        lines.append(f"+ GROUP BY {', '.join(keys)}")
    return lines


def describe_operator(operator: Operator) -> list[str]:
    """An operator in a few lines: what it reads, its condition, its groups and what it emits."""
    name_of = column_naming(operator.sources)
    lines = [f"reads {', '.join(_describe_source(source) for source in operator.sources)}"]
    if parts := _conjuncts(operator.where, name_of):
        lines.append(f"where {_conjunction_text(parts)}")
    if operator.keys:
        lines.append(f"grouped by {', '.join(expr_text(key, name_of) for key in operator.keys)}")
    outputs = [call_text(call, name_of) for call in operator.calls]
    outputs = outputs or sorted(map(name_of, operator.columns))
    return [*lines, f"emits {', '.join(outputs) or 'rows without columns'}"]


def describe_lanes(lanes: Sequence[Lane], operator: Operator) -> list[str]:
    """What is joined for an operator, a line for each lane; none if that is the operator itself.

    Several lanes are joined at once in steps that compare few pairs (`runtime.compile.lane_choice`).
    """
    if all(lane.operator == operator for lane in lanes):
        return []
    name_of = column_naming(operator.sources)
    at_once = ", in small steps all at once" if len(lanes) > 1 else ""
    lines = [f"computed in {count_noun(len(lanes), 'lane', 'lanes')}{at_once}:"]
    for lane in lanes:
        reads = ", ".join(_describe_source(source) for source in lane.operator.sources)
        where = _conjunction_text(_conjuncts(lane.operator.where, name_of))
        queries = count_noun(len(lane.signatures), "query", "queries")
        lines.append(f"{reads} where {where}, for {queries}")
    return lines


def describe_terms(terms: Iterable[Expr], root: Relation) -> list[str]:
    """Expressions somewhere in a query, by the columns of the streams and tables that they are made of."""
    nodes = list(walk_relations(root))
    made = {
        column: item.expr
        for node in nodes
        if isinstance(node, Project)
        for column, item in zip(node.columns, node.items, strict=True)
    }
    sources = {n.alias: _source_name(n) for n in nodes if isinstance(n, Scan | TableScan)}

    def name_of(column: Column) -> str:
        while isinstance(origin := made.get(column), Column) and origin != column:
            column = origin
        return f"{sources.get(column.relation, column.relation)}.{column.name}"

    return [expr_text(term, name_of) for term in terms]


def describe_bounds(bounds: Sequence[Bound], sources: Sequence[Scan | TableScan]) -> str:
    """The condition by which a query with these bounds keeps rows of an operator."""
    name_of = column_naming(sources)
    return " AND ".join(_describe_bound(bound, name_of) for bound in bounds) or "all rows"


def describe_shape(shape: Shape, sources: Sequence[Scan | TableScan]) -> str:
    """The terms of a shape, and how many queries and row classes it has."""
    name_of = column_naming(sources)
    terms = ", ".join(expr_text(term, name_of) for term in shape.terms)
    bounds = f"by {terms}" if terms else "without bounds"
    slides = [
        f"{scan.stream} slides by {format_duration(slide)}"
        for scan, slide in zip(_scans(sources), shape.slides, strict=True)
        if slide is not None
    ]
    sliding = f", where {' and '.join(slides)}" if slides else ""
    queries, row_classes = len(shape.table.row_classes), len(shape.table.cells)
    classes = count_noun(row_classes, "row class", "row classes")
    return f"{count_noun(queries, 'query', 'queries')} {bounds}{sliding}: {classes}"


def count_noun(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def column_naming(sources: Iterable[Scan | TableScan]) -> ColumnNaming:
    """The function that names the columns of an operator's sources."""
    aliases_of: dict[str, list[str]] = {}
    for source in sources:
        aliases_of.setdefault(_source_name(source), []).append(source.alias)
    # Two scans of one stream have the same columns: only the number distinguishes them.
    names = {
        alias: called if len(aliases) == 1 else f"{called}#{number}"
        for called, aliases in aliases_of.items()
        for number, alias in enumerate(aliases, 1)
    }

    def name_of(column: Column) -> str:
        # An age is no column of the stream: it is how long before the result the tuple came.
        if column.relation == AGE:
            return f"age of {names[column.name]}"
        return f"{names[column.relation]}.{column.name}"

    return name_of


def _source_name(source: Scan | TableScan) -> str:
    return source.stream if isinstance(source, Scan) else source.table


def _describe_source(source: Scan | TableScan) -> str:
    return f"{source.stream} {source.window}" if isinstance(source, Scan) else source.table


def _scans(sources: Sequence[Scan | TableScan]) -> list[Scan]:
    return [source for source in sources if isinstance(source, Scan)]


def _conjuncts(where: Box, name_of: ColumnNaming) -> list[str]:
    parts: list[Expr] = [part for c in where.constraints for part in constraint_conjuncts(c)]
    return [expr_text(part, name_of) for part in (*parts, *where.terms)]


def _conjunction_text(parts: Sequence[str]) -> str:
    return " AND ".join(f"({p})" if " OR " in p else p for p in parts) or "no condition"


def _describe_bound(bound: Bound, name_of: ColumnNaming) -> str:
    term, domain = bound.term, bound.domain
    if isinstance(term, Column) and term.relation == AGE:
        # The domain of an age is everything below its last cut.
        return f"{name_of(term)} <= {format_duration(domain.cuts[-1] - 1)}"
    condition = domain.as_expr(term)
    return "any" if condition is None else expr_text(condition, name_of)
