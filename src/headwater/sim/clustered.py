"""The simulator of BSD in its cheap forms, compiled: what a decision costs is part of the run.

The processor pays for each priority that is computed and each that is compared. A cluster has one queue,
of tuples each followed by the members that have still to take it; with clustered processing
all members take the tuple at the head in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater.schedule.clusters import Clusters
from headwater.sim.arrivals import Arrivals
from headwater.sim.compiled import compiled
from headwater.sim.fate import fast_fate, key_of, threshold
from headwater.sim.metrics import Floats, Ints, Outcome, empty_tally, record
from headwater.sim.workload import Chain

ARRIVED, EXECUTED, DECISIONS = range(3)


class Queues(NamedTuple):
    """The queue of each cluster, in descending standing.

    `since` is the arrival of the tuple at the head (infinity if there is none), `by_wait` the
    clusters with the oldest head first and `place` where each is in that list. `met` is room to mark
    the clusters that a search has met.
    """

    standing: Floats
    since: Floats
    by_wait: Ints
    place: Ints
    met: Ints


class Forms(NamedTuple):
    """Chains in clusters as arrays: operators by query and stage, and how far each cluster is.

    `member` has the queries of all clusters one after the other, `begin` where each cluster begins;
    `taken` is the tuple at the head of its queue, `next` the first member that has not taken it.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    length: Ints
    ideal: Floats
    member: Ints
    begin: Ints
    taken: Ints
    next: Ints
    pruned: bool
    together: bool
    price: float


class State(NamedTuple):
    """The clock and the time spent on decisions; the counters; the tally."""

    clock: Floats
    counts: Ints
    tally: Floats


def queues_of(clusters: Clusters) -> Queues:
    """Empty queues."""
    count = len(clusters.standing)
    return Queues(
        standing=np.array(clusters.standing),
        since=np.full(count, np.inf),
        by_wait=np.arange(count),
        place=np.arange(count),
        met=np.zeros(count, np.int64),
    )


def run_clustered(
    chains: Sequence[Chain],
    clusters: Clusters,
    arrivals: Arrivals,
    seed: int,
    pruned: bool = True,
    together: bool = True,
    price: float | None = None,
) -> Outcome:
    """Simulate BSD over clusters until all tuples are through.

    `price` is what it costs to compute a priority or to compare it; if not given, as much as the
    cheapest operator.
    """
    queues = queues_of(clusters)
    width = max(len(chain.operators) for chain in chains)
    cheapest = min(operator.cost for chain in chains for operator in chain.operators)
    forms = Forms(
        key=np.uint64(key_of(seed)),
        cost=np.array([_row([o.cost for o in c.operators], width) for c in chains]),
        threshold=np.array(
            [_row([threshold(o.selectivity) for o in c.operators], width) for c in chains]
        ).astype(np.int64),
        length=np.array([len(chain.operators) for chain in chains]),
        ideal=np.array([chain.ideal for chain in chains]),
        member=np.concatenate([np.array(members, np.int64) for members in clusters.members]),
        begin=np.cumsum([0, *map(len, clusters.members)]),
        taken=np.zeros(len(clusters.standing), np.int64),
        next=np.cumsum([0, *map(len, clusters.members)])[:-1].copy(),
        pruned=pruned,
        together=together,
        price=cheapest if price is None else price,
    )
    state = State(np.zeros(2), np.zeros(3, np.int64), empty_tally(len(chains)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        needed = int(forms.taken.min())
        times = np.concatenate([times[needed - base :], chunk])
        base = needed
        _advance(forms, queues, state, times, base, False)
    _advance(forms, queues, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    now, overhead = map(float, state.clock)
    return Outcome(state.tally, now, executed, decisions, overhead)


def _row(values: Sequence[float], width: int) -> list[float]:
    return [*values, *([0] * (width - len(values)))]


@compiled
def _advance(
    forms: Forms, queues: Queues, state: State, times: Floats, base: int, closed: bool
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.clock[0], state.counts[ARRIVED]
    end = base + len(times)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for cluster in range(len(queues.since)):
                if forms.taken[cluster] == arrived:
                    requeue(queues, cluster, times[arrived - base])
            arrived += 1
        if arrived == end and not closed:
            break
        cluster, computed = decide(queues, now, forms.pruned)
        if cluster < 0:
            if arrived == end:
                break
            now = times[arrived - base]
            continue
        state.counts[DECISIONS] += 1
        overhead = forms.price * (2 * computed - 1)
        state.clock[1] += overhead
        now += overhead
        number = forms.taken[cluster]
        last = forms.begin[cluster + 1]
        until = last if forms.together else forms.next[cluster] + 1
        for place in range(forms.next[cluster], until):
            now = _run(forms, state, forms.member[place], number, times[number - base], now)
        forms.next[cluster] = until
        if until == last:
            forms.next[cluster] = forms.begin[cluster]
            forms.taken[cluster] = number + 1
            following = times[number + 1 - base] if number + 1 < arrived else np.inf
            requeue(queues, cluster, following)
    state.clock[0], state.counts[ARRIVED] = now, arrived


@compiled
def _run(forms: Forms, state: State, query: int, number: int, since: float, now: float) -> float:
    for stage in range(forms.length[query]):
        now += forms.cost[query, stage]
        state.counts[EXECUTED] += 1
        operator = query * forms.cost.shape[1] + stage
        if fast_fate(forms.key, number, operator) >= forms.threshold[query, stage]:
            return now
    record(state.tally, query, now - since, (now - since) / forms.ideal[query])
    return now


@compiled
def requeue(queues: Queues, cluster: int, since: float) -> None:
    """Let the head of a queue be a tuple that arrived then; infinity: the queue is empty."""
    queues.since[cluster] = since
    at, count = queues.place[cluster], len(queues.since)
    while at + 1 < count and queues.since[queues.by_wait[at + 1]] < since:
        other = queues.by_wait[at + 1]
        queues.by_wait[at], queues.place[other] = other, at
        at += 1
    while at > 0 and queues.since[queues.by_wait[at - 1]] > since:
        other = queues.by_wait[at - 1]
        queues.by_wait[at], queues.place[other] = other, at
        at -= 1
    queues.by_wait[at], queues.place[cluster] = cluster, at


@compiled
def decide(queues: Queues, now: float, pruned: bool) -> tuple[int, int]:
    """The best cluster (-1 if all queues are empty) and how many priorities it took to find it."""
    chosen, best, computed = -1, -1.0, 0
    if not pruned:
        for cluster in range(len(queues.since)):
            if queues.since[cluster] < np.inf:
                computed += 1
                rank = queues.standing[cluster] * (now - queues.since[cluster])
                if rank > best:
                    chosen, best = cluster, rank
        return chosen, computed
    high = 0
    for at in range(len(queues.since)):
        waiting = queues.by_wait[at]
        if queues.since[waiting] == np.inf:
            break
        while queues.since[high] == np.inf:
            high += 1
        for cluster, mark in ((high, 1), (waiting, 2)):
            if queues.met[cluster] == 0:
                computed += 1
                rank = queues.standing[cluster] * (now - queues.since[cluster])
                if rank > best or (rank == best and cluster < chosen):
                    chosen, best = cluster, rank
            queues.met[cluster] |= mark
            if queues.met[cluster] == 3:
                _forget(queues, high, at)
                return chosen, computed
        high += 1
    return chosen, computed


@compiled
def _forget(queues: Queues, high: int, at: int) -> None:
    """Clear the marks of a search that went so far down the two lists."""
    for cluster in range(high + 1):
        queues.met[cluster] = 0
    for place in range(at + 1):
        queues.met[queues.by_wait[place]] = 0
