"""Operators: the least relaxation of the queries that they serve.

An operator holds every combination of tuples that one of its queries wants: a condition that covers
theirs, the larger of each pair of windows, and all columns and groups that any of them needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from math import gcd
from typing import TypeVar

from headwater.algebra.canonical.block import call_text
from headwater.algebra.catalog import Stream
from headwater.algebra.conditions.domain import Domain
from headwater.algebra.conditions.predicate import Box, cover, implies
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column, Expr, columns_of
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Aggregate, Output, Scan, TableScan, walk_relations
from headwater.algebra.windows import Range, Window
from headwater.reuse.signature import (
    QuerySignature,
    SharingKind,
    bound_condition,
    has_few_values,
    leaves_of,
)

T = TypeVar("T")

Sources = tuple[Scan | TableScan, ...]

MAX_PIECES = 64
"""A cover with more ranges of a term than these becomes the least interval around them."""

MAX_VALUES = 256
"""The same for single values. Spark looks a row up in a set of them, so that their number costs little
but the text of the condition and the time of a submission; the interval around them could hold many
times as many rows."""


class Containment(Enum):
    """How a query relates to an operator with its sharing key."""

    EQUAL = "equal"
    CONTAINED = "contained"
    OVERLAPPING = "overlapping"


@dataclass(frozen=True)
class Operator:
    """What is computed once: sources with their windows, a condition, and what is emitted.

    If all its queries slide alike, so do its windows; else they do not slide, and are longer by as much
    as a slide can keep a tuple beyond its range.
    """

    kind: SharingKind
    sharing_key: str
    sources: tuple[Scan | TableScan, ...]
    where: Box
    columns: frozenset[Column]
    keys: tuple[Expr, ...] = ()
    calls: tuple[AggregateCall, ...] = ()

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(source for source in self.sources if isinstance(source, Scan))


def minimal_operator(signature: QuerySignature) -> Operator:
    """The operator that serves one query and nothing else."""
    block = signature.content
    sources = leaves_of(block)
    if signature.kind is SharingKind.GROUP:
        keys = _merge_sorted((), pane_keys(signature), canonical_text)
        calls = _merge_sorted((), signature.calls, call_text)
        columns = grouped_columns(keys, calls)
        return Operator(
            signature.kind, signature.sharing_key, sources, block.where, columns, keys, calls
        )
    columns = signature.columns or frozenset(
        signature.scans[0].columns[:1]
    )  # something has to be selected
    return Operator(signature.kind, signature.sharing_key, sources, block.where, columns)


def pane_keys(signature: QuerySignature) -> tuple[Expr, ...]:
    """The keys that an operator has for a query.

    Panes that cannot be made again are grouped from the beginning by whatever may tell one query from
    others: when some have left, those of the rest follow from what there is.
    """
    if signature.panes_can_be_rebuilt:
        return signature.keys
    told_apart = (
        bound.term if has_few_values(bound) else bound_condition(bound)
        for bound in signature.bounds
    )
    return _merge_sorted(signature.keys, tuple(told_apart), canonical_text)


def grouped_columns(keys: Iterable[Expr], calls: Iterable[AggregateCall]) -> frozenset[Column]:
    """The columns that groups are made of."""
    exprs = [*keys, *(e for call in calls for e in (call.arg, call.filter) if e is not None)]
    return frozenset(column for expr in exprs for column in columns_of(expr))


def relax(operator: Operator, signature: QuerySignature) -> Operator:
    """The least operator that serves the query too; the same one if it does so already.

    Both must have the same sharing key.
    """
    assert operator.sharing_key == signature.sharing_key
    own_operator = minimal_operator(signature)
    cover_sources = (
        cover_grouped_sources if operator.kind is SharingKind.GROUP else cover_joined_sources
    )
    result = replace(
        operator,
        sources=cover_sources(operator.sources, own_operator.sources),
        where=cover_conditions(operator.where, own_operator.where),
        columns=operator.columns | own_operator.columns,
        keys=_merge_sorted(operator.keys, own_operator.keys, canonical_text),
        calls=_merge_sorted(operator.calls, own_operator.calls, call_text),
    )
    # Callers test for "nothing changes" with `is`.
    return operator if result == operator else result


def cover_joined_sources(a: Sources, b: Sources) -> Sources:
    """The sources of a join, with windows that hold at every instant what those of both hold."""
    if _slides(a) != _slides(b):
        a, b = (tuple(map(_unslid_source, sources)) for sources in (a, b))
    return tuple(map(_wider_source, a, b))


def cover_grouped_sources(a: Sources, b: Sources) -> Sources:
    """The sources of groups, with windows that panes of both can be cut from."""
    return tuple(map(_finer_source, a, b))


def classify_containment(signature: QuerySignature, operator: Operator) -> Containment | None:
    """How a query relates to an operator; None if their sharing keys differ."""
    if operator.sharing_key != signature.sharing_key:
        return None
    if signature.block is None or minimal_operator(signature) == operator:
        return Containment.EQUAL
    return (
        Containment.CONTAINED if relax(operator, signature) is operator else Containment.OVERLAPPING
    )


def cover_conditions(a: Box, b: Box) -> Box:
    """A condition that both imply: exact in every term while that takes few values."""
    if implies(b, a):
        return a
    covered = cover(a, b, "set")
    # Without a bound a condition would grow with every query that joins, and with it the SQL and the
    # time of `implies`.
    if all(_is_small(c.domain) for c in covered.constraints):
        return covered
    return cover(a, b, "hull")


def _is_small(domain: Domain) -> bool:
    # Two cuts make one piece.
    return len(domain.cuts) <= 2 * MAX_PIECES or domain.count_values(MAX_VALUES) is not None


def _slides(sources: Sources) -> list[int | None]:
    return [s.window.slide for s in sources if isinstance(s, Scan) and isinstance(s.window, Range)]


def _wider_source(a: Scan | TableScan, b: Scan | TableScan) -> Scan | TableScan:
    """The one with the larger window; it slides as the first does."""
    if not isinstance(a, Scan) or not isinstance(b, Scan):
        return a
    assert isinstance(a.window, Range) and isinstance(b.window, Range)
    sizes = (a.window.size, b.window.size)
    size = None if None in sizes else max(s for s in sizes if s is not None)
    return a if size == a.window.size else replace(a, window=Range(size, a.window.slide))


def _finer_source(a: Scan | TableScan, b: Scan | TableScan) -> Scan | TableScan:
    if not isinstance(a, Scan) or not isinstance(b, Scan):
        return a
    assert isinstance(a.window, Range) and isinstance(b.window, Range)
    return replace(a, window=finer_window(a.window, b.window))


def finer_window(a: Range, b: Range) -> Range:
    """The larger window, sliding as often as panes need that serve both."""
    if a == b:
        return a
    sizes = [window.size for window in (a, b) if window.size is not None]
    slides = [window.slide for window in (a, b) if window.slide]
    # Panes are as long as the greatest common divisor: both windows are then whole numbers of
    # panes, at all instants of both slides.
    return Range(max(sizes), gcd(*sizes, *slides) if slides else None)


def _unslid_source(source: Scan | TableScan) -> Scan | TableScan:
    return (
        replace(source, window=unslid_window(source.window)) if isinstance(source, Scan) else source
    )


def unslid_window(window: Window) -> Window:
    """A window that holds all that one that slides can hold, at every instant."""
    if not isinstance(window, Range) or window.slide is None:
        return window
    return Range(None if window.size is None else window.size + window.slide)


def _merge_sorted(a: tuple[T, ...], b: tuple[T, ...], key: Callable[[T], str]) -> tuple[T, ...]:
    """All items of both, in an order that does not depend on which came first."""
    # `a` last, so that of equal items the operator's own object stays.
    by_key = {key(item): item for item in (*b, *a)}
    return tuple(by_key[name] for name in sorted(by_key))


def looks_back(signature: QuerySignature, streams: Mapping[str, Stream]) -> bool:
    """Whether the results after a query's start are the same for every earlier start, whatever the
    data: no window that they depend on reaches further back than its stream's history."""
    return reaches_within_history(signature, streams) and not depends_on_previous_event(signature)


