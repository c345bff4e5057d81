"""`headwater results`: print the results of queries, and with --follow new rows as they are emitted.

Rows that are read together are printed in the order of `_tau`, in the format of `headwater eval`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from headwater.algebra.expressions import Column
from headwater.algebra.times import format_timestamp
from headwater.algebra.types import parse_type
from headwater.cli.cql_files import fail
from headwater.cli.output.formats import RowFormat
from headwater.cli.output.result_rows import (
    TAU,
    QueryResults,
    check_columns,
    print_query_results,
)
from headwater.errors import suggest
from headwater.reference import Result
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.results.subscribers import expired_position, unread_segments

WAIT_SECONDS = 5.0
"""Seconds that --follow waits for a change of the catalog before it reads anyway."""


@dataclass
class ResultReader:
    """The read position in the results of a query, and how many rows may still be printed."""

    row: QueryRow
    columns: tuple[Column, ...]
    rows_left: int | None
    after: int = 0
    has_started: bool = False

    def read(self, catalog: Catalog) -> list[Result]:
        """Read the results since the last call."""
        # Asked first, because without new segments Arrow need not be loaded.
        if not unread_segments(catalog, self.row, self.after)[1]:
            return []
        from headwater.runtime.results import reader  # here, because Arrow is slow to load

        table, self.after = reader.read(catalog, self.row, self.after)
        new_results = (
            reader.typed_results(table.sort_by(TAU), self.columns) if table.num_rows else []
        )
        if self.rows_left is not None:
            new_results = new_results[: self.rows_left]
            self.rows_left -= len(new_results)
        return new_results

    def has_more(self, catalog: Catalog) -> bool:
        """Whether more rows may follow."""
        current = catalog.query(self.row.name)
        alive = current is not None and current.state not in ("dropped", "finished")
        return alive and self.rows_left != 0


def print_results(
    catalog: Catalog, names: Sequence[str], format: RowFormat, limit: int | None, follow: bool
) -> None:
    """Print the results of the named queries, or of all."""
    readers = [open_reader(catalog, row, limit) for row in choose_queries(catalog, names)]
    for reader in readers:
        _warn_expired(catalog, reader)
    for position, reader in enumerate(readers):
        if position and format is not RowFormat.json:
            sys.stdout.write("\n")
        _print_new_results(reader, reader.read(catalog), format)
    while follow and readers:
        # Both are read before the results, so that rows committed in between are not missed: a change
        # ends the wait, and a query that finishes is read once more.
        seen = catalog.change_count()
        active = [reader for reader in readers if reader.has_more(catalog)]
        for reader in readers:
            _warn_expired(catalog, reader)
            new_results = reader.read(catalog)
            if new_results:
                _print_new_results(reader, new_results, format)
        readers = [reader for reader in active if reader.rows_left != 0]
        if readers:
            catalog.wait_for_change(seen, WAIT_SECONDS, poll=0.2)


def _warn_expired(catalog: Catalog, reader: ResultReader) -> None:
    """Warn once about results that retention has removed, and skip them."""
    position = expired_position(catalog, reader.row)
    if position is not None and position["seq"] > reader.after:
        until = format_timestamp(position["tau"])
        typer.echo(
            f"headwater: results of {reader.row.spelled} up to {until} have expired", err=True
        )
        reader.after = position["seq"]


def _print_new_results(reader: ResultReader, results: Sequence[Result], format: RowFormat) -> None:
    print_query_results(
        QueryResults(reader.row.spelled, reader.columns, results),
        format,
        heading=not reader.has_started,
    )
    reader.has_started = True
    # A pipe is buffered, and whoever follows waits for the rows.
    sys.stdout.flush()


def choose_queries(catalog: Catalog, names: Sequence[str]) -> list[QueryRow]:
    """The named queries, or all; ends the command if a name is unknown."""
    rows_by_name = {row.name: row for row in catalog.queries()}
    for name in names:
        if name.lower() not in rows_by_name:
            spelled = [row.spelled for row in rows_by_name.values()]
            fail(f"there is no query {name}; {suggest(name, spelled)}")
    return [rows_by_name[name.lower()] for name in names] if names else list(rows_by_name.values())


def open_reader(catalog: Catalog, row: QueryRow, limit: int | None) -> ResultReader:
    """A reader at the beginning of the results of a query."""
    columns = _columns(catalog, row)
    check_columns(row.spelled, columns)
    return ResultReader(row, columns, limit)


def _columns(catalog: Catalog, row: QueryRow) -> tuple[Column, ...]:
    """The columns of a query; earlier releases did not store types, so those come from its definition."""
    if all(len(column) == 3 for column in row.columns):
        return tuple(Column("", name, parse_type(of)) for name, _, of in row.columns)
    from headwater.cql import CreateQuery, parse  # here, because it is slow to load
    from headwater.runtime.catalog.definitions import Definitions

    (statement,) = parse(row.definition, Definitions(catalog).namespace)
    assert isinstance(statement, CreateQuery)
    return statement.query.columns
