"""The cost model of a state: what the catalog holds comes back, and what was not measured does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.algebra.canonical import Block, canonicalize
from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost
from headwater.cost.provenance import Provenance
from headwater.cql import CreateQuery, parse
from headwater.reuse import minimal_operator, signature_of
from headwater.reuse.load import equijoin, source_condition, source_share
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.join_order import Term, compute_selectivities
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.inspect.loads import format_load
from headwater.runtime.metrics.cost_model import (
    JOINS,
    condition_statistics,
    cost_statistics,
    read_cost_model,
    shares_owner,
)
from headwater.runtime.metrics.sharing import describe_sharing, read_sharing, store_sharing
from headwater.runtime.metrics.sharing_loads import summarize_sharing
from headwater.runtime.metrics.step_meter import StepMeter, StepReport

STATEMENTS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY dear AS SELECT b.price FROM bids [RANGE 1 MIN] b, asks [RANGE 1 MIN] a
  WHERE b.item = a.item AND b.price > 9 AND a.cost < 3;
"""


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STATEMENTS)
        yield headwater


def block_of(headwater: Headwater) -> Block:
    text = headwater.query("dear").row.definition
    (statement,) = parse(text, Definitions(headwater.catalog).namespace)
    assert isinstance(statement, CreateQuery)
    body = canonicalize(statement.query).body
    assert isinstance(body, Block)
    return body


def ran(first: int, other: int | None, out: int) -> list[dict[str, Any]]:
    """The join of a term that Spark ran, with the rows that came in and went out."""

    def scan(rows: int | None) -> dict[str, Any]:
        return {"kind": "scan", "rows_out": rows, "inputs": []}

    return [{"kind": "join", "rows_out": out, "inputs": [scan(first), scan(other)]}]


def term_of(block: Block, rows: dict[str, int]) -> Term:
    first, second = (source.alias for source in block.sources if hasattr(source, "alias"))
    return Term(block, (first, second), rows, span=60.0)


def test_what_is_stored_comes_back(headwater: Headwater) -> None:
    """Conditions that a step measured price every query that has them, whatever its aliases are."""
    block = block_of(headwater)
    aliases = [source.alias for source in block.sources if hasattr(source, "alias")]
    term = term_of(block, {aliases[0]: 100, aliases[1]: 1_000})
    stored = condition_statistics(ran(25, 500, 50), [term])
    catalog, namespace = headwater.catalog, Definitions(headwater.catalog).namespace
    catalog.set_statistics(stored)
    log = stream_log("bids")
    catalog.set_statistics(
        {(log, "rows_rate"): 12.0, (log, "bytes_rate"): 600.0, (log, "batches"): 9.0}
    )
    model = read_cost_model(catalog, ["Bids", "asks"], namespace, {"asks": 4.0})
    assert model.stream("bids").rate.value == 12.0
    assert model.stream("bids").tuple_bytes.value == 50.0
    assert model.stream("bids").rate.provenance is Provenance.MEASURED
    assert model.stream("asks").rate.value == 4.0
    assert model.stream("asks").rate.provenance is Provenance.DECLARED
    assert read_cost_model(catalog, ["asks"], namespace).stream("asks").rate.value == 0.0

    operator = minimal_operator(signature_of(canonicalize(_query(headwater, "dear"))))
    (name,) = model.joins
    assert equijoin(operator, model)[0] == name
    # Half of what was read is in the window at a time: the delta is as long as the window.
    assert model.joins[name].value == pytest.approx(50 / (25 * 250))
    measured_stream = next(s for s in ("bids", "asks") if model.filters[s])
    scan = next(s for s in operator.scans if s.stream.lower() == measured_stream)
    share = source_share(operator.where, scan, model)
    assert (share.value, share.provenance) == (0.25, Provenance.MEASURED)
    (seen,) = model.filters[measured_stream]
    assert seen.condition == source_condition(operator.where, scan.alias)


def _query(headwater: Headwater, name: str) -> Any:
    (statement,) = parse(
        headwater.query(name).row.definition, Definitions(headwater.catalog).namespace
    )
    assert isinstance(statement, CreateQuery)
    return statement.query


def test_a_shared_join_is_measured_below_its_constants(headwater: Headwater) -> None:
    """The rows of all terms meet the table of constants: that join is none of the terms."""
    term = term_of(block_of(headwater), {"s0": 100, "s1": 1_000})
    (joined,) = ran(25, 500, 50)
    constants = {"kind": "scan", "label": "Scan nothing", "rows_out": 1, "inputs": []}

    def shared(rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"kind": "join", "rows_out": 50, "inputs": [rows, constants]}]

    several = {"kind": "union", "rows_out": 100, "inputs": [joined, joined]}
    for measure in (condition_statistics, compute_selectivities):
        alone = measure([joined], [term])
        assert alone
        assert measure(shared(joined), [term]) == alone
        assert measure(shared(several), [term, term]) == alone
        assert not measure(shared(several), [term])


def test_an_empty_window_is_no_measurement(headwater: Headwater) -> None:
    block = block_of(headwater)
    term = term_of(block, {"s0": 100, "s1": 1_000})
    joined = [name for name in compute_selectivities(ran(25, 500, 0), [term]) if "join" in name]
    assert joined  # that no pair joined of many is one
    for empty in (ran(25, 0, 0), ran(0, 500, 0)):
        assert not [name for name in compute_selectivities(empty, [term]) if "join" in name]
        assert not [owner for owner, _ in condition_statistics(empty, [term]) if owner == JOINS]
    assert not condition_statistics([], [term])


