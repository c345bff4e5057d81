"""Operators: the least relaxation of the queries that they serve.

An operator holds every combination of tuples that one of its queries wants: a condition that covers
theirs, the larger of each pair of windows, all columns and groups that any of them asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd
from typing import TypeVar

from headwater.algebra.canonical.block import call_text
from headwater.algebra.expressions import Column, Expr
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
    grouped = form.kind is Kind.GROUP
    return Operator(
        form.kind,
        form.base,
        leaves_of(block),
        block.where,
        form.columns,
        form.keys if grouped else (),
        form.calls if grouped else (),
    )


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
    """The larger window, sliding as often as panes need that serve both."""
    if not isinstance(a, Scan) or not isinstance(b, Scan) or a.window == b.window:
        return a
    assert isinstance(a.window, Range) and isinstance(b.window, Range)
    sizes = [w.size for w in (a.window, b.window) if w.size is not None]
    slides = [w.slide for w in (a.window, b.window) if w.slide]
    return replace(a, window=Range(max(sizes), gcd(*sizes, *slides) if slides else None))


def _unslid(source: Scan | TableScan) -> Scan | TableScan:
    return replace(source, window=unslid(source.window)) if isinstance(source, Scan) else source


def unslid(window: Window) -> Window:
    """A window that holds all that one that slides can hold, at every instant."""
    if not isinstance(window, Range) or window.slide is None:
        return window
    return Range(None if window.size is None else window.size + window.slide)


def _merged(a: tuple[T, ...], b: tuple[T, ...], key: Callable[[T], str]) -> tuple[T, ...]:
    known = {key(one) for one in a}
    return (*a, *(one for one in b if key(one) not in known))
