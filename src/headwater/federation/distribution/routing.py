"""Online routing: a new query goes down the tree, each coordinator choosing the child of least added cost.

A coordinator keeps a table with one row for each substream, so that a query costs a sum of rows and
one number written in each of them. For WEC a row has what the children's queries take of the
substream; for traffic what it would cost to bring the substream to a child, 0 where it is already.
Routing is over arrays of queries, in their order, each seeing those before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headwater.federation.distribution.hierarchy import Branch, Federation
from headwater.federation.distribution.kernel import TRAFFIC, WEC, excess
from headwater.federation.distribution.model import Indices, QueryGraph
from headwater.federation.distribution.objective import OBJECTIVES, Objective
from headwater.jit import cached_njit

LANES = 8
"""Rows are padded to a multiple of it: so many columns are added by one instruction."""


class RoutingTable(NamedTuple):
    """What one coordinator needs to route; numbers of children are padded, and only `children` count.

    Single precision: a row of eight children then is one cache line, also for WEC, where
    the second half of a row is what the way from the origin costs.
    """

    objective: int
    children: int
    row: Any
    rate: Any
    latency: Any
    anchor: Any
    load: Any
    bound: Any
    """For each child the load it may have if all of the federation had a load of 1."""
    total: Any
    """One number: the load of all of the federation."""
    is_bounded: bool


def make_table(
    federation: Federation,
    branch: Branch,
    queries: QueryGraph,
    host: Indices,
    objective: Objective,
    bounded: bool = True,
) -> RoutingTable:
    """The table of a coordinator for queries that run at providers; `bounded` is whether room matters."""
    problem = federation.child_problem(branch, queries, 1.0 / federation.places.capability.sum())
    places, substreams = problem.places, problem.substreams
    children = len(places)
    width = -(-children // LANES) * LANES
    child = federation.child_of(branch)[host]
    vertex = np.repeat(np.arange(len(queries)), np.diff(queries.start))
    inside = child[vertex] >= 0
    count = np.zeros((len(substreams), children))
    np.add.at(count, (queries.substream[inside], child[vertex][inside]), queries.count[inside])
    way = substreams.rate[:, None] * places.anchor[substreams.origin]
    code = OBJECTIVES[objective]
    row = np.zeros((len(substreams), width if code == TRAFFIC else 2 * width), np.float32)
    if code == TRAFFIC:
        row[:, :children] = np.where(count > 0, 0.0, way)
    else:
        row[:, :children] = substreams.rate[:, None] * count
        row[:, width : width + children] = way
    load = np.bincount(child[child >= 0], queries.load[child >= 0], children)
    return RoutingTable(
        code,
        children,
        row,
        substreams.rate.astype(np.float32),
        places.latency,
        places.anchor,
        load,
        problem.bound,
        np.array([queries.load.sum()]),
        bounded,
    )


@cached_njit
def _add_rows(rows: Any, columns: int, substream: Any, first: int, last: int, sums: Any) -> None:
    """The rows of some substreams, one after the other in `rows`, summed column by column.

    Four rows at a time, so that sums are written seldom. Positions are unsigned, for which Numba does not look
    whether they count from the end: only then are several columns added by one instruction.
    """
    u = np.uintp
    width = u(columns)
    for column in range(width):
        sums[column] = np.float32(0.0)
    fours = first + (last - first) // 4 * 4
    for at in range(first, fours, 4):
        a, b = u(substream[at]) * width, u(substream[at + 1]) * width
        c, d = u(substream[at + 2]) * width, u(substream[at + 3]) * width
        for column in range(width):
            sums[column] += (rows[a + column] + rows[b + column]) + (
                rows[c + column] + rows[d + column]
            )
    for at in range(fours, last):
        a = u(substream[at]) * width
        for column in range(width):
            sums[column] += rows[a + column]


@cached_njit
def route(
    table: Any, start: Any, substream: Any, load: Any, home: Any, result: Any, chosen: Any
) -> None:
    """The child of each query, in order; the table then has them all."""
    columns = table.row.shape[1]
    width = columns if table.objective == TRAFFIC else columns // 2
    sums = np.zeros(columns, np.float32)
    flat = table.row.ravel()
    for query in range(len(load)):
        first, last = start[query], start[query + 1]
        _add_rows(flat, columns, substream, first, last, sums)
        table.total[0] += load[query]
        best, least, lowest = -1, 0.0, 0.0
        for k in range(table.children):
            cost = result[query] * table.anchor[home[query], k]
            if table.objective == WEC:
                cost += sums[width + k]
                for other in range(table.children):
                    cost += table.latency[k, other] * sums[other]
            else:
                cost += sums[k]
            more = 0.0
            if table.is_bounded:
                bound = table.bound[k] * table.total[0]
                # Against the present total: bounds rise with every query that has come.
                more = excess(table.load[k] + load[query], bound) - excess(table.load[k], bound)
            if best == -1 or more < least or (more == least and cost < lowest):
                best, least, lowest = k, more, cost
        chosen[query] = best
        table.load[best] += load[query]
        if table.objective == TRAFFIC:
            for at in range(first, last):
                table.row[substream[at], best] = np.float32(0.0)
        else:
            for at in range(first, last):
                table.row[substream[at], best] += table.rate[substream[at]]


def route_batch(table: RoutingTable, queries: QueryGraph) -> Indices:
    """The child to which a coordinator sends each of the new queries."""
    chosen = np.empty(len(queries), np.int32)
    route(
        *(table, queries.start, queries.substream, queries.load),
        *(queries.home, queries.result, chosen),
    )
    return chosen


class OnlineRouter:
    """The tables of all coordinators, and the walk of new queries from the root to providers."""

    def __init__(
        self,
        federation: Federation,
        queries: QueryGraph,
        host: Indices,
        objective: Objective = "traffic",
        bounded: bool = True,
    ) -> None:
        self.federation = federation
        self.tables = {
            (branch.height, branch.node): make_table(
                federation, branch, queries, host, objective, bounded
            )
            for branch in federation.tree.coordinators()
        }

    def route(self, queries: QueryGraph) -> Indices:
        """The provider of each new query; raises nothing: without room the least violation is taken."""
        host = np.empty(len(queries), np.int32)
        todo = [(self.federation.tree, np.arange(len(queries), dtype=np.int32))]
        while todo:
            branch, own = todo.pop()
            if not branch.branches:
                host[own] = branch.node
                continue
            if len(own) == 0:
                continue
            table = self.tables[branch.height, branch.node]
            # What the rest of the federation receives is known at the root and sent down with the queries.
            outside = float(queries.load.sum() - queries.load[own].sum())
            table.total[0] += outside
            chosen = route_batch(table, queries.select(own))
            todo += [(child, own[chosen == k]) for k, child in enumerate(branch.branches)]
        return host
