"""`headwater results`: what queries have given so far, and with --follow what they give from now on.

Rows are printed in the order of `_tau` as far as they are there together; equal results are printed
as `headwater eval` prints them.
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
from headwater.cli.formats import RowFormat
from headwater.cli.result_rows import TAU, QueryResults, check_columns, print_query_results
from headwater.errors import suggest
from headwater.reference import Result
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.results.subscribers import expired_position, unread_segments

WAIT_SECONDS = 5.0
"""How many seconds a follower waits for a change before it looks anyway."""


@dataclass
class ResultReader:
    """A query, how far its results were read, and how many may still be printed."""

    row: QueryRow
    columns: tuple[Column, ...]
    rows_left: int | None
    after: int = 0
    has_started: bool = False

    def read(self, catalog: Catalog) -> list[Result]:
        """The results after those read before."""
        if not unread_segments(catalog, self.row, self.after)[1]:
            return []
        from headwater.runtime.results import reader  # Arrow takes longer to load than the rest

        table, self.after = reader.read(catalog, self.row, self.after)
        new_results = (
            reader.typed_results(table.sort_by(TAU), self.columns) if table.num_rows else []
        )
        if self.rows_left is not None:
            new_results = new_results[: self.rows_left]
            self.rows_left -= len(new_results)
        return new_results

    def has_more(self, catalog: Catalog) -> bool:
        """Whether there may be more to print."""
        current = catalog.query(self.row.name)
        alive = current is not None and current.state not in ("dropped", "finished")
        return alive and self.rows_left != 0


def print_results(
    catalog: Catalog, names: Sequence[str], format: RowFormat, limit: int | None, follow: bool
) -> None:
    """Print the results of these queries, or of all."""
    readings = [open_reader(catalog, row, limit) for row in choose_queries(catalog, names)]
    for reader in readings:
        _warn_expired(catalog, reader)
    for position, reader in enumerate(readings):
        if position and format is not RowFormat.json:
            sys.stdout.write("\n")
        _print_new_results(reader, reader.read(catalog), format)
    while follow and readings:
        seen = catalog.change_count()
        active = [reader for reader in readings if reader.has_more(catalog)]
        for reader in readings:
            _warn_expired(catalog, reader)
            new_results = reader.read(catalog)
            if new_results:
                _print_new_results(reader, new_results, format)
        readings = [reader for reader in active if reader.rows_left != 0]
        if readings:
            catalog.wait_for_change(seen, WAIT_SECONDS, poll=0.2)


def _warn_expired(catalog: Catalog, reader: ResultReader) -> None:
    """Say once what can no longer be read because it was kept for long enough."""
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
    sys.stdout.flush()


def choose_queries(catalog: Catalog, names: Sequence[str]) -> list[QueryRow]:
    """The queries of those names, or all; ends the command if there is none of a name."""
    rows_by_name = {row.name: row for row in catalog.queries()}
    for name in names:
        if name.lower() not in rows_by_name:
            spelled = [row.spelled for row in rows_by_name.values()]
            fail(f"there is no query {name}; {suggest(name, spelled)}")
    return [rows_by_name[name.lower()] for name in names] if names else list(rows_by_name.values())


def open_reader(catalog: Catalog, row: QueryRow, limit: int | None) -> ResultReader:
    """A query to be read from the beginning of its results."""
    columns = _columns(catalog, row)
    check_columns(row.spelled, columns)
    return ResultReader(row, columns, limit)


def _columns(catalog: Catalog, row: QueryRow) -> tuple[Column, ...]:
    """The columns of a query; its text tells those of one that an earlier release has accepted."""
    if all(len(column) == 3 for column in row.columns):
        return tuple(Column("", name, parse_type(of)) for name, _, of in row.columns)
    from headwater.cql import CreateQuery, parse  # which takes longer than the rest
    from headwater.runtime.catalog.definitions import Definitions

    (statement,) = parse(row.definition, Definitions(catalog).namespace)
    assert isinstance(statement, CreateQuery)
    return statement.query.columns
