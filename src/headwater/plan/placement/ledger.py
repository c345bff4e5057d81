"""The accounts of a plan: what each site runs, holds, sends and serves, and what it has left.

Planners work on a ledger, which they change in small steps that can be undone; `plan` returns its
content as frozen data. Whatever is no longer used is released at once, so a ledger never holds more
than its admitted queries need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.model import (
    PlacementPlan,
    PlacementProblem,
    RunOperator,
    SendStream,
    ServeStream,
)

Floats = NDArray[np.float64]

SLACK = 1e-9
"""The fraction of a capacity by which rounding may exceed it."""

SOURCE = -1
"""The origin of a stream at a site where it enters the system. A number from 0 is the operator that makes
it there; one below SOURCE encodes the site that sends it."""


def encode_sender(site: int) -> int:
    """The origin of a stream that another site sends."""
    return SOURCE - 1 - site


class Ledger:
    """A plan that can be changed.

    `origins` has, for each stream, the sites that hold it and how they come by it; `free` what
    each site has left of cpu, memory, bandwidth in and bandwidth out, one row for each.
    """

    def __init__(self, problem: PlacementProblem, plan: PlacementPlan | None = None) -> None:
        self.problem = problem
        sites = problem.sites
        self.capacity: Floats = np.array(
            [
                [site.cpu for site in sites],
                [site.memory for site in sites],
                [site.bandwidth_in for site in sites],
                [site.bandwidth_out for site in sites],
            ],
            np.float64,
        )
        self.free = self.capacity.copy()
        with np.errstate(invalid="ignore"):
            # inf * 0 would be NaN, against which every comparison is false.
            self._min_free = np.where(np.isinf(self.capacity), 0.0, -SLACK * self.capacity)
        self.sent: dict[tuple[int, int], float] = defaultdict(float)
        self.origins: list[dict[int, int]] = [
            dict.fromkeys(stream.sites, SOURCE) for stream in problem.streams
        ]
        self.uses: dict[tuple[int, int], int] = defaultdict(int)
        self.served: dict[int, int] = {}
        self.queries_by_stream: dict[int, set[int]] = defaultdict(set)
        self._journal: list[tuple[str, int, int, int]] = []
        if plan is not None:
            self._load_plan(plan)
            self._journal.clear()

    def _load_plan(self, plan: PlacementPlan) -> None:
        """Enter a whole plan, without what serves no query."""
        makers = defaultdict(list)
        senders = defaultdict(list)
        for run in plan.runs:
            makers[run.site, self.problem.operators[run.operator].output].append(run.operator)
        for send in plan.sends:
            senders[send.target, send.stream].append(send.origin)

        def obtain(site: int, stream: int, above: frozenset[tuple[int, int]]) -> bool:
            if site in self.origins[stream]:
                return True
            # A stream that is computed only from itself: the plan's cycle is dropped here, as `check`
            # would refuse it.
            if (site, stream) in above:
                return False
            above = above | {(site, stream)}
            for operator in sorted(makers[site, stream]):
                if all(obtain(site, s, above) for s in self.problem.operators[operator].inputs):
                    self.run(operator, site)
                    return True
            for origin in sorted(senders[site, stream]):
                if obtain(origin, stream, above):
                    self.send(stream, origin, site)
                    return True
            return False

        serving = {serve.stream: serve.site for serve in sorted(plan.serves)}
        for query in sorted(plan.admitted):
            stream = self.problem.queries[query].stream
            if stream in self.served:
                self.queries_by_stream[stream].add(query)
            elif stream in serving and obtain(serving[stream], stream, frozenset()):
                self.serve(stream, serving[stream])
                self.queries_by_stream[stream].add(query)
        self.release_unused()

    # ---- what it says

    def plan(self) -> PlacementPlan:
        """The content as frozen data."""
        runs, sends = [], []
        for stream, holders in enumerate(self.origins):
            for site, origin in holders.items():
                if origin >= 0:
                    runs.append(RunOperator(site, origin))
                elif origin < SOURCE:
                    sends.append(SendStream(SOURCE - 1 - origin, site, stream))
        return PlacementPlan(
            frozenset(runs),
            frozenset(sends),
            frozenset(ServeStream(site, stream) for stream, site in self.served.items()),
            self.admitted,
        )

    @property
    def admitted(self) -> frozenset[int]:
        return frozenset(query for asking in self.queries_by_stream.values() for query in asking)

    def is_overfull(self, resource: int, site: int) -> bool:
        return bool(self.free[resource, site] < self._min_free[resource, site])

    def free_link_bandwidth(self, a: int, b: int) -> float:
        return self.problem.links[a, b] - self.sent[a, b]

    def fits(self) -> bool:
        """Whether nothing is overfull."""
        return bool((self.free >= self._min_free).all()) and all(
            used <= self.problem.links[pair] * (1 + SLACK) for pair, used in self.sent.items()
        )

    # ---- steps, each with its opposite

    def run(self, operator: int, site: int) -> None:
        definition = self.problem.operators[operator]
        self.free[0, site] -= definition.cpu
        self.free[1, site] -= definition.memory
        for stream in definition.inputs:
            self.uses[stream, site] += 1
        self.origins[definition.output][site] = operator
        # The journal holds the opposite of each step, so that rolling back is calling what it
        # names.
        self._journal.append(("stop", operator, site, 0))

    def stop(self, operator: int, site: int) -> None:
        definition = self.problem.operators[operator]
        self.free[0, site] += definition.cpu
        self.free[1, site] += definition.memory
        for stream in definition.inputs:
            self.uses[stream, site] -= 1
        del self.origins[definition.output][site]
        self._journal.append(("run", operator, site, 0))

    def send(self, stream: int, a: int, b: int) -> None:
        rate = self.problem.streams[stream].rate
        self.free[3, a] -= rate
        self.free[2, b] -= rate
        self.sent[a, b] += rate
        self.uses[stream, a] += 1
        self.origins[stream][b] = encode_sender(a)
        self._journal.append(("unsend", stream, a, b))

    def unsend(self, stream: int, a: int, b: int) -> None:
        rate = self.problem.streams[stream].rate
        self.free[3, a] += rate
        self.free[2, b] += rate
        self.sent[a, b] -= rate
        self.uses[stream, a] -= 1
        del self.origins[stream][b]
        self._journal.append(("send", stream, a, b))

    def serve(self, stream: int, site: int) -> None:
        self.free[3, site] -= self.problem.streams[stream].rate
        self.uses[stream, site] += 1
        self.served[stream] = site
        self._journal.append(("unserve", stream, site, 0))

    def unserve(self, stream: int, site: int) -> None:
        self.free[3, site] += self.problem.streams[stream].rate
        self.uses[stream, site] -= 1
        del self.served[stream]
        self._journal.append(("serve", stream, site, 0))

    def ask(self, query: int) -> None:
        """A query is admitted; its stream is served already."""
        self.queries_by_stream[self.problem.queries[query].stream].add(query)
        self._journal.append(("forget", query, 0, 0))

    def forget(self, query: int) -> None:
        self.queries_by_stream[self.problem.queries[query].stream].discard(query)
        self._journal.append(("ask", query, 0, 0))

    # ---- several steps

    def release(self, stream: int, site: int) -> None:
        """Release a stream at a site if it is unused there, and what was needed for it alone."""
        pending = [(stream, site)]
        while pending:
            stream, site = pending.pop()
            origin = self.origins[stream].get(site, SOURCE)
            # A base stream enters at its site whether it is used or not.
            if self.uses[stream, site] > 0 or origin == SOURCE:
                continue
            if origin >= 0:
                self.stop(origin, site)
                pending += [(s, site) for s in self.problem.operators[origin].inputs]
            else:
                sender = SOURCE - 1 - origin
                self.unsend(stream, sender, site)
                pending.append((stream, sender))

    def release_unused(self) -> None:
        """Release whatever is unused."""
        for stream, holders in enumerate(self.origins):
            for site in list(holders):
                self.release(stream, site)

    def withdraw(self, query: int) -> None:
        """Remove a query; its stream is still served while other queries ask for it."""
        self.forget(query)
        stream = self.problem.queries[query].stream
        if not self.queries_by_stream[stream]:
            self.stop_serving(stream)

    def stop_serving(self, stream: int) -> None:
        """Stop serving a stream."""
        site = self.served[stream]
        self.unserve(stream, site)
        self.release(stream, site)

    def adopt(self, plan: PlacementPlan) -> None:
        """Become another plan; this cannot be rolled back."""
        vars(self).update(vars(Ledger(self.problem, plan)))

    # ---- undoing

    def savepoint(self) -> int:
        """A position of the journal to roll back to."""
        return len(self._journal)

    def roll_back(self, savepoint: int) -> None:
        """Undo everything since a savepoint."""
        while len(self._journal) > savepoint:
            step, a, b, c = self._journal.pop()
            match step:
                case "run" | "stop" | "serve" | "unserve":
                    getattr(self, step)(a, b)
                case "send" | "unsend":
                    getattr(self, step)(a, b, c)
                case _:
                    getattr(self, step)(a)
            self._journal.pop()

    @contextmanager
    def attempt(self) -> Iterator[list[bool]]:
        """Steps that are undone unless something true is appended to the list that is yielded."""
        savepoint, accepted = self.savepoint(), list[bool]()
        try:
            yield accepted
        finally:
            if not any(accepted):
                self.roll_back(savepoint)

    def commit(self) -> None:
        """Make all steps so far final."""
        self._journal.clear()

    def dependencies(self, stream: int) -> Iterator[tuple[int, int]]:
        """The streams, with their sites, that a served stream depends on, itself included."""
        pending, seen = [(stream, self.served[stream])], set[tuple[int, int]]()
        while pending:
            s, site = pair = pending.pop()
            if pair in seen:
                continue
            seen.add(pair)
            yield pair
            origin = self.origins[s][site]
            if origin >= 0:
                pending += [(i, site) for i in self.problem.operators[origin].inputs]
            elif origin < SOURCE:
                pending.append((s, SOURCE - 1 - origin))

    def related_streams(self, streams: Iterable[int]) -> list[int]:
        """The served streams of whose plans some of these streams may be part, in order."""
        searched = set(streams)
        scope = self.problem.scope
        return [s for s in sorted(self.served) if not searched.isdisjoint(scope(s).streams)]
