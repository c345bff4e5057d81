"""What a unit takes of a site: estimated from its query, and measured once it made a few steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from headwater.algebra.nodes import Query
from headwater.cost.operators import DEFAULT_COSTS, CostTable, OperatorCost
from headwater.network.model import Network, Site
from headwater.network.sites import Deployment
from headwater.plan.placement.dynamic import StreamPopularity, place_stream
from headwater.plan.placement.from_cql import build_placement_problem
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import site_loads
from headwater.plan.throughput.profile import WorkloadProfile
from headwater.reuse.decide import SharingCosts
from headwater.runtime.catalog import Catalog, Statistic, stream_log
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.metrics.step_estimates import estimate_step

MEASURED_AFTER_STEPS = 5
"""Steps of a unit after which what it takes is measured, no longer estimated."""

RATE_AFTER_BATCHES = 30
"""Batches of a stream after which its rate is known by measurement."""


@dataclass(frozen=True)
class ResourceUsage:
    """What a unit takes: seconds of a core in a second, bytes of memory, and bytes a second it makes."""

    cpu: float
    memory: float
    rate: float

    def as_statistics(self, unit_id: str) -> dict[tuple[str, str], float]:
        """The need as what was estimated of a unit."""
        return {
            (unit_id, "estimated_cpu"): self.cpu,
            (unit_id, "estimated_memory"): self.memory,
            (unit_id, "estimated_bytes"): self.rate,
        }

    def as_operator_statistics(
        self, unit_id: str, definition: str, values: Mapping[str, Statistic]
    ) -> dict[tuple[str, str], float]:
        """The same, and that it was estimated for an operator; of which the unit has made no step
        yet, however many of others."""
        steps = values["steps"].value if "steps" in values else 0.0
        return {
            **self.as_statistics(unit_id),
            (unit_id, "estimated_for"): _definition_checksum(definition),
            (unit_id, "estimated_steps"): steps,
        }


def estimate_usage(rates: Mapping[str, float], query: Query) -> ResourceUsage:
    """What a query takes as a unit of its own, when streams have these rates.

    A unit makes a step a second, which costs what it does whatever it takes in.
    """
    costs = SharingCosts()
    cost = OperatorCost(costs.row_seconds, costs.row_seconds)
    problem = build_placement_problem(
        [("query", query)],
        Network((Site("alone"),), ()),
        WorkloadProfile("rates", (rates,)),
        CostTable(dict.fromkeys(DEFAULT_COSTS, cost)),
    )
    ledger = Ledger(problem)
    place_stream(ledger, problem.queries[0].stream, StreamPopularity())
    (load,) = site_loads(problem, ledger.plan())
    step = costs.step_seconds * costs.steps_per_second
    return ResourceUsage(step + load.cpu.used, load.memory.used, problem.streams[-1].rate)


def is_current_estimate(values: Mapping[str, Statistic], definition: str) -> bool:
    """Whether what was estimated, and is measured, of a unit is of the operator that it runs now. A unit
    that has lost a query, or got one, runs another."""
    return "estimated_for" in values and values["estimated_for"].value == _definition_checksum(
        definition
    )


def _definition_checksum(definition: str) -> float:
    return float(crc32(definition.encode()))


def estimated_usage(values: Mapping[str, Statistic]) -> ResourceUsage:
    """What was estimated of a unit; nothing if it came before there were sites."""
    names = ("estimated_cpu", "estimated_memory", "estimated_bytes")
    return ResourceUsage(*(values[name].value if name in values else 0.0 for name in names))


def measured_usage(values: Mapping[str, Statistic], rows: float) -> ResourceUsage | None:
    """What a unit takes when it steps once a second and so many rows come in one, by what its steps
    took; None before it made a few."""
    numbers = {name: statistic.value for name, statistic in values.items()}
    step = estimate_step(numbers)
    steps = numbers.get("steps", 0.0) - numbers.get("estimated_steps", 0.0)
    if step is None or steps < MEASURED_AFTER_STEPS or not numbers["step_rows_in"]:
        return None
    return ResourceUsage(
        step.fixed + step.per_row * rows,
        numbers.get("estimated_memory", 0.0),
        numbers.get("step_bytes_out", 0.0) / numbers["step_rows_in"] * rows,
    )


def stream_rates(
    catalog: Catalog, definitions: Definitions, deployment: Deployment
) -> dict[str, float]:
    """Tuples of each stream in a second: what is said of it or, if more come or nothing is said, what
    was measured. Files that wait to be read say nothing of how fast they come."""
    rates = {}
    for name, declared in definitions.streams.items():
        statistics = catalog.statistics(stream_log(name))
        entry = deployment.streams.get(name)
        declared_rate = None if entry is None else entry.rate
        measured_rate = statistics["rows_rate"].value if "rows_rate" in statistics else 0.0
        is_live = declared.source is None or declared.source.kind != "files"
        is_measured = "batches" in statistics and statistics["batches"].value >= RATE_AFTER_BATCHES
        rates[name] = (
            measured_rate
            if declared_rate is None
            else max(declared_rate, measured_rate)
            if is_live and is_measured
            else declared_rate
        )
    return rates
