"""The dynamic program: the cheapest plan of one query, with everything else left as it is.

A resource's price grows with its use, 100 ** utilisation / capacity, so that plans keep away from what
is scarce. Over the streams that a query can be computed from, from the smallest, the kernel finds the
cheapest way to have each at each site. Ways that share a site may not fit together: the
assignment that breaks is then barred, and the query is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.ledger import Floats, Ledger
from headwater.plan.placement.model import ObjectiveWeights, PlacementProblem
from headwater.plan.placement.planners.kernel import HELD, UNOBTAINABLE, cheapest_ways

STEEPNESS = 100.0
POPULARITY = 0.2
MAX_TRIES = 24
UNLIMITED_PRICE = 1e-9
"""The price of an unlimited resource: small, but above 0, so that not using it is still better."""

FORBIDDEN_PRICE = 1e9
"""The price of what a site does not have at all."""

NO_MAKE, NO_RECEIVE, NO_SEND = 1, 2, 4


@dataclass(frozen=True, eq=False)
class ScopeTable:
    """The scope of a query as arrays; streams are numbered within it."""

    streams: tuple[int, ...]
    operators: tuple[int, ...]
    rates: Floats
    outputs: NDArray[np.int32]
    inputs: NDArray[np.int32]
    cpu: Floats
    memory: Floats


def build_scope_table(problem: PlacementProblem, stream: int) -> ScopeTable:
    """The arrays for a stream."""
    scope = problem.scope(stream)
    row_of = {s: i for i, s in enumerate(scope.streams)}
    # The kernel goes through streams and their operators side by side, so both are in one order.
    order = sorted(scope.operators, key=lambda o: row_of[problem.operators[o].output])
    operators = [problem.operators[o] for o in order]
    arity = max((len(o.inputs) for o in operators), default=1)
    inputs = np.full((len(order), arity), -1, np.int32)
    for row, operator in enumerate(operators):
        inputs[row, : len(operator.inputs)] = [row_of[s] for s in operator.inputs]
    return ScopeTable(
        scope.streams,
        tuple(order),
        np.array([problem.streams[s].rate for s in scope.streams], np.float64),
        np.array([row_of[o.output] for o in operators], np.int32),
        inputs,
        np.array([o.cpu for o in operators], np.float64),
        np.array([o.memory for o in operators], np.float64),
    )


@dataclass
class StreamPopularity:
    """What a planner remembers of all queries so far: how many of them each stream could serve."""

    weight: float = POPULARITY
    stream_counts: Counter[int] = field(default_factory=Counter)
    _tables: dict[int, ScopeTable] = field(default_factory=dict)
    _problem: PlacementProblem | None = None

    def scope_table(self, problem: PlacementProblem, stream: int) -> ScopeTable:
        """The arrays for a stream, kept as long as the problem is the same."""
        if problem is not self._problem:
            self._problem, self._tables = problem, {}
        if stream not in self._tables:
            self._tables[stream] = build_scope_table(problem, stream)
        return self._tables[stream]

    def record_query(self, problem: PlacementProblem, stream: int) -> None:
        """A query for a stream was submitted."""
        self.stream_counts.update(problem.scope(stream).streams)

    def price_factors(self, scope_table: ScopeTable) -> Floats:
        """A factor for each operator's price: lower for streams that other queries could use as well."""
        often = np.array([self.stream_counts[s] for s in scope_table.streams], np.float64)[
            scope_table.outputs
        ]
        return np.asarray(1.0 / (1.0 + self.weight * np.log2(np.maximum(1.0, often))))


StreamPlacer = Callable[[Ledger, int, StreamPopularity], bool]
"""A way to write a plan for a stream into a ledger; False, and nothing changed, if there is none."""


def resource_prices(free: Floats, capacity: Floats, weights: ObjectiveWeights) -> Floats:
    """What a unit of each resource costs at each site, when so much of it is left."""
    steepness = STEEPNESS if weights.balance else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.clip(1.0 - free / capacity, 0.0, 1.0)
        # Exponential in the utilisation: a nearly full site is avoided long before it is full.
        price = steepness**used / capacity
    price = np.where(np.isinf(capacity), UNLIMITED_PRICE, price)
    return np.where(capacity > 0, price, FORBIDDEN_PRICE)


