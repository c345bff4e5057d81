"""Looks again at what running units read, and whom they serve, and asks for the changes that pay.

Which changes pay is decided by `propose_changes` from plain data, and asked for by `Revisit`, which
sees to it that nothing is done on a whim: a change has to be proposed by several looks in a row, and a
unit that was changed rests for a while. What saves one thing in one direction has to lose as much in
the other before it is taken back, so that a world in which nothing changes has no changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from headwater.algebra.nodes import Query
from headwater.errors import CatalogError, CatalogUnavailable
from headwater.reuse import (
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
    relax,
)
from headwater.reuse.load import SharingCosts, estimate_load, operator_load, reading_load
from headwater.reuse.operator import window_reach
from headwater.runtime.catalog import Catalog, UnitRow, requesting_unit
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.metrics.sharing import CostlyQuery, read_sharing
from headwater.runtime.settings import Settings, effective_settings
from headwater.runtime.submit.hand_overs import (
    HandOverRefused,
    matching_part,
    parts_of,
    request_rewire,
    request_split,
    request_unshare,
)
from headwater.runtime.submit.unit_index import reads_partial_join, unit_index

log = logging.getLogger("headwater")

LOOKS = 2
"""A change is asked for when this many looks in a row have proposed it."""

REST_SECONDS = 600.0
"""A unit that was changed is left alone for this long."""

MIN_SAVING = 0.2
"""A change has to save this part of what the unit costs."""

PAYBACK_SECONDS = 600.0
"""In this time a change has to save what it costs to make: rows of the past that are joined again."""

MAX_UNITS = 200
"""Units whose operators one look reads at most; the next look goes on with the others."""


MAX_SOURCES = 8
"""Units that are compared with one as the source of a part, or for a part in common, at most."""

T = TypeVar("T")


@dataclass(frozen=True)
class RunningJoin:
    """A unit that joins: its operator, the unit whose rows it reads, the units that read its own, and
    whether queries of users are among its subscribers."""

    unit_id: str
    operator: Operator
    reads: str | None = None
    read_by: tuple[str, ...] = ()
    serves_users: bool = True


@dataclass(frozen=True)
class Change:
    """What some units should read, what that saves in cores, and why.

    `rewire`: the rows of `source`. `split`: those of a new unit that joins `part`. `unshare`: streams.
    `move`: what they read, without `queries`, which get a unit of their own.
    """

    kind: Literal["rewire", "split", "unshare", "move"]
    units: tuple[str, ...]
    saving: float
    reason: str
    source: str | None = None
    part: Query | None = None
    queries: tuple[str, ...] = ()


Moving = Callable[[str, Sequence[str], Mapping[str, Any]], bool]
"""Moves queries of a unit to one of their own, with what events say of it; returns whether it could."""

Proposing = Callable[[Sequence[RunningJoin], SharingCosts], list[Change]]


# ---- what pays


def propose_changes(running: Sequence[RunningJoin], costs: SharingCosts) -> list[Change]:
    """The changes that pay, the one that saves most first."""
    by_id = {unit.unit_id: unit for unit in running}
    by_key: dict[str, list[RunningJoin]] = {}
    for unit in running:
        if unit.reads is None:
            by_key.setdefault(unit.operator.sharing_key, []).append(unit)
    # Units read each other one deep only, and a part of two sources would be all of the join.
    wide = [u for u in running if u.reads is None and not u.read_by and len(u.operator.sources) > 2]
    changes = [
        *(change for unit in wide if (change := _best_rewire(unit, by_key, costs)) is not None),
        *(change for unit in running if (change := _unshare(unit, by_id, costs)) is not None),
    ]
    changed = {unit for change in changes for unit in change.units}
    # One change for a unit: the prices are those of what it reads now.
    rest = [unit for unit in wide if unit.unit_id not in changed]
    changes += _splits(rest, costs)
    return sorted(changes, key=lambda change: (-change.saving, change.kind, change.units))


def _best_rewire(
    unit: RunningJoin, by_key: Mapping[str, Sequence[RunningJoin]], costs: SharingCosts
) -> Change | None:
    """To read the rows of a unit that joins a part already; there are `by_key` those that join."""
    best: Change | None = None
    offers = (
        (source, part)
        for key, (_, part) in parts_of(unit.operator).items()
        for source in by_key.get(key, ())[-MAX_SOURCES:]
    )
    for source, part in offers:
        added = estimate_load(relax(source.operator, part), costs) - estimate_load(
            source.operator, costs
        )
        saving = _reading_saves(unit.operator, part, costs) - added
        if _pays(unit.operator, part, saving, costs) and (best is None or saving > best.saving):
            reason = f"unit {source.unit_id} joins a part of it already"
            best = Change("rewire", (unit.unit_id,), saving, reason, source=source.unit_id)
    return best


def _splits(wide: Sequence[RunningJoin], costs: SharingCosts) -> list[Change]:
    """New units for parts that two units join, each unit in one of them."""
    changes: list[Change] = []
    parts: dict[str, list[tuple[RunningJoin, Query, QuerySignature]]] = {}
    for unit in wide:
        for key, (query, signature) in parts_of(unit.operator).items():
            parts.setdefault(key, []).append((unit, query, signature))
    taken: set[str] = set()
    for _, members in sorted(parts.items(), key=lambda item: (-len(item[1]), item[0])):
        for (one, query, mine), (other, _, theirs) in _neighbours(members):
            units = (one.unit_id, other.unit_id)
            if taken & set(units):
                continue
            shared = relax(minimal_operator(mine), theirs)
            saving = -estimate_load(shared, costs) + sum(
                _reading_saves(unit.operator, part, costs)
                for unit, part in ((one, mine), (other, theirs))
            )
            if all(_pays(u.operator, p, saving, costs) for u, p in ((one, mine), (other, theirs))):
                taken |= set(units)
                reason = f"units {one.unit_id} and {other.unit_id} join the same part"
                changes.append(Change("split", units, saving, reason, part=query))
    return changes


def _neighbours(members: Sequence[T]) -> Iterator[tuple[T, T]]:
    """Pairs of which not too many have to be compared."""
    for at, one in enumerate(members):
        yield from ((one, other) for other in members[at + 1 : at + 1 + MAX_SOURCES])


def _unshare(
    unit: RunningJoin, by_id: Mapping[str, RunningJoin], costs: SharingCosts
) -> Change | None:
    """To read streams again: where nobody else wants the rows, or where they are too many."""
    source = None if unit.reads is None else by_id.get(unit.reads)
    found = None if source is None else matching_part(unit.operator, source.operator)
    if source is None or found is None:
        return None
    alone = not source.serves_users and source.read_by == (unit.unit_id,)
    saving = -_reading_saves(unit.operator, found[1], costs)
    if alone:
        saving += estimate_load(source.operator, costs)
        reason = f"no other query wants the rows of unit {source.unit_id} any more"
    else:
        reason = f"unit {source.unit_id} emits more rows for it than its streams have"
    if not _pays(unit.operator, None, saving, costs):
        return None
    return Change("unshare", (unit.unit_id,), saving, reason, source=source.unit_id)


def _reading_saves(operator: Operator, part: QuerySignature, costs: SharingCosts) -> float:
    """What a join saves in cores if it reads the rows of a part instead of the tuples of its streams: by
    reading and joining fewer tuples, and by steps that have fewer terms."""
    reading = reading_load(operator, minimal_operator(part), costs.effective)
    return estimate_load(operator, costs) - reading.cpu


def _pays(
    operator: Operator, part: QuerySignature | None, saving: float, costs: SharingCosts
) -> bool:
    """Whether a saving is worth a change: of the unit itself, and of joining the past of a part again.
    Nothing is while no rows are known to come."""
    load = estimate_load(operator, costs)
    if not _row_load(operator, costs) or saving <= MIN_SAVING * load:
        return False
    if part is None:
        return True
    backfill = _row_load(minimal_operator(part), costs) * window_reach(part) / 1e6
    return saving * PAYBACK_SECONDS > backfill


def _row_load(operator: Operator, costs: SharingCosts) -> float:
    """The part of an operator's load that its rows cause, in cores."""
    load = operator_load(operator, costs.effective)
    return load.cpu - load.steps


