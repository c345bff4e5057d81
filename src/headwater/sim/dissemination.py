"""Messages through a dissemination tree, over arrays.

The queues of a tree feed forward: what arrives at a node depends on the nodes above it alone. So there is no event kernel: for
each piece of time the nodes are taken breadth first, and each serves its messages in order. Between pieces the tree may
adapt. Losses are measured as the share of time out of tolerance, not taken from the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from headwater.federation.dissemination.model import (
    SOURCE,
    DisseminationWorld,
    Floats,
    Indices,
    mean_weights,
    tree_order,
)
from headwater.federation.dissemination.moves import adaptation_share
from headwater.federation.dissemination.reports import WINDOW_SECONDS, ReportedTree
from headwater.federation.dissemination.rounds import run_round
from headwater.jit import cached_njit

PIECE_SECONDS = 200.0
"""The period of adaptation: a token a piece."""

DECIDE_SECONDS = 1e-6
COLLECT_SECONDS = 1e-6

Flags = NDArray[np.bool_]


class Passage(NamedTuple):
    """What one pass of messages through the tree reads and writes, by node unless said otherwise."""

    order: Any
    child_start: Any
    """The children of a node are at these positions of `child_list`."""
    child_list: Any
    filter_seconds: Any
    transmit_seconds: Any
    link_delays: Any
    """From the parent to the node."""
    item: Any
    """By message: its object."""
    value: Any
    """By message: what it says."""
    bound: Any
    """By node and object: a message is forwarded if its value differs by more from the one sent last."""
    last_sent: Any
    """By node and object: the value that the parent sent last."""
    wants: Any
    """By node and object: whether the subtree wants it."""
    arrival: Any
    """By node and message: when it arrived, NaN if it was not sent."""
    free: Any
    """When the node has served all it was sent."""
    exponential: Any
    uniform: Any
    spent: Any
    """By node: seconds and number of filterings, seconds and number of transmissions."""


@register_jitable
def pass_messages(run: Passage, nested: bool) -> int:
    """Let all nodes serve their messages; returns how many draws were used.

    With `nested` the value of a message is a draw in [0, 1) and it is forwarded if the draw is below the bound;
    otherwise it is forwarded by its difference from the last one sent.
    """
    used, turn = 0, np.empty(len(run.order), np.int64)
    for node in run.order:
        first, last = run.child_start[node], run.child_start[node + 1]
        if first == last:
            continue
        clock = run.free[node]
        for message in range(len(run.item)):
            arrived = run.arrival[node, message]
            if np.isnan(arrived):
                continue
            clock, count = max(clock, arrived), 0
            item, value = run.item[message], run.value[message]
            for at in range(first, last):
                if run.wants[run.child_list[at], item]:
                    # Children are served in random order: the new one takes a random turn.
                    other = int(run.uniform[used + count] * (count + 1))
                    turn[count] = turn[other]
                    turn[other] = run.child_list[at]
                    count += 1
            for at in range(count):
                child = turn[at]
                time = run.filter_seconds[node] * run.exponential[2 * used]
                clock += time
                run.spent[node, 0] += time
                run.spent[node, 1] += 1.0
                if nested:
                    is_sent = value < run.bound[child, item]
                else:
                    is_sent = abs(value - run.last_sent[child, item]) > run.bound[child, item]
                if is_sent:
                    time = run.transmit_seconds[node] * run.exponential[2 * used + 1]
                    clock += time
                    run.spent[node, 2] += time
                    run.spent[node, 3] += 1.0
                    run.arrival[child, message] = clock + run.link_delays[child]
                    run.last_sent[child, item] = value
                used += 1
        run.free[node] = clock
    return used


@cached_njit
def _pass_messages(run: Any, nested: Any) -> Any:
    return pass_messages(run, nested)


@register_jitable
def add_interval(windows: Any, begin: float, end: float, width: float) -> None:
    """Add the length of an interval to the windows that it crosses."""
    end = min(end, width * len(windows))
    while begin < end:
        at = min(int(begin / width), len(windows) - 1)
        upto = end if at == len(windows) - 1 else min(end, (at + 1) * width)
        windows[at] += upto - begin
        begin = upto


@register_jitable
def late_time(emitted: Any, arrival: Any, wanted: Any, windows: Any, width: float) -> None:
    """By window how long some wanted message was emitted and had not arrived: a union of intervals."""
    known = 0.0
    for message in range(len(emitted)):
        if wanted[message] and arrival[message] > known:
            add_interval(windows, max(emitted[message], known), arrival[message], width)
            known = arrival[message]


@register_jitable
def time_out_of_tolerance(
    emitted: Any, value: Any, arrival: Any, tolerance: float, start: float, end: float, windows: Any
) -> None:
    """By window how long a copy was further from the original than the tolerance.

    The messages are those of one object; `arrival` is NaN for those that the node was not sent.
    """
    width, held, current, clock = end / len(windows), start, start, 0.0
    change, delivery, count = 0, 0, len(emitted)
    while True:
        while delivery < count and np.isnan(arrival[delivery]):
            delivery += 1
        upcoming = emitted[change] if change < count else end
        coming = arrival[delivery] if delivery < count else end
        upto = min(upcoming, coming, end)
        # Differences of prices are rounded, and one that is just allowed must not count.
        if abs(current - held) > tolerance * (1.0 + 1e-12) + 1e-12:
            add_interval(windows, clock, upto, width)
        # After a move a message may overtake the one before it; what was counted is not counted
        # again.
        clock = max(clock, upto)
        if clock >= end:
            break
        if upcoming <= coming:
            current = value[change]
            change += 1
        else:
            held = value[delivery]
            delivery += 1


@cached_njit
def _late_times(emitted: Any, arrival: Any, wanted: Any, windows: Any, width: Any) -> None:
    for node in range(1, len(arrival)):
        late_time(emitted, arrival[node], wanted[node], windows[node], width)


@cached_njit
def _tolerance_times(
    emitted: Any, value: Any, arrival: Any, tolerance: Any, start: Any, end: Any, windows: Any
) -> None:
    for node in range(1, len(arrival)):
        if not np.isnan(tolerance[node]):
            time_out_of_tolerance(
                emitted, value, arrival[node], tolerance[node], start, end, windows[node]
            )


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a source in the order of time: of which object, with which value.

    For a synthetic object a value is a draw in [0, 1): a node that wants a share of the messages wants those below the share, so
    that what a node wants is part of what a node that wants more gets.
    """

    time: Floats
    item: Indices
    value: Floats
    seconds: float
    start: Floats
    """By object the value before the first update."""


