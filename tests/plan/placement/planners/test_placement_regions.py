"""Regions first, sites inside: the cut, and plans that are as good as those of all sites at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.network.model import Site
from headwater.plan.placement.check import find_violations
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import (
    Links,
    PlacementOperator,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
)
from headwater.plan.placement.planner import Budget
from headwater.plan.placement.planners import regions
from headwater.plan.placement.planners.dynamic import StreamPopularity, place_stream
from headwater.plan.placement.planners.regions import RegionPlacer, cut_into_regions
from headwater.plan.placement.planners.registry import make_planner
from headwater.plan.placement.samples import SampleSetting, sample_problem
from placement_systems import exhaustive, random_system


def sites(count: int) -> tuple[Site, ...]:
    return tuple(Site(f"h{i}", cpu=50, bandwidth_in=50, bandwidth_out=50) for i in range(count))


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 50])
def test_without_narrow_links_regions_are_even(count: int) -> None:
    found = cut_into_regions(PlacementProblem(sites(count), (), (), ()))
    assert sorted(site for region in found for site in region) == list(range(count))
    assert all(len(region) == len(found[0]) for region in found[:-1])
    assert len(found) <= len(found[0]) <= len(found) + 2


def test_regions_grow_along_the_widest_links() -> None:
    """Two triangles of wide links, and a narrow one between them; their sites alternate."""
    wide = [(0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5)]
    links = {pair: 30.0 for a, b in wide for pair in ((a, b), (b, a))}
    links |= {(0, 1): 5.0, (1, 0): 5.0}
    found = cut_into_regions(PlacementProblem(sites(6), (), (), (), Links(0.0, links)))
    assert [sorted(region) for region in found] == [[0, 2, 4], [1, 3, 5]]


@given(seed=st.integers(0, 10**6), links=st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_site_is_in_one_region(seed: int, links: bool) -> None:
    problem = random_system(seed, hosts=12, links=links)
    found = cut_into_regions(problem)
    assert sorted(site for region in found for site in region) == list(range(len(problem.sites)))
    assert all(found)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_a_query_that_all_sites_can_place_is_placed(seed: int) -> None:
    """Yes or no is the answer of the dynamic program on all sites, from the same plan."""
    problem = random_system(seed, hosts=7, queries=6)
    ledger, taste, way = Ledger(problem), StreamPopularity(), RegionPlacer()
    for query in range(len(problem.queries)):
        stream = problem.queries[query].stream
        before = ledger.plan()
        with ledger.attempt():
            flat = place_stream(ledger, stream, taste)
        done = way(ledger, stream, taste)
        assert done or not flat
        assert done or ledger.plan() == before
        if done:
            ledger.ask(query)
        ledger.commit()
        assert find_violations(problem, ledger.plan(), before) == ()


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_the_planner_refuses_only_what_has_no_plan(seed: int) -> None:
    problem = random_system(seed, hosts=3, queries=3)
    ledger, planner = Ledger(problem), make_planner("regions")
    for query in range(len(problem.queries)):
        before = ledger.plan()
        possible = exhaustive(problem, before, [query]) is not None
        (decision,) = planner(ledger, [query], Budget(5.0))
        assert decision.admitted or not possible
        assert decision.admitted or decision.proven
        assert find_violations(problem, ledger.plan(), before) == ()


def test_it_looks_at_few_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is room, a plan is found among the sites of a few regions and the holders."""
    problem = sample_problem(SampleSetting(hosts=400, base_streams=4000, queries=60), 1)
    looked: list[int | None] = []

    def counted(
        ledger: Ledger, stream: int, taste: StreamPopularity, sites: list[int] | None = None
    ) -> bool:
        looked.append(None if sites is None else len(sites))
        return place_stream(ledger, stream, taste, sites=sites)

    monkeypatch.setattr(regions, "place_stream", counted)
    ledger, taste, way = Ledger(problem), StreamPopularity(), RegionPlacer()
    assert all(way(ledger, query.stream, taste) for query in problem.queries)
    assert all(count is not None and count < 100 for count in looked)


def joined(sites: tuple[Site, ...], first: int, second: int) -> PlacementProblem:
    """Two streams that come in at sites, and a query for their join."""
    streams = (
        PlacementStream("a", frozenset("a"), 10, (first,)),
        PlacementStream("b", frozenset("b"), 10, (second,)),
        PlacementStream("ab", frozenset("ab"), 1),
    )
    return PlacementProblem(
        sites, streams, (PlacementOperator((0, 1), 2, 20),), (PlacementQuery("q", 2),)
    )


def test_the_region_that_can_join_is_found_wherever_streams_come_in() -> None:
    weak = tuple(replace(site, cpu=0.0) for site in sites(9))
    ledger = Ledger(joined((*weak[:8], sites(9)[8]), 0, 4))
    assert RegionPlacer()(ledger, 2, StreamPopularity())
    assert {run.site for run in ledger.plan().runs} == {8}


def test_when_regions_fail_all_sites_are_looked_at() -> None:
    """Regions that seem to have all it takes, but on different sites, are cheaper than the one that
    has it on one site; and there are more of them than tries."""
    mute = Site("mute", cpu=1000, bandwidth_in=0, bandwidth_out=0)
    idle = Site("idle", cpu=0, bandwidth_in=1000, bandwidth_out=1000)
    able = Site("able", cpu=25, bandwidth_in=25, bandwidth_out=25)
    region = (mute, idle, idle, idle, idle)
    assert len(region) - 1 > regions.MAX_TRIES
    ledger = Ledger(joined((*region * 4, *(idle,) * 4, able), 1, 2))
    assert cut_into_regions(ledger.problem)[-1] == [20, 21, 22, 23, 24]
    assert RegionPlacer()(ledger, 2, StreamPopularity())
    assert {run.site for run in ledger.plan().runs} == {24}


def test_another_problem_is_cut_again() -> None:
    way, taste = RegionPlacer(), StreamPopularity()
    for count in (4, 9):
        stream = PlacementStream("s", frozenset("s"), 1.0, (count - 1,))
        problem = PlacementProblem(sites(count), (stream,), (), (PlacementQuery("q", 0),))
        assert way(Ledger(problem), 0, taste)
