"""Window joins by brute force, shared operators, and BSD over clusters.

Compiling these simulators takes most of the time; hence they are with the slow tests.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schedule import POLICIES, SHARING_RULES, Candidate, Policy
from headwater.schedule.clusters import (
    fagin_best_cluster,
    logarithmic_clusters,
    scan_best_cluster,
    singleton_clusters,
)
from headwater.sim.arrivals import FixedTimes, OnOff, Poisson, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.clustered import build_queues, choose_cluster, run_clustered, update_head
from headwater.sim.coin_flips import coin_flip, pass_threshold, run_key
from headwater.sim.joins import run_joins, stream_seeds
from headwater.sim.metrics import COUNT, SimulationResult
from headwater.sim.plain import PAIR_FACTOR, PlainJoins, PlainSets, ideal_departure, run_plan
from headwater.sim.sets import run_sets
from headwater.sim.workload import (
    Chain,
    SimulatedOperator,
    WindowJoin,
    paper_chains,
    paper_joins,
    paper_sets,
)

pytestmark = pytest.mark.slow
QUICK = settings(max_examples=50, deadline=None)
BSD = POLICIES["bsd"]
Workload = tuple[tuple[Chain, ...], OnOff, list[float]]


def assert_same(compiled: SimulationResult, plain: SimulationResult) -> None:
    assert compiled.tally.tobytes() == plain.tally.tobytes()
    assert (compiled.end_time, compiled.executions) == (plain.end_time, plain.executions)
    assert compiled.decisions == plain.decisions
    assert compiled.metrics().results > 0


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_window_joins(policy: Policy) -> None:
    streams = (Poisson(50), Poisson(40, 1.25))
    joins = paper_joins(4, 0.9, (1.0, 1.25), queries=10)
    compiled = run_joins(joins, policy, streams, 4)
    assert_same(compiled, run_plan(PlainJoins(joins, 4), policy, streams, stream_seeds(4)))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("sharing", SHARING_RULES)
def test_shared_operators(policy: Policy, sharing: str) -> None:
    ranked = policy.with_sharing(SHARING_RULES[sharing])
    arrivals = OnOff(40)
    sets = paper_sets(5, 0.95, mean_gap(arrivals, 5), queries=40)
    compiled = run_sets(sets, ranked, arrivals, 5)
    assert_same(compiled, run_plan(PlainSets(sets, ranked, 5), ranked, [arrivals], [5]))


# ---- joins


def test_joins_give_the_pairs_that_brute_force_finds() -> None:
    streams = (Poisson(60, 0.5), Poisson(50, 0.7))
    joins = paper_joins(3, 0.9, (0.5, 0.7), queries=8)
    left, right = (
        np.concatenate(list(s.chunks(seed)))
        for s, seed in zip(streams, stream_seeds(3), strict=True)
    )

    def passes(query: int, place: int, number: int, operator: SimulatedOperator) -> bool:
        return coin_flip(run_key(3), number, 4 * query + place) < pass_threshold(
            operator.selectivity
        )

    for policy in POLICIES.values():
        run = run_joins(joins, policy, streams, 3)
        for query, join in enumerate(joins):
            wanted = sum(
                abs(a - b) <= join.window
                and passes(query, 0, m, join.sides[0])
                and passes(query, 1, n, join.sides[1])
                and passes(query, 2, m * PAIR_FACTOR + n, join.join)
                for m, a in enumerate(left)
                for n, b in enumerate(right)
            )
            assert run.tally[query, COUNT] == wanted


JOIN = WindowJoin(
    (SimulatedOperator(1.0), SimulatedOperator(2.0)),
    SimulatedOperator(4.0),
    SimulatedOperator(8.0),
    100.0,
    (1.0, 1.0),
)


def test_a_composite_tuple_is_not_blamed_for_waiting_for_its_partner() -> None:
    assert JOIN.ideal == 1 + 2 + 2 * 4 + 8
    assert ideal_departure(JOIN, 0.0, 50.0) == 50 + 2 + 4 + 8
    assert ideal_departure(JOIN, 50.0, 0.0) == 50 + 1 + 4 + 8
    assert ideal_departure(JOIN, 0.0, 1.0) == (0 + 1 + 4) + 2 + 4 + 8
    alone = run_joins(
        [JOIN], POLICIES["fcfs"], (FixedTimes((0.0,)), FixedTimes((50.0,))), 1
    ).metrics()
    assert (alone.results, alone.response, alone.slowdown) == (1, 14.0, 1.0)


def test_a_composite_tuple_is_as_slow_as_it_waited_beyond_that() -> None:
    """The left tuple waits for another query that takes 30."""
    other = replace(JOIN, sides=(SimulatedOperator(30.0, 0.0), SimulatedOperator(30.0, 0.0)))
    run = run_joins([other, JOIN], POLICIES["fcfs"], (FixedTimes((0.0,)), FixedTimes((1.0,))), 1)
    found = run.metrics([1])
    assert found.slowdown == pytest.approx(1 + (30 + 5 + 30 + 14 - 19) / 19)


# ---- the cheap forms of BSD


@pytest.fixture(scope="module")
def workload() -> Workload:
    arrivals = OnOff(150)
    chains = paper_chains(6, 0.95, mean_gap(arrivals, 6), queries=60)
    standings = [BSD.static_priority(Candidate("", 0.0, (chain.segment(),))) for chain in chains]
    return chains, arrivals, standings


def test_single_clusters_without_a_price_are_bsd(workload: Workload) -> None:
    chains, arrivals, standings = workload
    ideal = run_chains(chains, BSD, arrivals, 6)
    for pruned in (False, True):
        cheap = run_clustered(
            chains, singleton_clusters(standings), arrivals, 6, pruned, decision_cost=0.0
        )
        assert cheap.tally.tobytes() == ideal.tally.tobytes()
        assert (cheap.executions, cheap.decisions, cheap.overhead) == (
            ideal.executions,
            ideal.decisions,
            0.0,
        )


def test_pruning_changes_the_price_and_no_choice(workload: Workload) -> None:
    chains, arrivals, standings = workload
    clusters = logarithmic_clusters(standings, 12)
    free = [
        run_clustered(chains, clusters, arrivals, 6, pruned, decision_cost=0.0) for pruned in (0, 1)
    ]
    assert free[0].tally.tobytes() == free[1].tally.tobytes()
    paid = [run_clustered(chains, clusters, arrivals, 6, pruned) for pruned in (False, True)]
    assert paid[1].overhead <= paid[0].overhead
    assert paid[0].end_time > free[0].end_time


def test_clustered_processing_decides_less(workload: Workload) -> None:
    chains, arrivals, standings = workload
    clusters = logarithmic_clusters(standings, 12)
    alone = run_clustered(chains, clusters, arrivals, 6, run_whole_cluster=False, decision_cost=0.0)
    together = run_clustered(chains, clusters, arrivals, 6, decision_cost=0.0)
    assert together.decisions == 150 * len(clusters.static_priorities)
    assert alone.decisions == 150 * len(chains)
    assert together.tally[:, COUNT].tobytes() == alone.tally[:, COUNT].tobytes()


queues = st.lists(st.none() | st.floats(0.0, 100.0), min_size=1, max_size=12)


@QUICK
@given(queues)
def test_compiled_decisions_are_the_plain_ones(since: list[float | None]) -> None:
    clusters = singleton_clusters([float(n + 1) for n in range(len(since))])
    compiled = build_queues(clusters)
    for cluster, time in enumerate(since):
        if time is not None:
            update_head(compiled, cluster, time)
    if any(time is not None for time in since):
        for pruned, plain in ((False, scan_best_cluster), (True, fagin_best_cluster)):
            found = plain(clusters.static_priorities, since, 100.0)
            cluster, computed = choose_cluster(compiled, 100.0, pruned)
            assert cluster == found.cluster
            if not pruned:
                assert computed == found.computed
    else:
        assert choose_cluster(compiled, 100.0, True) == (-1, 0)


# ---- shared operators


def test_ways_to_share_differ_in_the_order_alone() -> None:
    arrivals = OnOff(100)
    sets = paper_sets(7, 0.9, mean_gap(arrivals, 7), queries=100)
    runs = [run_sets(sets, BSD.with_sharing(how), arrivals, 7) for how in SHARING_RULES.values()]
    assert len({run.tally[:, COUNT].tobytes() for run in runs}) == 1
    assert len({run.executions for run in runs}) == 1
    assert len({run.tally.tobytes() for run in runs}) > 1
