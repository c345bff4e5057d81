"""Operators, and what queries want of them, in words for people.

Columns are called by the stream or table that they come from, not by the places that sources have in
an operator; where one stream is read twice, by its number too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.algebra.box import conditions
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.predicate import Box
from headwater.algebra.windows import duration
from headwater.cql.writer import call_text, expr_text
from headwater.reuse.form import Bound
from headwater.reuse.members import HELD, Shape
from headwater.reuse.operator import Operator

Naming = Callable[[Column], str]


def changes(before: Operator, after: Operator) -> list[str]:
    """How one operator was relaxed (or tightened) into another, in a few words each."""
    named = naming(after.sources)
    found = []
    for old, new in zip(before.scans, after.scans, strict=True):
        if old.window != new.window:
            found.append(f"{new.stream} {old.window} -> {new.window}")
    was, now = _conjuncts(before.where, named), _conjuncts(after.where, named)
    lost, gained = [c for c in was if c not in now], [c for c in now if c not in was]
    if lost or gained:
        found.append(f"{_all_of(lost)} -> {_all_of(gained)}")
    told = [*sorted(map(named, after.columns - before.columns))]
    told += [call_text(call, named) for call in after.calls if call not in before.calls]
    if told:
        found.append(f"+ {', '.join(told)}")
    if keys := [expr_text(key, named) for key in after.keys if key not in before.keys]:
        found.append(f"+ GROUP BY {', '.join(keys)}")
    return found


def described(operator: Operator) -> list[str]:
    """An operator in a line for each thing that it says."""
    named = naming(operator.sources)
    found = [f"reads {', '.join(_source(source) for source in operator.sources)}"]
    if parts := _conjuncts(operator.where, named):
        found.append(f"where {_all_of(parts)}")
    if operator.keys:
        found.append(f"by {', '.join(expr_text(key, named) for key in operator.keys)}")
    told = [call_text(call, named) for call in operator.calls]
    told = told or sorted(map(named, operator.columns))
    return [*found, f"tells {', '.join(told) or 'that rows are there'}"]


def wish(bounds: Sequence[Bound], sources: Sequence[Scan | TableScan]) -> str:
    """What bounds ask of an operator's rows."""
    named = naming(sources)
    return " AND ".join(_bound(bound, named) for bound in bounds) or "all rows"


def told_apart(shape: Shape, sources: Sequence[Scan | TableScan]) -> str:
    """The terms of a shape, and how many queries and classes it has."""
    named = naming(sources)
    terms = ", ".join(expr_text(term, named) for term in shape.terms) or "nothing"
    slides = [
        f"{scan.stream} slides by {duration(slide)}"
        for scan, slide in zip(_scans(sources), shape.slides, strict=True)
        if slide is not None
    ]
    sliding = f", where {' and '.join(slides)}" if slides else ""
    queries, classes = len(shape.table.classes), len(shape.table.cells)
    return f"{counted(queries, 'query', 'queries')} by {terms}{sliding}: {counted(classes, 'class', 'classes')} of rows"


def counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def naming(sources: Iterable[Scan | TableScan]) -> Naming:
    """How columns of an operator's sources are called."""
    known: dict[str, list[str]] = {}
    for source in sources:
        known.setdefault(_called(source), []).append(source.alias)
    names = {
        alias: called if len(aliases) == 1 else f"{called}#{number}"
        for called, aliases in known.items()
        for number, alias in enumerate(aliases, 1)
    }

    def named(column: Column) -> str:
        if column.relation == HELD:
            return f"age of {names[column.name]}"
        return f"{names[column.relation]}.{column.name}"

    return named


def _called(source: Scan | TableScan) -> str:
    return source.stream if isinstance(source, Scan) else source.table


def _source(source: Scan | TableScan) -> str:
    return f"{source.stream} {source.window}" if isinstance(source, Scan) else source.table


def _scans(sources: Sequence[Scan | TableScan]) -> list[Scan]:
    return [source for source in sources if isinstance(source, Scan)]


def _conjuncts(where: Box, named: Naming) -> list[str]:
    parts: list[Expr] = [part for c in where.constraints for part in conditions(c)]
    return [expr_text(part, named) for part in (*parts, *where.terms)]


def _all_of(parts: Sequence[str]) -> str:
    return " AND ".join(f"({p})" if " OR " in p else p for p in parts) or "any"


def _bound(bound: Bound, named: Naming) -> str:
    term, domain = bound.term, bound.domain
    if isinstance(term, Column) and term.relation == HELD:
        return f"{named(term)} <= {duration(domain.cuts[-1] - 1)}"
    condition = domain.as_expr(term)
    return "any" if condition is None else expr_text(condition, named)
