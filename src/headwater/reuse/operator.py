"""Operators: the least relaxation of the queries that they serve.

An operator holds every combination of tuples that one of its queries wants: a condition that covers
theirs, the larger of each pair of windows, all columns and groups that any of them asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd
from typing import TypeVar

from headwater.algebra.canonical.block import call_text
from headwater.algebra.expressions import Column, Expr, columns_of
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.predicate import Box, cover, implies
from headwater.algebra.simplify import text
from headwater.algebra.windows import Range, Window
from headwater.reuse.form import Form, Kind, leaves_of

T = TypeVar("T")

MOST_PIECES = 64
"""A cover with more values or stretches of a term takes the least interval around them instead."""


class Relation(Enum):
    """What a query is to an operator of its base."""

    EQUAL = "equal"
    CONTAINED = "contained"
    OVERLAPPING = "overlapping"


@dataclass(frozen=True)
class Operator:
    """What is computed once: sources with their windows, a condition, and what is told of rows.

    Where all its queries slide alike its windows do so too; else they do not slide, and are as much
    longer as a slide can hold a tuple beyond its range.
    """

    kind: Kind
    base: str
    sources: tuple[Scan | TableScan, ...]
    where: Box
    columns: frozenset[Column]
    keys: tuple[Expr, ...] = ()
    calls: tuple[AggregateCall, ...] = ()

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(source for source in self.sources if isinstance(source, Scan))


def operator_of(form: Form) -> Operator:
    """The operator that serves one query and nothing else."""
    block = form.content
    sources = leaves_of(block)
    if form.kind is Kind.GROUP:
        keys = _merged((), form.keys, text)
        calls = _merged((), form.calls, call_text)
        told = columns_above(keys, calls)
        return Operator(form.kind, form.base, sources, block.where, told, keys, calls)
    told = form.columns or frozenset(form.scans[0].columns[:1])  # something has to be selected
    return Operator(form.kind, form.base, sources, block.where, told)


def columns_above(keys: Iterable[Expr], calls: Iterable[AggregateCall]) -> frozenset[Column]:
    """The columns that groups are made of."""
    exprs = [*keys, *(e for call in calls for e in (call.arg, call.filter) if e is not None)]
    return frozenset(column for expr in exprs for column in columns_of(expr))


def relaxed(operator: Operator, form: Form) -> Operator:
    """The least operator that serves the query too; the same one if it does so already.

    Both must have the same base.
    """
    assert operator.base == form.base
    own = operator_of(form)
    sources = tuple(map(_wider, operator.sources, own.sources))
    if operator.kind is Kind.GROUP:
        sources = tuple(map(_finer, operator.sources, own.sources))
    elif _slides(sources) != _slides(operator.sources) or _slides(sources) != _slides(own.sources):
        sources = tuple(map(_wider, map(_unslid, operator.sources), map(_unslid, own.sources)))
    result = replace(
        operator,
        sources=sources,
        where=covering(operator.where, own.where),
        columns=operator.columns | own.columns,
        keys=_merged(operator.keys, own.keys, text),
        calls=_merged(operator.calls, own.calls, call_text),
    )
    return operator if result == operator else result


def relation(form: Form, operator: Operator) -> Relation | None:
    """What a query is to an operator; None if they have no base in common."""
    if operator.base != form.base:
        return None
    if form.kind is Kind.WHOLE or operator_of(form) == operator:
        return Relation.EQUAL
    return Relation.CONTAINED if relaxed(operator, form) is operator else Relation.OVERLAPPING


def covering(a: Box, b: Box) -> Box:
    """A condition that both imply: exact in every term while that takes few values."""
    if implies(b, a):
        return a
    found = cover(a, b, "set")
    if any(len(c.domain.cuts) > 2 * MOST_PIECES for c in found.constraints):
        return cover(a, b, "hull")
    return found


def _slides(sources: tuple[Scan | TableScan, ...]) -> list[int | None]:
    return [s.window.slide for s in sources if isinstance(s, Scan) and isinstance(s.window, Range)]


def _wider(a: Scan | TableScan, b: Scan | TableScan) -> Scan | TableScan:
    """The one with the larger window; it slides as the first does."""
    if not isinstance(a, Scan) or not isinstance(b, Scan):
        return a
    assert isinstance(a.window, Range) and isinstance(b.window, Range)
    sizes = (a.window.size, b.window.size)
    size = None if None in sizes else max(s for s in sizes if s is not None)
    return a if size == a.window.size else replace(a, window=Range(size, a.window.slide))


def _finer(a: Scan | TableScan, b: Scan | TableScan) -> Scan | TableScan:
    if not isinstance(a, Scan) or not isinstance(b, Scan):
        return a
    assert isinstance(a.window, Range) and isinstance(b.window, Range)
    return replace(a, window=finer(a.window, b.window))


def finer(a: Range, b: Range) -> Range:
    """The larger window, sliding as often as panes need that serve both."""
    if a == b:
        return a
    sizes = [window.size for window in (a, b) if window.size is not None]
    slides = [window.slide for window in (a, b) if window.slide]
    return Range(max(sizes), gcd(*sizes, *slides) if slides else None)


def _unslid(source: Scan | TableScan) -> Scan | TableScan:
    return replace(source, window=unslid(source.window)) if isinstance(source, Scan) else source


def unslid(window: Window) -> Window:
    """A window that holds all that one that slides can hold, at every instant."""
    if not isinstance(window, Range) or window.slide is None:
        return window
    return Range(None if window.size is None else window.size + window.slide)


def _merged(a: tuple[T, ...], b: tuple[T, ...], key: Callable[[T], str]) -> tuple[T, ...]:
    """All of both in one order, whoever came first."""
    found = {key(one): one for one in (*b, *a)}
    return tuple(found[name] for name in sorted(found))
