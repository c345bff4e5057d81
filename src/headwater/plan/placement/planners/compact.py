"""The exact sub-problem of a query in a compact form: who holds a stream, not who sends it to whom.

For each stream and site: whether it is received there, how many copies leave as its origin (a site
where it enters or is computed) and how many as a relay. As many copies are sent as received, and some
origin sends one if any site receives one. Then a forest with these numbers exists: attach those that send
most first. That is exact as long as no link is tighter than its two ends; where one is, who sends to
whom is chosen as well, with levels that keep it causal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.fixed_load import ReplanScope
from headwater.plan.placement.ledger import SOURCE, Floats
from headwater.plan.placement.model import (
    PlacementPlan,
    RunOperator,
    SendStream,
    ServeStream,
    total_capacity,
)
from headwater.plan.placement.program import LinearProgram, Solution

NO_VARIABLE = -1
"""In an array of variables: there is none, it is 0."""

SHARE_UNITS = 10**6
"""The fullest site's load is counted in millionths of its CPU."""


class CompactFormulation:
    """The program for a scope, in which all of `requested` have to be served."""

    def __init__(self, scope: ReplanScope, requested: Sequence[int]) -> None:
        self.scope, self.problem = scope, scope.ledger.problem
        self.requested = list(dict.fromkeys([*scope.served, *requested]))
        self.row_of = {s: i for i, s in enumerate(scope.streams)}
        self.program = LinearProgram()
        count = len(scope.sites)
        shape = len(scope.streams), count
        self.source = np.zeros(shape, np.bool_)
        for row, s in enumerate(scope.streams):
            for site, origin in scope.holders[s].items():
                self.source[row, site] = origin == SOURCE
        self.makes = np.array(
            [self.row_of[self.problem.operators[o].output] for o in scope.operators], np.int64
        )
        can_make = np.zeros(shape, np.bool_)
        np.logical_or.at(can_make, self.makes, scope.can_run)
        everywhere = np.ones(shape, np.bool_)
        self.run = self._add_variables(scope.can_run)
        self.hold = self._add_variables(everywhere)
        self.receive = self._add_variables(~self.source)
        self.relay = self._add_variables(~self.source, count)
        self.emit = self._add_variables(can_make | self.source, count)
        self.serve = self._add_variables(
            everywhere & np.isin(scope.streams, self.requested)[:, None]
        )
        self._constrain_holding()
        self._constrain_copies()
        self._constrain_resources()
        self._constrain_demand()
        if self.problem.has_tight_links:
            self._constrain_links()
        self._set_objective()

    def _add_variables(self, mask: NDArray[np.bool_], upper: float = 1.0) -> NDArray[np.int64]:
        variables = np.full(mask.shape, NO_VARIABLE, np.int64)
        variables[mask] = self.program.add_variables(int(mask.sum()), upper)
        return variables

    def _constrain_holding(self) -> None:
        """held = received + computed + enters here; what is read, served or needed is held."""
        program, most = self.program, -float(len(self.scope.sites))
        makers = [np.flatnonzero(self.makes == row) for row in range(len(self.hold))]
        for row, site in np.ndindex(self.hold.shape):
            own = [int(v) for v in self.run[makers[row], site] if v != NO_VARIABLE]
            comes_in = bool(self.source[row, site])
            others = own if comes_in else [int(self.receive[row, site]), *own]
            columns = [int(self.hold[row, site]), *others]
            program.add_row(columns, [1.0] + [-1.0] * len(others), float(comes_in), float(comes_in))
            if own and not comes_in:
                columns = [int(self.emit[row, site]), *own]
                program.add_row(columns, [1.0] + [most] * len(own), most=0.0)
        served = self.serve != NO_VARIABLE
        program.add_rows(
            np.stack([self.serve[served], self.hold[served]], 1), [1.0, -1.0], most=0.0
        )
        for row, o in enumerate(self.scope.operators):
            there = self.run[row] != NO_VARIABLE
            for input in self.problem.operators[o].inputs:
                below = self.hold[self.row_of[input], there]
                program.add_rows(np.stack([self.run[row, there], below], 1), [1.0, -1.0], most=0.0)
        for s, site in sorted(self.scope.needed):
            program.add_row([int(self.hold[self.row_of[s], site])], 1.0, least=1.0)

    def _constrain_copies(self) -> None:
        """As many are sent as received; a receiver relays, and an origin begins."""
        program, count = self.program, float(len(self.scope.sites))
        both = self.relay != NO_VARIABLE
        program.add_rows(
            np.stack([self.relay[both], self.receive[both]], 1), [1.0, -count], most=0.0
        )
        for row in range(len(self.hold)):
            emit = self.emit[row][self.emit[row] != NO_VARIABLE]
            receive = self.receive[row][self.receive[row] != NO_VARIABLE]
            relay = self.relay[row][self.relay[row] != NO_VARIABLE]
            if not len(receive):
                continue
            columns = np.concatenate([emit, relay, receive])
            factors = [1.0] * (len(emit) + len(relay)) + [-1.0] * len(receive)
            program.add_row(columns, factors, 0.0, 0.0)
            for receiver in receive.tolist():
                program.add_row([receiver, *emit.tolist()], [1.0, *([-1.0] * len(emit))], most=0.0)

    def _constrain_resources(self) -> None:
        operators = [self.problem.operators[o] for o in self.scope.operators]
        rates = np.array([self.problem.streams[s].rate for s in self.scope.streams])
        cpu = np.array([o.cpu for o in operators])
        memory = np.array([o.memory for o in operators])
        for site in range(len(self.scope.sites)):
            free = self.scope.free[:, site]
            self._limit_load([(self.run[:, site], cpu)], free[0])
            self._limit_load([(self.run[:, site], memory)], free[1])
            self._limit_load([(self.receive[:, site], rates)], free[2])
            leaving = [(v[:, site], rates) for v in (self.emit, self.relay, self.serve)]
            self._limit_load(leaving, free[3])

    def _limit_load(self, terms: Sequence[tuple[NDArray[np.int64], Floats]], free: float) -> None:
        if math.isinf(free):
            return
        columns = np.concatenate([v[v != NO_VARIABLE] for v, _ in terms])
        factors = np.concatenate([f[v != NO_VARIABLE] for v, f in terms])
        if len(columns):
            # What stays may fill a site beyond its capacity: then it takes no more, but is no
            # contradiction.
            self.program.add_row(columns, factors, most=max(0.0, free))

    def _constrain_demand(self) -> None:
        for s in self.requested:
            row = self.serve[self.row_of[s]]
            self.program.add_row(row[row != NO_VARIABLE], 1.0, 1.0, 1.0)

    def _constrain_links(self) -> None:
        """Who sends to whom, within each link, downwards by levels."""
        count = len(self.scope.sites)
        pairs = [
            (a, b)
            for a in range(count)
            for b in range(count)
            if a != b and self.scope.link_capacity(a, b) > 0
        ]
        self.send: dict[tuple[int, int, int], int] = {}
        on: dict[tuple[int, int], list[tuple[int, float]]] = {pair: [] for pair in pairs}
        for row, s in enumerate(self.scope.streams):
            rate = self.problem.streams[s].rate
            level = self.program.add_variables(count, count)
            for a, b in pairs:
                # Where a stream enters, it is never received.
                if self.source[row, b]:
                    continue
                send = self.send[row, a, b] = int(self.program.add_variables(1)[0])
                on[a, b].append((send, rate))
                # A big-M constraint: where a sends to b, level b >= level a + 1; otherwise it holds
                # for any levels. Without levels, sites could send each other a stream that none of
                # them has.
                far = float(count + 1)
                self.program.add_row([level[b], level[a], send], [1.0, -1.0, -far], least=1.0 - far)
                self.program.add_row([send, self.hold[row, a]], [1.0, -1.0], most=0.0)
            for site in range(count):
                out = [v for (r, a, _), v in self.send.items() if r == row and a == site]
                into = [v for (r, _, b), v in self.send.items() if r == row and b == site]
                copies = [
                    int(v[row, site])
                    for v in (self.emit, self.relay)
                    if v[row, site] != NO_VARIABLE
                ]
                if out or copies:
                    factors = [1.0] * len(out) + [-1.0] * len(copies)
                    self.program.add_row([*out, *copies], factors, 0.0, 0.0)
                if self.receive[row, site] != NO_VARIABLE:
                    receive = int(self.receive[row, site])
                    self.program.add_row([*into, receive], [*([1.0] * len(into)), -1.0], 0.0, 0.0)
        for (a, b), terms in on.items():
            room = self.scope.link_capacity(a, b)
            if terms and not math.isinf(room):
                self.program.add_row([v for v, _ in terms], [f for _, f in terms], most=room)

    def _set_objective(self) -> None:
        """The weighted objective, over what the scope changes."""
        problem, weights = self.problem, self.problem.weights
        bandwidth, power = total_capacity(problem)
        cpu = np.array([problem.operators[o].cpu for o in self.scope.operators])
        rates = np.array([problem.streams[s].rate for s in self.scope.streams])
        for family, amounts, weight in (
            (self.receive, rates, weights.network / bandwidth),
            (self.run, cpu, weights.cpu / power),
        ):
            there = family != NO_VARIABLE
            by_row = np.broadcast_to(amounts[:, None], family.shape)
            self.program.minimise(family[there], (by_row[there] * weight).tolist())
        if weights.balance:
            self._add_balance(cpu)
        if weights.sites:
            # Only where nothing else runs does the scope decide whether the site is in use.
            for site in np.flatnonzero(self.scope.free[0] >= self.scope.capacity[0]).tolist():
                runs = self.run[:, site][self.run[:, site] != NO_VARIABLE]
                if len(runs):
                    used = int(self.program.add_variables(1)[0])
                    self.program.add_rows(
                        np.stack([runs, np.full(len(runs), used)], 1), [1.0, -1.0], most=0.0
                    )
                    self.program.minimise([used], weights.sites / len(problem.sites))

    def _add_balance(self, cpu: Floats) -> None:
        capacity = self.scope.capacity[0]
        limited = [s for s in range(len(capacity)) if 0 < capacity[s] < math.inf]
        if not limited:
            return
        fullest = int(self.program.add_variables(1, float(SHARE_UNITS))[0])
        for site in limited:
            there = self.run[:, site] != NO_VARIABLE
            used = (capacity[site] - self.scope.free[0, site]) / capacity[site]
            columns = [*self.run[there, site].tolist(), fullest]
            factors = [*(cpu[there] / capacity[site] * SHARE_UNITS).tolist(), -1.0]
            # One unit of tolerance, as `fullest` is whole and the load is not.
            self.program.add_row(columns, factors, most=-used * SHARE_UNITS + 1.0)
        self.program.minimise([fullest], self.problem.weights.balance / SHARE_UNITS)

    # ---- the answer

    def extract_plan(self, solution: Solution, queries: Iterable[int]) -> PlacementPlan:
        """The plan of an answer."""
        assert solution.values is not None
        # The appended 0 is what NO_VARIABLE (-1) indexes: a variable that does not exist is 0.
        values = np.rint(np.append(solution.values, 0.0)).astype(int)
        run, receive, serve = (values[v] == 1 for v in (self.run, self.receive, self.serve))
        runs = [RunOperator(int(h), self.scope.operators[o]) for o, h in np.argwhere(run)]
        serves = [ServeStream(int(h), self.scope.streams[s]) for s, h in np.argwhere(serve)]
        if self.problem.has_tight_links:
            chosen = [key for key, v in self.send.items() if values[v]]
            sends = [SendStream(a, b, self.scope.streams[row]) for row, a, b in chosen]
        else:
            sends = [
                SendStream(a, b, s)
                for row, s in enumerate(self.scope.streams)
                for a, b in build_forest(
                    values[self.emit[row]], values[self.relay[row]], receive[row]
                )
            ]
        return self.scope.merge_plan(runs, sends, serves, queries)


def build_forest(
    emit: NDArray[np.int64], relay: NDArray[np.int64], receive: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Who sends to whom, so that each sends as many copies as it is said to send."""
    senders = [(site, int(emit[site])) for site in np.flatnonzero(emit).tolist()]
    edges = []
    # Receivers that relay most come first: then a sender with copies left exists at every step,
    # since copies sent equal copies received.
    order = sorted(np.flatnonzero(receive).tolist(), key=lambda site: -int(relay[site]))
    for target in order:
        sender, left = senders.pop()
        edges.append((sender, target))
        if left > 1:
            senders.append((sender, left - 1))
        if relay[target]:
            senders.append((target, int(relay[target])))
    return edges
