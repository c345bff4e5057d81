"""What stays as it is while the scope of some queries is planned anew, and the sites to plan it on.

In a large system most sites are alike to a query: they hold nothing of it and have little left. `narrowed`
counts them as one site that has what they have together. A query that does not fit even then has no
plan at all, so a refusal is proven without looking at each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.ledger import SOURCE, Floats, Ledger
from headwater.plan.placement.model import Plan, Run, Send, Serve

TOGETHER = -1
"""In `sites`: all those that are counted as one."""

MOST_CPU, MOST_BANDWIDTH = 24, 12
"""Of sites without a part in the scope, so many with the most left are looked at one by one."""


class Rest:
    """The scope of some streams, and what there is for it.

    Sites are columns here: `sites` says which. `free` is what they have when the scope's own
    operators, copies and results are taken away, `holders` who has a stream now and how, `can_run`
    which operators a site has the CPU and memory for, and `needed` the pairs of stream and site where
    operators outside of the scope read a stream of it.
    """

    def __init__(self, ledger: Ledger, wanted: Sequence[int]) -> None:
        problem = ledger.problem
        scopes = [problem.scope(stream) for stream in wanted]
        self.ledger = ledger
        self.streams = list(dict.fromkeys(s for scope in scopes for s in scope.streams))
        self.operators = list(dict.fromkeys(o for scope in scopes for o in scope.operators))
        mine = self._mine = set(self.operators)
        self.free = ledger.free.copy()
        self.links = dict(ledger.sent)
        needed = {
            (s, site): ledger.uses[s, site] for s in self.streams for site in ledger.origins[s]
        }
        for s in self.streams:
            rate = problem.streams[s].rate
            for site, origin in ledger.origins[s].items():
                if origin in mine:
                    self.free[0, site] += problem.operators[origin].cpu
                    self.free[1, site] += problem.operators[origin].memory
                    for input in problem.operators[origin].inputs:
                        needed[input, site] -= 1
                elif origin < SOURCE:
                    sender = SOURCE - 1 - origin
                    self.free[2, site] += rate
                    self.free[3, sender] += rate
                    self.links[sender, site] -= rate
                    needed[s, sender] -= 1
            if s in ledger.served:
                self.free[3, ledger.served[s]] += rate
                needed[s, ledger.served[s]] -= 1
        self.needed = {pair for pair, uses in needed.items() if uses > 0}
        self.sites = list(range(len(problem.sites)))
        self.capacity = ledger.capacity
        self.holders = {s: ledger.origins[s] for s in self.streams}
        self.can_run = self._can_run()
        self.served = [s for s in self.streams if s in ledger.served]

    def _can_run(self) -> NDArray[np.bool_]:
        problem = self.ledger.problem
        cpu = np.array([problem.operators[o].cpu for o in self.operators])[:, None]
        memory = np.array([problem.operators[o].memory for o in self.operators])[:, None]
        nearly = 1 - 1e-9
        return np.asarray((self.free[0] >= cpu * nearly) & (self.free[1] >= memory * nearly))

    def busy(self) -> set[int]:
        """The sites that have a part in the scope already."""
        return {site for s in self.streams for site in self.holders[s]}

    def narrowed(self, together: bool) -> Rest:
        """The same on fewer sites: those with a part in it and those with the most left.

        The others are left out, or counted as one if they are to be taken `together`.
        """
        chosen = self.busy()
        for resource, most in ((0, MOST_CPU), (2, MOST_BANDWIDTH), (3, MOST_BANDWIDTH)):
            chosen |= set(np.argsort(-self.free[resource], kind="stable")[:most].tolist())
        sites = sorted(chosen)
        others = [site for site in self.sites if site not in chosen]
        found = copy(self)
        place = {site: column for column, site in enumerate(sites)}
        found.sites = [*sites, TOGETHER] if together and others else sites
        found.holders = {
            s: {place[site]: origin for site, origin in held.items()}
            for s, held in self.holders.items()
        }
        found.needed = {(s, place[site]) for s, site in self.needed}
        found.free, found.capacity = self.free[:, sites], self.capacity[:, sites]
        found.can_run = self.can_run[:, sites]
        if together and others:
            found.free = np.column_stack(
                [found.free, np.maximum(self.free[:, others], 0).sum(axis=1)]
            )
            found.capacity = np.column_stack([found.capacity, np.full(4, np.inf)])
            able = self.can_run[:, others] & (
                self.free[2, others] >= self._least_inbound()[:, None]
            )
            found.can_run = np.column_stack([found.can_run, able.any(axis=1)])
        return found

    def _least_inbound(self) -> Floats:
        """What a site that holds nothing has to receive at least to run each operator."""
        problem = self.ledger.problem
        least: dict[int, float] = {}

        def inputs(operator: int) -> float:
            read = problem.operators[operator].inputs
            parts = [part for s in read for part in problem.streams[s].parts]
            apart = len(parts) == len(set(parts))
            return (sum if apart else max)(least[s] for s in read)

        for s in self.streams:
            makers = [o for o in problem.makers[s] if o in self._mine]
            least[s] = min([problem.streams[s].rate, *(inputs(o) for o in makers)])
        return np.array([inputs(o) for o in self.operators]) * (1 - 1e-9)

    def room(self, a: int, b: int) -> float:
        """What a link has for the scope."""
        return self.ledger.problem.links[a, b] - self.links.get((a, b), 0.0)

    def plan(
        self,
        runs: Iterable[Run],
        sends: Iterable[Send],
        serves: Iterable[Serve],
        queries: Iterable[int],
    ) -> Plan:
        """A plan with a new scope, and all else as it was; sites are given by their columns."""
        before, streams, operators = self.ledger.plan(), set(self.streams), set(self.operators)
        return Plan(
            frozenset(r for r in before.runs if r.operator not in operators)
            | {Run(self.sites[h], o) for h, o in runs},
            frozenset(s for s in before.sends if s.stream not in streams)
            | {Send(self.sites[a], self.sites[b], s) for a, b, s in sends},
            frozenset(s for s in before.serves if s.stream not in streams)
            | {Serve(self.sites[h], s) for h, s in serves},
            before.admitted | set(queries),
        )
