"""The queries of a unit as its plan sees them, and the files that say which rows are whose.

A unit that serves one query runs it as it is. When others come to share it, its plan is made of all
their forms, and every result row names a shape and a class. What these numbers mean is written in a
file of its own whenever the queries change: a *version* of the members, which later segments name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Project, Scan, TableScan, relations
from headwater.algebra.windows import Range
from headwater.cql import CreateQuery, parse, unparse
from headwater.reuse import Form, Kind, Operator, form_of, operator_of, relaxed
from headwater.reuse.definition import defined_operator, definition
from headwater.reuse.form import source_name
from headwater.reuse.groups import Groups
from headwater.reuse.members import Members
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow
from headwater.runtime.compile import Plan, Shared, SharedPanes, compiled
from headwater.runtime.compile.shared import Part
from headwater.runtime.definitions import Definitions
from headwater.runtime.lifecycle import in_plan, inputs_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime import files

log = logging.getLogger("headwater")


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
        """The plan that serves some queries of a unit, which has its definition; `asked` is what it has
        another unit join for it."""
        by_key = {query.result_key: query for query in queries}
        alone = set(by_key) == {unit.digest} and not once_shared and asked is None
        first = next(iter(by_key.values()))
        if alone or self.form(first).kind is Kind.WHOLE:
            return compiled(self.canonical(first))
        forms = self.forms([by_key[key] for key in sorted(by_key)])
        if forms[0].kind is Kind.GROUP:
            return SharedPanes(Groups(self._operator(unit, forms, before), forms))
        operator = self._operator(unit, forms, before)
        return Shared(
            Members(operator, forms), None if asked is None else self.part(operator, asked)
        )

    # ---- the operator of a unit

    def defined(self, catalog: Catalog, unit: UnitRow) -> UnitRow:
        """A unit with its definition: the operator that it runs, as text.

        It is the least that serves the unit's queries. When one of them comes, the definition is
        relaxed with it; when one leaves it is void, and whoever asks first makes it anew from those
        that are left. Others may change the unit meanwhile: then the unit is returned as it is after that.
        """
        while not unit.definition and unit.state != "dropped":
            queries = in_plan(catalog.members(unit.id), inputs_of(catalog, unit))
            text = self._least(queries) if queries else unit.definition
            if text and catalog.define_unit(unit.id, unit.version, text):
                return replace(unit, definition=text)
            known = catalog.unit(unit.id)
            assert known is not None
            unit = known
        return unit

    def operator(self, unit: UnitRow) -> Operator | None:
        """What a unit that has its definition runs; None if its queries are all equal and share whole.

        This is what is explained, what a new query is compared with, what counts for admission, and what
        is compiled.
        """
        return defined_operator(self.definitions.query(unit.definition))

    def _least(self, queries: Sequence[QueryRow]) -> str:
        """The definition of a unit with these queries."""
        forms = self.forms(sorted(queries, key=lambda query: query.result_key))
        if forms[0].kind is Kind.WHOLE:
            return unparse(self.canonical(queries[0]).query)
        return definition(serving(forms), forms[0].output)

    def _operator(self, unit: UnitRow, forms: Sequence[Form], before: Plan | None) -> Operator:
        """The operator of a unit, which serves all its queries; if it should not, it is relaxed, as no
        row may be missing whatever the catalog says. A unit without a definition is tried with some
        of its queries alone."""
        if not unit.definition:
            return serving(forms)
        operator = self.operator(unit)
        assert operator is not None
        known = before.members if isinstance(before, Shared | SharedPanes) else None
        seen = set() if known is None or known.operator != operator else {*known.forms}
        enough = reduce(relaxed, (form for form in forms if form not in seen), operator)
        if enough != operator:
            log.warning("unit %s: its definition does not serve all its queries", unit.id)
        return enough

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
    import pyarrow as pa  # who places queries need not wait for it

    from headwater.runtime import files

    def lists(values: Iterable[Sequence[int]]) -> pa.Array:
        return pa.array([list(value) for value in values], pa.list_(pa.int64()))

    found = members.members
    table = pa.table(
        {
            "digest": pa.array(found, pa.string()),
            "shape": pa.array([m.shape for m in found.values()], pa.int32()),
            "first": lists([low for low, _ in m.classes] for m in found.values()),
            "last": lists([high for _, high in m.classes] for m in found.values()),
            "items": lists(m.items for m in found.values()),
        }
    )
    written = files.write_arrow(table, folder, ("shape", "shape"))
    assert written is not None
    return written