def place_stream(
    ledger: Ledger,
    stream: int,
    popularity: StreamPopularity,
    limited: bool = True,
    sites: Sequence[int] | None = None,
) -> bool:
    """Write a plan for a stream into the ledger; False, and nothing changed, if none was found.

    If not `limited`, it may exceed capacities: that shows what is short. With `sites` it uses only
    these.
    """
    if stream in ledger.served:
        return True
    problem = ledger.problem
    scope_table = popularity.scope_table(problem, stream)
    where = range(len(problem.sites)) if sites is None else sites
    held, free, capacity = holder_matrix(ledger, scope_table), ledger.free, ledger.capacity
    if sites is not None:
        held, free, capacity = held.take(sites, 1), free.take(sites, 1), capacity.take(sites, 1)
    barred = np.zeros(held.shape, np.int8)
    price = resource_prices(free, capacity, problem.weights)
    start = site_start_costs(free, capacity, problem.weights)
    favour = popularity.price_factors(scope_table)
    links = (
        free_link_capacity(ledger, where, limited) if problem.has_tight_links else np.empty((0, 0))
    )
    if not limited:
        free = np.full_like(free, np.inf)
    root = len(scope_table.streams) - 1
    rate = scope_table.rates[root]
    # The program prices every way by itself, so ways that share a site may exceed it together. Each
    # failure bars one assignment for the next attempt; the number of attempts bounds the work.
    for _ in range(MAX_TRIES):
        cost, how = cheapest_ways(
            scope_table.rates,
            held,
            scope_table.outputs,
            scope_table.inputs,
            scope_table.cpu,
            scope_table.memory,
            favour,
            free,
            price,
            start,
            barred,
            links,
        )
        able = (free[3] >= rate) & (barred[root] & NO_SEND == 0)
        # To serve takes bandwidth out of the site, as sending does.
        last = np.where(able, cost[root] + rate * price[3], np.inf)
        column = int(last.argmin())
        if last[column] == np.inf:
            return False
        with ledger.attempt() as accepted:
            if write_plan(ledger, scope_table, how, root, column, barred, where, limited):
                ledger.serve(stream, where[column])
                if limited and ledger.is_overfull(3, where[column]):
                    barred[root, column] |= NO_SEND
                else:
                    accepted.append(True)
                    return True
    return False


def holder_matrix(ledger: Ledger, scope_table: ScopeTable) -> NDArray[np.bool_]:
    """Which sites hold each stream of a table."""
    held = np.zeros((len(scope_table.streams), len(ledger.problem.sites)), np.bool_)
    for row, s in enumerate(scope_table.streams):
        held[row, list(ledger.origins[s])] = True
    return held


def write_plan(
    ledger: Ledger,
    scope_table: ScopeTable,
    how: NDArray[np.int32],
    stream: int,
    column: int,
    barred: NDArray[np.int8],
    where: Sequence[int],
    limited: bool = True,
) -> bool:
    """Make a stream available at a site as the kernel chose; if it does not fit, set a bar and return False.

    Sites are columns, `where` says which.
    """
    s, site = scope_table.streams[stream], where[column]
    # Two inputs may need the same stream, and the first has brought it by now.
    if site in ledger.origins[s]:
        return True
    way = int(how[stream, column])
    assert way not in (HELD, UNOBTAINABLE)
    if way >= 0:
        for i in scope_table.inputs[way]:
            if i >= 0 and not write_plan(
                ledger, scope_table, how, int(i), column, barred, where, limited
            ):
                return False
        ledger.run(scope_table.operators[way], site)
        if limited and (ledger.is_overfull(0, site) or ledger.is_overfull(1, site)):
            barred[stream, column] |= NO_MAKE
            return False
        return True
    other = HELD - 1 - way
    sender = where[other]
    if not write_plan(ledger, scope_table, how, stream, other, barred, where, limited):
        return False
    ledger.send(s, sender, site)
    if limited and ledger.is_overfull(3, sender):
        barred[stream, other] |= NO_SEND
        return False
    if limited and (ledger.is_overfull(2, site) or ledger.free_link_bandwidth(sender, site) < 0):
        barred[stream, column] |= NO_RECEIVE
        return False
    return True


def site_start_costs(free: Floats, capacity: Floats, weights: ObjectiveWeights) -> Floats:
    """What it costs to use a site on which nothing runs yet."""
    return np.where(free[0] >= capacity[0], weights.sites, 0.0)


def free_link_capacity(ledger: Ledger, where: Sequence[int], limited: bool = True) -> Floats:
    """What is left of the link between each two of these sites; anything, if it is not `limited`."""
    links, column = ledger.problem.links, {site: position for position, site in enumerate(where)}
    capacities = np.full((len(where), len(where)), links.default)
    for (a, b), capacity in links.overrides.items():
        if a in column and b in column:
            capacities[column[a], column[b]] = capacity
    if not limited:
        # Where there is no link at all, nothing is short: it is missing, and stays so.
        return np.where(capacities > 0, np.inf, 0.0)
    for (a, b), used in ledger.sent.items():
        if a in column and b in column:
            capacities[column[a], column[b]] -= used
    return capacities
