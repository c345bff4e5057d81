"""The load of operators: what was measured counts, and more never costs less."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from compensated import asked
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cost.conditions import MeasuredShare
from headwater.cost.model import CostModel, StreamModel
from headwater.cost.provenance import Provenance, declared, measured
from headwater.cost.rates import ColumnStatistics
from headwater.reuse import Operator, SharingKind, minimal_operator, relax
from headwater.reuse.load import (
    SharingCosts,
    equijoin,
    estimate_load,
    operator_load,
    source_condition,
    source_share,
)
from overlapping import random_group, random_join


def random_model(rng: random.Random, operators: list[Operator]) -> CostModel:
    """A model in which some columns are declared, and some conditions measured, at random."""

    def columns(*names: str) -> dict[str, ColumnStatistics]:
        bounds = rng.choice([(None, None), (0.0, 10.0)])
        return {
            name: ColumnStatistics(rng.choice([2.0, 10.0, 500.0]), *bounds)
            for name in names
            if rng.random() < 0.5
        }

    streams = {
        "bids": StreamModel(
            declared(rng.choice([1.0, 1e3, 1e5])), columns=columns("item", "bidder")
        ),
        "asks": StreamModel(declared(rng.choice([1.0, 1e3, 1e5])), columns=columns("item", "cost")),
    }
    filters: dict[str, tuple[MeasuredShare, ...]] = {}
    joins = {}
    for operator in operators:
        for scan in operator.scans:
            seen = MeasuredShare(
                source_condition(operator.where, scan.alias, rng.random() < 0.5),
                measured(rng.random(), rng.randrange(1, 50)),
            )
            filters[scan.stream.lower()] = (*filters.get(scan.stream.lower(), ()), seen)
        if len(operator.scans) > 1 and rng.random() < 0.5:
            joins[equijoin(operator, CostModel())[0]] = measured(rng.random(), 3)
    return CostModel(streams, joins, filters)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_a_wider_operator_never_costs_less(seed: int, grouped: bool) -> None:
    """Whatever was declared and measured, also if measurements contradict each other."""
    rng = random.Random(seed)
    draw = random_group if grouped else random_join
    wanted = [asked(draw(rng)).form for _ in range(12)]
    signatures = [one for one in wanted if one.block is not None]
    model = random_model(rng, [minimal_operator(one) for one in signatures])
    widest: dict[str, Operator] = {}
    for one in signatures:
        before = widest.get(one.sharing_key, minimal_operator(one))
        after = relax(before, one)
        loads = [operator_load(operator, model).cpu for operator in (before, after)]
        assert loads[1] >= loads[0] * (1 - 1e-9)
        assert loads[1] >= operator_load(minimal_operator(one), model).cpu * (1 - 1e-9)
        widest[one.sharing_key] = after


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32))
def test_a_measured_condition_has_the_share_that_was_measured(seed: int) -> None:
    rng = random.Random(seed)
    one = asked(random_join(rng)).form
    operator = minimal_operator(one) if one.kind is SharingKind.JOIN else None
    if operator is None:
        return
    scan = operator.scans[0]
    share = rng.random()
    seen = MeasuredShare(source_condition(operator.where, scan.alias), measured(share, 9))
    model = CostModel(filters={scan.stream.lower(): (seen,)})
    found = source_share(operator.where, scan, model)
    assert found == seen.share
    assert found.provenance is Provenance.MEASURED


@pytest.mark.parametrize("rate", [0.0, 1.0, 1e6])
def test_load_grows_with_rates_steps_and_costs(rate: float) -> None:
    one = asked(random_join(random.Random(3))).form
    operator = minimal_operator(one)
    costs = SharingCosts(rates={"bids": rate, "asks": rate})
    load = estimate_load(operator, costs)
    assert load > 0
    assert estimate_load(operator, replace(costs, steps_per_second=2.0)) > load
    assert estimate_load(operator, replace(costs, step_seconds=9.0)) > load
    more = replace(costs, rates={"bids": rate + 1, "asks": rate + 1})
    assert estimate_load(operator, more) > load
