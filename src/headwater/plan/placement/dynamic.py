"""The dynamic program: the cheapest plan of one query, with everything else left as it is.

A resource's price grows with its use, 100 ** utilisation / capacity, so that plans keep away from what
is scarce. Over the streams that a query can be made of, from the smallest, the kernel finds the
cheapest way to have each at each site. Ways that share a site may not fit together: what breaks is
then barred, and the query is tried again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.kernel import HELD, NOT_AT_ALL, cheapest
from headwater.plan.placement.ledger import Floats, Ledger
from headwater.plan.placement.model import Problem

STEEPNESS = 100.0
POPULARITY = 0.2
MOST_TRIES = 24
NOTHING = 1e-9
"""The price of what is not limited: little, but more than doing without."""

FORBIDDEN = 1e9
"""The price of what a site does not have at all."""

MADE, RECEIVED, SENT = 1, 2, 4


@dataclass(frozen=True, eq=False)
class Table:
    """The scope of a query as arrays; streams are numbered within it."""

    streams: tuple[int, ...]
    operators: tuple[int, ...]
    rates: Floats
    outputs: NDArray[np.int32]
    inputs: NDArray[np.int32]
    cpu: Floats
    memory: Floats


def table(problem: Problem, stream: int) -> Table:
    """The arrays for a stream."""
    scope = problem.scope(stream)
    place = {s: i for i, s in enumerate(scope.streams)}
    made = sorted(scope.operators, key=lambda o: place[problem.operators[o].output])
    operators = [problem.operators[o] for o in made]
    arity = max((len(o.inputs) for o in operators), default=1)
    inputs = np.full((len(made), arity), -1, np.int32)
    for row, operator in enumerate(operators):
        inputs[row, : len(operator.inputs)] = [place[s] for s in operator.inputs]
    return Table(
        scope.streams,
        tuple(made),
        np.array([problem.streams[s].rate for s in scope.streams], np.float64),
        np.array([place[o.output] for o in operators], np.int32),
        inputs,
        np.array([o.cpu for o in operators], np.float64),
        np.array([o.memory for o in operators], np.float64),
    )


@dataclass
class Taste:
    """What a planner remembers of all queries it was asked for: how often each stream would do."""

    weight: float = POPULARITY
    seen: Counter[int] = field(default_factory=Counter)
    _tables: dict[int, Table] = field(default_factory=dict)
    _problem: Problem | None = None

    def table(self, problem: Problem, stream: int) -> Table:
        """The arrays for a stream, kept as long as the problem is the same."""
        if problem is not self._problem:
            self._problem, self._tables = problem, {}
        if stream not in self._tables:
            self._tables[stream] = table(problem, stream)
        return self._tables[stream]

    def notice(self, problem: Problem, stream: int) -> None:
        """A query for a stream was submitted."""
        self.seen.update(problem.scope(stream).streams)

    def favour(self, found: Table) -> Floats:
        """A factor for each operator's price: less for what others want as well."""
        often = np.array([self.seen[s] for s in found.streams], np.float64)[found.outputs]
        return np.asarray(1.0 / (1.0 + self.weight * np.log2(np.maximum(1.0, often))))


def prices(ledger: Ledger) -> Floats:
    """What a unit of each resource costs at each site, as full as it is now."""
    weights = ledger.problem.weights
    steepness = STEEPNESS if weights.balance else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.clip(1.0 - ledger.free / ledger.capacity, 0.0, 1.0)
        found = steepness**used / ledger.capacity
    found = np.where(np.isinf(ledger.capacity), NOTHING, found)
    return np.where(ledger.capacity > 0, found, FORBIDDEN)


def place(ledger: Ledger, stream: int, taste: Taste, limited: bool = True) -> bool:
    """Write a plan for a stream into the ledger; False, and nothing changed, if none was found.

    Not `limited`, it may take more than there is: that shows what is short.
    """
    if stream in ledger.served:
        return True
    found = taste.table(ledger.problem, stream)
    held = np.zeros((len(found.streams), len(ledger.problem.sites)), np.bool_)
    for row, s in enumerate(found.streams):
        for site in ledger.origins[s]:
            held[row, site] = True
    barred = np.zeros(held.shape, np.int8)
    price, favour, start = prices(ledger), taste.favour(found), starting(ledger)
    links = room(ledger, limited) if ledger.problem.tight_links else np.empty((0, 0))
    root = len(found.streams) - 1
    rate = found.rates[root]
    for _ in range(MOST_TRIES):
        free = ledger.free if limited else np.full_like(ledger.free, np.inf)
        cost, how = cheapest(
            found.rates,
            held,
            found.outputs,
            found.inputs,
            found.cpu,
            found.memory,
            favour,
            free,
            price,
            start,
            barred,
            links,
        )
        able = (free[3] >= rate) & (barred[root] & SENT == 0)
        last = np.where(able, cost[root] + rate * price[3], np.inf)
        site = int(last.argmin())
        if last[site] == np.inf:
            return False
        with ledger.attempt() as kept:
            if write(ledger, found, how, root, site, barred, limited):
                ledger.serve(stream, site)
                if limited and ledger.overfull(3, site):
                    barred[root, site] |= SENT
                else:
                    kept.append(True)
                    return True
    return False


def write(
    ledger: Ledger,
    found: Table,
    how: NDArray[np.int32],
    stream: int,
    site: int,
    barred: NDArray[np.int8],
    limited: bool = True,
) -> bool:
    """Have a stream at a site in the way that was found; False, with a bar set, if it is too much."""
    s = found.streams[stream]
    if site in ledger.origins[s]:
        return True
    way = int(how[stream, site])
    assert way not in (HELD, NOT_AT_ALL)
    if way >= 0:
        for input in found.inputs[way]:
            if input >= 0 and not write(ledger, found, how, int(input), site, barred, limited):
                return False
        ledger.run(found.operators[way], site)
        if limited and (ledger.overfull(0, site) or ledger.overfull(1, site)):
            barred[stream, site] |= MADE
            return False
        return True
    sender = HELD - 1 - way
    if not write(ledger, found, how, stream, sender, barred, limited):
        return False
    ledger.send(s, sender, site)
    if limited and ledger.overfull(3, sender):
        barred[stream, sender] |= SENT
        return False
    if limited and (ledger.overfull(2, site) or ledger.link_free(sender, site) < 0):
        barred[stream, site] |= RECEIVED
        return False
    return True


def starting(ledger: Ledger) -> Floats:
    """What it costs to use a site on which nothing runs yet."""
    idle = ledger.free[0] >= ledger.capacity[0]
    return np.where(idle, ledger.problem.weights.sites, 0.0)


def room(ledger: Ledger, limited: bool = True) -> Floats:
    """What is left of the link between each two sites; anything, if it is not `limited`."""
    count = len(ledger.problem.sites)
    found = np.full((count, count), ledger.problem.links.usual)
    for (a, b), capacity in ledger.problem.links.other.items():
        found[a, b] = capacity
    if not limited:
        return np.where(found > 0, np.inf, 0.0)
    for (a, b), used in ledger.sent.items():
        found[a, b] -= used
    return found
