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
from headwater.jit import cached_njit
from headwater.schedule import Candidate, Policy
from headwater.sim.arrivals import Arrivals
from headwater.sim.coin_flips import fast_coin_flip, pass_threshold, run_key
from headwater.sim.metrics import Floats, Ints, SimulationResult, empty_tally, record_result
from headwater.sim.slots import (
    TURNS,
    Slots,
    build_slots,
    effective_since,
    initial_turns,
    pick_slot,
    set_since,
    settle_all,
    update_slot,
)
from headwater.sim.workload import WindowJoin

EXECUTED, DECISIONS = range(2)
LEFT, RIGHT, JOIN, COMMON = range(4)


class JoinArrays(NamedTuple):
    """Queries as arrays; `cost` and `threshold` by query and operator: left, right, join, common.

    By query and side: `next_tuple` is the next of that side, `window_start` the first of the other
    side that may still be in its window.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    window: Floats
    ideal: Floats
    slot_candidate: Ints
    slot: Ints
    next_tuple: Ints
    window_start: Ints
    last_served: Floats


class JoinRunState(NamedTuple):
    """The clock, how many tuples of each stream have arrived, the counters and the tally."""

    now: Floats
    arrived: Ints
    counts: Ints
    tally: Floats


class StreamBuffer(NamedTuple):
    """The part of a stream that is in use: its times, the number of the first, and if more comes."""

    times: Floats
    first_number: int
    closed: bool


def run_joins(
    joins: Sequence[WindowJoin], policy: Policy, streams: tuple[Arrivals, Arrivals], seed: int
) -> SimulationResult:
    """Simulate until all tuples are through; the second stream has a seed of its own."""
    slots, queries = _prepare(joins, policy, seed)
    state = JoinRunState(
        np.zeros(1), np.zeros(2, np.int64), np.zeros(2, np.int64), empty_tally(len(joins))
    )
    chunks = [
        arrivals.chunks(stream_seed)
        for arrivals, stream_seed in zip(streams, stream_seeds(seed), strict=True)
    ]
    buffers = [StreamBuffer(np.empty(0), 0, False), StreamBuffer(np.empty(0), 0, False)]
    while not (buffers[0].closed and buffers[1].closed):
        for side in (0, 1):
            # Only a side that has been used up is extended; the other keeps its times until both
            # have arrived.
            if state.arrived[side] == buffers[side].first_number + len(buffers[side].times):
                needed = int(
                    # A tuple is needed as long as it waits to be processed, or may be in a window
                    # of the other side.
                    min(queries.next_tuple[:, side].min(), queries.window_start[:, 1 - side].min())
                )
                buffers[side] = _extend_buffer(buffers[side], needed, next(chunks[side], None))
        _advance(queries, slots, state, buffers[0], buffers[1])
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return SimulationResult(state.tally, float(state.now[0]), executed, decisions)


def stream_seeds(seed: int) -> tuple[int, int]:
    """The seeds of the arrivals of the two streams."""
    return 2 * seed, 2 * seed + 1


def _extend_buffer(stream: StreamBuffer, needed: int, chunk: Floats | None) -> StreamBuffer:
    if chunk is None:
        return stream._replace(closed=True)
    return StreamBuffer(
        np.concatenate([stream.times[needed - stream.first_number :], chunk]), needed, False
    )


def _prepare(joins: Sequence[WindowJoin], policy: Policy, seed: int) -> tuple[Slots, JoinArrays]:
    if not joins:
        raise SimulationError("there is no query to simulate; give at least one")
    operators = [(*join.sides, join.join, join.common) for join in joins]
    slots, candidate_of_slot = build_slots(
        policy, [Candidate("", 0.0, (join.segment(side),)) for join in joins for side in (0, 1)]
    )
    slot = np.empty(2 * len(joins), np.int64)
    slot[candidate_of_slot] = np.arange(len(candidate_of_slot))
    return slots, JoinArrays(
        key=np.uint64(run_key(seed)),
        cost=np.array([[o.cost for o in row] for row in operators]),
        threshold=np.array([[pass_threshold(o.selectivity) for o in row] for row in operators]),
        window=np.array([join.window for join in joins]),
        ideal=np.array([join.ideal for join in joins]),
        slot_candidate=candidate_of_slot,
        slot=slot.reshape(-1, 2),
        next_tuple=np.zeros((len(joins), 2), np.int64),
        window_start=np.zeros((len(joins), 2), np.int64),
        last_served=initial_turns(len(joins)),
    )


@cached_njit
def _advance(
    joins: JoinArrays, slots: Slots, state: JoinRunState, left: StreamBuffer, right: StreamBuffer
) -> None:
    """Run as far as the known arrivals of both streams allow."""
    now = state.now[0]
    while True:
        upcoming = np.inf
        all_known = True
        for side, stream in ((0, left), (1, right)):
            at = state.arrived[side] - stream.first_number
            while at < len(stream.times) and stream.times[at] <= now:
                _deliver_tuple(joins, slots, side, state.arrived[side], stream.times[at], now)
                state.arrived[side] += 1
                at += 1
            if at < len(stream.times):
                upcoming = min(upcoming, stream.times[at])
            elif not stream.closed:
                all_known = False
        # An arrival that is not known yet may come before what would run now.
        if not all_known:
            break
        slot = pick_slot(slots, now)
        if slot < 0:
            if upcoming == np.inf:
                break
            now = upcoming
            continue
        state.counts[DECISIONS] += 1
        query, side = joins.slot_candidate[slot] // 2, joins.slot_candidate[slot] % 2
        joins.last_served[query] = state.counts[DECISIONS]
        near, far = (left, right) if side == 0 else (right, left)
        now = _run_tuple(joins, state, query, side, near, far, now)
        for each_side in (0, 1):
            stream = left if each_side == 0 else right
            # Under turns both sides rank by when their query last ran, so serving one changes both.
            if each_side == side or slots.growth == TURNS:
                since = np.inf
                slot = joins.slot[query, each_side]
                if joins.next_tuple[query, each_side] < state.arrived[each_side]:
                    arrived = stream.times[joins.next_tuple[query, each_side] - stream.first_number]
                    since = effective_since(slots, slot, arrived, joins.last_served[query])
                update_slot(slots, slot, since, now)
    state.now[0] = now


@cached_njit
def _deliver_tuple(
    joins: JoinArrays, slots: Slots, side: int, number: int, time: float, now: float
) -> None:
    for query in range(len(joins.window)):
        if joins.next_tuple[query, side] == number:
            slot = joins.slot[query, side]
            set_since(slots, slot, effective_since(slots, slot, time, joins.last_served[query]))
    settle_all(slots, now)


@cached_njit
def _run_tuple(
    joins: JoinArrays,
    state: JoinRunState,
    query: int,
    side: int,
    near: StreamBuffer,
    far: StreamBuffer,
    now: float,
) -> float:
    """Run the next tuple of one side: select it, and join it with the window of the other side."""
    number = joins.next_tuple[query, side]
    joins.next_tuple[query, side] += 1
    since = near.times[number - near.first_number]
    now += joins.cost[query, side]
    state.counts[EXECUTED] += 1
    if fast_coin_flip(joins.key, number, 4 * query + side) >= joins.threshold[query, side]:
        return now
    now += joins.cost[query, JOIN]
    state.counts[EXECUTED] += 1
    end, low = joins.next_tuple[query, 1 - side], joins.window_start[query, side]
    earliest, latest = since - joins.window[query], since + joins.window[query]
    while low < end and far.times[low - far.first_number] < earliest:
        low += 1
    # Tuples of a side come in their order, so no later one needs what is behind its window.
    joins.window_start[query, side] = low
    for other in range(low, end):
        time = far.times[other - far.first_number]
        if time > latest:
            break
        if (
            fast_coin_flip(joins.key, other, 4 * query + 1 - side)
            >= joins.threshold[query, 1 - side]
        ):
            continue
        if side == 0:
            # The number of a pair is the same whichever side came last, as in the plain simulator
            # (PAIR_FACTOR).
            pair, first, second = (number << 32) + other, since, time
        else:
            pair, first, second = (other << 32) + number, time, since
        if fast_coin_flip(joins.key, pair, 4 * query + JOIN) < joins.threshold[query, JOIN]:
            now += joins.cost[query, COMMON]
            state.counts[EXECUTED] += 1
            if fast_coin_flip(joins.key, pair, 4 * query + COMMON) < joins.threshold[query, COMMON]:
                ideal = _ideal_departure(joins, query, first, second)
                # The slowdown of a joined result: its delay beyond the ideal departure, in ideal
                # times. Waiting for the other tuple to arrive is not counted as delay.
                slowdown = 1.0 + (now - ideal) / joins.ideal[query]
                record_result(state.tally, query, now - max(first, second), slowdown)
    return now


@cached_njit
def _ideal_departure(joins: JoinArrays, query: int, left: float, right: float) -> float:
    """When the result of two tuples would leave if they were alone in the system."""
    first, second = (LEFT, RIGHT) if left <= right else (RIGHT, LEFT)
    inserted = joins.cost[query, first] + joins.cost[query, JOIN]
    probed = joins.cost[query, second] + joins.cost[query, JOIN]
    ready = max(min(left, right) + inserted, max(left, right))
    return float(ready + probed + joins.cost[query, COMMON])
