"""The workloads are what section 5.1 of the paper says, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reproduce.streamreuse.question import prepare_query
from headwater.reproduce.streamreuse.workload import HOUR, Workload, airline_workload, rfid_workload


@cache
def workload(name: str) -> Workload:
    return (airline_workload if name == "EW" else rfid_workload)(1)


def streams(workload: Workload) -> Namespace:
    declared = parse(workload.declarations)
    return Namespace.of(one.stream for one in declared if isinstance(one, CreateStream))


@pytest.mark.parametrize(("name", "per_hour"), [("EW", 60), ("RW", 30)])
def test_arrivals(name: str, per_hour: int) -> None:
    arrivals = workload(name).arrivals
    assert all(a.time < b.time for a, b in pairwise(arrivals))
    assert 0.8 * 5 * per_hour < len(arrivals) < 1.2 * 5 * per_hour
    lifetimes = {(one.kind, one.lifetime / HOUR) for one in arrivals}
    assert lifetimes == {("gate", 2), ("terminal", 12), ("monitoring", 6)}
    kinds = Counter(one.kind for one in arrivals)
    assert kinds["gate"] > 4 * kinds["terminal"] > 4 * kinds["monitoring"] > 0


@pytest.mark.parametrize("name", ["EW", "RW"])
def test_the_seed_decides(name: str) -> None:
    make = airline_workload if name == "EW" else rfid_workload
    assert make(3) == make(3)
    assert make(3).arrivals != make(4).arrivals


def test_every_airline_query_is_another_one() -> None:
    texts = [one.text for one in workload("EW").arrivals]
    assert len(set(texts)) == len(texts)
    streams_used = {len(t.split("FROM")[1].split("WHERE")[0].split("RANGE")) - 1 for t in texts}
    assert streams_used == {2, 3, 4, 5}


def test_tracking_queries_have_three_to_five_joins() -> None:
    joins = Counter(one.text.count(".tag = ") for one in workload("RW").arrivals)
    assert set(joins) == {3, 4, 5}


@pytest.mark.parametrize("name", ["EW", "RW"])
def test_queries_are_cql_whose_parts_have_rates(name: str) -> None:
    made = workload(name)
    names = streams(made)
    for arrival in made.arrivals[:8]:
        asked = prepare_query(parse_query(arrival.text, names), made.statistics)
        assert asked.streams <= set(made.statistics)
        assert asked.joins[-1] == asked.streams
        assert all(rate > 0 for rate in asked.rates.values())
