"""The simulator of queries that share their first operator, compiled.

Running a shared operator runs the branches of its priority-defining tree on the same tuple; the other
branches wait on their own. The tuples that wait there are those that passed the shared operator, which can
be recomputed: so the queue of a branch is a position, too.
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
from headwater.sim.workload import SharedSet

ARRIVED, EXECUTED, DECISIONS = range(3)


class SharedSetArrays(NamedTuple):
    """Sets as arrays. Queries of a set are neighbours; `first` is the first query of each set.

    `cost` and `threshold` are by query and stage, the shared operator at stage 0. `order` has the
    queries of each set, those of the tree first, `tree_size` how many those are. `slot` is by set, then
    by query; so is `next_tuple`: of the shared operator, and of each branch that waits.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    length: Ints
    ideal: Floats
    set_of: Ints
    first: Ints
    order: Ints
    tree_size: Ints
    slot_candidate: Ints
    slot: Ints
    next_tuple: Ints
    last_served: Floats


class SetRunState(NamedTuple):
    """The clock, the counters and the tally of a run."""

    now: Floats
    counts: Ints
    tally: Floats


def run_sets(
    sets: Sequence[SharedSet], policy: Policy, arrivals: Arrivals, seed: int
) -> SimulationResult:
    """Simulate until all tuples are through; the policy says how shared operators are ranked."""
    slots, queries = _prepare(sets, policy, seed)
    state = SetRunState(np.zeros(1), np.zeros(3, np.int64), empty_tally(len(queries.set_of)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        needed = int(queries.next_tuple.min())
        times = np.concatenate([times[needed - base :], chunk])
        base = needed
        _advance(queries, slots, state, times, base, False)
    _advance(queries, slots, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return SimulationResult(state.tally, float(state.now[0]), executed, decisions)


def _prepare(sets: Sequence[SharedSet], policy: Policy, seed: int) -> tuple[Slots, SharedSetArrays]:
    if not sets:
        raise SimulationError("there is no query to simulate; give at least one")
    shared = [
        Candidate("", 0.0, shared_set.segments(), shared_cost=shared_set.first.cost)
        for shared_set in sets
    ]
    branches = [
        (home, number)
        for home, shared_set in enumerate(sets)
        for number in range(len(shared_set.branches))
    ]
    branch_candidates = [
        Candidate("", 0.0, (sets[home].branch_segment(number),)) for home, number in branches
    ]
    slots, candidate_of_slot = build_slots(policy, [*shared, *branch_candidates])
    slot = np.empty(len(candidate_of_slot), np.int64)
    slot[candidate_of_slot] = np.arange(len(candidate_of_slot))
    home = np.array([home for home, _ in branches])
    first = np.searchsorted(home, np.arange(len(sets) + 1))
    trees = [policy.tree(candidate).segment_positions for candidate in shared]
    operators = [(sets[h].first, *sets[h].branches[number]) for h, number in branches]
    width = max(map(len, operators))
    return slots, SharedSetArrays(
        key=np.uint64(run_key(seed)),
        cost=np.array([[o.cost for o in row] + [0.0] * (width - len(row)) for row in operators]),
        threshold=np.array(
            [
                [pass_threshold(o.selectivity) for o in row] + [0] * (width - len(row))
                for row in operators
            ]
        ),
        length=np.array([len(row) for row in operators]),
        ideal=np.array([sets[h].ideal(number) for h, number in branches]),
        set_of=home,
        first=first,
        order=np.concatenate(
            [first[h] + _tree_first(shared_set, trees[h]) for h, shared_set in enumerate(sets)]
        ),
        tree_size=np.array([len(tree) for tree in trees]),
        slot_candidate=candidate_of_slot,
        slot=slot,
        next_tuple=np.zeros(len(candidate_of_slot), np.int64),
        last_served=initial_turns(len(candidate_of_slot)),
    )


def _tree_first(shared_set: SharedSet, tree: tuple[int, ...]) -> Ints:
    others = [number for number in range(len(shared_set.branches)) if number not in tree]
    return np.array([*tree, *others], np.int64)


@cached_njit
def _advance(
    sets: SharedSetArrays, slots: Slots, state: SetRunState, times: Floats, base: int, closed: bool
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.now[0], state.counts[ARRIVED]
    end, count = base + len(times), len(sets.tree_size)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for set_number in range(count):
                if sets.next_tuple[set_number] == arrived:
                    slot, time = sets.slot[set_number], times[arrived - base]
                    set_since(
                        slots,
                        slot,
                        effective_since(slots, slot, time, sets.last_served[set_number]),
                    )
            arrived += 1
            settle_all(slots, now)
        if arrived == end and not closed:
            break
        slot = pick_slot(slots, now)
        if slot < 0:
            if arrived == end:
                break
            now = times[arrived - base]
            continue
        state.counts[DECISIONS] += 1
        chosen = sets.slot_candidate[slot]
        sets.last_served[chosen] = state.counts[DECISIONS]
        number = sets.next_tuple[chosen]
        since = times[number - base]
        if chosen < count:
            now = _run_shared(sets, slots, state, chosen, since, now)
            following = number + 1
            limit = arrived
        else:
            now = _run_branch(sets, state, chosen - count, number, since, now)
            # A branch may go only as far as the shared operator has: later tuples have not passed
            # it yet.
            limit = sets.next_tuple[sets.set_of[chosen - count]]
            following = _next_passed(sets, chosen - count, number + 1, limit)
        sets.next_tuple[chosen] = following
        next_since = np.inf
        if following < limit:
            next_since = effective_since(
                slots, slot, times[following - base], sets.last_served[chosen]
            )
        update_slot(slots, slot, next_since, now)
    state.now[0], state.counts[ARRIVED] = now, arrived


@cached_njit
def _run_shared(
    sets: SharedSetArrays,
    slots: Slots,
    state: SetRunState,
    set_number: int,
    since: float,
    now: float,
) -> float:
    """Run the shared operator on its next tuple, then the branches of the tree."""
    count, number = len(sets.tree_size), sets.next_tuple[set_number]
    begin, end = sets.first[set_number], sets.first[set_number + 1]
    now += sets.cost[begin, 0]
    state.counts[EXECUTED] += 1
    passed = _passes_shared(sets, set_number, number)
    for at in range(begin + sets.tree_size[set_number], end):
        branch = count + sets.order[at]
        # A branch that is behind finds the tuple when it gets there: see _next_passed.
        if sets.next_tuple[branch] == number:
            if passed:
                slot = sets.slot[branch]
                update_slot(
                    slots, slot, effective_since(slots, slot, since, sets.last_served[branch]), now
                )
            else:
                sets.next_tuple[branch] += 1
    for at in range(begin, begin + sets.tree_size[set_number]):
        if passed:
            now = _run_branch(sets, state, sets.order[at], number, since, now)
        # Nothing waits there, but the least of all positions decides which times are kept.
        sets.next_tuple[count + sets.order[at]] = number + 1
    return now


@cached_njit
def _run_branch(
    sets: SharedSetArrays, state: SetRunState, query: int, number: int, since: float, now: float
) -> float:
    for stage in range(1, sets.length[query]):
        now += sets.cost[query, stage]
        state.counts[EXECUTED] += 1
        operator = query * sets.cost.shape[1] + stage
        if fast_coin_flip(sets.key, number, operator) >= sets.threshold[query, stage]:
            return now
    record_result(state.tally, query, now - since, (now - since) / sets.ideal[query])
    return now


@cached_njit
def _passes_shared(sets: SharedSetArrays, set_number: int, number: int) -> bool:
    begin = sets.first[set_number]
    # The coin of the shared operator is that of stage 0 of the set's first query.
    flip = fast_coin_flip(sets.key, number, begin * sets.cost.shape[1])
    return bool(flip < sets.threshold[begin, 0])


@cached_njit
def _next_passed(sets: SharedSetArrays, query: int, number: int, limit: int) -> int:
    """The first tuple from `number` on that passed the shared operator, before `limit`."""
    while number < limit and not _passes_shared(sets, sets.set_of[query], number):
        number += 1
    return number