@dataclass(frozen=True, eq=False)
class DisseminationRun:
    """What was measured: for each window the mean loss over the nodes and the numbers of moves and reports."""

    losses: Floats
    moves: int
    reports: int
    parents: Indices

    @property
    def average(self) -> float:
        """The mean loss over the whole time."""
        return float(self.losses.mean())


def poisson_updates(rate: float, seconds: float, random: np.random.Generator) -> Updates:
    """Updates of one object at exponential intervals, each with a draw for the nested thinning."""
    count = random.poisson(rate * seconds)
    # By their number alone, the times of a Poisson process are uniform.
    times = np.sort(random.uniform(0.0, seconds, count))
    return Updates(times, np.zeros(count, np.int64), random.random(count), seconds, np.zeros(1))


@dataclass(frozen=True, eq=False)
class Tolerances:
    """How far each node's copy of each object may be off; NaN where it has no interest."""

    values: Floats

    def bounds(self, parents: Indices) -> tuple[Floats, Flags]:
        """The forwarding bounds of all links, and which subtrees want which object.

        A parent's copy may itself be off by the parent's effective tolerance, so that a child is sent what differs by more than the
        rest of its own.
        """
        effective = np.where(np.isnan(self.values), np.inf, self.values)
        effective[SOURCE] = 0.0
        order = tree_order(parents)
        for node in reversed(order[1:]):
            up = parents[node]
            effective[up] = np.minimum(effective[up], effective[node])
        wants = np.isfinite(effective)
        bounds = np.zeros_like(effective)
        for node in order[1:]:
            rest = effective[node] - np.where(wants[node], effective[parents[node]], 0.0)
            bounds[node] = np.where(wants[node], np.maximum(rest, 0.0), np.inf)
        return bounds, wants


