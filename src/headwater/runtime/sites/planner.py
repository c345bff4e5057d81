"""Where units run: the placement problem of a deployment, admission of new units, and planning again.

A unit is an operator that reads logs and writes one; it runs at one site. Any process may plan: sites
read the outcome from the catalog.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from threading import Lock

from headwater.cost.model import CostModel
from headwater.errors import PlanError, QueryRefused
from headwater.network.model import Network
from headwater.network.sites import Deployment
from headwater.plan.placement.check import Violation
from headwater.plan.placement.from_cql import TEXT_WIDTH
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import (
    PlacementOperator,
    PlacementPlan,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
    RunOperator,
    SendStream,
    ServeStream,
    build_links,
)
from headwater.plan.placement.planner import Budget, Decision, Planner
from headwater.plan.placement.planners.adapt import STRAY_THRESHOLD, adapt
from headwater.plan.placement.planners.dynamic import StreamPopularity, place_stream
from headwater.plan.placement.planners.ladder import overfull_resources
from headwater.plan.placement.planners.registry import DEFAULT_PLANNER, make_planner
from headwater.plan.throughput.from_cql import type_width
from headwater.runtime.catalog import (
    Assignment,
    Catalog,
    Lease,
    NewUnit,
    UnitRow,
    ingest_owner,
    is_log,
    is_log_copy,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import alive_sites, log_at_site
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.leases import process_name
from headwater.runtime.lifecycle import is_stopped_for_good
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.sites.invariants import find_broken_units
from headwater.runtime.sites.resource_usage import (
    ResourceUsage,
    estimate_usage,
    estimated_usage,
    is_current_estimate,
    measured_usage,
    stream_rates,
)

PLANNING_LEASE_SECONDS = 60.0
UNIT_PLANNING_SECONDS = 1.0
"""How long planning one unit may take."""

RESOURCES = ("cpu", "memory", "bandwidth in", "bandwidth out", "link")

MAX_ROUNDS = 3
"""Rounds in which units may still move to make room for those that a move has cut off."""

MIN_GAIN = 0.01
"""Where more runs than fits, units move only if that removes at least this share of the overload."""


@dataclass(frozen=True)
class UnitDemand:
    """A unit to be placed: its id, the logs that it reads, and its usage; `new_statistics` has that if it
    was estimated again, as the operator has changed."""

    id: str
    inputs: tuple[str, ...]
    usage: ResourceUsage
    new_statistics: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedSystem:
    """The problem of a deployment and the plan by which it runs now.

    Sites that are away are not part of it, so nothing can be placed there or sent through them. Query n
    and operator n of the problem are unit n. `logs` maps the streams of the problem that units read to
    their logs; the results of units have none.
    """

    problem: PlacementProblem
    plan: PlacementPlan
    units: tuple[UnitDemand, ...]
    logs: Mapping[int, str]

    @property
    def sites(self) -> list[str]:
        return [site.name for site in self.problem.sites]

    def number(self, unit_id: str) -> int:
        return [unit.id for unit in self.units].index(unit_id)


@dataclass(frozen=True)
class ReplanResult:
    """What planning again has changed: units that moved, and those that no site can run at present."""

    moved: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass
class _StreamDraft:
    """Streams of a problem, by their logs."""

    streams: list[PlacementStream] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, rate: float, site: int | None = None) -> int:
        self.positions[name] = len(self.streams)
        sites = () if site is None else (site,)
        self.streams.append(PlacementStream(name, frozenset({name}), rate, sites))
        return self.positions[name]


@dataclass(frozen=True)
class SitePlanner:
    """Places the units of a state on its sites: admits new ones, and plans again."""

    catalog: Catalog
    definitions: Definitions
    deployment: Deployment

    # ---- the present problem

    def alive_sites(self) -> set[str]:
        """The sites that are alive; all of them while none is, so that queries can be submitted before
        the sites start."""
        return alive_sites(self.catalog) or {site.name for site in self.deployment.network.sites}

    def system(
        self,
        alive: Collection[str],
        new: Sequence[UnitDemand] = (),
        usages: Mapping[str, ResourceUsage] | None = None,
        now: Assignment | None = None,
    ) -> PlannedSystem:
        """The problem of all running units and of new ones on living sites, with the plan by which they
        run at present, or would by the assignment `now`. `usages` replaces the usage of some units.

        The log of a unit that another one reads is available where that unit is `now`.
        """
        now = self.catalog.assignment() if now is None else now
        network = _alive_network(self.deployment.network, alive)
        site_positions = {site.name: position for position, site in enumerate(network.sites)}
        running = (*self._unit_demands(), *new)
        units = [replace(u, usage=(usages or {}).get(u.id, u.usage)) for u in running]
        draft = _StreamDraft()
        self._add_declared_streams(draft, alive, site_positions, now)
        # Results that no unit reads stay where they are, and need no stream of the problem.
        read = {log for unit in units for log in unit.inputs}
        for unit in units:
            if (log := unit_log(unit.id)) in read:
                draft.add(log, unit.usage.rate, site_positions.get(now.owners.get(log, "")))
        logs = {stream_position: log for log, stream_position in draft.positions.items()}
        results = [draft.add(f"the results of {unit.id}", unit.usage.rate) for unit in units]
        operators = [
            PlacementOperator(
                tuple(draft.positions[log] for log in unit.inputs if is_log(log)),
                result,
                unit.usage.cpu,
                unit.usage.memory,
            )
            for unit, result in zip(units, results, strict=True)
        ]
        problem = PlacementProblem(
            network.sites,
            tuple(draft.streams),
            tuple(operators),
            tuple(
                PlacementQuery(unit.id, result) for unit, result in zip(units, results, strict=True)
            ),
            build_links(network),
        )
        at_present = [site_positions.get(now.owners.get(unit_log(unit.id), "")) for unit in units]
        placed = {n: site for n, site in enumerate(at_present) if site is not None}
        plan = PlacementPlan(
            frozenset(RunOperator(site, n) for n, site in placed.items()),
            frozenset(
                SendStream(site_positions[origin], site_positions[site], draft.positions[log])
                for (log, site), origin in now.routes.items()
                if log in draft.positions and site in site_positions and origin in site_positions
            ),
            frozenset(ServeStream(site, results[n]) for n, site in placed.items()),
            frozenset(placed),
        )
        return PlannedSystem(problem, plan, tuple(units), logs)

    def active_units(self) -> list[UnitRow]:
        """The units that some site has to run."""
        return [u for u in self.catalog.units() if not is_stopped_for_good(self.catalog, u)]

    def _unit_demands(self) -> list[UnitDemand]:
        """The running units with their usage, measured if possible."""
        statistics = self.catalog.all_statistics()
        rates = stream_rates(self.catalog, self.definitions, self.deployment)
        by_log = {stream_log(name): rate for name, rate in rates.items()}
        unit_planner = UnitPlanner(self.definitions)
        model = self._cost_model()
        demands = []
        for row in self.active_units():
            values = statistics.get(row.id, {})
            rows = sum(by_log.get(log, 0.0) for log in row.inputs)
            unit = unit_planner.ensure_definition(self.catalog, row)
            if is_current_estimate(values, unit.definition):
                usage = measured_usage(values, rows) or estimated_usage(values)
                demands.append(UnitDemand(row.id, row.inputs, usage))
            else:
                usage = estimate_usage(rates, self.definitions.query(unit.definition), model)
                new_statistics = usage.as_operator_statistics(row.id, unit.definition, values)
                demands.append(UnitDemand(row.id, row.inputs, usage, new_statistics))
        return demands

    def _add_declared_streams(
        self,
        draft: _StreamDraft,
        alive: Collection[str],
        site_positions: Mapping[str, int],
        now: Assignment,
    ) -> None:
        """The declared streams, each at the site that ingests it."""
        rates = stream_rates(self.catalog, self.definitions, self.deployment)
        for name, declared in self.definitions.streams.items():
            width = sum(type_width(column.type, TEXT_WIDTH) for column in declared.stream.schema)
            statistics = self.catalog.statistics(stream_log(name))
            if "rows_rate" in statistics and statistics["rows_rate"].value > 0:
                width = statistics["bytes_rate"].value / statistics["rows_rate"].value
            ingest_site = self._ingest_site(name, alive, now.owners.get(ingest_owner(name)))
            site = None if ingest_site is None else site_positions[ingest_site]
            draft.add(stream_log(name), rates[name] * width, site)

    def _ingest_site(self, stream: str, alive: Collection[str], current: str | None) -> str | None:
        """The site that ingests a stream: the first living one of those declared for it; if none is
        declared, the one that does already, or else the first living site."""
        entry = self.deployment.streams.get(stream)
        if entry is not None and entry.sites:
            return next((site for site in entry.sites if site in alive), None)
        able = [site.name for site in self.deployment.network.sites if site.name in alive]
        return current if current in able else next(iter(able), None)

    # ---- new units

    def admit(self, name: str, unit: NewUnit) -> None:
        """Find a site for a new unit and assign it; raises QueryRefused, saying what is short."""
        usage = self._estimate_usage(unit.definition)
        # Under the lease from reading the assignment to replacing it: two that plan at once would
        # both give away the same room.
        new = UnitDemand(unit.id, unit.inputs, usage)
        with planning_lease(self.catalog) as lease:
            alive = self.alive_sites()
            system = self.system(alive, [new])
            ledger = Ledger(system.problem, system.plan)
            self._admit_or_refuse(name, system, ledger, new)
            planned = self.assignment(system, ledger.plan())
            after = self._complete_assignment(alive, planned, [new])
            self._check_still_fits(name, self.system(alive, [new], now=after), ledger)
            self._assign(lease, after, usage.as_operator_statistics(unit.id, unit.definition, {}))

    def admit_relaxed(self, name: str, unit_id: str, definition: str) -> None:
        """Relax a unit for a query that joins it, where it runs or, if it no longer fits there, at another
        site; raises QueryRefused if it fits nowhere."""
        usage = self._estimate_usage(definition)
        usages = {unit_id: usage}
        with planning_lease(self.catalog) as lease:
            alive = self.alive_sites()
            system = self.system(alive, usages=usages)
            ledger, unit = Ledger(system.problem, system.plan), UnitDemand(unit_id, (), usage)
            if not ledger.fits() and system.number(unit_id) in ledger.admitted:
                ledger.withdraw(system.number(unit_id))
                ledger.commit()
                self._admit_or_refuse(name, system, ledger, unit)
            planned = self.assignment(system, ledger.plan())
            after = self._complete_assignment(alive, planned, usages=usages)
            self._check_still_fits(name, self.system(alive, usages=usages, now=after), ledger)
            values = self.catalog.statistics(unit_id)
            self._assign(lease, after, usage.as_operator_statistics(unit_id, definition, values))

    def _estimate_usage(self, definition: str) -> ResourceUsage:
        rates = stream_rates(self.catalog, self.definitions, self.deployment)
        return estimate_usage(rates, self.definitions.query(definition), self._cost_model())

    def _cost_model(self) -> CostModel:
        """What operators cost on the machine of the state, if that was calibrated."""
        return read_cost_model(self.catalog, (), self.definitions.namespace)

    def _admit_or_refuse(
        self, name: str, system: PlannedSystem, ledger: Ledger, unit: UnitDemand
    ) -> None:
        budget = Budget(UNIT_PLANNING_SECONDS)
        (decision,) = self._planner()(ledger, [system.number(unit.id)], budget)
        if not decision.admitted:
            # Whether the query would fit on empty sites: the message then says if waiting for room
            # can help.
            (alone,) = self._planner()(Ledger(system.problem), [decision.query], budget)
            raise QueryRefused(
                refusal_message(name, unit.usage, system, ledger, decision, alone.admitted)
            )

    def _planner(self) -> Planner:
        """A new planner, as `SET planner` says: one that remembers nothing of what it was asked last."""
        return make_planner(self.catalog.options().get("planner", DEFAULT_PLANNER))

    def _check_still_fits(self, name: str, system: PlannedSystem, planned: Ledger) -> None:
        """Refuse a query for which a unit would move, and those that read it would not fit where they
        can reach it."""
        ledger = Ledger(system.problem, system.plan)
        # Compared with a tolerance, as a system that is overloaded already must not refuse a query
        # for that.
        if overload(ledger) > overload(planned) * (1 + MIN_GAIN) + MIN_GAIN:
            short = "; ".join(map(str, overfull_resources(ledger)))
            raise QueryRefused(
                f"query {name} is refused: units would have to move for it, and those that read "
                f"them would not fit: {short}"
            )

    def _assign(
        self, lease: Lease, assignment: Assignment, statistics: Mapping[tuple[str, str], float]
    ) -> None:
        new_statistics = {
            key: value
            for unit in self._unit_demands()
            for key, value in unit.new_statistics.items()
        }
        copies = self._copied_logs(assignment)
        self.catalog.replace_assignment(
            assignment, copies, lease, new_statistics | dict(statistics)
        )

    def assignment(self, system: PlannedSystem, plan: PlacementPlan) -> Assignment:
        """The assignment that a plan means."""
        sites = system.sites
        streams = system.problem.streams
        owners = {unit_log(system.units[run.operator].id): sites[run.site] for run in plan.runs}
        for number, log in system.logs.items():
            kind, _, name = log.partition(":")
            if kind == "stream" and streams[number].sites:
                owners[ingest_owner(name)] = sites[streams[number].sites[0]]
        routes = {
            (system.logs[send.stream], sites[send.target]): sites[send.origin]
            for send in plan.sends
            if send.stream in system.logs  # results are read where they were written
        }
        return Assignment(owners, routes)

    def _copied_logs(self, assignment: Assignment) -> set[str]:
        """The copies of logs that an assignment needs."""
        logs = {log_at_site(self.deployment, assignment, *route) for route in assignment.routes}
        return {log for log in logs if is_log_copy(log)}

    def _complete_assignment(
        self,
        alive: Collection[str],
        now: Assignment,
        new: Sequence[UnitDemand] = (),
        usages: Mapping[str, ResourceUsage] | None = None,
    ) -> Assignment:
        """The assignment with a site for every unit that has none, or that its inputs no longer reach; the
        others stay where they are, unless there is no other way to make room.

        A plan assumes that the log of a unit is where that unit was. If the unit has moved, or is new,
        those that read it are planned again from its new site. After MAX_ROUNDS no other unit is moved
        for them, so the loop terminates.
        """
        for attempt in count():
            system = self.system(alive, new, usages, now)
            ledger = Ledger(system.problem, system.plan)
            missing = sorted(set(range(len(system.units))) - ledger.admitted)
            if attempt < MAX_ROUNDS:
                able = [query for query in missing if _can_run(ledger, query)]
                missing = [d.query for d in self._try_admit(ledger, able) if not d.admitted]
            self._place_anyway(ledger, missing)
            before, now = now, self.assignment(system, ledger.plan())
            if all(before.owners.get(log) == now.owners.get(log) for log in system.logs.values()):
                return now
        raise AssertionError("rounds never end by themselves")

    def _try_admit(self, ledger: Ledger, queries: Sequence[int]) -> list[Decision]:
        return list(self._planner()(ledger, queries, Budget(UNIT_PLANNING_SECONDS)))

    def _place_anyway(self, ledger: Ledger, queries: Iterable[int]) -> None:
        """Place units where they do least harm, beyond the capacity of sites; units whose inputs no site
        can get wait."""
        for query in sorted(queries):
            if place_stream(
                ledger, ledger.problem.queries[query].stream, StreamPopularity(), limited=False
            ):
                ledger.ask(query)
        ledger.commit()

    # ---- planning again

    def broken_units(
        self, alive: Collection[str], assignment: Assignment | None = None
    ) -> dict[str, str]:
        """The units that cannot run as assigned though they could, each with the fault."""
        now = self.catalog.assignment() if assignment is None else assignment
        units = {unit_log(unit.id): unit.inputs for unit in self.active_units()}
        faults = find_broken_units(self.deployment, alive, units, now)
        return {log.partition(":")[2]: fault for log, fault in faults.items()}

    def replan(
        self,
        alive: Collection[str],
        suspects: Mapping[str, ResourceUsage] | None = None,
        max_moves: int = 1,
    ) -> ReplanResult:
        """Assign all units to living sites; nothing changes if nothing has to.

        No query is dropped: a unit that fits nowhere runs where it does least harm, beyond the capacity
        of the site, and waits only if no site can get its inputs. Of the `suspects`, whose usage has
        drifted from its estimate, at most `max_moves` are moved; their usage is the new estimate.
        """
        drifted = suspects or {}
        new_statistics: dict[tuple[str, str], float] = {}
        for unit, usage in drifted.items():
            new_statistics |= usage.as_statistics(unit)
        with planning_lease(self.catalog) as lease:
            before = self.catalog.assignment()
            after = self._relieve_overload(
                alive, self._complete_assignment(alive, before), list(drifted), max_moves
            )
            self._assign(lease, after, new_statistics)
            units = [unit.id for unit in self.active_units()]
        owners = {
            unit: (before.owners.get(unit_log(unit)), after.owners.get(unit_log(unit)))
            for unit in units
        }
        return ReplanResult(
            tuple(unit for unit, (before_site, now) in owners.items() if before_site != now),
            tuple(unit for unit, (_, now) in owners.items() if now is None),
        )

    def _relieve_overload(
        self, alive: Collection[str], now: Assignment, suspects: Sequence[str], max_moves: int
    ) -> Assignment:
        """The assignment with less overload, and suspects planned again; unchanged if that removes too
        little of the overload, so that units do not swap sites forever."""
        system = self.system(alive, now=now)
        overloaded = Ledger(system.problem, system.plan)
        if not suspects and overloaded.fits():
            return now
        numbers = {unit.id: n for n, unit in enumerate(system.units)}
        chosen = [numbers[unit] for unit in suspects if unit in numbers]
        adapted = adapt(
            system.problem,
            system.plan,
            self._planner(),
            Budget(UNIT_PLANNING_SECONDS),
            suspects=chosen,
            most=max_moves,
        )
        ledger = Ledger(system.problem, adapted.plan)
        self._place_anyway(ledger, adapted.waiting)
        after = self._complete_assignment(alive, self.assignment(system, ledger.plan()))
        if suspects:
            return after
        system = self.system(alive, now=after)
        eased = overload(Ledger(system.problem, system.plan))
        return after if eased < overload(overloaded) * (1 - MIN_GAIN) else now

    def drifted_units(self) -> dict[str, ResourceUsage]:
        """The units whose usage differs from the estimate by more than a threshold, with their usage; the
        farthest first."""
        statistics = self.catalog.all_statistics()
        drifted: list[tuple[float, str, ResourceUsage]] = []
        for unit in self._unit_demands():
            # Its operator has changed just now, so what was measured is not of it.
            if unit.new_statistics:
                continue
            assumed = estimated_usage(statistics.get(unit.id, {})).cpu
            drift = abs(unit.usage.cpu - assumed) / assumed if assumed > 0 else 0.0
            if drift > STRAY_THRESHOLD:
                drifted.append((-drift, unit.id, unit.usage))
        return {unit: usage for _, unit, usage in sorted(drifted, key=lambda drift: drift[:2])}


def _can_run(ledger: Ledger, query: int) -> bool:
    """Whether some site can get all inputs of a unit, whatever its load."""
    with ledger.attempt():
        return place_stream(
            ledger, ledger.problem.queries[query].stream, StreamPopularity(), limited=False
        )


def overload(ledger: Ledger) -> float:
    """How far a plan exceeds the capacities of sites and links, in shares of these; 0 if it fits."""
    if ledger.fits():
        return 0.0
    shares = [
        max(0.0, load.used - load.capacity) / (load.capacity or 1.0) for load in _all_loads(ledger)
    ]
    return sum(share for share in shares if share < inf)


def _all_loads(ledger: Ledger) -> Iterator[Load]:
    plan = ledger.plan()
    for site in site_loads(ledger.problem, plan):
        yield from (site.cpu, site.memory, site.bandwidth_in, site.bandwidth_out)
    yield from (link.bandwidth for link in link_loads(ledger.problem, plan))


def _alive_network(network: Network, alive: Collection[str]) -> Network:
    """The living sites of a network, with the links between them."""
    positions = [n for n, site in enumerate(network.sites) if site.name in alive]
    new_position = {old: new for new, old in enumerate(positions)}
    links = [
        replace(k, a=new_position[k.a], b=new_position[k.b])
        for k in network.links
        if {k.a, k.b} <= set(positions)
    ]
    return Network(tuple(network.sites[n] for n in positions), tuple(links))


_thread_lock = Lock()
"""A lease belongs to a process, so it does not keep two of its threads apart: this lock does."""


@contextmanager
def planning_lease(catalog: Catalog) -> Iterator[Lease]:
    """Let one process and thread plan at a time."""
    with _thread_lock, _acquire_planning_lease(catalog) as lease:
        yield lease


@contextmanager
def _acquire_planning_lease(catalog: Catalog) -> Iterator[Lease]:
    started = time.monotonic()
    while (lease := catalog.acquire("plan", process_name(), PLANNING_LEASE_SECONDS)) is None:
        if time.monotonic() - started > 2 * PLANNING_LEASE_SECONDS:
            raise PlanError("another process has been planning for minutes; try again")
        time.sleep(0.05)
    try:
        yield lease
    finally:
        catalog.release(lease)


# ---- refusals


def refusal_message(
    name: str,
    usage: ResourceUsage,
    system: PlannedSystem,
    ledger: Ledger,
    decision: Decision,
    fits_alone: bool,
) -> str:
    """Why a query is not admitted, and what would help; `fits_alone` if it would be where nothing else
    ran."""
    shortage = "; ".join(map(str, decision.shortages)) or "no site was found"
    proof = "" if decision.proven else " (not proven: with more time a site may be found)"
    text = [
        f"query {name} is refused: {shortage}{proof}",
        f"  estimated usage: {usage.cpu:.3g} cores, {usage.memory:,.0f} bytes of memory, "
        f"emits {usage.rate:,.0f} bytes a second",
    ]
    if not fits_alone:
        text.append("  it would not fit even if nothing else ran")
    return "\n".join([*text, *_remedies(decision.shortages, system, ledger)])


def _remedies(shortages: Sequence[Violation], system: PlannedSystem, ledger: Ledger) -> list[str]:
    """What would make room: more of the resource that is short, or dropping the largest unit."""
    remedies = [
        f"  would help: {violation.excess:,.3g} more {violation.constraint} of {violation.where}"
        for violation in shortages
        if violation.constraint in RESOURCES
    ]
    units = [system.units[n] for n in ledger.admitted]
    largest = max(units, key=lambda unit: (unit.usage.cpu, unit.usage.rate), default=None)
    if remedies and largest is not None:
        remedies.append(
            f"  or drop the queries of unit {largest.id}, which uses {largest.usage.cpu:.3g} cores "
            f"and emits {largest.usage.rate:,.0f} bytes a second"
        )
    return remedies
