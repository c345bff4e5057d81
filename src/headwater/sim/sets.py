"""The simulator of queries that share their first operator, compiled.

Running a shared operator runs the branches of its priority-defining tree on the same tuple; the other
branches wait on their own. What waits there are the tuples that passed the shared operator, and that can
be computed again: the queue of a branch is a position, too.
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
from headwater.sim.workload import SharedSet

ARRIVED, EXECUTED, DECISIONS = range(3)


class Sets(NamedTuple):
    """Sets as arrays. Queries of a set are neighbours; `first` is the first query of each set.

    `cost` and `threshold` are by query and stage, the shared operator at stage 0. `order` has the
    queries of each set, those of the tree first, `members` how many those are. `slot` is by set, then
    by query; `taken` likewise: the next tuple of the shared operator, and of each branch that waits.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    length: Ints
    ideal: Floats
    home: Ints
    first: Ints
    order: Ints
    members: Ints
    place: Ints
    slot: Ints
    taken: Ints
    served: Floats


class State(NamedTuple):
    """The clock, the counters and the tally of a run."""

    now: Floats
    counts: Ints
    tally: Floats


def run_sets(sets: Sequence[SharedSet], policy: Policy, arrivals: Arrivals, seed: int) -> Outcome:
    """Simulate until all tuples are through; the policy says how shared operators are ranked."""
    slots, queries = _prepared(sets, policy, seed)
    state = State(np.zeros(1), np.zeros(3, np.int64), empty_tally(len(queries.home)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        needed = int(queries.taken.min())
        times = np.concatenate([times[needed - base :], chunk])
        base = needed
        _advance(queries, slots, state, times, base, False)
    _advance(queries, slots, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    return Outcome(state.tally, float(state.now[0]), executed, decisions)


def _prepared(sets: Sequence[SharedSet], policy: Policy, seed: int) -> tuple[Slots, Sets]:
    if not sets:
        raise SimulationError("there is no query to simulate; give at least one")
    shared = [Waiting("", 0.0, one.segments(), shared=one.first.cost) for one in sets]
    branches = [
        (home, number) for home, one in enumerate(sets) for number in range(len(one.branches))
    ]
    rests = [Waiting("", 0.0, (sets[home].rest(number),)) for home, number in branches]
    slots, place = slots_of(policy, [*shared, *rests])
    slot = np.empty(len(place), np.int64)
    slot[place] = np.arange(len(place))
    home = np.array([home for home, _ in branches])
    first = np.searchsorted(home, np.arange(len(sets) + 1))
    trees = [policy.tree(waits).members for waits in shared]
    operators = [(sets[h].first, *sets[h].branches[number]) for h, number in branches]
    width = max(map(len, operators))
    return slots, Sets(
        key=np.uint64(key_of(seed)),
        cost=np.array([[o.cost for o in row] + [0.0] * (width - len(row)) for row in operators]),
        threshold=np.array(
            [
                [threshold(o.selectivity) for o in row] + [0] * (width - len(row))
                for row in operators
            ]
        ),
        length=np.array([len(row) for row in operators]),
        ideal=np.array([sets[h].ideal(number) for h, number in branches]),
        home=home,
        first=first,
        order=np.concatenate([first[h] + _tree_first(one, trees[h]) for h, one in enumerate(sets)]),
        members=np.array([len(tree) for tree in trees]),
        place=place,
        slot=slot,
        taken=np.zeros(len(place), np.int64),
        served=never_served(len(place)),
    )


def _tree_first(one: SharedSet, tree: tuple[int, ...]) -> Ints:
    others = [number for number in range(len(one.branches)) if number not in tree]
    return np.array([*tree, *others], np.int64)


@compiled
def _advance(
    sets: Sets, slots: Slots, state: State, times: Floats, base: int, closed: bool
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.now[0], state.counts[ARRIVED]
    end, count = base + len(times), len(sets.members)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for one in range(count):
                if sets.taken[one] == arrived:
                    slot, time = sets.slot[one], times[arrived - base]
                    mark(slots, slot, waits_by(slots, slot, time, sets.served[one]))
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
        chosen = sets.place[slot]
        sets.served[chosen] = state.counts[DECISIONS]
        number = sets.taken[chosen]
        since = times[number - base]
        if chosen < count:
            now = _run_shared(sets, slots, state, chosen, since, now)
            following = number + 1
            limit = arrived
        else:
            now = _run_branch(sets, state, chosen - count, number, since, now)
            limit = sets.taken[sets.home[chosen - count]]
            following = _next_passed(sets, chosen - count, number + 1, limit)
        sets.taken[chosen] = following
        waits = np.inf
        if following < limit:
            waits = waits_by(slots, slot, times[following - base], sets.served[chosen])
        put(slots, slot, waits, now)
    state.now[0], state.counts[ARRIVED] = now, arrived


@compiled
def _run_shared(
    sets: Sets, slots: Slots, state: State, one: int, since: float, now: float
) -> float:
    """Run the shared operator on its next tuple, then the branches of the tree."""
    count, number = len(sets.members), sets.taken[one]
    begin, end = sets.first[one], sets.first[one + 1]
    now += sets.cost[begin, 0]
    state.counts[EXECUTED] += 1
    passed = _passes_first(sets, one, number)
    for at in range(begin + sets.members[one], end):
        branch = count + sets.order[at]
        if sets.taken[branch] == number:
            if passed:
                slot = sets.slot[branch]
                put(slots, slot, waits_by(slots, slot, since, sets.served[branch]), now)
            else:
                sets.taken[branch] += 1
    for at in range(begin, begin + sets.members[one]):
        if passed:
            now = _run_branch(sets, state, sets.order[at], number, since, now)
        sets.taken[count + sets.order[at]] = number + 1
    return now


@compiled
def _run_branch(
    sets: Sets, state: State, query: int, number: int, since: float, now: float
) -> float:
    for stage in range(1, sets.length[query]):
        now += sets.cost[query, stage]
        state.counts[EXECUTED] += 1
        operator = query * sets.cost.shape[1] + stage
        if fast_fate(sets.key, number, operator) >= sets.threshold[query, stage]:
            return now
    record(state.tally, query, now - since, (now - since) / sets.ideal[query])
    return now


@compiled
def _passes_first(sets: Sets, one: int, number: int) -> bool:
    begin = sets.first[one]
    fate = fast_fate(sets.key, number, begin * sets.cost.shape[1])
    return bool(fate < sets.threshold[begin, 0])


@compiled
def _next_passed(sets: Sets, query: int, number: int, limit: int) -> int:
    """The first tuple from `number` on that passed the shared operator, before `limit`."""
    while number < limit and not _passes_first(sets, sets.home[query], number):
        number += 1
    return number
