"""The oracle: a continuous query computed by its definition, instant by instant.

At every instant the windows are computed from scratch and the whole query is evaluated over them; a
result is the difference of two such evaluations. No state is kept from one instant to the next, so
there is little to get wrong, and every faster implementation can be compared with it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from headwater.algebra.expressions import conjuncts
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Join,
    OuterJoin,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
    slides,
    walk_relations,
)
from headwater.algebra.types import Schema
from headwater.algebra.windows import Range, Rows
from headwater.errors import EvaluationError, suggest
from headwater.reference import joins
from headwater.reference.aggregates import compile_aggregate
from headwater.reference.casts import find_cast
from headwater.reference.scalar import compile_condition, compile_expr
from headwater.reference.values import (
    Content,
    Entry,
    Result,
    Row,
    normalize_row,
    normalize_value,
    row_order_key,
)

Inputs = Mapping[str, Sequence[Row]]


def evaluate(
    query: Query,
    streams: Inputs,
    tables: Inputs | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    keep: Mapping[str, int] | None = None,
) -> list[Result]:
    """The result of the query over streams that have ended, in order of time and then of values.

    `streams` has the tuples of each stream in order of arrival, `tables` the rows of each table.
    With a start, only tuples not older than `start - keep[stream]` are visible (all, for a stream
    without `keep`) and only results with start < tau <= end are returned. Raises EvaluationError if
    an input is missing or does not have the width of its schema.
    """
    inputs = _Inputs(streams, tables or {}, start, keep or {})
    content = _compile_relation(query.root, inputs)
    results: list[Result] = []
    before: list[Entry] = []
    for tau in _instants_from(inputs.instants(query.root), start):
        if end is not None and tau > end:
            break
        now = content(tau)
        if start is None or tau > start:
            rows = sorted(_emitted_rows(query.output, before, now), key=row_order_key)
            results += [Result(tau, row) for row in rows]
        before = now
    return results


def _emitted_rows(output: Output, before: list[Entry], now: list[Entry]) -> list[Row]:
    match output:
        case Output.RSTREAM:
            return [row for _, row in now]
        case Output.ISTREAM:
            return _difference(now, before)
        case Output.DSTREAM:
            return _difference(before, now)


def _difference(these: list[Entry], others: list[Entry]) -> list[Row]:
    """The rows of `these` that `others` does not have; both are multisets of identities."""
    cancelled = Counter(identity for identity, _ in others)
    left = []
    for identity, row in these:
        if cancelled[identity]:
            cancelled[identity] -= 1
        else:
            left.append(row)
    return left


def _instants_from(instants: Iterator[int], start: int | None) -> Iterator[int]:
    """The instants after the start, preceded by the last one before it."""
    # The first result is a difference too: to the answer at the instant before.
    last = None
    for tau in instants:
        if start is None or tau > start:
            if last is not None:
                yield last
                last = None
            yield tau
        else:
            last = tau


# ---- inputs


@dataclass(frozen=True)
class _Inputs:
    streams: Inputs
    tables: Inputs
    start: int | None
    keep: Mapping[str, int]

    def tuples(self, scan: Scan) -> list[tuple[int, int, Row]]:
        """Event time, arrival number and values of each tuple, sorted by time and then arrival."""
        position = [name.lower() for name in scan.schema.names].index(scan.time.lower())
        earliest = self._earliest(scan.stream)
        tuples = []
        rows = _find_input(self.streams, scan.stream, "stream", scan.schema)
        for arrival, row in enumerate(rows):
            time = row[position]
            if not isinstance(time, int):
                raise EvaluationError(
                    f"tuple {arrival} of {scan.stream} has no event time: {scan.time} is {time!r}"
                )
            if earliest is None or time >= earliest:
                tuples.append((time, arrival, row))
        return sorted(tuples, key=itemgetter(0, 1))

    def table(self, scan: TableScan) -> Sequence[Row]:
        return _find_input(self.tables, scan.table, "table", scan.schema)

    def instants(self, root: Relation) -> Iterator[int]:
        """When the query is evaluated: at every event or, where windows slide, at the multiples of
        the slides, from the first event until every slide has had a multiple at or after the last
        event."""
        scans = [node for node in walk_relations(root) if isinstance(node, Scan)]
        times = sorted({time for scan in scans for time, _, _ in self.tuples(scan)})
        steps = slides(root)
        if not times or not steps:
            yield from times
            return
        end = max(_next_multiple(times[-1], step) for step in steps)
        ticks = [range(_next_multiple(times[0], step), end + 1, step) for step in steps]
        yield from (tau for tau, _ in groupby(heapq.merge(*ticks)))

    def _earliest(self, stream: str) -> int | None:
        keep = {name.lower(): length for name, length in self.keep.items()}.get(stream.lower())
        return None if self.start is None or keep is None else self.start - keep


def _next_multiple(time: int, step: int) -> int:
    """The first multiple of the step at or after the time."""
    return -(-time // step) * step


def _find_input(inputs: Inputs, name: str, what: str, schema: Schema) -> Sequence[Row]:
    matches = [rows for key, rows in inputs.items() if key.lower() == name.lower()]
    if len(matches) != 1:
        many = "more than one" if matches else "no"
        raise EvaluationError(f"{many} input for {what} {name}; {suggest(name, inputs)}")
    width = len(schema.fields)
    for position, row in enumerate(matches[0]):
        if len(row) != width:
            raise EvaluationError(
                f"row {position} of {name} has {len(row)} values, its schema {width}: {schema}"
            )
    return matches[0]


# ---- relations


def _compile_relation(node: Relation, inputs: _Inputs, leaf: str = "") -> Content:
    """The content of a relation as a function of the instant; `leaf` is the path from the root,
    which distinguishes several scans of one stream."""
    below = [f"{leaf}.{i}" for i in range(len(node.inputs))]
    match node:
        case Scan():
            return _scan(node, inputs, leaf)
        case TableScan():
            entries: list[Entry] = [((leaf, i), row) for i, row in enumerate(inputs.table(node))]
            return lambda tau: entries
        # WHERE takes part in the join below: without its equalities a comma would be a product.
        case Select(input=Join() as join):
            leaves = [f"{below[0]}.{i}" for i in range(len(join.inputs))]
            return joins.join(
                join, conjuncts(node.condition), _compile_inputs(join, inputs, leaves)
            )
        case Select():
            return _select(node, _compile_relation(node.input, inputs, below[0]))
        case Project():
            return _project(node, _compile_relation(node.input, inputs, below[0]))
        case Join():
            return joins.join(node, (), _compile_inputs(node, inputs, below))
        case OuterJoin():
            return joins.outer_join(node, *_compile_inputs(node, inputs, below))
        case SemiJoin():
            return joins.semi_join(node, *_compile_inputs(node, inputs, below))
        case Aggregate():
            return _aggregate(node, _compile_relation(node.input, inputs, below[0]))
        case Distinct():
            return _distinct(_compile_relation(node.input, inputs, below[0]))
        case UnionAll():
            return _union_all(node, _compile_inputs(node, inputs, below))


def _compile_inputs(node: Relation, inputs: _Inputs, leaves: list[str]) -> list[Content]:
    return [
        _compile_relation(relation, inputs, leaf)
        for relation, leaf in zip(node.inputs, leaves, strict=True)
    ]


def _scan(scan: Scan, inputs: _Inputs, leaf: str) -> Content:
    tuples = inputs.tuples(scan)
    if isinstance(scan.window, Rows):
        return _rows_window(scan, scan.window, tuples, leaf)
    return _range_window(scan.window, tuples, leaf)


def _range_window(window: Range, tuples: list[tuple[int, int, Row]], leaf: str) -> Content:
    times = [time for time, _, _ in tuples]
    entries: list[Entry] = [((leaf, arrival), row) for _, arrival, row in tuples]

    def content(tau: int) -> list[Entry]:
        # With several slides, a window keeps its content between the multiples of its own.
        at = tau if window.slide is None else tau // window.slide * window.slide
        first = 0 if window.size is None else bisect_left(times, at - window.size)
        return entries[first : bisect_right(times, at)]

    return content


def _rows_window(
    scan: Scan, window: Rows, tuples: list[tuple[int, int, Row]], leaf: str
) -> Content:
    positions = [
        [name.lower() for name in scan.schema.names].index(key.lower())
        for key in window.partition_by
    ]
    groups: dict[Row, tuple[list[int], list[Entry]]] = {}
    for time, arrival, row in tuples:
        times, entries = groups.setdefault(
            tuple(normalize_value(row[i]) for i in positions), ([], [])
        )
        times.append(time)
        entries.append(((leaf, arrival), row))

    def content(tau: int) -> list[Entry]:
        found: list[Entry] = []
        for times, entries in groups.values():
            until = bisect_right(times, tau)
            found += entries[max(0, until - window.count) : until]
        return found

    return content


def _select(node: Select, content: Content) -> Content:
    condition = compile_condition(node.condition, node.input.columns)
    return lambda tau: [entry for entry in content(tau) if condition(entry[1])]


def _project(node: Project, content: Content) -> Content:
    items = [compile_expr(item.expr, node.input.columns) for item in node.items]
    # Aggregates that only HAVING reads do not make it another row
    # (docs/design/2026-11-15-identity-of-rows.md).
    by_value = _is_aggregation(node.input)

    def projected(tau: int) -> list[Entry]:
        rows = [(i, tuple(item(row) for item in items)) for i, row in content(tau)]
        return [(normalize_row(row), row) for _, row in rows] if by_value else rows

    return projected


def _is_aggregation(relation: Relation) -> bool:
    """GROUP BY with or without HAVING, whose rows are compared by the values that SELECT shows."""
    while isinstance(relation, Select):
        relation = relation.input
    return isinstance(relation, Aggregate)


def _aggregate(node: Aggregate, content: Content) -> Content:
    keys = [compile_expr(key, node.input.columns) for key in node.keys]
    calls = [compile_aggregate(call, node.input.columns) for call in node.calls]

    def aggregated(tau: int) -> list[Entry]:
        # Without keys there is one row even over no tuples.
        groups: dict[Row, list[Row]] = {} if keys else {(): []}
        for _, row in content(tau):
            groups.setdefault(tuple(normalize_value(key(row)) for key in keys), []).append(row)
        rows = [key + tuple(call(group) for call in calls) for key, group in groups.items()]
        return [(normalize_row(row), row) for row in rows]

    return aggregated


def _distinct(content: Content) -> Content:
    def distinct(tau: int) -> list[Entry]:
        rows = dict.fromkeys(normalize_row(row) for _, row in content(tau))
        return [(row, row) for row in rows]

    return distinct


def _union_all(node: UnionAll, contents: list[Content]) -> Content:
    """Rows of different branches differ, even if the same tuples made them."""
    converters = [
        [
            find_cast(column.type, result.type)
            for column, result in zip(r.columns, node.columns, strict=True)
        ]
        for r in node.inputs
    ]

    def union(tau: int) -> list[Entry]:
        return [
            ((branch, *identity), _convert(row, converters[branch]))
            for branch, content in enumerate(contents)
            for identity, row in content(tau)
        ]

    return union


def _convert(row: Row, converters: Sequence[Callable[..., object] | None]) -> Row:
    if not any(converters):
        return row
    return tuple(
        value if convert is None or value is None else convert(value)  # type: ignore[misc]
        for value, convert in zip(row, converters, strict=True)
    )
