"""Where units run: the placement problem of a deployment, admission of new units, and planning again.

A unit is an operator that reads logs and makes one; it runs at one site. Whoever plans, sites agree on
the outcome by the catalog.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from threading import Lock

from headwater.errors import PlanError, Refused
from headwater.network.model import Network
from headwater.network.sites import Deployment
from headwater.plan.placement.adapt import THRESHOLD, adapt
from headwater.plan.placement.check import Broken
from headwater.plan.placement.dynamic import Taste, place
from headwater.plan.placement.ladder import Ladder, overfull
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import (
    Operator,
    Plan,
    Problem,
    Query,
    Run,
    Send,
    Serve,
    Stream,
    links_of,
)
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.written import TEXT_WIDTH
from headwater.plan.throughput.written import width_of
from headwater.runtime.catalog import (
    Assignment,
    Catalog,
    Lease,
    NewUnit,
    UnitRow,
    ingest_owner,
    is_copy,
    is_log,
    stream_log,
    unit_log,
)
from headwater.runtime.claims import this_process
from headwater.runtime.definitions import Definitions
from headwater.runtime.lifecycle import stopped_for_good
from headwater.runtime.sharing import Sharing
from headwater.runtime.sites.deployment import held_as, present
from headwater.runtime.sites.invariants import broken
from headwater.runtime.sites.needs import (
    Need,
    estimate,
    estimated,
    is_current,
    measured,
    rates_of,
)

PLANNING_SECONDS = 60.0
SECONDS = 1.0
"""How long planning one unit may take."""

RESOURCES = ("cpu", "memory", "bandwidth in", "bandwidth out", "link")

MOST_ROUNDS = 3
"""So often units may still move to make room for those that were cut off by a move."""

LEAST_GAIN = 0.01
"""Where more runs than fits, units move only if that takes away such a share of what is too much."""


@dataclass(frozen=True)
class Wanted:
    """A unit to be placed: its id, the logs that it reads, and what it takes; that is `noted` if it was
    estimated anew, as its operator is another."""

    id: str
    inputs: tuple[str, ...]
    need: Need
    noted: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """The problem of a deployment and the plan by which it runs now.

    Sites that are away are no part of it, so nothing can be put there or sent through them. Query n, and operator n, of the problem are unit n. `logs` are the logs of streams that come in or
    are made by another unit, by their places; results of units have none.
    """

    problem: Problem
    plan: Plan
    units: tuple[Wanted, ...]
    logs: Mapping[int, str]

    @property
    def sites(self) -> list[str]:
        return [site.name for site in self.problem.sites]

    def number(self, unit_id: str) -> int:
        return [unit.id for unit in self.units].index(unit_id)


@dataclass(frozen=True)
class Change:
    """What planning again has changed: units that moved, and those that no site can run at present."""

    moved: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass
class _Draft:
    """Streams of a problem, by their logs."""

    streams: list[Stream] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, rate: float, site: int | None = None) -> int:
        self.places[name] = len(self.streams)
        sites = () if site is None else (site,)
        self.streams.append(Stream(name, frozenset({name}), rate, sites))
        return self.places[name]


@dataclass(frozen=True)
class Room:
    """The sites of a state, what they run, and what they could run."""

    catalog: Catalog
    definitions: Definitions
    deployment: Deployment

    # ---- how it is

    def there(self) -> set[str]:
        """The sites that are there; all of them if none has ever come."""
        return present(self.catalog) or {site.name for site in self.deployment.network.sites}

    def system(
        self,
        there: Collection[str],
        new: Sequence[Wanted] = (),
        changed: Mapping[str, Need] | None = None,
        now: Assignment | None = None,
    ) -> System:
        """The problem of all units that run, and of new ones, on the sites that are there, and how it
        is at present, or would be by an assignment. What some units take may be `changed`.

        The log of a unit that another one reads comes in where that unit is `now`.
        """
        now = self.catalog.assignment() if now is None else now
        network = _without(self.deployment.network, there)
        known = {site.name: place for place, site in enumerate(network.sites)}
        running = (*self._units(), *new)
        units = [replace(u, need=(changed or {}).get(u.id, u.need)) for u in running]
        draft = _Draft()
        self._base_streams(draft, there, known, now)
        read = {log for unit in units for log in unit.inputs}
        for unit in units:
            if (log := unit_log(unit.id)) in read:
                draft.add(log, unit.need.rate, known.get(now.owners.get(log, "")))
        logs = {place_: log for log, place_ in draft.places.items()}
        results = [draft.add(f"the results of {unit.id}", unit.need.rate) for unit in units]
        operators = [
            Operator(
                tuple(draft.places[log] for log in unit.inputs if is_log(log)),
                made,
                unit.need.cpu,
                unit.need.memory,
            )
            for unit, made in zip(units, results, strict=True)
        ]
        problem = Problem(
            network.sites,
            tuple(draft.streams),
            tuple(operators),
            tuple(Query(unit.id, made) for unit, made in zip(units, results, strict=True)),
            links_of(network),
        )
        at_present = [known.get(now.owners.get(unit_log(unit.id), "")) for unit in units]
        placed = {n: site for n, site in enumerate(at_present) if site is not None}
        plan = Plan(
            frozenset(Run(site, n) for n, site in placed.items()),
            frozenset(
                Send(known[origin], known[site], draft.places[log])
                for (log, site), origin in now.routes.items()
                if log in draft.places and site in known and origin in known
            ),
            frozenset(Serve(site, results[n]) for n, site in placed.items()),
            frozenset(placed),
        )
        return System(problem, plan, tuple(units), logs)

    def running(self) -> list[UnitRow]:
        """The units that have to be somebody's."""
        return [u for u in self.catalog.units() if not stopped_for_good(self.catalog, u)]

    def _units(self) -> list[Wanted]:
        """The units that run, with what they take by now."""
        statistics = self.catalog.all_statistics()
        rates = rates_of(self.catalog, self.definitions, self.deployment)
        by_log = {stream_log(name): rate for name, rate in rates.items()}
        sharing = Sharing(self.definitions)
        found = []
        for row in self.running():
            values = statistics.get(row.id, {})
            rows = sum(by_log.get(log, 0.0) for log in row.inputs)
            unit = sharing.defined(self.catalog, row)
            if is_current(values, unit.definition):
                need = measured(values, rows) or estimated(values)
                found.append(Wanted(row.id, row.inputs, need))
            else:
                need = estimate(rates, self.definitions.query(unit.definition))
                noted = need.of_operator(row.id, unit.definition, values)
                found.append(Wanted(row.id, row.inputs, need, noted))
        return found

    def _base_streams(
        self, draft: _Draft, there: Collection[str], places: Mapping[str, int], now: Assignment
    ) -> None:
        """The declared streams, each where it is taken in."""
        rates = rates_of(self.catalog, self.definitions, self.deployment)
        for name, declared in self.definitions.streams.items():
            width = sum(width_of(column.type, TEXT_WIDTH) for column in declared.stream.schema)
            known = self.catalog.statistics(stream_log(name))
            if "rows_rate" in known and known["rows_rate"].value > 0:
                width = known["bytes_rate"].value / known["rows_rate"].value
            home = self._home(name, there, now.owners.get(ingest_owner(name)))
            site = None if home is None else places[home]
            draft.add(stream_log(name), rates[name] * width, site)

    def _home(self, stream: str, there: Collection[str], now: str | None) -> str | None:
        """The site that takes in a stream: the first of those that are named for it and there; if none
        is named the one that does already, or else the first."""
        entry = self.deployment.streams.get(stream)
        if entry is not None and entry.sites:
            return next((site for site in entry.sites if site in there), None)
        able = [site.name for site in self.deployment.network.sites if site.name in there]
        return now if now in able else next(iter(able), None)

    # ---- new units

    def admit(self, name: str, unit: NewUnit) -> None:
        """Find a site for a new unit and assign it; raises Refused, saying what is short."""
        need = self._estimate(unit.definition)
        new = Wanted(unit.id, unit.inputs, need)
        with planning(self.catalog) as lease:
            there = self.there()
            system = self.system(there, [new])
            ledger = Ledger(system.problem, system.plan)
            self._decide(name, system, ledger, new)
            planned = self.assignment(system, ledger.plan())
            after = self._completed(there, planned, [new])
            self._check_room(name, self.system(there, [new], now=after), ledger)
            self._assign(lease, after, need.of_operator(unit.id, unit.definition, {}))

    def widen(self, name: str, unit_id: str, definition: str) -> None:
        """Let a unit do more for a query that joins it, where it runs or, if that is full, elsewhere;
        raises Refused if that fits nowhere."""
        need = self._estimate(definition)
        changed = {unit_id: need}
        with planning(self.catalog) as lease:
            there = self.there()
            system = self.system(there, changed=changed)
            ledger, unit = Ledger(system.problem, system.plan), Wanted(unit_id, (), need)
            if not ledger.fits() and system.number(unit_id) in ledger.admitted:
                ledger.withdraw(system.number(unit_id))
                ledger.settle()
                self._decide(name, system, ledger, unit)
            planned = self.assignment(system, ledger.plan())
            after = self._completed(there, planned, changed=changed)
            self._check_room(name, self.system(there, changed=changed, now=after), ledger)
            values = self.catalog.statistics(unit_id)
            self._assign(lease, after, need.of_operator(unit_id, definition, values))

    def _estimate(self, definition: str) -> Need:
        rates = rates_of(self.catalog, self.definitions, self.deployment)
        return estimate(rates, self.definitions.query(definition))

    def _decide(self, name: str, system: System, ledger: Ledger, unit: Wanted) -> None:
        (decision,) = Ladder()(ledger, [system.number(unit.id)], Budget(SECONDS))
        if not decision.admitted:
            raise Refused(refusal(name, unit.need, system, ledger, decision))

    def _check_room(self, name: str, system: System, planned: Ledger) -> None:
        """Refuse a query for which units would have to follow one that they read to where they do not
        fit."""
        ledger = Ledger(system.problem, system.plan)
        if excess(ledger) > excess(planned) * (1 + LEAST_GAIN) + LEAST_GAIN:
            short = "; ".join(map(str, overfull(ledger)))
            raise Refused(
                f"query {name} is refused: units would have to move for it, and those that read "
                f"them would not fit: {short}"
            )

    def _assign(
        self, lease: Lease, assignment: Assignment, statistics: Mapping[tuple[str, str], float]
    ) -> None:
        noted = {key: value for unit in self._units() for key, value in unit.noted.items()}
        copies = self._copies(assignment)
        self.catalog.assign(assignment, copies, lease, noted | dict(statistics))

    def assignment(self, system: System, plan: Plan) -> Assignment:
        """What a plan says that sites have to do."""
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
            if send.stream in system.logs  # results are read from where they were made
        }
        return Assignment(owners, routes)

    def _copies(self, assignment: Assignment) -> set[str]:
        """The copies of logs that an assignment asks for."""
        held = {held_as(self.deployment, assignment, *route) for route in assignment.routes}
        return {log for log in held if is_copy(log)}

    def _completed(
        self,
        there: Collection[str],
        now: Assignment,
        new: Sequence[Wanted] = (),
        changed: Mapping[str, Need] | None = None,
    ) -> Assignment:
        """An assignment with a place for every unit that has none in it, or to which no way leads any
        more; the others stay where they are, unless there is room in no other way.

        A plan takes the log of a unit to be where that unit was. If the unit has moved, or runs only
        now, those that read it are planned once more from where it is. After a few rounds nobody
        else is moved for them, so this comes to an end.
        """
        for tried in count():
            system = self.system(there, new, changed, now)
            ledger = Ledger(system.problem, system.plan)
            missing = sorted(set(range(len(system.units))) - ledger.admitted)
            if tried < MOST_ROUNDS:
                able = [query for query in missing if _can_run(ledger, query)]
                missing = [d.query for d in self._try(ledger, able) if not d.admitted]
            self._squeeze_in(ledger, missing)
            before, now = now, self.assignment(system, ledger.plan())
            if all(before.owners.get(log) == now.owners.get(log) for log in system.logs.values()):
                return now
        raise AssertionError("rounds never end by themselves")

    def _try(self, ledger: Ledger, queries: Sequence[int]) -> list[Decision]:
        return list(Ladder()(ledger, queries, Budget(SECONDS)))

    def _squeeze_in(self, ledger: Ledger, queries: Iterable[int]) -> None:
        """Have units run where they are least in the way, beyond what a site can do; those of which no
        site can come by the inputs wait."""
        for query in sorted(queries):
            if place(ledger, ledger.problem.queries[query].stream, Taste(), limited=False):
                ledger.ask(query)
        ledger.settle()

    # ---- planning again

    def broken(
        self, there: Collection[str], assignment: Assignment | None = None
    ) -> dict[str, str]:
        """The units that cannot work as they are assigned though they could, and why not."""
        now = self.catalog.assignment() if assignment is None else assignment
        units = {unit_log(unit.id): unit.inputs for unit in self.running()}
        found = broken(self.deployment, there, units, now)
        return {log.partition(":")[2]: wrong for log, wrong in found.items()}

    def replan(
        self, there: Collection[str], suspects: Mapping[str, Need] | None = None, most: int = 1
    ) -> Change:
        """Assign all units to the sites that are there; nothing changes if nothing has to.

        Nobody is dropped: what fits nowhere runs where it is least in the way, beyond what the site
        can do, and waits only if what it reads cannot be had. Of the `suspects`, which strayed from
        what was estimated, at most so many are moved; what they take counts as estimated from now on.
        """
        strays = suspects or {}
        noted: dict[tuple[str, str], float] = {}
        for unit, need in strays.items():
            noted |= need.statistics(unit)
        with planning(self.catalog) as lease:
            before = self.catalog.assignment()
            after = self._relieved(there, self._completed(there, before), list(strays), most)
            self._assign(lease, after, noted)
            units = [unit.id for unit in self.running()]
        owners = {
            unit: (before.owners.get(unit_log(unit)), after.owners.get(unit_log(unit)))
            for unit in units
        }
        return Change(
            tuple(unit for unit, (was, now) in owners.items() if was != now),
            tuple(unit for unit, (_, now) in owners.items() if now is None),
        )

    def _relieved(
        self, there: Collection[str], now: Assignment, suspects: Sequence[str], most: int
    ) -> Assignment:
        """An assignment with less beyond what sites can do, and suspects planned anew; the same one
        if that takes away too little, so that units do not change places for ever."""
        system = self.system(there, now=now)
        crowded = Ledger(system.problem, system.plan)
        if not suspects and crowded.fits():
            return now
        numbers = {unit.id: n for n, unit in enumerate(system.units)}
        chosen = [numbers[unit] for unit in suspects if unit in numbers]
        found = adapt(
            system.problem, system.plan, Ladder(), Budget(SECONDS), suspects=chosen, most=most
        )
        ledger = Ledger(system.problem, found.plan)
        self._squeeze_in(ledger, found.waiting)
        after = self._completed(there, self.assignment(system, ledger.plan()))
        if suspects:
            return after
        system = self.system(there, now=after)
        eased = excess(Ledger(system.problem, system.plan))
        return after if eased < excess(crowded) * (1 - LEAST_GAIN) else now

    def strayed(self) -> dict[str, Need]:
        """The units that take more or less than was estimated, by more than a threshold, with what
        they take; the farthest first."""
        statistics = self.catalog.all_statistics()
        found: list[tuple[float, str, Need]] = []
        for unit in self._units():
            if unit.noted:
                continue
            assumed = estimated(statistics.get(unit.id, {})).cpu
            apart = abs(unit.need.cpu - assumed) / assumed if assumed > 0 else 0.0
            if apart > THRESHOLD:
                found.append((-apart, unit.id, unit.need))
        return {unit: need for _, unit, need in sorted(found, key=lambda one: one[:2])}


