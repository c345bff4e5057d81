"""What a unit takes of a site: estimated from its query, and measured once it made a few steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from headwater.algebra.nodes import Query
from headwater.cost.operators import DEFAULTS, CostTable, OperatorCost
from headwater.network.model import Network, Site
from headwater.network.sites import Deployment
from headwater.plan.placement.dynamic import Taste, place
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import site_loads
from headwater.plan.placement.written import placement_problem
from headwater.plan.throughput.profile import Profile
from headwater.reuse.decide import Prices
from headwater.runtime.catalog import Catalog, Statistic, stream_log
from headwater.runtime.definitions import Definitions
from headwater.runtime.scheduling import expected

MEASURED_AFTER = 5
"""Steps of a unit after which what it takes is measured, no longer estimated."""

RATE_AFTER = 30
"""Batches of a stream after which its rate is known by measurement."""


@dataclass(frozen=True)
class Need:
    """What a unit takes: seconds of a core in a second, bytes of memory, and bytes a second it makes."""

    cpu: float
    memory: float
    rate: float

    def statistics(self, unit_id: str) -> dict[tuple[str, str], float]:
        """The need as what was estimated of a unit."""
        return {
            (unit_id, "estimated_cpu"): self.cpu,
            (unit_id, "estimated_memory"): self.memory,
            (unit_id, "estimated_bytes"): self.rate,
        }

    def of_operator(
        self, unit_id: str, definition: str, values: Mapping[str, Statistic]
    ) -> dict[tuple[str, str], float]:
        """The same, and that it was estimated for an operator; of which the unit has made no step
        yet, however many of others."""
        steps = values["steps"].value if "steps" in values else 0.0
        return {
            **self.statistics(unit_id),
            (unit_id, "estimated_for"): _mark(definition),
            (unit_id, "estimated_steps"): steps,
        }


def estimate(rates: Mapping[str, float], query: Query) -> Need:
    """What a query takes as a unit of its own, when streams have these rates.

    A unit makes a step a second, which costs what it does whatever it takes in.
    """
    prices = Prices()
    cost = OperatorCost(prices.row, prices.row)
    problem = placement_problem(
        [("query", query)],
        Network((Site("alone"),), ()),
        Profile("rates", (rates,)),
        CostTable(dict.fromkeys(DEFAULTS, cost)),
    )
    ledger = Ledger(problem)
    place(ledger, problem.queries[0].stream, Taste())
    (load,) = site_loads(problem, ledger.plan())
    step = prices.step * prices.steps_a_second
    return Need(step + load.cpu.used, load.memory.used, problem.streams[-1].rate)


def is_current(values: Mapping[str, Statistic], definition: str) -> bool:
    """Whether what was estimated, and is measured, of a unit is of the operator that it runs now. A unit
    that has lost a query, or got one, runs another."""
    return "estimated_for" in values and values["estimated_for"].value == _mark(definition)


def _mark(definition: str) -> float:
    return float(crc32(definition.encode()))


def estimated(values: Mapping[str, Statistic]) -> Need:
    """What was estimated of a unit; nothing if it came before there were sites."""
    names = ("estimated_cpu", "estimated_memory", "estimated_bytes")
    return Need(*(values[name].value if name in values else 0.0 for name in names))


def measured(values: Mapping[str, Statistic], rows: float) -> Need | None:
    """What a unit takes when it steps once a second and so many rows come in one, by what its steps
    took; None before it made a few."""
    known = {name: found.value for name, found in values.items()}
    step = expected(known)
    steps = known.get("steps", 0.0) - known.get("estimated_steps", 0.0)
    if step is None or steps < MEASURED_AFTER or not known["step_rows_in"]:
        return None
    return Need(
        step.fixed + step.per_row * rows,
        known.get("estimated_memory", 0.0),
        known.get("step_bytes_out", 0.0) / known["step_rows_in"] * rows,
    )


def rates_of(
    catalog: Catalog, definitions: Definitions, deployment: Deployment
) -> dict[str, float]:
    """Tuples of each stream in a second: what is said of it or, if more come or nothing is said, what
    was measured. Files that wait to be read say nothing of how fast they come."""
    rates = {}
    for name, declared in definitions.streams.items():
        known = catalog.statistics(stream_log(name))
        entry = deployment.streams.get(name)
        said = None if entry is None else entry.rate
        came = known["rows_rate"].value if "rows_rate" in known else 0.0
        is_live = declared.source is None or declared.source.kind != "files"
        many = "batches" in known and known["batches"].value >= RATE_AFTER
        rates[name] = came if said is None else max(said, came) if is_live and many else said
    return rates