def test_calibrated_costs_are_those_of_all_processes(headwater: Headwater) -> None:
    catalog, namespace = headwater.catalog, Definitions(headwater.catalog).namespace
    assert read_cost_model(catalog, [], namespace).costs == SECOND_COSTS
    table = CostTable({**SECOND_COSTS.costs, "step": OperatorCost(0.7), "join": OperatorCost(1, 2)})
    catalog.set_statistics(cost_statistics(table))
    model = read_cost_model(catalog, [], namespace)
    assert model.costs == table and model.costs_known is Provenance.CALIBRATED
    assert model.step_seconds(1) > read_cost_model(catalog, [], namespace).costs["step"].per_tuple


def test_a_condition_of_a_stream_that_has_changed_is_left_out(headwater: Headwater) -> None:
    catalog, namespace = headwater.catalog, Definitions(headwater.catalog).namespace
    catalog.set_statistics({(shares_owner("bids"), "`gone` > 1"): 0.5})
    assert read_cost_model(catalog, ["bids"], namespace).filters["bids"] == ()


def test_what_sharing_saves_follows_from_what_was_measured(headwater: Headwater) -> None:
    catalog = headwater.catalog
    planner = UnitPlanner(Definitions(catalog))
    assert summarize_sharing(catalog, planner).queries == 0  # nothing was measured yet
    assert read_sharing(catalog) is None
    headwater.execute(
        "CREATE QUERY wide AS SELECT a.cost FROM bids [RANGE 1 MIN] b, asks [RANGE 1 MIN] a "
        "WHERE b.item = a.item AND b.price > 9;"
    )
    (unit,) = catalog.units()
    values = {"cpu_steps": 6.0, "cpu_rate": 0.2, "steps_rate": 0.8, "steps": 6.0}
    catalog.set_statistics({(unit.id, name): value for name, value in values.items()})
    found = summarize_sharing(catalog, planner)
    assert (found.queries, found.units, found.cores, found.costly) == (2, 1, 0.2, ())
    # Alone each would take at most what both take together.
    assert 0.2 < found.cores_alone <= 0.4 and found.cores_saved > 0
    assert describe_sharing(found)[0].startswith(
        "2 queries in 1 unit; about 0.2 cores of 0.4 saved"
    )
    store_sharing(catalog, found)
    assert read_sharing(catalog) == found == headwater.status().sharing
    twice = {(unit.id, "cpu_rate"): 0.4}
    catalog.set_statistics(twice)
    again = summarize_sharing(catalog, planner)
    assert again.cores_alone == pytest.approx(2 * found.cores_alone)
    assert replace(again, cores_alone=found.cores_alone) == replace(found, cores=0.4)


def test_explain_says_how_each_estimate_is_known(headwater: Headwater) -> None:
    catalog = headwater.catalog
    (unit,) = catalog.units()
    log = stream_log("bids")
    catalog.set_statistics(
        {
            (log, "rows_rate"): 12.0,
            (log, "batches"): 9.0,
            (shares_owner("bids"), "`price` > 9"): 0.5,
            (unit.id, "cpu_steps"): 6.0,
            (unit.id, "cpu_rate"): 0.25,
        }
    )
    load = headwater.query("dear").placement().load
    assert load is not None and load.measured == 0.25
    assert load.predicted == pytest.approx(load.steps + sum(node.cpu for node in load.nodes))
    text = format_load(load)
    assert "scan bids: 12 rows/s (rate measured)" in text
    assert "filter bids: 6 rows/s (rate measured, selectivity measured)" in text
    assert "join asks and bids: 0 rows/s (rate default, selectivity default, join default)" in text
    assert text[-1].endswith("measured 0.2500") and "(costs default)" in text[-1]
    assert headwater.query("dear").placement().as_json()["load"]["nodes"][0]["known"]
    for line in text:
        assert line in headwater.query("dear").explain()


def test_steps_of_any_unit_say_what_steps_cost(headwater: Headwater) -> None:
    catalog, namespace = headwater.catalog, Definitions(headwater.catalog).namespace
    (unit,) = catalog.units()
    expected = read_cost_model(catalog, [], namespace).step_seconds(2)
    for number in range(6):
        # The first step of a process takes many times as long, which is not to count.
        seconds = 30.0 if number == 0 else 2 * expected
        report = StepReport({}, rows_in=10, cpu_seconds=seconds)
        # Another process goes on with what the one before has measured.
        measured = StepMeter(catalog).record_step(unit.id, report, expected_seconds=expected)
        catalog.commit(None, statistics=measured.statistics, profiles=measured.profiles)
    model = read_cost_model(catalog, [], namespace)
    assert model.step_seconds(2) == pytest.approx(2 * expected)
    assert model.step_seconds(1, True) > read_cost_model(catalog, [], namespace).step_seconds(1)
    assert (model.costs_known, model.steps_known) == (Provenance.DEFAULT, Provenance.MEASURED)
    values = {name: s.value for name, s in catalog.statistics(unit.id).items()}
    assert values["cpu_steps"] == 6
    assert values["cpu_fixed"] == pytest.approx(2 * expected)
    assert values["cpu_seconds"] == pytest.approx(30 + 5 * 2 * expected)
