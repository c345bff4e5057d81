"""The streams and tables of a catalog as the statements that declared them.

Parsing is cached: a declaration is parsed again only when its text has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.algebra.catalog import Namespace
from headwater.algebra.nodes import Query
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream, CreateTable
from headwater.runtime.catalog import Catalog


@dataclass(frozen=True)
class _Declared:
    """The declarations of one state of the catalog."""

    texts: Mapping[str, str] = field(default_factory=dict)
    streams: dict[str, CreateStream] = field(default_factory=dict)
    tables: dict[str, CreateTable] = field(default_factory=dict)
    namespace: Namespace = field(default_factory=Namespace)

    def with_texts(self, texts: Mapping[str, str]) -> _Declared:
        """These declarations; those whose text is the same are not parsed again."""
        known = {**self.streams, **self.tables}
        streams: dict[str, CreateStream] = {}
        tables: dict[str, CreateTable] = {}
        for name, text in sorted(texts.items()):
            statement = known[name] if self.texts.get(name) == text else parse(text)[0]
            if isinstance(statement, CreateStream):
                streams[name] = statement
            elif isinstance(statement, CreateTable):
                tables[name] = statement
        declared = [d.stream for d in streams.values()]
        namespace = Namespace.of([*declared, *(d.table for d in tables.values())])
        return _Declared(texts, streams, tables, namespace)


class Definitions:
    """Declarations by lower-case name, refreshed when the catalog has changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._seen = (-1, _Declared())  # the change count, and what was declared then

    @property
    def streams(self) -> dict[str, CreateStream]:
        return self._current().streams

    @property
    def tables(self) -> dict[str, CreateTable]:
        return self._current().tables

    @property
    def namespace(self) -> Namespace:
        """The streams and tables that a query may name."""
        return self._current().namespace

    def query(self, text: str) -> Query:
        """Parse the text of an accepted query."""
        return parse_query(text, self.namespace)

    def _current(self) -> _Declared:
        # Replaced in one go, and never changed: other threads may be reading it.
        seen_count, declared = self._seen
        # In one snapshot: a change between the two reads would be counted as seen but not read.
        with self._catalog.snapshot():
            change_count = self._catalog.change_count()
            if change_count == seen_count:
                return declared
            texts = self._catalog.declarations()
        if texts != declared.texts:
            declared = declared.with_texts(texts)
        self._seen = change_count, declared
        return declared
