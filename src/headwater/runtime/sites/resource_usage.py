"""The resources that a unit uses: estimated from its query, and measured after a few steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from headwater.algebra.nodes import Query, Relation, Scan, TableScan
from headwater.cost.model import CostModel
from headwater.network.model import Network, Site
from headwater.network.sites import Deployment
from headwater.plan.placement.from_cql import build_placement_problem
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import site_loads
from headwater.plan.placement.planners.dynamic import StreamPopularity, place_stream
from headwater.plan.throughput.profile import WorkloadProfile
from headwater.runtime.catalog import Catalog, Statistic, stream_log
from headwater.runtime.catalog.definitions import Definitions

MEASURED_AFTER_STEPS = 5
"""Steps of a unit after which its measured usage replaces the estimate."""

RATE_AFTER_BATCHES = 30
"""Batches of a stream after which its measured rate counts."""


@dataclass(frozen=True)
class ResourceUsage:
    """What a unit uses: cores, bytes of memory, and the bytes a second that it emits."""

    cpu: float
    memory: float
    rate: float

    def as_statistics(self, unit_id: str) -> dict[tuple[str, str], float]:
        """The usage as the estimate of a unit."""
        return {
            (unit_id, "estimated_cpu"): self.cpu,
            (unit_id, "estimated_memory"): self.memory,
            (unit_id, "estimated_bytes"): self.rate,
        }

    def as_operator_statistics(
        self, unit_id: str, definition: str, values: Mapping[str, Statistic]
    ) -> dict[tuple[str, str], float]:
        """The usage as the estimate for the operator of that definition. Steps that the unit made before
        were those of another operator, and do not count as measured."""
        steps = values["steps"].value if "steps" in values else 0.0
        return {
            **self.as_statistics(unit_id),
            (unit_id, "estimated_for"): _definition_checksum(definition),
            (unit_id, "estimated_steps"): steps,
        }


def estimate_usage(
    rates: Mapping[str, float], query: Query, model: CostModel | None = None
) -> ResourceUsage:
    """The usage of a query as a unit of its own, when streams have these rates.

    A unit makes one step a second, which has a fixed cost however little it reads.
    """
    model = model or CostModel()
    problem = build_placement_problem(
        [("query", query)],
        Network((Site("alone"),), ()),
        WorkloadProfile("rates", (rates,)),
        model.costs,
    )
    ledger = Ledger(problem)
    place_stream(ledger, problem.queries[0].stream, StreamPopularity())
    (load,) = site_loads(problem, ledger.plan())
    step = model.step_seconds(_source_count(query.root)) * model.steps_per_second.value
    return ResourceUsage(step + load.cpu.used, load.memory.used, problem.streams[-1].rate)


def _source_count(relation: Relation) -> int:
    if isinstance(relation, Scan | TableScan):
        return 1
    return sum(_source_count(below) for below in relation.inputs)


def is_current_estimate(values: Mapping[str, Statistic], definition: str) -> bool:
    """Whether the stored estimate of a unit is for the operator that it runs now: a query that joins or
    leaves may change the operator."""
    return "estimated_for" in values and values["estimated_for"].value == _definition_checksum(
        definition
    )


def _definition_checksum(definition: str) -> float:
    # Statistics are numbers, so the operator of an estimate is stored as a checksum.
    return float(crc32(definition.encode()))


def estimated_usage(values: Mapping[str, Statistic]) -> ResourceUsage:
    """The estimate of a unit; zero if it was created before there were sites."""
    names = ("estimated_cpu", "estimated_memory", "estimated_bytes")
    return ResourceUsage(*(values[name].value if name in values else 0.0 for name in names))


def measured_usage(values: Mapping[str, Statistic], rows: float) -> ResourceUsage | None:
    """The usage of a unit that steps once a second and reads `rows` a second, by the CPU seconds of
    its measured steps; None before it has made a few."""
    numbers = {name: statistic.value for name, statistic in values.items()}
    steps = numbers.get("steps", 0.0) - numbers.get("estimated_steps", 0.0)
    if "cpu_fixed" not in numbers or steps < MEASURED_AFTER_STEPS or not numbers["step_rows_in"]:
        return None
    return ResourceUsage(
        numbers["cpu_fixed"] + numbers["cpu_per_row"] * rows,
        numbers.get("estimated_memory", 0.0),
        numbers.get("step_bytes_out", 0.0) / numbers["step_rows_in"] * rows,
    )


def stream_rates(
    catalog: Catalog, definitions: Definitions, deployment: Deployment
) -> dict[str, float]:
    """Tuples of each stream in a second: the declared rate or, if more come or none is declared, the
    measured one. How fast files are read does not count: it says nothing of how fast they are written."""
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