def simulate_dissemination(
    world: DisseminationWorld,
    parents: Indices,
    updates: Updates,
    random: np.random.Generator,
    *,
    tolerances: Tolerances | None = None,
    adaptive: bool = False,
    worthwhile: float = 0.0,
    change: Callable[[float, DisseminationWorld, Indices], DisseminationWorld] | None = None,
    window: float = 1000.0,
) -> DisseminationRun:
    """Send updates through a tree, which adapts after every piece if it is `adaptive`.

    Without tolerances there is one object whose messages are thinned to the rates of the world. `change` may return another
    world at the beginning of a piece, by the time, the world and the tree.
    """
    state = _Simulation(world, parents, updates, random, tolerances)
    reported = ReportedTree(world, parents)
    moves = reports = 0
    for piece in range(int(np.ceil(updates.seconds / PIECE_SECONDS))):
        if change is not None:
            state.world = change(piece * PIECE_SECONDS, state.world, state.parents)
        state.run_piece(piece, adaptive)
        if adaptive:
            # Nobody decides before the end of the piece, so its windows may be reported together
            # then.
            for measured in state.measurements:
                reports += reported.report(measured)
            made = run_round(reported.tree, worthwhile)
            moves += len(made)
            if made:
                state.change_tree(reported.tree.parents, (piece + 1) * PIECE_SECONDS)
    return DisseminationRun(state.losses(window), moves, reports, state.parents)


