"""Which unit a new query joins, or that it gets one of its own.

The running units are known by a lattice of their operators, kept up with the catalog: they are read
again when others have changed them, and what is placed from here is put in its place at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.algebra.nodes import Output, Query
from headwater.algebra.windows import Range
from headwater.cql import CreateQuery, parse
from headwater.reuse import (
    Form,
    Kind,
    Lattice,
    Relation,
    form_of,
    operator_of,
    prefixes,
    relation,
)
from headwater.reuse.decide import Choice, Prices, decide
from headwater.reuse.definition import block_of, definition
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, part_name, stream_log
from headwater.runtime.definitions import Definitions
from headwater.runtime.lifecycle import running_equal, stopped_for_good
from headwater.runtime.sharing import Sharing, looks_back


@dataclass
class Places:
    """The units of a catalog as a new query sees them."""

    catalog: Catalog
    definitions: Definitions
    lattice: Lattice = field(default_factory=Lattice)
    _versions: dict[str, UnitRow] = field(default_factory=dict)
    _whole: dict[str, set[str]] = field(default_factory=dict)
    _sharing: Sharing | None = None
    _sum: int = 0
    _newest: float = 0.0

    def refresh(self) -> None:
        """Read again the units that have changed."""
        if self.catalog.units_mark() == self._mark():
            return
        rows = {row.id: row for row in self.catalog.units()}
        for gone in set(self._versions) - set(rows):
            self._forget(gone)
        for row in rows.values():
            known = self._versions.get(row.id)
            if known is None or known.definition != row.definition:
                row = self._read(row)
            if row.state != "dropped":
                self._know(row)

    @property
    def sharing(self) -> Sharing:
        if self._sharing is None:
            self._sharing = Sharing(self.definitions)
        return self._sharing

    @property
    def newest(self) -> float:
        """When the newest unit was made of which `choose` knew."""
        return self._newest

    def unit(self, unit_id: str) -> UnitRow:
        """A unit of which `choose` has spoken, as it knew it."""
        return self._versions[unit_id]

    def placed(self, unit_id: str, choice: Choice | str | None, relaxed: str | None = None) -> None:
        """A query went to that unit, by that choice, and relaxed it so."""
        known = self._versions.get(unit_id)
        row = self.catalog.unit(unit_id) if known is None else _next(known, relaxed)
        if row is None:
            return
        if isinstance(choice, Choice):
            self.lattice.insert(unit_id, choice.operator)
        else:
            self._whole.setdefault(row.digest, set()).add(unit_id)
        self._know(row)

    def _mark(self) -> tuple[int, int, float]:
        """What the catalog's mark is if it has the units that are known here."""
        return len(self._versions), self._sum, self._newest

    def _know(self, row: UnitRow) -> None:
        known = self._versions.get(row.id)
        self._sum += row.version - (0 if known is None else known.version)
        self._newest = max(self._newest, row.created_at)
        self._versions[row.id] = row

    def _read(self, row: UnitRow) -> UnitRow:
        """Learn the operator of a unit; returns the unit with its definition."""
        self._forget(row.id)
        row = self.sharing.defined(self.catalog, row)
        if row.state == "dropped":
            return row
        operator = self.sharing.operator(row)
        if operator is None:
            self._whole.setdefault(row.digest, set()).add(row.id)
        else:
            self.lattice.insert(row.id, operator)
        return row

    def _forget(self, unit_id: str) -> None:
        row = self._versions.pop(unit_id, None)
        if unit_id in self.lattice:
            self.lattice.remove(unit_id)
        if row is not None:
            self._sum -= row.version
            self._whole.get(row.digest, set()).discard(unit_id)
            if row.created_at == self._newest:
                self._newest = max((r.created_at for r in self._versions.values()), default=0.0)

    def choose(self, form: Form, start: int | None) -> Choice | str | None:
        """Where a query with that start goes: the unit that tells it already, or the best choice of
        those that could; None for a new unit of a query that shares with its equals alone.

        Units are taken as they were when they were last read; who accepts the query finds out if they
        are others by then.
        """
        if form.kind is Kind.WHOLE:
            for unit_id in sorted(self._whole.get(form.digest, ())):
                if self._takes(unit_id, form, start):
                    return unit_id
            return None
        running = (
            (unit_id, self.lattice.operator(unit_id))
            for unit_id in self.lattice.nearest(form)
            if self._takes(unit_id, form, start)
        )
        return decide(form, running, self._prices(form))

    def part(self, form: Form, start: int | None, alone: float) -> Built | None:
        """A unit that joins some of a query's sources, or can when relaxed, for less than the query
        would cost alone; its results are read from then on, by a unit for the rest."""
        if form.kind is not Kind.JOIN:
            return None
        for query, names in self.lattice.parts(form):
            canonical = canonicalize(query)
            theirs = form_of(canonical)
            since = None if start is None else start - _reach(theirs)
            running = [
                (unit_id, self.lattice.operator(unit_id))
                for unit_id in names
                if self._takes(unit_id, theirs, since) and not _is_built(self._versions[unit_id])
            ]
            choice = decide(theirs, running, self._prices(theirs))
            rest = self._prices(form).step
            if choice.name is not None and choice.added + rest <= alone:
                return Built(query, canonical, theirs, choice, since)
        return None

    def _takes(self, unit_id: str, form: Form, start: int | None) -> bool:
        """Whether a query of that start can join a unit: what it would have had alone is, or can
        still be made, among the unit's results."""
        unit = self.catalog.unit(unit_id)
        if unit is None or unit.state in ("dropped", "parked"):
            return False
        if unit.state != "running" and stopped_for_good(self.catalog, unit):
            return False
        if _is_built(unit) and not self._has_parts(unit_id, form):
            return False
        own = self.catalog.cursor(unit_id, "start")
        alike = running_equal(self.catalog, unit, form.digest)
        if form.kind is Kind.WHOLE:
            lasting = own == start or self._looks_back(form)
            return bool(alike) and _begins(own, start) and lasting
        if alike:
            told = min(_start(query) for query in alike)
            if (FOREVER_AGO if start is None else start) < told:
                return False
            if form.kind is Kind.GROUP:
                return own == start or self._looks_back(form)
        if form.kind is Kind.GROUP:
            told_until = self.catalog.cursor(unit_id, "instant")
            untold = told_until is None or (start is not None and told_until <= start)
            lasting = self._looks_back(form) and self._flows(unit_id)
            return untold and _begins(own, start) and (lasting or own == start)
        return own == start or (self._looks_back(form) and self._flows(unit_id))

    def _has_parts(self, unit_id: str, form: Form) -> bool:
        """Whether what a unit has another one join serves a query too."""
        asked = self.catalog.query(part_name(unit_id))
        if asked is None:
            return False
        (statement,) = parse(asked.definition, self.definitions.names)
        assert isinstance(statement, CreateQuery)
        running = operator_of(form_of(canonicalize(statement.query)))
        parts = (form_of(canonicalize(part)) for part in prefixes(form))
        found = (relation(part, running) for part in parts)
        return any(one in (Relation.EQUAL, Relation.CONTAINED) for one in found)

    def _flows(self, unit_id: str) -> bool:
        operator = self.lattice.operator(unit_id)
        form = Form("", operator.kind, operator.base, Output.ISTREAM, block_of(operator))
        return self._looks_back(form)

    def _looks_back(self, form: Form) -> bool:
        streams = {name: d.stream for name, d in self.definitions.streams.items()}
        return looks_back(form, streams)

    def _prices(self, form: Form) -> Prices:
        names = {scan.stream.lower() for scan in form.scans}
        rates = self.catalog.statistic_of([stream_log(name) for name in names], "rows_rate")
        return Prices(rates={name: rates.get(stream_log(name), 0.0) for name in names})


