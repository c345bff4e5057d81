"""Simulated worlds: costs against recomputation, the same report for the same seed, failures that take effect."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SimulationError
from headwater.federation.distribution.kernel import NOWHERE
from headwater.network import Link, Network, Site, TransitStubShape
from headwater.sim.worlds.distribution import DistributionRow, run_policy
from headwater.sim.worlds.draw import (
    DrawnQueries,
    DrawnSites,
    draw_demand,
    draw_failures,
    draw_sites,
)
from headwater.sim.worlds.model import (
    DISTRIBUTION_POLICIES,
    DistributionSettings,
    Failure,
    FailureKind,
    NetworkSource,
    ProviderSettings,
    QuerySettings,
    SimulatedWorld,
    StreamSettings,
)
from headwater.sim.worlds.policies import make_policy
from headwater.sim.worlds.simulate import simulate_world
from headwater.sim.worlds.timeline import FederationState, Moment, MomentKind, moments

COORDINATED = ("hierarchical", "online", "adaptive")

LINE = Network((Site("oslo"), Site("lima"), Site("quito")), (Link(0, 1, 0.01), Link(1, 2, 0.02)))

ONE_SUBSTREAM = SimulatedWorld(
    NetworkSource(LINE),
    ProviderSettings(("lima",)),
    StreamSettings(1, (5.0, 5.0), ("quito",), groups=1),
    QuerySettings(10, (1.0, 1.0), result_share=0.5),
    DistributionSettings(("naive",), rounds=2),
)

SMALL = SimulatedWorld(
    NetworkSource(shape=TransitStubShape(domains=1, transit=2, stubs=2, hosts=3)),
    ProviderSettings(count=6),
    StreamSettings(30, origins=3, groups=3),
    QuerySettings(24, (2.0, 5.0), arrivals=0.02),
    DistributionSettings(DISTRIBUTION_POLICIES, k=2, rounds=3),
)


def run(world: SimulatedWorld, policy: str, seed: int = 1) -> list[DistributionRow]:
    return run_all(world, policy, seed)[3]


def run_all(
    world: SimulatedWorld, policy: str, seed: int = 1
) -> tuple[DrawnSites, DrawnQueries, list[Moment], list[DistributionRow]]:
    assert world.distribution is not None and world.queries is not None
    sites = draw_sites(world, seed)
    demand = draw_demand(world, sites, seed)
    state = FederationState(sites, demand, world.queries, world.distribution)
    timeline = list(moments(state, draw_failures(world, sites, seed)))
    decide = make_policy(policy, world.distribution, demand.places.latency, seed)
    rows = run_policy(policy, decide, timeline, len(sites.names), len(demand.queries))
    return sites, demand, timeline, rows


def fail(*failures: Failure, world: SimulatedWorld = SMALL) -> SimulatedWorld:
    return replace(world, failures=failures)


# ---- costs


def test_costs_computed_by_hand() -> None:
    (start, *_, end) = run(ONE_SUBSTREAM, "naive")
    # Ten queries at lima read the same 5 bytes a second, which come 20 ms from quito once.
    assert start.traffic == end.traffic == pytest.approx(5 * 0.02)
    # WEC pays for each query's edge to the origin; among themselves they are at no distance.
    assert start.wec == pytest.approx(10 * 5 * 0.02)
    assert (start.largest_load, start.deviation, start.queries) == (1.0, 0.0, 10)


def brute_force(
    sites: DrawnSites, demand: DrawnQueries, row: DistributionRow, share: float
) -> tuple[float, float]:
    """Traffic and WEC from explicit edges and links, by the definitions."""
    network, routes = sites.routes.network, sites.routes
    queries, rate = demand.queries, demand.substreams.rate
    wants = [
        set(queries.substream[queries.start[q] : queries.start[q + 1]].tolist())
        for q in range(len(queries))
    ]
    running = [q for q in range(len(queries)) if row.hosts[q] != NOWHERE]
    host = {q: int(sites.providers[row.hosts[q]]) for q in running}
    home = {q: int(sites.providers[queries.home[q] - len(demand.origins)]) for q in running}
    origin = [int(demand.origins[o]) for o in demand.substreams.origin]
    result = {q: share * sum(rate[s] for s in wants[q]) for q in running}

    results = sum(result[q] * routes.distance[host[q], home[q]] for q in running)
    traffic = wec = results
    for s in range(len(rate)):
        links = {at for q in running if s in wants[q] for at in routes.links(origin[s], host[q])}
        traffic += rate[s] * sum(network.links[at].latency for at in links)
        wec += rate[s] * sum(routes.distance[origin[s], host[q]] for q in running if s in wants[q])
    for one, other in combinations(running, 2):
        common = sum(rate[s] for s in wants[one] & wants[other])
        wec += common * routes.distance[host[one], host[other]]
    return traffic, wec


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(["naive", "random", "greedy"]))
def test_costs_are_those_of_explicit_edges_and_links(seed: int, policy: str) -> None:
    sites, demand, _, rows = run_all(SMALL, policy, seed)
    assert SMALL.queries is not None
    for row in (rows[0], rows[-1]):
        traffic, wec = brute_force(sites, demand, row, SMALL.queries.result_share)
        assert row.traffic == pytest.approx(traffic)
        assert row.wec == pytest.approx(wec)


def test_naive_runs_queries_at_home() -> None:
    _, demand, _, rows = run_all(SMALL, "naive")
    assert (rows[-1].hosts == demand.queries.home - len(demand.origins)).all()


# ---- time


# The policies of the tree of coordinators load many compiled functions.
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, marks=[pytest.mark.long] if policy in COORDINATED else [])
        for policy in DISTRIBUTION_POLICIES
    ],
)
def test_every_query_has_a_living_host(policy: str) -> None:
    world = fail(Failure(150.0, FailureKind.dies, count=2), Failure(450.0, FailureKind.returns))
    _, _, timeline, rows = run_all(world, policy)
    assert [row.time for row in rows] == sorted(row.time for row in rows)
    for moment, row in zip(timeline, rows, strict=True):
        hosting = row.hosts[moment.running]
        assert np.isin(hosting, moment.alive).all()
        assert (row.hosts != NOWHERE).sum() == row.queries == len(moment.running)
        assert (row.loads[~np.isin(np.arange(6), moment.alive)] == 0).all()


def test_a_dead_provider_hosts_nothing_and_may_host_again() -> None:
    names = draw_sites(SMALL, 1).names
    world = replace(
        fail(
            Failure(150.0, FailureKind.dies, names[0]),
            Failure(350.0, FailureKind.returns, names[0]),
        ),
        providers=ProviderSettings(names),
        queries=QuerySettings(24, (2.0, 5.0)),
    )
    rows = run(world, "remapping")
    dead = [row for row in rows if 150 <= row.time < 350]
    assert len(dead) == 2
    assert all((row.hosts != 0).all() for row in dead)
    assert (rows[0].hosts == 0).any() and (rows[-1].hosts == 0).any()
    # Queries of its users do not run meanwhile.
    assert dead[0].queries < rows[0].queries


def test_a_federation_without_anybody_to_run_queries_is_refused_with_the_time() -> None:
    names = draw_sites(SMALL, 1).names
    able = ProviderSettings(names, capabilities=dict.fromkeys(names[1:], 0.0))
    world = fail(Failure(150.0, FailureKind.dies, names[0]), world=replace(SMALL, providers=able))
    with pytest.raises(SimulationError, match="at 150 seconds no provider is left that can run"):
        run(world, "naive")


def test_rates_that_change_change_costs() -> None:
    every = Failure(150.0, FailureKind.rates, count=30, factor=3.0)
    still = replace(SMALL, queries=QuerySettings(24, (2.0, 5.0)))
    before, after, *_ = run(fail(every, world=still), "naive")
    assert after.kind is MomentKind.failure
    assert after.traffic == pytest.approx(3 * before.traffic)
    assert after.wec == pytest.approx(3 * before.wec)
    # All queries read three times as much: the shares are as they were.
    np.testing.assert_allclose(after.loads, before.loads)
    some = Failure(150.0, FailureKind.rates, count=10, factor=3.0)
    before, after, *_ = run(fail(some, world=still), "naive")
    assert before.traffic < after.traffic < 3 * before.traffic
    assert not np.allclose(after.loads, before.loads)


def test_a_provider_that_slows_has_less_capability() -> None:
    still = replace(SMALL, queries=QuerySettings(24, (2.0, 5.0)))
    before, after, *_ = run(
        fail(Failure(150.0, FailureKind.slows, factor=4.0), world=still), "naive"
    )
    changed = after.loads / before.loads
    # By its share of all: a quarter of one capability of six is left.
    factors = sorted((changed * 6 / (5 + 1 / 4)).tolist())
    assert factors == pytest.approx([1, 1, 1, 1, 1, 4])


def test_substreams_of_a_dead_provider_are_silent() -> None:
    world = replace(
        ONE_SUBSTREAM,
        providers=ProviderSettings(("lima", "quito")),
        failures=(Failure(100.0, FailureKind.dies, "quito"),),
    )
    start, after, *_ = run(world, "naive")
    assert start.traffic > 0
    assert after.traffic == after.wec == 0


def test_queries_arrive() -> None:
    _, demand, _, rows = run_all(SMALL, "greedy")
    numbers = [row.queries for row in rows]
    assert numbers[0] == 24 and numbers == sorted(numbers) and numbers[-1] == len(demand.queries)
    assert numbers[-1] > 24


def test_only_what_must_moves_without_adaptation() -> None:
    for policy in ("naive", "random", "greedy", "centralized"):
        assert sum(row.moved for row in run(SMALL, policy)) == 0


# ---- reports


@pytest.mark.long
def test_the_same_seed_gives_the_same_report() -> None:
    world = replace(fail(Failure(150.0, FailureKind.dies)), seeds=(3, 4))
    report = simulate_world(world)
    assert report == simulate_world(world)
    assert report != simulate_world(replace(world, seeds=(3, 5)))


def test_progress_ends_at_its_total() -> None:
    seen: list[tuple[int, int]] = []
    few = DistributionSettings(("naive", "random"), rounds=3)
    simulate_world(
        replace(SMALL, distribution=few, seeds=(1, 2)),
        lambda done, total, _: seen.append((done, total)),
    )
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]


def test_a_report_has_the_means_of_the_seeds() -> None:
    world = replace(SMALL, distribution=DistributionSettings(("naive",), rounds=1))
    means = simulate_world(replace(world, seeds=(1, 2)))
    single = [simulate_world(replace(world, seeds=(seed,))) for seed in (1, 2)]
    at = means.tables[0].columns.index("traffic")
    assert means.tables[0].rows[0][at] == pytest.approx(
        np.mean([report.tables[0].rows[0][at] for report in single])
    )
    line = means.plots[0].lines[0]
    assert line.low == tuple(map(min, *(report.plots[0].lines[0].y for report in single)))
    assert line.high == tuple(map(max, *(report.plots[0].lines[0].y for report in single)))
