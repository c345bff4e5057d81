"""The simulator of window joins over two streams, compiled.

A tuple that is taken meets the tuples of the other stream that its query has taken before and that are
within the window: a range of positions, of which those count that passed their own select. So the
contents of a window are two positions in the other stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater.errors import SimulationError
from headwater.schedule import Policy, Waiting
from headwater.sim.arrivals import Arrivals
from headwater.sim.compiled import compiled
from headwater.sim.fate import fast_fate, key_of, threshold
from headwater.sim.metrics import Floats, Ints, Outcome, empty_tally, record
from headwater.sim.slots import (
    TURNS,
    Slots,
    mark,
    never_served,
    pick,
    put,
    settle_all,
    slots_of,
    waits_by,
)
from headwater.sim.workload import WindowJoin

EXECUTED, DECISIONS = range(2)
LEFT, RIGHT, JOIN, COMMON = range(4)


class Joins(NamedTuple):
    """Queries as arrays; `cost` and `threshold` by query and operator: left, right, join, common.

    By query and side: `taken` is the next tuple of that side, `low` the first of the other side that
    may still be in its window.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    window: Floats
    ideal: Floats
    place: Ints
    slot: Ints
    taken: Ints
    low: Ints
    served: Floats


class State(NamedTuple):
    """The clock, how many tuples of each stream have arrived, the counters and the tally."""

    now: Floats
    arrived: Ints
    counts: Ints
    tally: Floats


class Stream(NamedTuple):
    """The part of a stream that is in use: its times, the number of the first, and if more comes."""

    times: Floats
    base: int
    closed: bool


def run_joins(
    joins: Sequence[WindowJoin], policy: Policy, streams: tuple[Arrivals, Arrivals], seed: int
) -> Outcome:
    """Simulate until all tuples are through; the second stream has a seed of its own."""
    slots, queries = _prepared(joins, policy, seed)
    state = State(
        np.zeros(1), np.zeros(2, np.int64), np.zeros(2, np.int64), empty_tally(len(joins))
    )
    chunks = [
        arrivals.chunks(own) for arrivals, own in zip(streams, stream_seeds(seed), strict=True)
    ]
    known = [Stream(np.empty(0), 0, False), Stream(np.empty(0), 0, False)]
    while not (known[0].closed and known[1].closed):
        for side in (0, 1):
            if state.arrived[side] == known[side].base + len(known[side].times):
                needed = int(min(queries.taken[:, side].min(), queries.low[:, 1 - side].min()))
                known[side] = _longer(known[side], needed, next(chunks[side], None))
        _advance(queries, slots, state, known[0], known[1])
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return Outcome(state.tally, float(state.now[0]), executed, decisions)


def stream_seeds(seed: int) -> tuple[int, int]:
    """The seeds of the arrivals of the two streams."""
    return 2 * seed, 2 * seed + 1


def _longer(stream: Stream, needed: int, chunk: Floats | None) -> Stream:
    if chunk is None:
        return stream._replace(closed=True)
    return Stream(np.concatenate([stream.times[needed - stream.base :], chunk]), needed, False)


def _prepared(joins: Sequence[WindowJoin], policy: Policy, seed: int) -> tuple[Slots, Joins]:
    if not joins:
        raise SimulationError("there is no query to simulate; give at least one")
    operators = [(*join.sides, join.join, join.common) for join in joins]
    slots, place = slots_of(
        policy, [Waiting("", 0.0, (join.segment(side),)) for join in joins for side in (0, 1)]
    )
    slot = np.empty(2 * len(joins), np.int64)
    slot[place] = np.arange(len(place))
    return slots, Joins(
        key=np.uint64(key_of(seed)),
        cost=np.array([[o.cost for o in row] for row in operators]),
        threshold=np.array([[threshold(o.selectivity) for o in row] for row in operators]),
        window=np.array([join.window for join in joins]),
        ideal=np.array([join.ideal for join in joins]),
        place=place,
        slot=slot.reshape(-1, 2),
        taken=np.zeros((len(joins), 2), np.int64),
        low=np.zeros((len(joins), 2), np.int64),
        served=never_served(len(joins)),
    )


