"""What operators give, in bytes per second.

Records have one size throughout, as in the paper, so that depends only on how many records pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.algebra.expressions import columns_of
from headwater.algebra.nodes import Scan
from headwater.algebra.predicate import Box, Constraint
from headwater.cost import Input, StreamStatistics, held, join_rate, selectivity
from headwater.reuse import Operator

Streams = frozenset[str]


def streams_of(scans: Iterable[Scan]) -> Streams:
    """The names of the streams that are read."""
    return frozenset(scan.stream for scan in scans)


def rate(operator: Operator, streams: Streams, statistics: Mapping[str, StreamStatistics]) -> float:
    """What the part of an operator that reads some of its streams gives: a stream, or a join."""
    scans = [scan for scan in operator.scans if scan.stream in streams]
    known = {scan.alias: statistics[scan.stream] for scan in scans}
    box = _restricted(operator.where, known)
    values = {
        column: known[column.relation].columns[column.name]
        for term in (*(t for c in box.constraints for t in c.terms), *box.terms)
        for column in columns_of(term)
    }
    inputs = [Input(known[s.alias].rate, held(s.window, known[s.alias].rate)) for s in scans]
    size = max(one.tuple_bytes for one in known.values())
    return join_rate(inputs, selectivity(box, values)) * size


def _restricted(where: Box, known: Mapping[str, object]) -> Box:
    """What a condition says of some sources alone, as far as rates are concerned."""
    constraints = []
    for c in where.constraints:
        terms = tuple(t for t in c.terms if all(x.relation in known for x in columns_of(t)))
        if terms:
            constraints.append(Constraint(terms, c.domain))
    inside = [t for t in where.terms if all(x.relation in known for x in columns_of(t))]
    return Box(tuple(constraints), tuple(inside))
