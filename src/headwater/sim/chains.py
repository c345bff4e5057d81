"""The simulator of queries over one stream, compiled.

Every query reads the same stream, so its queue is a number: the next tuple that it takes. At query
level a tuple runs through its query without a pause; at operator level the policy chooses again after
every operator. There, a tuple within a query ranks above those that its query has not begun, under every
policy: it has waited longer, and its remaining work costs less. So a query has at most one tuple in progress.
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
    Slots,
    build_slots,
    effective_since,
    initial_turns,
    pick_slot,
    set_since,
    settle_all,
    update_slot,
)
from headwater.sim.workload import Chain

ARRIVED, EXECUTED, DECISIONS = range(3)


class ChainArrays(NamedTuple):
    """Queries as arrays: operators by query and stage, and how far each query is."""

    key: np.uint64
    cost: Floats
    threshold: Ints
    length: Ints
    ideal: Floats
    by_operator: bool
    query: Ints
    stage: Ints
    slot: Ints
    next_tuple: Ints
    last_served: Floats


class ChainRunState(NamedTuple):
    """The clock, the counters and the tally of a run."""

    now: Floats
    counts: Ints
    tally: Floats


def run_chains(
    chains: Sequence[Chain],
    policy: Policy,
    arrivals: Arrivals,
    seed: int,
    by_operator: bool = False,
) -> SimulationResult:
    """Simulate until all tuples are through. The seed decides which tuples pass, and the arrivals."""
    slots, queries = _prepare(chains, policy, seed, by_operator)
    state = ChainRunState(np.zeros(1), np.zeros(3, np.int64), empty_tally(len(chains)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        # Times that the slowest query has passed are dropped: memory follows the backlog, not the
        # run.
        times = np.concatenate([times[int(queries.next_tuple.min()) - base :], chunk])
        base = int(queries.next_tuple.min())
        _advance(queries, slots, state, times, base, False)
    _advance(queries, slots, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return SimulationResult(state.tally, float(state.now[0]), executed, decisions)


def _prepare(
    chains: Sequence[Chain], policy: Policy, seed: int, by_operator: bool
) -> tuple[Slots, ChainArrays]:
    if not chains:
        raise SimulationError("there is no query to simulate; give at least one")
    width = max(len(chain.operators) for chain in chains)
    cost, thresholds = np.zeros((len(chains), width)), np.zeros((len(chains), width), np.int64)
    for number, chain in enumerate(chains):
        for stage, operator in enumerate(chain.operators):
            cost[number, stage] = operator.cost
            thresholds[number, stage] = pass_threshold(operator.selectivity)
    stages = [
        (number, stage)
        for number, chain in enumerate(chains)
        # Later operators first: slots keep the order of equals, so the tuple in progress wins a
        # tie.
        for stage in reversed(range(len(chain.operators) if by_operator else 1))
    ]
    slots, order = build_slots(
        policy, [Candidate("", 0.0, (chains[n].segment(s),)) for n, s in stages]
    )
    query, stage = np.array(stages, np.int64)[order].T.copy()
    slot = np.full((len(chains), width), -1, np.int64)
    slot[query, stage] = np.arange(len(stages))
    return slots, ChainArrays(
        key=np.uint64(run_key(seed)),
        cost=cost,
        threshold=thresholds,
        length=np.array([len(chain.operators) for chain in chains]),
        ideal=np.array([chain.ideal for chain in chains]),
        by_operator=by_operator,
        query=query,
        stage=stage,
        slot=slot,
        next_tuple=np.zeros(len(chains), np.int64),
        last_served=initial_turns(len(chains)),
    )


@cached_njit
def _advance(
    chains: ChainArrays, slots: Slots, state: ChainRunState, times: Floats, base: int, closed: bool
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.now[0], state.counts[ARRIVED]
    end = base + len(times)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for query in range(len(chains.next_tuple)):
                # The others are behind, and their oldest tuple stays the same.
                if chains.next_tuple[query] == arrived:
                    first, served = chains.slot[query, 0], chains.last_served[query]
                    set_since(
                        slots, first, effective_since(slots, first, times[arrived - base], served)
                    )
            arrived += 1
            # Most slots have changed, so one pass over the tree is less work than a path for each.
            settle_all(slots, now)
        # The next chunk may hold an arrival before the end of what would run now, so the choice has
        # to wait for it.
        if arrived == end and not closed:
            break
        slot = pick_slot(slots, now)
        if slot < 0:
            if arrived == end:
                break
            now = times[arrived - base]
            continue
        state.counts[DECISIONS] += 1
        query, stage = chains.query[slot], chains.stage[slot]
        served = chains.last_served[query] = float(state.counts[DECISIONS])
        number = chains.next_tuple[query]
        since = times[number - base]
        passed, leaves = True, False
        # Operators are numbered by query and stage, so that the coin of a tuple is the same in the
        # plain simulator and under every policy.
        while passed and not leaves:
            now += chains.cost[query, stage]
            state.counts[EXECUTED] += 1
            operator = query * chains.cost.shape[1] + stage
            passed = fast_coin_flip(chains.key, number, operator) < chains.threshold[query, stage]
            stage += 1
            leaves = chains.by_operator or stage == chains.length[query]
        if passed and stage < chains.length[query]:
            update_slot(slots, slot, np.inf, now)
            following = chains.slot[query, stage]
            update_slot(slots, following, effective_since(slots, following, since, served), now)
            continue
        if passed:
            record_result(state.tally, query, now - since, (now - since) / chains.ideal[query])
        chains.next_tuple[query] += 1
        if chains.stage[slot] > 0:
            update_slot(slots, slot, np.inf, now)
        first, next_since = chains.slot[query, 0], np.inf
        if number + 1 < arrived:
            next_since = effective_since(slots, first, times[number + 1 - base], served)
        update_slot(slots, first, next_since, now)
    state.now[0], state.counts[ARRIVED] = now, arrived
