"""The plan of a unit from its queries, and the files that say which rows are whose.

A unit that serves one query runs it as it is. When others share it, its plan is made from the signatures
of all of them, and every result row names a shape and a row class. What these numbers mean is written to
a file of its own whenever the queries change: a *version* of the subscriber table, which later segments
name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.algebra.catalog import Namespace
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Project, Scan, TableScan, walk_relations
from headwater.algebra.windows import Range
from headwater.cql import CreateQuery, parse, unparse
from headwater.reuse import (
    Containment,
    Operator,
    QuerySignature,
    SharingKind,
    classify_containment,
    minimal_operator,
    partial_join_queries,
    relax,
    signature_of,
)
from headwater.reuse.definition import (
    operator_definition,
    operator_from_definition,
    operator_signature,
)
from headwater.reuse.describe import describe_changes
from headwater.reuse.families import Since
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import reaches_within_history, serving_operator
from headwater.reuse.planning.single_site import narrowed_query
from headwater.reuse.relation_subscribers import RelationSubscribers
from headwater.reuse.signature import source_name
from headwater.runtime.catalog import Catalog, NarrowedPartialJoin, QueryRow, UnitRow
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile import (
    Plan,
    SharedJoin,
    SharedLifetimes,
    SharedPanes,
    compile_query,
)
from headwater.runtime.compile.plan import PartialJoin, Subscribers
from headwater.runtime.lifecycle import input_streams, plannable_queries

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime.storage import segment_files

log = logging.getLogger("headwater")


@dataclass
class UnitPlanner:
    """Makes the plans of units, and remembers the signatures of their queries by digest."""

    definitions: Definitions
    _signatures: dict[str, QuerySignature] = field(default_factory=dict)

    def signature(self, query: QueryRow) -> QuerySignature:
        return self.signatures([query])[0]

    def signatures(self, queries: Sequence[QueryRow]) -> tuple[QuerySignature, ...]:
        """The signatures of queries, in order, each under its result key instead of its digest."""
        own = self.signatures_by_content(queries)
        return tuple(
            replace(signature, digest=query.result_key)
            for query, signature in zip(queries, own, strict=True)
        )

    def signatures_by_content(self, queries: Sequence[QueryRow]) -> tuple[QuerySignature, ...]:
        """The signatures of queries, in order, under their digests; what they name is looked up once for all."""
        names = self.definitions.namespace
        for query in queries:
            if query.digest not in self._signatures:
                self._signatures[query.digest] = signature_of(_parse_canonical(query, names))
        return tuple(self._signatures[query.digest] for query in queries)

    def forget_all_but(self, digests: Collection[str]) -> None:
        """Keep nothing in memory of queries that are gone."""
        for digest in set(self._signatures) - set(digests):
            del self._signatures[digest]

    def canonical(self, query: QueryRow) -> CanonicalQuery:
        return _parse_canonical(query, self.definitions.namespace)

    def plan(
        self,
        unit: UnitRow,
        queries: Sequence[QueryRow],
        once_shared: bool,
        before: Plan | None,
        partial_query: QueryRow | None = None,
    ) -> Plan:
        """The plan that serves some queries of a unit, which has its definition; `partial_query` is what
        another unit joins for it."""
        by_key = {query.result_key: query for query in queries}
        # A unit that was shared once goes on as shared: its readers expect versions and row classes.
        alone = set(by_key) == {unit.digest} and not once_shared and partial_query is None
        first = next(iter(by_key.values()))
        if alone or self.signature(first).kind is SharingKind.EXACT:
            return compile_query(self.canonical(first))
        signatures = self.signatures([by_key[key] for key in sorted(by_key)])
        if signatures[0].kind is SharingKind.RELATION:
            return SharedLifetimes(RelationSubscribers(signatures, self._histories(by_key)))
        if signatures[0].kind is SharingKind.GROUP:
            return SharedPanes(
                GroupSubscribers(self._serving_operator(unit, signatures, before), signatures)
            )
        operator = self._serving_operator(unit, signatures, before)
        return SharedJoin(
            JoinSubscribers(operator, signatures),
            None if partial_query is None else self.partial_join(operator, partial_query),
        )

    def _histories(self, queries: Mapping[str, QueryRow]) -> dict[str, Since]:
        """From when on queries see tuples, if their windows reach further back than that, by result key."""
        streams = {name: declared.stream for name, declared in self.definitions.streams.items()}
        histories: dict[str, Since] = {}
        for key, query in queries.items():
            signature = self.signature(query)
            if not reaches_within_history(signature, streams):
                start, names = query.start_at, sorted({s.stream.lower() for s in signature.scans})
                histories[key] = tuple(
                    (name, None if start is None else start - streams[name].keep) for name in names
                )
        return histories

    # ---- the operator of a unit

    def ensure_definition(self, catalog: Catalog, unit: UnitRow) -> UnitRow:
        """A unit with its definition: the operator that it runs, as text.

        It is the least that serves the unit's queries. A new query relaxes it; when a query leaves, it is
        emptied, and the first process that needs it writes it again from the queries that are left; with
        it, what the unit reads of another unit is narrowed. Another process may change the unit
        meanwhile: then the unit is returned as it is after that.
        """
        while not unit.definition and unit.state != "dropped":
            queries = plannable_queries(catalog.subscribers(unit.id), input_streams(catalog, unit))
            text = self._least_definition(queries) if queries else unit.definition
            narrowed = self._narrowed_reading(catalog, unit, text) if text else None
            # Refused if the version has changed: then the text is not that of its queries.
            is_defined = bool(text) and catalog.define_unit(unit.id, unit.version, text, narrowed)
            if is_defined and narrowed is None:
                return replace(unit, definition=text)
            current = catalog.unit(unit.id)
            assert current is not None
            unit = current
        return unit

    def _narrowed_reading(
        self, catalog: Catalog, unit: UnitRow, definition: str
    ) -> NarrowedPartialJoin | None:
        """What a unit with that definition needs of the rows of another, if it reads more than that."""
        if not any(name.startswith("unit:") for name in unit.inputs):
            return None
        hidden, awaited = catalog.partial_joins(unit.id)
        operator = operator_from_definition(self.definitions.query(definition))
        if hidden is None or awaited is not None or operator is None:
            return None
        read = minimal_operator(self.signature(hidden))
        part = self.part_served(hidden, operator_signature(operator))
        if part is None:
            return None
        needed = minimal_operator(part)
        slides_alike = [_slide(s) for s in read.scans] == [_slide(s) for s in needed.scans]
        # Rows of other instants are not among those that were emitted before.
        sources = needed.sources if slides_alike else read.sources
        narrower = replace(read, where=needed.where, sources=sources)
        (statement,) = parse(hidden.definition, self.definitions.namespace)
        assert isinstance(statement, CreateQuery)
        query = None if narrower == read else narrowed_query(statement.query, narrower)
        if query is None:
            return None
        text = unparse(CreateQuery(hidden.name, query))
        return NarrowedPartialJoin(hidden, text, tuple(describe_changes(read, narrower)))

    def operator(self, unit: UnitRow) -> Operator | None:
        """What a unit that has its definition runs; None if its queries are all equal.

        This is what is explained, what a new query is compared with, what counts for admission, and what
        is compiled.
        """
        return operator_from_definition(self.definitions.query(unit.definition))

    def _least_definition(self, queries: Sequence[QueryRow]) -> str:
        """The definition of a unit with these queries."""
        signatures = self.signatures(sorted(queries, key=lambda query: query.result_key))
        if signatures[0].block is None:
            return unparse(self.canonical(queries[0]).query)
        return operator_definition(serving_operator(signatures), signatures[0].output)

    def _serving_operator(
        self, unit: UnitRow, signatures: Sequence[QuerySignature], before: Plan | None
    ) -> Operator:
        """The operator of a unit, which serves all its queries; if it should not, it is relaxed, as no
        row may be missing whatever the catalog says. A unit without a definition is one on trial, with
        some of its queries alone."""
        if not unit.definition:
            return serving_operator(signatures)
        operator = self.operator(unit)
        assert operator is not None
        previous = None if before is None else before.subscribers
        served = set[QuerySignature]()
        if isinstance(previous, JoinSubscribers | GroupSubscribers):
            served = {*previous.signatures} if previous.operator == operator else served
        enough = reduce(
            relax, (signature for signature in signatures if signature not in served), operator
        )
        if enough != operator:
            log.warning("unit %s: its definition does not serve all its queries", unit.id)
        return enough

    def part_served(
        self, partial_query: QueryRow, signature: QuerySignature
    ) -> QuerySignature | None:
        """The part of a query whose rows are among those that another unit joins as `partial_query`;
        None if there is none."""
        running = minimal_operator(signature_of(self.canonical(partial_query)))
        for query in partial_join_queries(signature):
            part = signature_of(canonicalize(query))
            if classify_containment(part, running) in (Containment.EQUAL, Containment.CONTAINED):
                return part
        return None

    def partial_join(self, operator: Operator, partial_query: QueryRow) -> PartialJoin:
        """The sources of an operator that another unit joins, by the aliases that they have here."""
        (statement,) = parse(partial_query.definition, self.definitions.namespace)
        assert isinstance(statement, CreateQuery)
        root = statement.query.root
        assert isinstance(root, Project)
        local_aliases = {source_name(source): source.alias for source in operator.sources}
        sources = [node for node in walk_relations(root) if isinstance(node, Scan | TableScan)]
        alias = {source.alias: local_aliases[source_name(source)] for source in sources}
        at = dict(canonicalize(statement.query).columns)
        columns = {item.name: item.expr for item in root.items if isinstance(item.expr, Column)}
        return PartialJoin(
            partial_query.unit_id,
            partial_query.name,
            tuple(replace(c, relation=alias[c.relation]) for c in columns.values()),
            tuple(at[name] for name in columns),
            {alias[s.alias]: s.time for s in sources if isinstance(s, Scan)},
        )


def _slide(scan: Scan) -> int | None:
    return scan.window.slide if isinstance(scan.window, Range) else None


def _parse_canonical(query: QueryRow, names: Namespace) -> CanonicalQuery:
    (statement,) = parse(query.definition, names)
    assert isinstance(statement, CreateQuery)
    return canonicalize(statement.query)


def write_subscribers(subscribers: Subscribers, folder: Path) -> segment_files.WrittenFile:
    """A version of the subscriber table as a file."""
    import pyarrow as pa  # here, so that submitting a query does not wait for the import

    from headwater.runtime.storage import segment_files

    def lists(values: Iterable[Sequence[int]]) -> pa.Array:
        return pa.array([list(value) for value in values], pa.list_(pa.int64()))

    by_digest = subscribers.subscribers
    table = pa.table(
        {
            "digest": pa.array(by_digest, pa.string()),
            "shape": pa.array([subscriber.shape for subscriber in by_digest.values()], pa.int32()),
            "first": lists(
                [low for low, _ in subscriber.row_classes] for subscriber in by_digest.values()
            ),
            "last": lists(
                [high for _, high in subscriber.row_classes] for subscriber in by_digest.values()
            ),
            "items": lists(subscriber.item_columns for subscriber in by_digest.values()),
        }
    )
    written = segment_files.write_arrow(table, folder, ("shape", "shape"))
    assert written is not None
    return written