FOREVER_AGO = -(2**62)


@dataclass(frozen=True)
class Built:
    """A join of some of a query's sources, and the unit that is chosen to tell it."""

    query: Query
    canonical: Canonical
    form: Form
    choice: Choice
    start: int | None


def _next(unit: UnitRow, definition: str | None) -> UnitRow:
    """A unit that a query more has joined."""
    return replace(unit, version=unit.version + 1, definition=definition or unit.definition)


def _is_built(unit: UnitRow) -> bool:
    """Whether a unit reads another's rows: these cover what it was made for, and no more."""
    return any(name.startswith("unit:") for name in unit.inputs)


def _reach(form: Form) -> int:
    """How long before a result the rows of a part may have been told."""
    windows = [scan.window for scan in form.scans if isinstance(scan.window, Range)]
    return max((w.size or 0) + (w.slide or 0) for w in windows)


def _start(query: QueryRow) -> int:
    return FOREVER_AGO if query.start_at is None else query.start_at


def _begins(unit_start: int | None, start: int | None) -> bool:
    """Whether a unit tells all after a start."""
    return unit_start is None or (start is not None and unit_start <= start)


_known: WeakKeyDictionary[Catalog, Places] = WeakKeyDictionary()


def places(catalog: Catalog, definitions: Definitions) -> Places:
    """The units of a catalog, remembered as long as it is open."""
    if catalog not in _known:
        _known[catalog] = Places(catalog, definitions)
    return _known[catalog]


def relaxed_definition(choice: Choice, form: Form) -> str | None:
    """The definition of the unit that a query joins, if it has to be another."""
    is_wider = choice.relation is Relation.OVERLAPPING
    return definition(choice.operator, form.output) if is_wider else None