def reaches_within_history(signature: QuerySignature, streams: Mapping[str, Stream]) -> bool:
    """Whether no window at the instants that results after the start depend on reaches further back
    than its stream's history."""
    scans = signature.scans
    slides = {scan.window.slide for scan in scans if isinstance(scan.window, Range)} - {None}
    if signature.kind is SharingKind.JOIN and len(scans) == 1:
        # A row of a lone stream is there from the first instant that can hold its tuple, so its
        # tuple is older than the start by less than the slide.
        return all(slide <= streams[scans[0].stream.lower()].keep for slide in slides if slide)
    # ISTREAM and DSTREAM compare with the instant before, which is up to a slide before the start.
    # Slides that differ have instants at which a window is not at a multiple of its own.
    compares = signature.kind is not SharingKind.JOIN and signature.output is not Output.RSTREAM
    before = min((slide for slide in slides if slide), default=0) if compares else 0
    for scan in scans:
        window = scan.window
        if not isinstance(window, Range) or window.size is None:
            return False
        since = (window.slide or 0) if len(slides) > 1 else 0
        reach = window.size + max(window.slide or 0, since + before)
        if reach > streams[scan.stream.lower()].keep:
            return False
    return bool(scans)


def depends_on_previous_event(signature: QuerySignature) -> bool:
    """Whether results may depend on when the last event before the start was, however short windows
    are: that is the instant before where no window slides, and where windows do, an aggregate
    without keys has a row at every instant after the first event."""
    if signature.kind is SharingKind.JOIN:
        return False
    slides = any(isinstance(s.window, Range) and s.window.slide for s in signature.scans)
    if not slides:
        return signature.output is not Output.RSTREAM
    if signature.relation is not None:
        nodes = walk_relations(signature.relation.root)
        return any(isinstance(node, Aggregate) and not node.keys for node in nodes)
    group = None if signature.block is None else signature.block.group
    return group is not None and not group.keys


def window_reach(signature: QuerySignature | Operator) -> int:
    """How long before a result the rows that it is made of may have been emitted, by a join of some of
    its sources that has these windows."""
    windows = [scan.window for scan in signature.scans if isinstance(scan.window, Range)]
    return max((w.size or 0) + (w.slide or 0) for w in windows)


def serving_operator(signatures: Sequence[QuerySignature]) -> Operator:
    """The least operator that serves queries with one sharing key."""
    return reduce(relax, signatures[1:], minimal_operator(signatures[0]))