@compiled
def _advance(joins: Joins, slots: Slots, state: State, left: Stream, right: Stream) -> None:
    """Run as far as the known arrivals of both streams allow."""
    now = state.now[0]
    while True:
        upcoming = np.inf
        known = True
        for side, stream in ((0, left), (1, right)):
            at = state.arrived[side] - stream.base
            while at < len(stream.times) and stream.times[at] <= now:
                _deliver(joins, slots, side, state.arrived[side], stream.times[at], now)
                state.arrived[side] += 1
                at += 1
            if at < len(stream.times):
                upcoming = min(upcoming, stream.times[at])
            elif not stream.closed:
                known = False
        if not known:
            break
        slot = pick(slots, now)
        if slot < 0:
            if upcoming == np.inf:
                break
            now = upcoming
            continue
        state.counts[DECISIONS] += 1
        query, side = joins.place[slot] // 2, joins.place[slot] % 2
        joins.served[query] = state.counts[DECISIONS]
        near, far = (left, right) if side == 0 else (right, left)
        now = _take(joins, state, query, side, near, far, now)
        for one in (0, 1):
            stream = left if one == 0 else right
            if one == side or slots.growth == TURNS:
                since = np.inf
                slot = joins.slot[query, one]
                if joins.taken[query, one] < state.arrived[one]:
                    arrived = stream.times[joins.taken[query, one] - stream.base]
                    since = waits_by(slots, slot, arrived, joins.served[query])
                put(slots, slot, since, now)
    state.now[0] = now


@compiled
def _deliver(joins: Joins, slots: Slots, side: int, number: int, time: float, now: float) -> None:
    for query in range(len(joins.window)):
        if joins.taken[query, side] == number:
            slot = joins.slot[query, side]
            mark(slots, slot, waits_by(slots, slot, time, joins.served[query]))
    settle_all(slots, now)


@compiled
def _take(
    joins: Joins, state: State, query: int, side: int, near: Stream, far: Stream, now: float
) -> float:
    """Run the next tuple of one side: select it, and join it with the window of the other side."""
    number = joins.taken[query, side]
    joins.taken[query, side] += 1
    since = near.times[number - near.base]
    now += joins.cost[query, side]
    state.counts[EXECUTED] += 1
    if fast_fate(joins.key, number, 4 * query + side) >= joins.threshold[query, side]:
        return now
    now += joins.cost[query, JOIN]
    state.counts[EXECUTED] += 1
    end, low = joins.taken[query, 1 - side], joins.low[query, side]
    earliest, latest = since - joins.window[query], since + joins.window[query]
    while low < end and far.times[low - far.base] < earliest:
        low += 1
    joins.low[query, side] = low
    for other in range(low, end):
        time = far.times[other - far.base]
        if time > latest:
            break
        if fast_fate(joins.key, other, 4 * query + 1 - side) >= joins.threshold[query, 1 - side]:
            continue
        if side == 0:
            pair, first, second = (number << 32) + other, since, time
        else:
            pair, first, second = (other << 32) + number, time, since
        if fast_fate(joins.key, pair, 4 * query + JOIN) < joins.threshold[query, JOIN]:
            now += joins.cost[query, COMMON]
            state.counts[EXECUTED] += 1
            if fast_fate(joins.key, pair, 4 * query + COMMON) < joins.threshold[query, COMMON]:
                ideal = _ideal_departure(joins, query, first, second)
                slowdown = 1.0 + (now - ideal) / joins.ideal[query]
                record(state.tally, query, now - max(first, second), slowdown)
    return now


@compiled
def _ideal_departure(joins: Joins, query: int, left: float, right: float) -> float:
    """When the result of two tuples would leave if they were alone in the system."""
    first, second = (LEFT, RIGHT) if left <= right else (RIGHT, LEFT)
    inserted = joins.cost[query, first] + joins.cost[query, JOIN]
    probed = joins.cost[query, second] + joins.cost[query, JOIN]
    ready = max(min(left, right) + inserted, max(left, right))
    return float(ready + probed + joins.cost[query, COMMON])
