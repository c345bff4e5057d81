"""Looks again at what running units read, and asks for the changes that pay.

Which changes pay is decided by `propose_changes` from plain data, and asked for by `Revisit`, which
sees to it that nothing is done on a whim: a change has to be proposed by several looks in a row, and a
unit that was changed rests for a while. What saves one thing in one direction has to lose as much in
the other before it is taken back, so that a world in which nothing changes has no changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from headwater.algebra.canonical import canonicalize
from headwater.algebra.nodes import Query
from headwater.errors import CatalogError, CommitConflict
from headwater.reuse import (
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
    partial_join_queries,
    relax,
    signature_of,
)
from headwater.reuse.definition import operator_signature
from headwater.reuse.load import SharingCosts, estimate_load, operator_load
from headwater.reuse.operator import window_reach
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.settings import Settings, effective_settings
from headwater.runtime.submit.hand_overs import (
    HandOverRefused,
    matching_part,
    request_rewire,
    request_split,
    request_unshare,
)
from headwater.runtime.submit.unit_index import UnitIndex, reads_partial_join, unit_index

log = logging.getLogger("headwater")

LOOKS = 2
"""A change is asked for when this many looks in a row have proposed it."""

REST_SECONDS = 600.0
"""A unit that was changed is left alone for this long."""

MIN_SAVING = 0.2
"""A change has to save this part of what the rows of the unit cost."""

PAYBACK_SECONDS = 600.0
"""In this time a change has to save what it costs to make: rows of the past that are joined again."""

MAX_UNITS = 200
"""Units that one look compares with others at most; the next look goes on behind them."""


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
    """

    kind: Literal["rewire", "split", "unshare"]
    units: tuple[str, ...]
    saving: float
    reason: str
    source: str | None = None
    part: Query | None = None


Proposing = Callable[[Sequence[RunningJoin], SharingCosts], list[Change]]


# ---- what pays


def propose_changes(running: Sequence[RunningJoin], costs: SharingCosts) -> list[Change]:
    """The changes that pay, the one that saves most first."""
    by_id = {unit.unit_id: unit for unit in running}
    wide = [u for u in running if u.reads is None and not u.read_by and len(u.operator.sources) > 2]
    changes = [
        *(change for unit in wide if (change := _best_rewire(unit, running, costs)) is not None),
        *(change for unit in running if (change := _unshare(unit, by_id, costs)) is not None),
    ]
    changed = {unit for change in changes for unit in change.units}
    rest = [unit for unit in wide if unit.unit_id not in changed]
    changes += _splits(rest, costs)
    return sorted(changes, key=lambda change: (-change.saving, change.kind, change.units))


def _best_rewire(
    unit: RunningJoin, running: Sequence[RunningJoin], costs: SharingCosts
) -> Change | None:
    """To read the rows of a unit that joins a part already."""
    best: Change | None = None
    for source in running:
        if source.reads is not None or source.unit_id == unit.unit_id:
            continue
        if len(source.operator.sources) >= len(unit.operator.sources):
            continue
        found = matching_part(unit.operator, source.operator)
        if found is None:
            continue
        part = found[1]
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
        for query in partial_join_queries(operator_signature(unit.operator)):
            signature = signature_of(canonicalize(query))
            if len(signature.scans) == len(signature.content.sources):
                parts.setdefault(signature.sharing_key, []).append((unit, query, signature))
    taken: set[str] = set()
    for _, members in sorted(parts.items(), key=lambda item: (-len(item[1]), item[0])):
        for (one, query, mine), (other, _, theirs) in combinations(members, 2):
            units = (one.unit_id, other.unit_id)
            if one is other or taken & set(units):
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
    """What a join saves in cores if it reads the rows of a part instead of the tuples of its streams."""
    model = costs.effective
    names = {scan.stream.lower() for scan in part.scans}
    spared = sum(
        node.cpu
        for node in operator_load(operator, model).nodes
        if node.kind in ("scan", "filter") and node.label.lower() in names
    )
    others = len(operator.sources) - len(part.scans)
    steps = model.steps_per_second.value
    terms = model.step_seconds(len(operator.sources)) - model.step_seconds(others + 1)
    rate = operator_load(minimal_operator(part), model).result.rate
    # As of a stream: its new rows, and those that windows still hold once for each other source.
    held = rate * window_reach(part) / 1e6
    read = model.costs["read"].per_tuple * (rate + held * others * steps)
    return spared + terms * steps - read


