"""What sharing saves now: the load of each query alone, by the model, against what its unit takes.

The model says how the loads of queries and of their unit compare; what the unit was measured to take says
how large they are. So a model that is wrong by some factor on all of them is not wrong here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater.cost.model import CostModel
from headwater.cost.provenance import measured
from headwater.reuse.decide import has_lanes, relaxing_load
from headwater.reuse.lanes import MAX_LANES
from headwater.reuse.load import OperatorLoad, operator_load, reading_load
from headwater.reuse.operator import Operator, minimal_operator, serving_operator
from headwater.reuse.signature import QuerySignature
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, stream_log
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.lifecycle import input_streams, plannable_queries
from headwater.runtime.metrics.cost_model import LANES, measured_load, read_cost_model
from headwater.runtime.metrics.sharing import CostlyQuery, SharingSummary

MAX_PRICED = 200
"""Of more queries of a unit than these, evenly chosen ones are priced and stand for the others."""

MAX_COMPARED = 30
"""Units of at most so many queries are also priced without each of them."""

MIN_EXCESS = 0.1
"""A query costs more shared than alone if it does by at least this part of what it costs alone."""


def unit_model(catalog: Catalog, planner: UnitPlanner, unit: UnitRow) -> CostModel:
    """The model of a unit's streams, at the pace at which it was measured to step."""
    values = catalog.statistics(unit.id)
    streams = [row.name for row in input_streams(catalog, unit)]
    model = read_cost_model(catalog, streams, planner.definitions.namespace)
    pace = values.get("steps_rate")
    if pace is None or not pace.value:
        return model
    steps = values["steps"].value if "steps" in values else 0.0
    return replace(model, steps_per_second=measured(pace.value, steps))


def unit_load(
    catalog: Catalog, planner: UnitPlanner, unit: UnitRow, operator: Operator, model: CostModel
) -> OperatorLoad:
    """The load of a unit with that operator, by what the unit reads: streams, or the rows of another."""
    if not any(name.startswith("unit:") for name in unit.inputs):
        return operator_load(operator, model)
    hidden, _ = catalog.partial_joins(unit.id)
    if hidden is None:
        return operator_load(operator, model)
    return reading_load(operator, minimal_operator(planner.signature(hidden)), model)


def summarize_sharing(catalog: Catalog, planner: UnitPlanner) -> SharingSummary:
    """What the units that run share, as it was measured last."""
    total = SharingSummary()
    for unit in catalog.units():
        values = {name: s.value for name, s in catalog.statistics(unit.id).items()}
        load = measured_load(values)
        if load is None:
            continue
        planned = plannable_queries(catalog.subscribers(unit.id), input_streams(catalog, unit))
        lanes = values.get(LANES, 1.0)
        one = _summarize_unit(catalog, planner, unit, planned, load.value, lanes)
        total = SharingSummary(
            total.queries + one.queries,
            total.units + 1,
            total.cores + one.cores,
            total.cores_alone + one.cores_alone,
            total.bytes + one.bytes,
            total.bytes_alone + one.bytes_alone,
            (*total.costly, *one.costly),
        )
    return total


def _summarize_unit(
    catalog: Catalog,
    planner: UnitPlanner,
    unit: UnitRow,
    planned: Sequence[QueryRow],
    cores: float,
    lanes: float,
) -> SharingSummary:
    # A unit that only others read serves no query of a user, but takes what it takes.
    queries = [query for query in planned if not query.is_hidden]
    unit = planner.ensure_definition(catalog, unit)
    operator = planner.operator(unit)
    if operator is None:
        moved = sum(_log_rate(catalog, row.name) for row in input_streams(catalog, unit))
        n = len(queries)
        cores_alone = _cores_alone(catalog, planner, unit, queries, cores)
        return SharingSummary(n, 1, cores, cores_alone, moved, n * moved)
    model = unit_model(catalog, planner, unit)
    together = unit_load(catalog, planner, unit, operator, model)
    # The model is trusted for the proportions alone: how large loads are was measured.
    scale = cores / together.cpu
    chosen = queries[:: max(1, -(-len(queries) // MAX_PRICED))]
    signatures = planner.signatures(chosen)
    alone = [operator_load(minimal_operator(s), model) for s in signatures]
    weight = len(queries) / max(1, len(chosen))
    return SharingSummary(
        len(queries),
        1,
        cores,
        weight * scale * sum(load.cpu for load in alone),
        together.bytes_moved,
        weight * sum(load.bytes_moved for load in alone),
        tuple(
            _costly(
                unit,
                queries,
                planner.signatures(planned),
                operator,
                lambda operator: unit_load(catalog, planner, unit, operator, model),
                model,
                scale,
                lanes,
            )
        )
        if len(queries) <= MAX_COMPARED
        else (),
    )


def _cores_alone(
    catalog: Catalog, planner: UnitPlanner, unit: UnitRow, queries: Sequence[QueryRow], cores: float
) -> float:
    """What queries without an operator would take alone. One that is equal to all takes what the unit takes;
    of others that are computed beside each other nothing is certain but that each would have steps of its own."""
    if len({query.digest for query in queries}) < 2:
        return len(queries) * cores
    model = unit_model(catalog, planner, unit)
    steps = model.step_seconds(len(unit.inputs)) * model.steps_per_second.value
    return max(cores, cores + (len(queries) - 1) * min(steps, cores))


def _costly(
    unit: UnitRow,
    queries: Sequence[QueryRow],
    served: Sequence[QuerySignature],
    operator: Operator,
    load_of: Callable[[Operator], OperatorLoad],
    model: CostModel,
    scale: float,
    lanes: float,
) -> list[CostlyQuery]:
    """The queries without which their unit would cost less, by more than they would cost alone; `served`
    are the signatures of all that it serves, other units included. One in a lane of its own costs no more
    than alone, whatever the operator is."""
    costly: list[CostlyQuery] = []
    if len({s.digest for s in served}) < 2:
        return costly
    has_lane = has_lanes(operator) and lanes < MAX_LANES
    together = load_of(operator).cpu
    by_key = {signature.digest: signature for signature in served}
    equal = Counter(signature.digest for signature in served)
    for query in queries:
        others = [s for s in served if s.digest != query.result_key]
        without = load_of(serving_operator(others)).cpu
        own = operator_load(minimal_operator(by_key[query.result_key]), model)
        alone, lane = own.cpu, own if has_lane else None
        added = relaxing_load(without, together, lane) / equal[query.result_key]
        if added > alone * (1 + MIN_EXCESS):
            costly.append(CostlyQuery(query.spelled, unit.id, added * scale, alone * scale))
    return costly


def _log_rate(catalog: Catalog, stream: str) -> float:
    stored = catalog.statistic(stream_log(stream), "bytes_rate")
    return 0.0 if stored is None else stored.value