# ---- asking for it


@dataclass
class Revisit:
    """Looks at the units of a catalog, and asks for what was proposed by several looks in a row."""

    catalog: Catalog
    definitions: Definitions
    move: Moving
    propose: Proposing = propose_changes
    looks: int = LOOKS
    rest_seconds: float = REST_SECONDS
    clock: Callable[[], float] = time.time
    _proposed: dict[tuple[object, ...], int] = field(default_factory=dict)
    _settled: object = None
    """What the last look saw, if it proposed nothing."""
    _units: object = None
    """The fingerprint of the units at the last look."""
    _refused: set[tuple[object, ...]] = field(default_factory=set)
    """The changes that were refused for the units as they are."""
    _operators: dict[str, tuple[str, Operator | None]] = field(default_factory=dict)
    """The definition of each unit that joins, and the operator that it defines."""
    _has_more: bool = False
    """Whether there are units that the last look could not read."""

    def look(self) -> list[Change]:
        """Look once; returns the changes that were asked for."""
        if effective_settings(Settings(), self.catalog.options(), {}).sharing != "all":
            return []
        units = self.catalog.units_fingerprint()
        if units != self._units:
            self._units = units
            self._refused.clear()
        costs, costly = self._costs(), self._costly_queries()
        seen = (units, _rounded(costs.rates), bool(costly))
        if seen == self._settled:
            return []
        changes = [*self._moves(costly), *self.propose(self._candidates(), costs)]
        proposed = {_key(change): change for change in changes}
        proposed = {key: change for key, change in proposed.items() if key not in self._refused}
        # What this look does not propose is forgotten, as looks have to agree in a row.
        self._proposed = {key: self._proposed.get(key, 0) + 1 for key in proposed}
        self._settled = None if proposed or self._has_more else seen
        due = [proposed[key] for key, times in self._proposed.items() if times >= self.looks]
        return [change for change in due if not self._rests(change) and self._ask(change)]

    def _costly_queries(self) -> Sequence[CostlyQuery]:
        """The queries that were found to cost more in their unit than alone; those of several sites stay
        where they are, as a unit more has to be admitted."""
        summary = None if current_deployment(self.catalog) else read_sharing(self.catalog)
        return () if summary is None else summary.costly

    def _moves(self, costly: Sequence[CostlyQuery]) -> list[Change]:
        """To units of their own: of each unit the query that pays most for sharing, if that is enough, and
        those that are equal to it."""
        pending = {asked.unit_id for asked in self.catalog.hand_overs()}
        changes: dict[str, Change] = {}
        for query in sorted(costly, key=lambda query: (query.alone - query.shared, query.query)):
            unit, row = self.catalog.unit(query.unit), self.catalog.query(query.query)
            saving = query.shared - query.alone
            if unit is None or row is None or unit.state != "running" or unit.id in changes:
                continue
            if (
                unit.id in pending
                or reads_partial_join(unit)
                or saving <= MIN_SAVING * query.shared
            ):
                continue
            served = [other for other in self.catalog.subscribers(unit.id) if not other.is_hidden]
            names = tuple(other.name for other in served if other.result_key == row.result_key)
            if len(names) < len(served):
                reason = f"it costs {query.shared:.2g} cores in unit {unit.id}, and {query.alone:.2g} alone"
                changes[unit.id] = Change("move", (unit.id,), saving, reason, queries=names)
        return list(changes.values())

    def _candidates(self) -> list[RunningJoin]:
        """The units that join and run; of many, those whose operators are known by now."""
        pending = {asked.unit_id for asked in self.catalog.hand_overs()}
        hidden = self.catalog.hidden_subscriptions()
        rows = [row for row in self.catalog.units() if len(row.inputs) > 1]
        self._read_operators(rows)
        running: list[RunningJoin] = []
        for row in rows:
            definition, operator = self._operators.get(row.id, ("", None))
            if row.state != "running" or operator is None or row.id in pending:
                continue
            if definition != row.definition:
                continue
            sources = [name[5:] for name in row.inputs if name.startswith("unit:")]
            names = hidden.get(row.id, ())
            # One that waits for more rows has two of them.
            readers = tuple(dict.fromkeys(filter(None, map(requesting_unit, names))))
            served = not readers or bool(self.catalog.served_queries(row.id, 1)[0])
            reads = sources[0] if sources else None
            running.append(RunningJoin(row.id, operator, reads, readers, served))
        return running

    def _read_operators(self, rows: Sequence[UnitRow]) -> None:
        """Read the operators of units that are new or have changed; of many, some in each look, as
        the engine waits meanwhile."""
        planner = unit_index(self.catalog, self.definitions).unit_planner
        gone = set(self._operators) - {row.id for row in rows}
        for unit_id in gone:
            del self._operators[unit_id]
        known = {unit_id: definition for unit_id, (definition, _) in self._operators.items()}
        changed = [row for row in rows if row.definition and known.get(row.id) != row.definition]
        for row in changed[:MAX_UNITS]:
            operator = planner.operator(row)
            joins = operator is not None and operator.kind is SharingKind.JOIN
            self._operators[row.id] = (row.definition, operator if joins else None)
        # A unit without a definition gets one when it steps, and its version stays.
        self._has_more = len(changed) > MAX_UNITS or not all(row.definition for row in rows)

    def _costs(self) -> SharingCosts:
        names = list(self.definitions.streams)
        return SharingCosts.of(read_cost_model(self.catalog, names, self.definitions.namespace))

    def _rests(self, change: Change) -> bool:
        """Whether one of the units was changed a short while ago, whoever has done it."""
        since = self.clock() - self.rest_seconds
        moved = self.catalog.events(kind="query moved", limit=MAX_UNITS)
        return any(
            event.at > since
            for unit in change.units
            for kind in ("unit rewired", "rewiring withdrawn", "unsharing withdrawn")
            for event in self.catalog.events(kind=kind, subject=unit, limit=1)
        ) or any(event.at > since and event.detail["from"] in change.units for event in moved)

    def _ask(self, change: Change) -> bool:
        """Ask for a change; returns whether it was possible. What was refused is not proposed again
        until units change."""
        detail = {"saves": change.saving}
        try:
            if change.kind == "move":
                (unit,) = change.units
                if not self.move(unit, change.queries, {"reason": change.reason, **detail}):
                    return False
            else:
                self._request(change, detail)
        except HandOverRefused as error:
            log.info("%s of %s: %s", change.kind, ", ".join(change.units), error)
            self._refused.add(_key(change))
            return False
        except CatalogUnavailable:
            raise
        except CatalogError as error:  # others have changed something meanwhile
            log.info("%s of %s later: %s", change.kind, ", ".join(change.units), error)
            return False
        # Done with: to be made once more it has to be found by several looks again.
        del self._proposed[_key(change)]
        return True

    def _request(self, change: Change, detail: Mapping[str, float]) -> None:
        catalog, definitions = self.catalog, self.definitions
        first, *others = change.units
        if change.kind == "unshare":
            request_unshare(catalog, definitions, first, change.reason, detail)
            return
        source = change.source
        if change.kind == "split":
            assert change.part is not None
            source = request_split(catalog, definitions, first, change.part, change.reason, detail)
        else:
            others = list(change.units)
        assert source is not None
        for unit in others:
            request_rewire(catalog, definitions, unit, source, change.reason, detail)


def _key(change: Change) -> tuple[object, ...]:
    return change.kind, change.units, change.source, change.queries


def _rounded(rates: Mapping[str, float]) -> dict[str, int]:
    """Rates as powers of two: a look sees another world only when one of them is quite another."""
    return {name: round(rate).bit_length() for name, rate in rates.items()}
