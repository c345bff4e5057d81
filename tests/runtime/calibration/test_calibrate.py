"""Costs follow from what trials took; measured ones go where `tune` and the engine read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost, format_costs, read_costs
from headwater.errors import InputError
from headwater.runtime.calibration.calibrate import TRIALS, calibrate, fit_costs
from headwater.runtime.engine.engine import COSTS_FILE, read_state_costs

prices = st.floats(1e-7, 1e-3)


@settings(deadline=None)
@given(prices, prices, prices, prices)
def test_costs_are_found_from_what_trials_take(
    emit: float, select: float, tuple_: float, result: float
) -> None:
    """Noise aside, the seconds that costs make up lead back to the costs."""
    true = {
        "emit": OperatorCost(0, emit),
        "select": OperatorCost(select),
        "join": OperatorCost(tuple_, result),
        "project": OperatorCost(emit),
    }
    features = [trial.counts(100_000) for trial in TRIALS[:7]]
    seconds = [
        sum(true[k].per_tuple * n + true[k].per_result * r for k, (n, r) in one.items())
        for one in features
    ]
    found = fit_costs(features, seconds)
    again = [
        sum(found[k].per_tuple * n + found[k].per_result * r for k, (n, r) in one.items())
        for one in features
    ]
    assert again == pytest.approx(seconds, rel=1e-6)
    assert min(cost for one in found.costs.values() for cost in vars(one).values()) >= 0


def test_every_kind_of_operator_is_tried() -> None:
    tried = {kind for trial in TRIALS for kind in trial.counts(1)}
    assert tried == set(CostTable().costs) - {"read", "write", "step", "term", "panes"}


def test_a_state_has_the_costs_of_its_file(tmp_path: Path) -> None:
    assert read_state_costs(tmp_path) == SECOND_COSTS
    table = CostTable({**SECOND_COSTS.costs, "join": OperatorCost(2e-6, 3e-7)})
    (tmp_path / COSTS_FILE).write_text(format_costs(table))
    assert read_state_costs(tmp_path) == read_costs(tmp_path / COSTS_FILE) == table
    (tmp_path / COSTS_FILE).write_text("[join]\ntuple = -1\n")
    with pytest.raises(InputError, match=r"costs.toml:2: tuple is -1"):
        read_state_costs(tmp_path)


@pytest.mark.spark
def test_a_join_is_measured_on_spark(spark: Any) -> None:
    said: list[str] = []
    found = calibrate(spark, 4_000, 1, (TRIALS[0], TRIALS[5]), said.append)
    assert [words.partition(":")[0] for words in said] == ["1 of 2", "2 of 2"]
    assert found["aggregate"] == SECOND_COSTS["aggregate"], "it was not among the trials"
    assert all(found[kind].per_tuple >= 0 for kind in ("read", "step", "term", "panes"))
    assert found["step"].per_tuple + found["term"].per_tuple > 0
    for kind in ("emit", "select", "join", "project"):
        assert 0 <= found[kind].per_tuple + found[kind].per_result < 1