def _pays(
    operator: Operator, part: QuerySignature | None, saving: float, costs: SharingCosts
) -> bool:
    """Whether a saving is worth a change: of the unit itself, and of joining the past of a part again."""
    if saving <= MIN_SAVING * _row_load(operator, costs):
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
    propose: Proposing = propose_changes
    looks: int = LOOKS
    rest_seconds: float = REST_SECONDS
    clock: Callable[[], float] = time.time
    _proposed: dict[tuple[object, ...], int] = field(default_factory=dict)
    _settled: object = None
    """What the last look saw, if it proposed nothing."""
    _next: int = 0

    def look(self) -> list[Change]:
        """Look once; returns the changes that were asked for."""
        if effective_settings(Settings(), self.catalog.options(), {}).sharing != "all":
            return []
        index = unit_index(self.catalog, self.definitions)
        index.refresh()
        units = self._candidates(index)
        costs = self._costs(units)
        seen = (self.catalog.units_fingerprint(), _rounded(costs.rates), self._next)
        if seen == self._settled:
            return []
        proposed = {_key(change): change for change in self.propose(units, costs)}
        self._proposed = {key: self._proposed.get(key, 0) + 1 for key in proposed}
        self._settled = None if proposed else seen
        due = [proposed[key] for key, times in self._proposed.items() if times >= self.looks]
        return [change for change in due if not self._rests(change) and self._ask(change)]

    def _candidates(self, index: UnitIndex) -> list[RunningJoin]:
        """The units that join and run: of many, some of the widest in turn."""
        pending = {asked.unit_id for asked in self.catalog.hand_overs()}
        running: list[RunningJoin] = []
        for row in self.catalog.units():
            operator = self._operator(index, row.id)
            if row.state != "running" or operator is None or row.id in pending:
                continue
            sources = [name[5:] for name in row.inputs if name.startswith("unit:")]
            readers = tuple(n.partition("_")[2] for n in self.catalog.hidden_subscribers(row.id))
            served = bool(self.catalog.served_queries(row.id, 1)[0])
            reads = sources[0] if reads_partial_join(row) else None
            running.append(RunningJoin(row.id, operator, reads, readers, served))
        wide = [unit for unit in running if len(unit.operator.sources) > 2]
        if len(wide) <= MAX_UNITS:
            self._next = 0
            return running
        at = self._next % len(wide)
        chosen = {unit.unit_id for unit in [*wide, *wide][at : at + MAX_UNITS]}
        self._next = (at + MAX_UNITS) % len(wide)
        return [u for u in running if u.unit_id in chosen or len(u.operator.sources) == 2]

    def _operator(self, index: UnitIndex, unit_id: str) -> Operator | None:
        """What a unit computes, as the index has it, if it joins several sources."""
        operator = index.lattice.operator(unit_id) if unit_id in index.lattice else None
        if operator is None or operator.kind is not SharingKind.JOIN or len(operator.sources) < 2:
            return None
        return operator

    def _costs(self, units: Sequence[RunningJoin]) -> SharingCosts:
        names = {scan.stream for unit in units for scan in unit.operator.scans}
        return SharingCosts.of(read_cost_model(self.catalog, names, self.definitions.namespace))

    def _rests(self, change: Change) -> bool:
        """Whether one of the units was changed a short while ago, whoever has done it."""
        since = self.clock() - self.rest_seconds
        return any(
            event.at > since
            for unit in change.units
            for kind in ("unit rewired", "rewiring withdrawn", "unsharing withdrawn")
            for event in self.catalog.events(kind=kind, subject=unit, limit=1)
        )

    def _ask(self, change: Change) -> bool:
        """Ask for a change; returns whether it was possible. What was refused is not proposed again
        until units change."""
        detail = {"saves": change.saving}
        try:
            self._request(change, detail)
        except CommitConflict as error:
            log.info("%s of %s later: %s", change.kind, ", ".join(change.units), error)
            return False
        except (HandOverRefused, CatalogError) as error:
            log.info("%s of %s: %s", change.kind, ", ".join(change.units), error)
            self._proposed[_key(change)] = 0
            return False
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
    return change.kind, change.units, change.source


def _rounded(rates: Mapping[str, float]) -> dict[str, int]:
    """Rates as powers of two: a look sees another world only when one of them is quite another."""
    return {name: round(rate).bit_length() for name, rate in rates.items()}
