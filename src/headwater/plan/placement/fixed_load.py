"""What stays as it is while the scope of some queries is planned again, and the sites to plan it on.

In a large system most sites are alike to a query: they hold nothing of it and have little left. `narrow`
counts them as one site with the sum of their resources. A query that does not fit even then has no plan
at all, so a refusal is proven without examining each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.ledger import SOURCE, Floats, Ledger
from headwater.plan.placement.model import PlacementPlan, RunOperator, SendStream, ServeStream

MERGED_SITE = -1
"""In `sites`: all those that are counted as one."""

MAX_CPU_SITES, MAX_BANDWIDTH_SITES = 24, 12
"""How many sites outside the scope, those with the most left, are considered individually."""


class ReplanScope:
    """The scope of some streams, and the operators and capacities for it.

    Sites are columns here: `sites` says which. `free` is what they have when the scope's own
    operators, copies and results are taken away, `holders` who has a stream now and how, `can_run`
    which operators a site has the CPU and memory for, and `needed` the pairs of stream and site where
    operators outside of the scope read a stream of it.
    """

    def __init__(self, ledger: Ledger, requested: Sequence[int]) -> None:
        problem = ledger.problem
        scopes = [problem.scope(stream) for stream in requested]
        self.ledger = ledger
        self.streams = list(dict.fromkeys(s for scope in scopes for s in scope.streams))
        self.operators = list(dict.fromkeys(o for scope in scopes for o in scope.operators))
        own_operators = self._own_operators = set(self.operators)
        self.free = ledger.free.copy()
        self.links = dict(ledger.sent)
        needed = {
            (s, site): ledger.uses[s, site] for s in self.streams for site in ledger.origins[s]
        }
        for s in self.streams:
            rate = problem.streams[s].rate
            for site, origin in ledger.origins[s].items():
                if origin in own_operators:
                    self.free[0, site] += problem.operators[origin].cpu
                    self.free[1, site] += problem.operators[origin].memory
                    for input in problem.operators[origin].inputs:
                        # What the scope's own operators read is decided again, so it is not needed
                        # from outside.
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
        # An operator that fits exactly must not be excluded by rounding; the program's own
        # constraints decide.
        nearly = 1 - 1e-9
        return np.asarray((self.free[0] >= cpu * nearly) & (self.free[1] >= memory * nearly))

    def involved_sites(self) -> set[int]:
        """The sites that hold a stream of the scope already."""
        return {site for s in self.streams for site in self.holders[s]}

    def narrow(self, merge_others: bool) -> ReplanScope:
        """The same on fewer sites: those with a part in it and those with the most left.

        The others are left out, or counted as one with `merge_others`.
        """
        chosen = self.involved_sites()
        for resource, most in (
            (0, MAX_CPU_SITES),
            (2, MAX_BANDWIDTH_SITES),
            (3, MAX_BANDWIDTH_SITES),
        ):
            chosen |= set(np.argsort(-self.free[resource], kind="stable")[:most].tolist())
        sites = sorted(chosen)
        others = [site for site in self.sites if site not in chosen]
        narrowed = copy(self)
        column_of = {site: column for column, site in enumerate(sites)}
        narrowed.sites = [*sites, MERGED_SITE] if merge_others and others else sites
        narrowed.holders = {
            s: {column_of[site]: origin for site, origin in sites_of.items()}
            for s, sites_of in self.holders.items()
        }
        narrowed.needed = {(s, column_of[site]) for s, site in self.needed}
        narrowed.free, narrowed.capacity = self.free[:, sites], self.capacity[:, sites]
        narrowed.can_run = self.can_run[:, sites]
        if merge_others and others:
            narrowed.free = np.column_stack(
                # A site that is overfull takes nothing from what the others have left.
                [narrowed.free, np.maximum(self.free[:, others], 0).sum(axis=1)]
            )
            # Infinite, so that the merged site takes no part in balancing: it has no fullness of
            # its own.
            narrowed.capacity = np.column_stack([narrowed.capacity, np.full(4, np.inf)])
            # The merged site is a relaxation, but an operator has to fit on a single one of its
            # sites: without this test many small remainders would look like room for a large
            # operator.
            able = self.can_run[:, others] & (self.free[2, others] >= self._min_inbound()[:, None])
            narrowed.can_run = np.column_stack([narrowed.can_run, able.any(axis=1)])
        return narrowed

    def _min_inbound(self) -> Floats:
        """What a site that holds nothing has to receive at least to run each operator."""
        problem = self.ledger.problem
        least: dict[int, float] = {}

        def inputs(operator: int) -> float:
            read = problem.operators[operator].inputs
            parts = [part for s in read for part in problem.streams[s].parts]
            # Inputs with parts in common could be made from the same received stream, so only the
            # larger counts.
            apart = len(parts) == len(set(parts))
            return (sum if apart else max)(least[s] for s in read)

        for s in self.streams:
            makers = [o for o in problem.producers[s] if o in self._own_operators]
            least[s] = min([problem.streams[s].rate, *(inputs(o) for o in makers)])
        # As in `_can_run`: an exact fit is not lost to rounding.
        return np.array([inputs(o) for o in self.operators]) * (1 - 1e-9)

    def link_capacity(self, a: int, b: int) -> float:
        """What a link has for the scope."""
        return self.ledger.problem.links[a, b] - self.links.get((a, b), 0.0)

    def merge_plan(
        self,
        runs: Iterable[RunOperator],
        sends: Iterable[SendStream],
        serves: Iterable[ServeStream],
        queries: Iterable[int],
    ) -> PlacementPlan:
        """A plan with a new scope, and all else as it was; sites are given by their columns."""
        before, streams, operators = self.ledger.plan(), set(self.streams), set(self.operators)
        return PlacementPlan(
            frozenset(r for r in before.runs if r.operator not in operators)
            | {RunOperator(self.sites[h], o) for h, o in runs},
            frozenset(s for s in before.sends if s.stream not in streams)
            | {SendStream(self.sites[a], self.sites[b], s) for a, b, s in sends},
            frozenset(s for s in before.serves if s.stream not in streams)
            | {ServeStream(self.sites[h], s) for h, s in serves},
            before.admitted | set(queries),
        )