def _can_run(ledger: Ledger, query: int) -> bool:
    """Whether some site can come by all that a unit reads, however full it is."""
    with ledger.attempt():
        return place(ledger, ledger.problem.queries[query].stream, Taste(), limited=False)


def excess(ledger: Ledger) -> float:
    """How much of a plan is beyond what sites and links have, in shares of what they have; nothing for
    one that fits."""
    if ledger.fits():
        return 0.0
    shares = [
        max(0.0, load.used - load.capacity) / (load.capacity or 1.0) for load in _loads(ledger)
    ]
    return sum(share for share in shares if share < inf)


def _loads(ledger: Ledger) -> Iterator[Load]:
    plan = ledger.plan()
    for site in site_loads(ledger.problem, plan):
        yield from (site.cpu, site.memory, site.bandwidth_in, site.bandwidth_out)
    yield from (link.bandwidth for link in link_loads(ledger.problem, plan))


def _without(network: Network, there: Collection[str]) -> Network:
    """What is left of a network: the sites that are there, with the links between them."""
    kept = [n for n, site in enumerate(network.sites) if site.name in there]
    place = {old: new for new, old in enumerate(kept)}
    links = [
        replace(k, a=place[k.a], b=place[k.b]) for k in network.links if {k.a, k.b} <= set(kept)
    ]
    return Network(tuple(network.sites[n] for n in kept), tuple(links))


