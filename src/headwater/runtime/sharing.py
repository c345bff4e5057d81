"""The queries of a unit as its plan sees them, and the files that say which rows are whose.

A unit that serves one query runs it as it is. When others come to share it, its plan is made of all
their forms, and every result row names a shape and a class. What these numbers mean is written in a
file of its own whenever the queries change: a *version* of the members, which later segments name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Project, Scan, TableScan, relations
from headwater.algebra.windows import Range
from headwater.cql import CreateQuery, parse
from headwater.reuse import Form, Kind, Operator, form_of, operator_of, relaxed
from headwater.reuse.form import source_name
from headwater.reuse.groups import Groups
from headwater.reuse.members import Members
from headwater.runtime import files
from headwater.runtime.catalog import QueryRow, UnitRow
from headwater.runtime.compile import Plan, Shared, SharedPanes, compiled
from headwater.runtime.compile.shared import Part
from headwater.runtime.definitions import Definitions

TIGHTENED_AT = 8
"""An operator is made anew, and tighter, when one of so many of its queries has left."""


@dataclass
class Sharing:
    """Makes the plans of units, and remembers the forms of their queries by digest."""

    definitions: Definitions
    _forms: dict[str, Form] = field(default_factory=dict)

    def form(self, query: QueryRow) -> Form:
        return self.forms([query])[0]

    def forms(self, queries: Sequence[QueryRow]) -> tuple[Form, ...]:
        """The forms of queries, in order, each under its result key in the place of its digest; what
        they name is looked up once for all."""
        names = self.definitions.names
        for query in queries:
            if query.digest not in self._forms:
                self._forms[query.digest] = form_of(_canonical(query, names))
        return tuple(
            replace(self._forms[query.digest], digest=query.result_key) for query in queries
        )

    def forget_all_but(self, digests: Collection[str]) -> None:
        """Keep nothing in memory of queries that are gone."""
        for digest in set(self._forms) - set(digests):
            del self._forms[digest]

    def canonical(self, query: QueryRow) -> Canonical:
        return _canonical(query, self.definitions.names)

    def plan(
        self,
        unit: UnitRow,
        queries: Sequence[QueryRow],
        once_shared: bool,
        before: Plan | None,
        asked: QueryRow | None = None,
    ) -> Plan:
        """The plan that serves some queries of a unit; `asked` is what it has another unit join for
        it."""
        by_key = {query.result_key: query for query in queries}
        alone = set(by_key) == {unit.digest} and not once_shared and asked is None
        first = next(iter(by_key.values()))
        if alone or self.form(first).kind is Kind.WHOLE:
            return compiled(self.canonical(first))
        forms = self.forms([by_key[key] for key in sorted(by_key)])
        if forms[0].kind is Kind.GROUP:
            kept = _kept(forms, before)
            return SharedPanes(Groups(_operator(kept, before), forms, kept))
        operator = _operator(forms, before)
        return Shared(
            Members(operator, forms), None if asked is None else self.part(operator, asked)
        )

    def part(self, operator: Operator, asked: QueryRow) -> Part:
        """The sources of an operator that another unit joins, by the names they have here."""
        (statement,) = parse(asked.definition, self.definitions.names)
        assert isinstance(statement, CreateQuery)
        root = statement.query.root
        assert isinstance(root, Project)
        here = {source_name(source): source.alias for source in operator.sources}
        sources = [node for node in relations(root) if isinstance(node, Scan | TableScan)]
        alias = {source.alias: here[source_name(source)] for source in sources}
        at = dict(canonicalize(statement.query).columns)
        columns = {item.name: item.expr for item in root.items if isinstance(item.expr, Column)}
        return Part(
            asked.unit_id,
            asked.name,
            tuple(replace(c, relation=alias[c.relation]) for c in columns.values()),
            tuple(at[name] for name in columns),
            {alias[s.alias]: s.time for s in sources if isinstance(s, Scan)},
        )


def _canonical(query: QueryRow, names: Namespace) -> Canonical:
    (statement,) = parse(query.definition, names)
    assert isinstance(statement, CreateQuery)
    return canonicalize(statement.query)


def _kept(forms: tuple[Form, ...], before: Plan | None) -> tuple[Form, ...]:
    """The queries that panes are made for: also those that left, while they are few."""
    known = before.members.kept if isinstance(before, SharedPanes) else ()
    here = {form.digest for form in forms}
    gone = tuple(form for form in known if form.digest not in here)
    return (*forms, *gone) if len(gone) * TIGHTENED_AT < len(known) else forms


def _operator(forms: Sequence[Form], before: Plan | None) -> Operator:
    """One that serves them all: what served before, relaxed for those that came."""
    if isinstance(before, Shared | SharedPanes):
        known = {form.digest for form in before.members.forms}
        gone = known - {form.digest for form in forms}
        if len(gone) * TIGHTENED_AT < len(known):
            new = [form for form in forms if form.digest not in known]
            return reduce(relaxed, new, before.members.operator)
    return serving(forms)


def looks_back(form: Form, streams: Mapping[str, Stream]) -> bool:
    """Whether no window reaches further back than its stream's history, so that results after its
    start do not depend on the start; the rows of a lone stream never do."""
    if form.kind is Kind.JOIN and len(form.scans) == 1:
        return True
    for scan in form.scans:
        window = scan.window
        if not isinstance(window, Range) or window.size is None:
            return False
        if window.size + (window.slide or 0) > streams[scan.stream.lower()].keep:
            return False
    return bool(form.scans)


def serving(forms: Sequence[Form]) -> Operator:
    """The least operator that serves queries of one base."""
    return reduce(relaxed, forms[1:], operator_of(forms[0]))


def write_members(members: Members | Groups, folder: Path) -> files.Written:
    """A version of members as a file."""
    found = members.members
    table = pa.table(
        {
            "digest": pa.array(found, pa.string()),
            "shape": pa.array([m.shape for m in found.values()], pa.int32()),
            "first": _lists([low for low, _ in m.classes] for m in found.values()),
            "last": _lists([high for _, high in m.classes] for m in found.values()),
            "items": _lists(m.items for m in found.values()),
        }
    )
    written = files.write_arrow(table, folder, ("shape", "shape"))
    assert written is not None
    return written


def _lists(values: Iterable[Sequence[int]]) -> pa.Array:
    return pa.array([list(value) for value in values], pa.list_(pa.int64()))
