"""The dynamic program: the cheapest plan of one query, with everything else left as it is.

A resource's price grows with its use, 100 ** utilisation / capacity, so that plans keep away from what
is scarce. Over the streams that a query can be made of, from the smallest, the kernel finds the
cheapest way to have each at each site. Ways that share a site may not fit together: what breaks is
then barred, and the query is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.kernel import HELD, NOT_AT_ALL, cheapest
from headwater.plan.placement.ledger import Floats, Ledger
from headwater.plan.placement.model import Problem, Weights

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


Place = Callable[[Ledger, int, Taste], bool]
"""A way to write a plan for a stream into a ledger; False, and nothing changed, if there is none."""


def prices(free: Floats, capacity: Floats, weights: Weights) -> Floats:
    """What a unit of each resource costs at each site, when so much of it is left."""
    steepness = STEEPNESS if weights.balance else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.clip(1.0 - free / capacity, 0.0, 1.0)
        found = steepness**used / capacity
    found = np.where(np.isinf(capacity), NOTHING, found)
    return np.where(capacity > 0, found, FORBIDDEN)


def place(
    ledger: Ledger,
    stream: int,
    taste: Taste,
    limited: bool = True,
    sites: Sequence[int] | None = None,
) -> bool:
    """Write a plan for a stream into the ledger; False, and nothing changed, if none was found.

    Not `limited`, it may take more than there is: that shows what is short. With `sites` it uses
    these alone.
    """
    if stream in ledger.served:
        return True
    problem = ledger.problem
    found = taste.table(problem, stream)
    where = range(len(problem.sites)) if sites is None else sites
    held, free, capacity = holders(ledger, found), ledger.free, ledger.capacity
    if sites is not None:
        held, free, capacity = held.take(sites, 1), free.take(sites, 1), capacity.take(sites, 1)
    barred = np.zeros(held.shape, np.int8)
    price = prices(free, capacity, problem.weights)
    start = starting(free, capacity, problem.weights)
    favour = taste.favour(found)
    links = room(ledger, where, limited) if problem.tight_links else np.empty((0, 0))
    if not limited:
        free = np.full_like(free, np.inf)
    root = len(found.streams) - 1
    rate = found.rates[root]
    for _ in range(MOST_TRIES):
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
        column = int(last.argmin())
        if last[column] == np.inf:
            return False
        with ledger.attempt() as kept:
            if write(ledger, found, how, root, column, barred, where, limited):
                ledger.serve(stream, where[column])
                if limited and ledger.overfull(3, where[column]):
                    barred[root, column] |= SENT
                else:
                    kept.append(True)
                    return True
    return False


def holders(ledger: Ledger, found: Table) -> NDArray[np.bool_]:
    """Which sites hold each stream of a table."""
    held = np.zeros((len(found.streams), len(ledger.problem.sites)), np.bool_)
    for row, s in enumerate(found.streams):
        held[row, list(ledger.origins[s])] = True
    return held


def write(
    ledger: Ledger,
    found: Table,
    how: NDArray[np.int32],
    stream: int,
    column: int,
    barred: NDArray[np.int8],
    where: Sequence[int],
    limited: bool = True,
) -> bool:
    """Have a stream at a site in the way that was found; False, with a bar set, if it is too much.

    Sites are columns, `where` says which.
    """
    s, site = found.streams[stream], where[column]
    if site in ledger.origins[s]:
        return True
    way = int(how[stream, column])
    assert way not in (HELD, NOT_AT_ALL)
    if way >= 0:
        for i in found.inputs[way]:
            if i >= 0 and not write(ledger, found, how, int(i), column, barred, where, limited):
                return False
        ledger.run(found.operators[way], site)
        if limited and (ledger.overfull(0, site) or ledger.overfull(1, site)):
            barred[stream, column] |= MADE
            return False
        return True
    other = HELD - 1 - way
    sender = where[other]
    if not write(ledger, found, how, stream, other, barred, where, limited):
        return False
    ledger.send(s, sender, site)
    if limited and ledger.overfull(3, sender):
        barred[stream, other] |= SENT
        return False
    if limited and (ledger.overfull(2, site) or ledger.link_free(sender, site) < 0):
        barred[stream, column] |= RECEIVED
        return False
    return True


def starting(free: Floats, capacity: Floats, weights: Weights) -> Floats:
    """What it costs to use a site on which nothing runs yet."""
    return np.where(free[0] >= capacity[0], weights.sites, 0.0)


def room(ledger: Ledger, where: Sequence[int], limited: bool = True) -> Floats:
    """What is left of the link between each two of these sites; anything, if it is not `limited`."""
    links, column = ledger.problem.links, {site: place for place, site in enumerate(where)}
    found = np.full((len(where), len(where)), links.usual)
    for (a, b), capacity in links.other.items():
        if a in column and b in column:
            found[column[a], column[b]] = capacity
    if not limited:
        return np.where(found > 0, np.inf, 0.0)
    for (a, b), used in ledger.sent.items():
        if a in column and b in column:
            found[column[a], column[b]] -= used
    return found
