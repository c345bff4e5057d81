"""The streams and tables of a catalog as the statements that declared them.

Parsing is cached: a declaration is parsed again only when its text has changed.
"""

from __future__ import annotations

from headwater.algebra.catalog import Namespace
from headwater.algebra.nodes import Query
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream, CreateTable
from headwater.runtime.catalog import Catalog


class Definitions:
    """Declarations by lower-case name, refreshed when the catalog has changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._seen_change_count = -1
        self._texts: dict[str, str] = {}
        self._streams: dict[str, CreateStream] = {}
        self._tables: dict[str, CreateTable] = {}
        self._namespace = Namespace()

    @property
    def streams(self) -> dict[str, CreateStream]:
        self._refresh()
        return self._streams

    @property
    def tables(self) -> dict[str, CreateTable]:
        self._refresh()
        return self._tables

    @property
    def namespace(self) -> Namespace:
        """The streams and tables that a query may name."""
        self._refresh()
        return self._namespace

    def query(self, text: str) -> Query:
        """Parse the text of an accepted query."""
        return parse_query(text, self.namespace)

    def _refresh(self) -> None:
        # In one snapshot: a change between the two reads would be counted as seen but not read.
        with self._catalog.snapshot():
            change_count = self._catalog.change_count()
            if change_count == self._seen_change_count:
                return
            texts = self._catalog.declarations()
        changed = {*self._texts.items()} ^ {*texts.items()}
        for name in sorted({name for name, _ in changed}):
            self._streams.pop(name, None)
            self._tables.pop(name, None)
            if name not in texts:
                continue
            (statement,) = parse(texts[name])
            if isinstance(statement, CreateStream):
                self._streams[name] = statement
            elif isinstance(statement, CreateTable):
                self._tables[name] = statement
        if texts != self._texts:
            declared = [d.stream for d in self._streams.values()]
            self._namespace = Namespace.of([*declared, *(d.table for d in self._tables.values())])
        self._texts = texts
        self._seen_change_count = change_count
