"""The simulator of BSD in its cheap forms, compiled: what a decision costs is part of the run.

The processor pays for each priority that is computed and each that is compared. A cluster has one queue,
of tuples, each with the queries that have yet to process it; with clustered processing all of
them process the tuple at the head in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater.jit import cached_njit
from headwater.schedule.clusters import Clusters
from headwater.sim.arrivals import Arrivals
from headwater.sim.coin_flips import fast_coin_flip, pass_threshold, run_key
from headwater.sim.metrics import Floats, Ints, SimulationResult, empty_tally, record_result
from headwater.sim.workload import Chain

ARRIVED, EXECUTED, DECISIONS = range(3)


class Queues(NamedTuple):
    """The queue of each cluster, in descending static priority.

    `since` is the arrival of the tuple at the head (infinity if there is none), `by_wait` the
    clusters with the oldest head first, and `wait_position` where each is in that list. `met` is scratch
    space to mark the clusters that a search has seen.
    """

    static_priority: Floats
    since: Floats
    by_wait: Ints
    wait_position: Ints
    met: Ints


class ClusterArrays(NamedTuple):
    """Chains in clusters as arrays: operators by query and stage, and how far each cluster is.

    `queries` has the queries of all clusters one after the other, `begin` where each cluster begins;
    `head_tuple` is the tuple at the head of its queue, `next_query` the first query yet to process it.
    """

    key: np.uint64
    cost: Floats
    threshold: Ints
    length: Ints
    ideal: Floats
    queries: Ints
    begin: Ints
    head_tuple: Ints
    next_query: Ints
    uses_fagin: bool
    runs_whole_cluster: bool
    decision_cost: float


class ClusterRunState(NamedTuple):
    """The clock and the time spent on decisions; the counters; the tally."""

    clock: Floats
    counts: Ints
    tally: Floats


def build_queues(clusters: Clusters) -> Queues:
    """Empty queues."""
    count = len(clusters.static_priorities)
    return Queues(
        static_priority=np.array(clusters.static_priorities),
        since=np.full(count, np.inf),
        by_wait=np.arange(count),
        wait_position=np.arange(count),
        met=np.zeros(count, np.int64),
    )


def run_clustered(
    chains: Sequence[Chain],
    clusters: Clusters,
    arrivals: Arrivals,
    seed: int,
    use_fagin: bool = True,
    run_whole_cluster: bool = True,
    decision_cost: float | None = None,
) -> SimulationResult:
    """Simulate BSD over clusters until all tuples are through.

    `decision_cost` is what computing or comparing a priority costs; by default as much as the cheapest
    operator.
    """
    queues = build_queues(clusters)
    width = max(len(chain.operators) for chain in chains)
    cheapest = min(operator.cost for chain in chains for operator in chain.operators)
    arrays = ClusterArrays(
        key=np.uint64(run_key(seed)),
        cost=np.array([_padded_row([o.cost for o in c.operators], width) for c in chains]),
        threshold=np.array(
            [
                _padded_row([pass_threshold(o.selectivity) for o in c.operators], width)
                for c in chains
            ]
        ).astype(np.int64),
        length=np.array([len(chain.operators) for chain in chains]),
        ideal=np.array([chain.ideal for chain in chains]),
        queries=np.concatenate([np.array(queries, np.int64) for queries in clusters.queries]),
        begin=np.cumsum([0, *map(len, clusters.queries)]),
        head_tuple=np.zeros(len(clusters.static_priorities), np.int64),
        next_query=np.cumsum([0, *map(len, clusters.queries)])[:-1].copy(),
        uses_fagin=use_fagin,
        runs_whole_cluster=run_whole_cluster,
        decision_cost=cheapest if decision_cost is None else decision_cost,
    )
    state = ClusterRunState(np.zeros(2), np.zeros(3, np.int64), empty_tally(len(chains)))
    base, times = 0, np.empty(0)
    for chunk in arrivals.chunks(seed):
        needed = int(arrays.head_tuple.min())
        times = np.concatenate([times[needed - base :], chunk])
        base = needed
        _advance(arrays, queues, state, times, base, False)
    _advance(arrays, queues, state, times, base, True)
    executed, decisions = int(state.counts[EXECUTED]), int(state.counts[DECISIONS])
    now, overhead = map(float, state.clock)
    return SimulationResult(state.tally, now, executed, decisions, overhead)


def _padded_row(values: Sequence[float], width: int) -> list[float]:
    return [*values, *([0] * (width - len(values)))]


@cached_njit
def _advance(
    arrays: ClusterArrays,
    queues: Queues,
    state: ClusterRunState,
    times: Floats,
    base: int,
    closed: bool,
) -> None:
    """Run as far as the known arrivals allow; if no more will come, to the end."""
    now, arrived = state.clock[0], state.counts[ARRIVED]
    end = base + len(times)
    while True:
        while arrived < end and times[arrived - base] <= now:
            for cluster in range(len(queues.since)):
                if arrays.head_tuple[cluster] == arrived:
                    update_head(queues, cluster, times[arrived - base])
            arrived += 1
        if arrived == end and not closed:
            break
        cluster, computed = choose_cluster(queues, now, arrays.uses_fagin)
        if cluster < 0:
            if arrived == end:
                break
            now = times[arrived - base]
            continue
        state.counts[DECISIONS] += 1
        # As `ClusterChoice.operations`: n priorities computed, n - 1 compared.
        overhead = arrays.decision_cost * (2 * computed - 1)
        state.clock[1] += overhead
        now += overhead
        number = arrays.head_tuple[cluster]
        last = arrays.begin[cluster + 1]
        until = last if arrays.runs_whole_cluster else arrays.next_query[cluster] + 1
        for position in range(arrays.next_query[cluster], until):
            now = _run_query(
                arrays, state, arrays.queries[position], number, times[number - base], now
            )
        arrays.next_query[cluster] = until
        if until == last:
            arrays.next_query[cluster] = arrays.begin[cluster]
            arrays.head_tuple[cluster] = number + 1
            following = times[number + 1 - base] if number + 1 < arrived else np.inf
            update_head(queues, cluster, following)
    state.clock[0], state.counts[ARRIVED] = now, arrived


@cached_njit
def _run_query(
    arrays: ClusterArrays, state: ClusterRunState, query: int, number: int, since: float, now: float
) -> float:
    for stage in range(arrays.length[query]):
        now += arrays.cost[query, stage]
        state.counts[EXECUTED] += 1
        operator = query * arrays.cost.shape[1] + stage
        if fast_coin_flip(arrays.key, number, operator) >= arrays.threshold[query, stage]:
            return now
    record_result(state.tally, query, now - since, (now - since) / arrays.ideal[query])
    return now


@cached_njit
def update_head(queues: Queues, cluster: int, since: float) -> None:
    """Let the head of a queue be a tuple that arrived then; infinity: the queue is empty."""
    queues.since[cluster] = since
    at, count = queues.wait_position[cluster], len(queues.since)
    # One step of an insertion sort: a head moves by few positions, so this is cheaper than a heap.
    while at + 1 < count and queues.since[queues.by_wait[at + 1]] < since:
        other = queues.by_wait[at + 1]
        queues.by_wait[at], queues.wait_position[other] = other, at
        at += 1
    while at > 0 and queues.since[queues.by_wait[at - 1]] > since:
        other = queues.by_wait[at - 1]
        queues.by_wait[at], queues.wait_position[other] = other, at
        at -= 1
    queues.by_wait[at], queues.wait_position[cluster] = cluster, at


@cached_njit
def choose_cluster(queues: Queues, now: float, use_fagin: bool) -> tuple[int, int]:
    """The best cluster (-1 if all queues are empty) and how many priorities it took to find it."""
    chosen, best, computed = -1, -1.0, 0
    if not use_fagin:
        for cluster in range(len(queues.since)):
            if queues.since[cluster] < np.inf:
                computed += 1
                rank = queues.static_priority[cluster] * (now - queues.since[cluster])
                if rank > best:
                    chosen, best = cluster, rank
        return chosen, computed
    high = 0
    for at in range(len(queues.since)):
        oldest = queues.by_wait[at]
        if queues.since[oldest] == np.inf:
            break
        while queues.since[high] == np.inf:
            high += 1
        for cluster, mark in ((high, 1), (oldest, 2)):
            if queues.met[cluster] == 0:
                computed += 1
                rank = queues.static_priority[cluster] * (now - queues.since[cluster])
                # The walk does not visit clusters in order, so a tie is decided explicitly, as the
                # full scan does.
                if rank > best or (rank == best and cluster < chosen):
                    chosen, best = cluster, rank
            queues.met[cluster] |= mark
            if queues.met[cluster] == 3:
                # Only what was marked is cleared: clearing all would cost what the algorithm saves.
                _clear_marks(queues, high, at)
                return chosen, computed
        high += 1
    return chosen, computed


@cached_njit
def _clear_marks(queues: Queues, high: int, at: int) -> None:
    """Clear the marks of a search that went so far down the two lists."""
    for cluster in range(high + 1):
        queues.met[cluster] = 0
    for position in range(at + 1):
        queues.met[queues.by_wait[position]] = 0