_threads = Lock()
"""A lease is a process's, so threads of one would take it from each other."""


@contextmanager
def planning(catalog: Catalog) -> Iterator[Lease]:
    """Be the only one that plans."""
    with _threads, _leased(catalog) as lease:
        yield lease


@contextmanager
def _leased(catalog: Catalog) -> Iterator[Lease]:
    begun = time.monotonic()
    while (lease := catalog.acquire("plan", this_process(), PLANNING_SECONDS)) is None:
        if time.monotonic() - begun > 2 * PLANNING_SECONDS:
            raise PlanError("another process has been planning for minutes; try again")
        time.sleep(0.05)
    try:
        yield lease
    finally:
        catalog.release(lease)


# ---- refusals


def refusal(name: str, need: Need, system: System, ledger: Ledger, decision: Decision) -> str:
    """Why a query is not admitted, and what would help."""
    short = "; ".join(map(str, decision.short)) or "no place was found"
    proof = "" if decision.proven else " (not proven: with more time a place may be found)"
    text = [
        f"query {name} is refused: {short}{proof}",
        f"  it takes {need.cpu:.3g} seconds of a core in a second and {need.memory:,.0f} bytes of "
        f"memory, and makes {need.rate:,.0f} bytes a second, by estimate",
    ]
    (alone,) = Ladder()(Ledger(system.problem), [decision.query], Budget(SECONDS))
    if not alone.admitted:
        text.append("  it would not fit even if nothing else ran")
    return "\n".join([*text, *_helps(decision.short, system, ledger)])


def _helps(short: Sequence[Broken], system: System, ledger: Ledger) -> list[str]:
    """What would make room: more of what is short, or less of what takes most."""
    found = [
        f"  would help: {one.by:,.3g} more {one.constraint} of {one.where}"
        for one in short
        if one.constraint in RESOURCES
    ]
    units = [system.units[n] for n in ledger.admitted]
    largest = max(units, key=lambda unit: (unit.need.cpu, unit.need.rate), default=None)
    if found and largest is not None:
        found.append(
            f"  or to drop the queries of unit {largest.id}: it takes {largest.need.cpu:.3g} of cpu "
            f"and makes {largest.need.rate:,.0f} bytes a second"
        )
    return found
