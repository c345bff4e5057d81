"""What operators give, in bytes per second.

Records have one size throughout, as in the paper, so that depends only on how many records pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.algebra.conditions.predicate import Box, Constraint
from headwater.algebra.expressions import columns_of
from headwater.algebra.nodes import Scan
from headwater.cost import JoinInput, StreamStatistics, join_rate, selectivity, tuples_in_window
from headwater.reuse import Operator

Streams = frozenset[str]


def stream_names(scans: Iterable[Scan]) -> Streams:
    """The names of the streams that are read."""
    return frozenset(scan.stream for scan in scans)


def output_rate(
    operator: Operator, streams: Streams, statistics: Mapping[str, StreamStatistics]
) -> float:
    """What the part of an operator that reads some of its streams gives: a stream, or a join."""
    scans = [scan for scan in operator.scans if scan.stream in streams]
    statistics_of = {scan.alias: statistics[scan.stream] for scan in scans}
    box = _restrict_condition(operator.where, statistics_of)
    values = {
        column: statistics_of[column.relation].columns[column.name]
        for term in (*(t for c in box.constraints for t in c.terms), *box.terms)
        for column in columns_of(term)
    }
    inputs = [
        JoinInput(
            statistics_of[s.alias].rate, tuples_in_window(s.window, statistics_of[s.alias].rate)
        )
        for s in scans
    ]
    size = max(statistic.tuple_bytes for statistic in statistics_of.values())
    return join_rate(inputs, selectivity(box, values)) * size


def _restrict_condition(where: Box, sources: Mapping[str, object]) -> Box:
    """What a condition says of some sources alone, as far as rates are concerned."""
    constraints = []
    for c in where.constraints:
        terms = tuple(t for t in c.terms if all(x.relation in sources for x in columns_of(t)))
        if terms:
            constraints.append(Constraint(terms, c.domain))
    inside = [t for t in where.terms if all(x.relation in sources for x in columns_of(t))]
    return Box(tuple(constraints), tuple(inside))
