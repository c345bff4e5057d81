"""The exact sub-problem of a query in a compact form: who holds a stream, not who sends it to whom.

For each stream and site: whether it is received there, how many copies leave as its origin (a site
where it comes in or is made) and how many as a relay. As many copies are sent as received, and some
origin sends one if anybody receives. Then a forest with these numbers exists: attach those that send
most first. That is exact as long as no link is tighter than its two ends; where one is, who sends to
whom is chosen as well, with levels that keep it causal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.ledger import SOURCE, Floats
from headwater.plan.placement.model import Plan, Run, Send, Serve, totals
from headwater.plan.placement.program import Program, Solution
from headwater.plan.placement.rest import Rest

NONE = -1
"""In an array of variables: there is none, it is 0."""

SHARES = 10**6
"""The fullest site's load is counted in millionths of its CPU."""


class Compact:
    """The program for a scope, in which all of `wanted` have to be served."""

    def __init__(self, rest: Rest, wanted: Sequence[int]) -> None:
        self.rest, self.problem = rest, rest.ledger.problem
        self.wanted = list(dict.fromkeys([*rest.served, *wanted]))
        self.place = {s: i for i, s in enumerate(rest.streams)}
        self.program = Program()
        count = len(rest.sites)
        shape = len(rest.streams), count
        self.source = np.zeros(shape, np.bool_)
        for row, s in enumerate(rest.streams):
            for site, origin in rest.holders[s].items():
                self.source[row, site] = origin == SOURCE
        self.makes = np.array(
            [self.place[self.problem.operators[o].output] for o in rest.operators], np.int64
        )
        made = np.zeros(shape, np.bool_)
        np.logical_or.at(made, self.makes, rest.can_run)
        everywhere = np.ones(shape, np.bool_)
        self.run = self._variables(rest.can_run)
        self.hold = self._variables(everywhere)
        self.receive = self._variables(~self.source)
        self.relay = self._variables(~self.source, count)
        self.emit = self._variables(made | self.source, count)
        self.serve = self._variables(everywhere & np.isin(rest.streams, self.wanted)[:, None])
        self._held()
        self._copies()
        self._resources()
        self._demand()
        if self.problem.tight_links:
            self._links()
        self._price()

    def _variables(self, wanted: NDArray[np.bool_], upper: float = 1.0) -> NDArray[np.int64]:
        found = np.full(wanted.shape, NONE, np.int64)
        found[wanted] = self.program.add(int(wanted.sum()), upper)
        return found

    def _held(self) -> None:
        """held = received + made + comes in here; what is read, served or needed is held."""
        program, most = self.program, -float(len(self.rest.sites))
        makers = [np.flatnonzero(self.makes == row) for row in range(len(self.hold))]
        for row, site in np.ndindex(self.hold.shape):
            own = [int(v) for v in self.run[makers[row], site] if v != NONE]
            comes_in = bool(self.source[row, site])
            others = own if comes_in else [int(self.receive[row, site]), *own]
            columns = [int(self.hold[row, site]), *others]
            program.row(columns, [1.0] + [-1.0] * len(others), float(comes_in), float(comes_in))
            if own and not comes_in:
                columns = [int(self.emit[row, site]), *own]
                program.row(columns, [1.0] + [most] * len(own), most=0.0)
        served = self.serve != NONE
        program.many(np.stack([self.serve[served], self.hold[served]], 1), [1.0, -1.0], most=0.0)
        for row, o in enumerate(self.rest.operators):
            there = self.run[row] != NONE
            for input in self.problem.operators[o].inputs:
                below = self.hold[self.place[input], there]
                program.many(np.stack([self.run[row, there], below], 1), [1.0, -1.0], most=0.0)
        for s, site in sorted(self.rest.needed):
            program.row([int(self.hold[self.place[s], site])], 1.0, least=1.0)

    def _copies(self) -> None:
        """As many are sent as received; a receiver relays, and an origin begins."""
        program, count = self.program, float(len(self.rest.sites))
        both = self.relay != NONE
        program.many(np.stack([self.relay[both], self.receive[both]], 1), [1.0, -count], most=0.0)
        for row in range(len(self.hold)):
            emit = self.emit[row][self.emit[row] != NONE]
            receive = self.receive[row][self.receive[row] != NONE]
            relay = self.relay[row][self.relay[row] != NONE]
            if not len(receive):
                continue
            columns = np.concatenate([emit, relay, receive])
            factors = [1.0] * (len(emit) + len(relay)) + [-1.0] * len(receive)
            program.row(columns, factors, 0.0, 0.0)
            for one in receive.tolist():
                program.row([one, *emit.tolist()], [1.0, *([-1.0] * len(emit))], most=0.0)

    def _resources(self) -> None:
        operators = [self.problem.operators[o] for o in self.rest.operators]
        rates = np.array([self.problem.streams[s].rate for s in self.rest.streams])
        cpu = np.array([o.cpu for o in operators])
        memory = np.array([o.memory for o in operators])
        for site in range(len(self.rest.sites)):
            free = self.rest.free[:, site]
            self._within([(self.run[:, site], cpu)], free[0])
            self._within([(self.run[:, site], memory)], free[1])
            self._within([(self.receive[:, site], rates)], free[2])
            leaving = [(v[:, site], rates) for v in (self.emit, self.relay, self.serve)]
            self._within(leaving, free[3])

    def _within(self, terms: Sequence[tuple[NDArray[np.int64], Floats]], free: float) -> None:
        if math.isinf(free):
            return
        columns = np.concatenate([v[v != NONE] for v, _ in terms])
        factors = np.concatenate([f[v != NONE] for v, f in terms])
        if len(columns):
            self.program.row(columns, factors, most=max(0.0, free))

    def _demand(self) -> None:
        for s in self.wanted:
            row = self.serve[self.place[s]]
            self.program.row(row[row != NONE], 1.0, 1.0, 1.0)

    def _links(self) -> None:
        """Who sends to whom, within each link, downwards by levels."""
        count = len(self.rest.sites)
        pairs = [
            (a, b)
            for a in range(count)
            for b in range(count)
            if a != b and self.rest.room(a, b) > 0
        ]
        self.send: dict[tuple[int, int, int], int] = {}
        on: dict[tuple[int, int], list[tuple[int, float]]] = {pair: [] for pair in pairs}
        for row, s in enumerate(self.rest.streams):
            rate = self.problem.streams[s].rate
            level = self.program.add(count, count)
            for a, b in pairs:
                if self.source[row, b]:
                    continue
                send = self.send[row, a, b] = int(self.program.add(1)[0])
                on[a, b].append((send, rate))
                far = float(count + 1)
                self.program.row([level[b], level[a], send], [1.0, -1.0, -far], least=1.0 - far)
                self.program.row([send, self.hold[row, a]], [1.0, -1.0], most=0.0)
            for site in range(count):
                out = [v for (r, a, _), v in self.send.items() if r == row and a == site]
                into = [v for (r, _, b), v in self.send.items() if r == row and b == site]
                copies = [
                    int(v[row, site]) for v in (self.emit, self.relay) if v[row, site] != NONE
                ]
                if out or copies:
                    factors = [1.0] * len(out) + [-1.0] * len(copies)
                    self.program.row([*out, *copies], factors, 0.0, 0.0)
                if self.receive[row, site] != NONE:
                    receive = int(self.receive[row, site])
                    self.program.row([*into, receive], [*([1.0] * len(into)), -1.0], 0.0, 0.0)
        for (a, b), terms in on.items():
            room = self.rest.room(a, b)
            if terms and not math.isinf(room):
                self.program.row([v for v, _ in terms], [f for _, f in terms], most=room)

    def _price(self) -> None:
        """The weighted objective, over what the scope changes."""
        problem, weights = self.problem, self.problem.weights
        bandwidth, power = totals(problem)
        cpu = np.array([problem.operators[o].cpu for o in self.rest.operators])
        rates = np.array([problem.streams[s].rate for s in self.rest.streams])
        for family, amounts, weight in (
            (self.receive, rates, weights.network / bandwidth),
            (self.run, cpu, weights.cpu / power),
        ):
            there = family != NONE
            by_row = np.broadcast_to(amounts[:, None], family.shape)
            self.program.minimise(family[there], (by_row[there] * weight).tolist())
        if weights.balance:
            self._balance(cpu)
        if weights.sites:
            for site in np.flatnonzero(self.rest.free[0] >= self.rest.capacity[0]).tolist():
                runs = self.run[:, site][self.run[:, site] != NONE]
                if len(runs):
                    used = int(self.program.add(1)[0])
                    self.program.many(
                        np.stack([runs, np.full(len(runs), used)], 1), [1.0, -1.0], most=0.0
                    )
                    self.program.minimise([used], weights.sites / len(problem.sites))

    def _balance(self, cpu: Floats) -> None:
        capacity = self.rest.capacity[0]
        limited = [s for s in range(len(capacity)) if 0 < capacity[s] < math.inf]
        if not limited:
            return
        fullest = int(self.program.add(1, float(SHARES))[0])
        for site in limited:
            there = self.run[:, site] != NONE
            used = (capacity[site] - self.rest.free[0, site]) / capacity[site]
            columns = [*self.run[there, site].tolist(), fullest]
            factors = [*(cpu[there] / capacity[site] * SHARES).tolist(), -1.0]
            self.program.row(columns, factors, most=-used * SHARES + 1.0)
        self.program.minimise([fullest], self.problem.weights.balance / SHARES)

    # ---- the answer

    def plan(self, solution: Solution, queries: Iterable[int]) -> Plan:
        """The plan of an answer."""
        assert solution.values is not None
        values = np.rint(np.append(solution.values, 0.0)).astype(int)
        run, receive, serve = (values[v] == 1 for v in (self.run, self.receive, self.serve))
        runs = [Run(int(h), self.rest.operators[o]) for o, h in np.argwhere(run)]
        serves = [Serve(int(h), self.rest.streams[s]) for s, h in np.argwhere(serve)]
        if self.problem.tight_links:
            chosen = [key for key, v in self.send.items() if values[v]]
            sends = [Send(a, b, self.rest.streams[row]) for row, a, b in chosen]
        else:
            sends = [
                Send(a, b, s)
                for row, s in enumerate(self.rest.streams)
                for a, b in forest(values[self.emit[row]], values[self.relay[row]], receive[row])
            ]
        return self.rest.plan(runs, sends, serves, queries)


def forest(
    emit: NDArray[np.int64], relay: NDArray[np.int64], receive: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Who sends to whom, so that each sends as many copies as it is said to send."""
    senders = [(site, int(emit[site])) for site in np.flatnonzero(emit).tolist()]
    found = []
    order = sorted(np.flatnonzero(receive).tolist(), key=lambda site: -int(relay[site]))
    for target in order:
        sender, left = senders.pop()
        found.append((sender, target))
        if left > 1:
            senders.append((sender, left - 1))
        if relay[target]:
            senders.append((target, int(relay[target])))
    return found
