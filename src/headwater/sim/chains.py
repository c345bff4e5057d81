"""The simulator of queries over one stream, compiled.

Every query reads the same stream, so its queue is a number: the next tuple that it takes. At query
level a tuple runs through its query without a pause; at operator level the policy chooses anew after
every operator. There, a tuple within a query ranks above those that its query has not begun, under every
policy: it has waited longer, and what is before it costs less. So a query has one tuple under way at most.
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
from headwater.sim.slots import Slots, mark, never_served, pick, put, settle_all, slots_of, waits_by
from headwater.sim.workload import Chain

ARRIVED, EXECUTED, DECISIONS = range(3)


class Chains(NamedTuple):
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
    taken: Ints
    served: Floats


class State(NamedTuple):
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
) -> Outcome:
    """Simulate until all tuples are through. The seed decides the fate of tuples, and the arrivals."""
    slots, queries = _prepared(chains, policy, seed, by_operator)
    state = State(np.zeros(1), np.zeros(3, np.int64), empty_tally(len(chains)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        times = np.concatenate([times[int(queries.taken.min()) - base :], chunk])
        base = int(queries.taken.min())
        _advance(queries, slots, state, times, base, False)
    _advance(queries, slots, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return Outcome(state.tally, float(state.now[0]), executed, decisions)


def _prepared(
    chains: Sequence[Chain], policy: Policy, seed: int, by_operator: bool
) -> tuple[Slots, Chains]:
    if not chains:
        raise SimulationError("there is no query to simulate; give at least one")
    width = max(len(chain.operators) for chain in chains)
    cost, passing = np.zeros((len(chains), width)), np.zeros((len(chains), width), np.int64)
    for number, chain in enumerate(chains):
        for stage, operator in enumerate(chain.operators):
            cost[number, stage] = operator.cost
            passing[number, stage] = threshold(operator.selectivity)
    places = [
        (number, stage)
        for number, chain in enumerate(chains)
        for stage in reversed(range(len(chain.operators) if by_operator else 1))
    ]
    slots, order = slots_of(policy, [Waiting("", 0.0, (chains[n].segment(s),)) for n, s in places])
    query, stage = np.array(places, np.int64)[order].T.copy()
    slot = np.full((len(chains), width), -1, np.int64)
    slot[query, stage] = np.arange(len(places))
    return slots, Chains(
        key=np.uint64(key_of(seed)),
        cost=cost,
        threshold=passing,
        length=np.array([len(chain.operators) for chain in chains]),
        ideal=np.array([chain.ideal for chain in chains]),
        by_operator=by_operator,
        query=query,
        stage=stage,
        slot=slot,
        taken=np.zeros(len(chains), np.int64),
        served=never_served(len(chains)),
    )


@compiled
def _advance(
    chains: Chains, slots: Slots, state: State, times: Floats, base: int, closed: bool
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.now[0], state.counts[ARRIVED]
    end = base + len(times)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for query in range(len(chains.taken)):
                if chains.taken[query] == arrived:
                    first, served = chains.slot[query, 0], chains.served[query]
                    mark(slots, first, waits_by(slots, first, times[arrived - base], served))
            arrived += 1
            settle_all(slots, now)
        if arrived == end and not closed:
            break
        slot = pick(slots, now)
        if slot < 0:
            if arrived == end:
                break
            now = times[arrived - base]
            continue
        state.counts[DECISIONS] += 1
        query, stage = chains.query[slot], chains.stage[slot]
        served = chains.served[query] = float(state.counts[DECISIONS])
        number = chains.taken[query]
        since = times[number - base]
        passed, leaves = True, False
        while passed and not leaves:
            now += chains.cost[query, stage]
            state.counts[EXECUTED] += 1
            operator = query * chains.cost.shape[1] + stage
            passed = fast_fate(chains.key, number, operator) < chains.threshold[query, stage]
            stage += 1
            leaves = chains.by_operator or stage == chains.length[query]
        if passed and stage < chains.length[query]:
            put(slots, slot, np.inf, now)
            following = chains.slot[query, stage]
            put(slots, following, waits_by(slots, following, since, served), now)
            continue
        if passed:
            record(state.tally, query, now - since, (now - since) / chains.ideal[query])
        chains.taken[query] += 1
        if chains.stage[slot] > 0:
            put(slots, slot, np.inf, now)
        first, waits = chains.slot[query, 0], np.inf
        if number + 1 < arrived:
            waits = waits_by(slots, first, times[number + 1 - base], served)
        put(slots, first, waits, now)
    state.now[0], state.counts[ARRIVED] = now, arrived