class _Simulation:
    """The state between pieces: queues, copies, arrivals."""

    def __init__(
        self,
        world: DisseminationWorld,
        parents: Indices,
        updates: Updates,
        random: np.random.Generator,
        tolerances: Tolerances | None,
    ) -> None:
        self.world, self.parents, self.updates, self.random = world, parents, updates, random
        self.tolerances = tolerances
        self.free = np.zeros(world.count)
        self.last_sent = np.tile(updates.start, (world.count, 1))
        self.arrival = np.full((world.count, len(updates.time)), np.nan)
        self.arrival[SOURCE] = updates.time
        self.measurements: list[DisseminationWorld] = []

    def run_piece(self, piece: int, measure: bool) -> None:
        """Pass the messages that are emitted in a piece, a window of statistics at a time."""
        begin = piece * PIECE_SECONDS
        self.measurements = []
        for step in range(int(PIECE_SECONDS / WINDOW_SECONDS)):
            start = begin + step * WINDOW_SECONDS
            first, last = np.searchsorted(self.updates.time, (start, start + WINDOW_SECONDS))
            spent = self._pass(slice(first, last), measure)
            if measure:
                self.measurements.append(self._measure(spent, slice(first, last)))

    def change_tree(self, parents: Indices, now: float) -> None:
        """Give nodes other parents; who has to follow an object more closely than before gets its value at once.

        A move takes effect when the new way has delivered. So where a copy is further from the parent's than the new bound
        allows, the newest value comes down the whole way.
        """
        self.parents = parents
        if self.tolerances is None:
            return
        bound, wants = self.tolerances.bounds(parents)
        newest = self._newest_messages(now)
        known = newest >= 0
        current = np.where(known, self.updates.value[np.maximum(newest, 0)], self.updates.start)
        self.last_sent[SOURCE] = current
        order = tree_order(parents)
        behind = np.zeros_like(wants)
        for node in reversed(order[1:]):
            up = parents[node]
            gap = np.abs(self.last_sent[up] - self.last_sent[node])
            behind[node] |= wants[node] & known & (gap > bound[node])
            behind[up] |= behind[node]
        delay = np.zeros(self.world.count)
        for node in order[1:]:
            up = parents[node]
            delay[node] = delay[up] + self.world.delays[up, node]
            # Others below one that got the value are sent it as any update.
            gap = np.abs(current - self.last_sent[node])
            fresh = behind[node] | (behind[up] & wants[node] & (gap > bound[node]))
            behind[node] = fresh
            self.last_sent[node, fresh] = current[fresh]
            places = newest[fresh]
            missing = np.isnan(self.arrival[node, places])
            self.arrival[node, places[missing]] = now + delay[node]

    def _newest_messages(self, now: float) -> Indices:
        """By object the last message before a moment, -1 if there is none."""
        newest = np.full(len(self.updates.start), -1, np.int64)
        emitted = int(np.searchsorted(self.updates.time, now))
        newest[self.updates.item[:emitted]] = np.arange(emitted)
        return newest

    def _pass(self, messages: slice, measure: bool) -> Floats:
        order = np.array(tree_order(self.parents), np.int64)
        counts = np.bincount(self.parents[order[1:]], minlength=self.world.count)
        inner = order[1:][np.argsort(self.parents[order[1:]], kind="stable")]
        bound, wants = self._bounds()
        free_share = 1.0 - (self._adaptation_shares(counts) if measure else 0.0)
        links = np.zeros(self.world.count)
        links[order[1:]] = self.world.delays[self.parents[order[1:]], order[1:]]
        number = messages.stop - messages.start
        # A slice of columns would be compiled once more, as another layout, and be slower to walk.
        arrival = np.ascontiguousarray(self.arrival[:, messages])
        spent = np.zeros((self.world.count, 4))
        run = Passage(
            order=order,
            child_start=np.concatenate(([0], np.cumsum(counts))),
            child_list=inner,
            filter_seconds=self.world.filter_seconds / free_share,
            transmit_seconds=self.world.transmit_seconds / free_share,
            link_delays=links,
            item=self.updates.item[messages],
            value=self.updates.value[messages],
            bound=bound,
            last_sent=self.last_sent,
            wants=wants,
            arrival=arrival,
            free=self.free,
            # Only its parent asks for a node whether it wants a message: so many draws are enough.
            exponential=self.random.standard_exponential(2 * number * len(order)),
            uniform=self.random.random(number * len(order)),
            spent=spent,
        )
        _pass_messages(run, self.tolerances is None)
        self.arrival[:, messages] = arrival
        return spent

    def _bounds(self) -> tuple[Floats, Flags]:
        if self.tolerances is not None:
            return self.tolerances.bounds(self.parents)
        rates = self.world.rates.copy()
        for node in reversed(tree_order(self.parents)[1:]):
            up = self.parents[node]
            rates[up] = np.maximum(rates[up], rates[node])
        return rates / rates[SOURCE], rates > 0

    def _adaptation_shares(self, counts: Indices) -> Floats:
        """Deciding and collecting statistics takes time, which filtering and sending then do not have."""
        shares = np.zeros(self.world.count)
        below: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents.tolist()):
            below.setdefault(parent, []).append(int(counts[node]))
        for node, grandchildren in below.items():
            if node >= 0:
                shares[node] = adaptation_share(
                    len(grandchildren),
                    grandchildren,
                    DECIDE_SECONDS,
                    COLLECT_SECONDS,
                    PIECE_SECONDS,
                    WINDOW_SECONDS,
                )
        return shares * self.world.rates.shape[1]

    def _measure(self, spent: Floats, messages: slice) -> DisseminationWorld:
        """What the nodes measured in a window; where nothing was measured, what was known before.

        Rates of several objects are too low to be measured in a window: these are known from longer ago.
        """
        rates, weights = self.world.rates, self.world.weights
        if self.tolerances is None:
            share = self.world.rates / self.world.rates[SOURCE]
            counts = (self.updates.value[messages][:, None] < share[:, 0]).sum(axis=0)
            # A window without a message must not turn a node into one that wants nothing.
            rates = (np.maximum(counts, 1) / WINDOW_SECONDS)[:, None]
            weights = mean_weights(rates)
        done = np.maximum(spent[:, [1, 3]], 1.0)
        means = spent[:, [0, 2]] / done
        known = np.stack((self.world.filter_seconds, self.world.transmit_seconds), axis=1)
        times = np.where(spent[:, [1, 3]] > 0, means, known)
        return replace(
            self.world,
            rates=rates,
            weights=weights,
            filter_seconds=times[:, 0].copy(),
            transmit_seconds=times[:, 1].copy(),
        )

    def losses(self, window: float) -> Floats:
        """By window the mean loss over the nodes but the source."""
        count = max(1, round(self.updates.seconds / window))
        width = self.updates.seconds / count
        if self.tolerances is None:
            windows = np.zeros((self.world.count, count))
            share = (self.world.rates / self.world.rates[SOURCE])[:, 0]
            wanted = self.updates.value[None, :] < share[:, None]
            # What never arrived is late until the end.
            arrival = np.nan_to_num(self.arrival, nan=self.updates.seconds)
            _late_times(self.updates.time, arrival, wanted, windows, width)
            mean: Floats = windows[1:].mean(axis=0) / width
            return mean
        return self._losses_of_objects(self.tolerances.values, count, width)

    def _losses_of_objects(self, tolerance: Floats, count: int, width: float) -> Floats:
        total = np.zeros((self.world.count, count))
        for item in range(tolerance.shape[1]):
            chosen = np.flatnonzero(self.updates.item == item)
            windows = np.zeros((self.world.count, count))
            _tolerance_times(
                self.updates.time[chosen],
                self.updates.value[chosen],
                np.ascontiguousarray(self.arrival[:, chosen]),
                np.ascontiguousarray(tolerance[:, item]),
                self.updates.start[item],
                self.updates.seconds,
                windows,
            )
            total += windows
        wanted = np.maximum((~np.isnan(tolerance)).sum(axis=1), 1)
        mean: Floats = (total[1:] / wanted[1:, None]).mean(axis=0) / width
        return mean
