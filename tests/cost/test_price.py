"""Prices: on one site CPU decides, on a network the data in transit."""

from __future__ import annotations

import pytest

from headwater.cost import (
    ONE_SITE,
    Flow,
    Prices,
    Work,
    lifetime_price,
    network_prices,
    network_usage,
    price,
)
from headwater.network import Link, Network, Site

LINE = Network(
    (Site("a"), Site("b"), Site("c")),
    (Link(0, 1, latency=0.010, cost=1.0), Link(1, 2, latency=0.020, cost=5.0)),
)


def test_usage_is_rate_times_latency_times_cost_over_the_links() -> None:
    prices = network_prices(LINE)
    assert network_usage([Flow(0, 1, 1000.0)], prices) == pytest.approx(10.0)
    assert network_usage([Flow(0, 2, 1000.0)], prices) == pytest.approx(10.0 + 100.0)
    assert network_usage([Flow(2, 2, 1000.0)], prices) == 0
    both = Work(flows=(Flow(0, 1, 1000.0),)) + Work(flows=(Flow(0, 2, 1000.0),))
    assert price(both, prices) == pytest.approx(120.0)


def test_on_one_site_only_cpu_costs() -> None:
    work = Work(cpu=0.25, flows=(Flow(0, 0, 1e9),))
    assert price(work, ONE_SITE) == 0.25
    assert price(work, Prices(ONE_SITE.transit, cpu=4.0)) == 1.0


def test_a_price_is_paid_for_as_long_as_it_lasts() -> None:
    work = Work(cpu=0.5)
    assert lifetime_price(work, ONE_SITE, 10.0, 70.0) == 30.0
    assert lifetime_price(work, ONE_SITE, 70.0, 10.0) == 0.0
