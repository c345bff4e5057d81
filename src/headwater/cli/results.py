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
from headwater.algebra.types import written_type
from headwater.cli.files import fail
from headwater.cli.formats import RowFormat
from headwater.cli.rows import TAU, Answer, check_columns, show
from headwater.errors import nearest
from headwater.reference import Result
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.subscribers import expired, unread

WAIT = 5.0
"""How many seconds a follower waits for a change before it looks anyway."""


@dataclass
class Reading:
    """A query, how far its results were read, and how many may still be printed."""

    row: QueryRow
    columns: tuple[Column, ...]
    left: int | None
    after: int = 0
    begun: bool = False

    def read(self, catalog: Catalog) -> list[Result]:
        """The results after those read before."""
        if not unread(catalog, self.row, self.after)[1]:
            return []
        from headwater.runtime import results  # Arrow takes longer to load than the rest

        table, self.after = results.read(catalog, self.row, self.after)
        found = results.typed(table.sort_by(TAU), self.columns) if table.num_rows else []
        if self.left is not None:
            found = found[: self.left]
            self.left -= len(found)
        return found

    def more(self, catalog: Catalog) -> bool:
        """Whether there may be more to print."""
        known = catalog.query(self.row.name)
        alive = known is not None and known.state not in ("dropped", "finished")
        return alive and self.left != 0


def print_results(
    catalog: Catalog, names: Sequence[str], format: RowFormat, limit: int | None, follow: bool
) -> None:
    """Print the results of these queries, or of all."""
    readings = [reading(catalog, row, limit) for row in chosen(catalog, names)]
    for one in readings:
        _tell_expired(catalog, one)
    for place, one in enumerate(readings):
        if place and format is not RowFormat.json:
            sys.stdout.write("\n")
        _print(one, one.read(catalog), format)
    while follow and readings:
        seen = catalog.changes()
        going = [one for one in readings if one.more(catalog)]
        for one in readings:
            _tell_expired(catalog, one)
            found = one.read(catalog)
            if found:
                _print(one, found, format)
        readings = [one for one in going if one.left != 0]
        if readings:
            catalog.watch(seen, WAIT, poll=0.2)


def _tell_expired(catalog: Catalog, one: Reading) -> None:
    """Say once what can no longer be read because it was kept for long enough."""
    position = expired(catalog, one.row)
    if position is not None and position["seq"] > one.after:
        until = format_timestamp(position["tau"])
        typer.echo(f"headwater: results of {one.row.spelled} up to {until} have expired", err=True)
        one.after = position["seq"]


def _print(one: Reading, found: Sequence[Result], format: RowFormat) -> None:
    show(Answer(one.row.spelled, one.columns, found), format, heading=not one.begun)
    one.begun = True
    sys.stdout.flush()


def chosen(catalog: Catalog, names: Sequence[str]) -> list[QueryRow]:
    """The queries of those names, or all; ends the command if there is none of a name."""
    known = {row.name: row for row in catalog.queries()}
    for name in names:
        if name.lower() not in known:
            spelled = [row.spelled for row in known.values()]
            fail(f"there is no query {name}; {nearest(name, spelled)}")
    return [known[name.lower()] for name in names] if names else list(known.values())


def reading(catalog: Catalog, row: QueryRow, limit: int | None) -> Reading:
    """A query to be read from the beginning of its results."""
    columns = _columns(catalog, row)
    check_columns(row.spelled, columns)
    return Reading(row, columns, limit)


def _columns(catalog: Catalog, row: QueryRow) -> tuple[Column, ...]:
    """The columns of a query; its text tells those of one that an earlier release has accepted."""
    if all(len(column) == 3 for column in row.columns):
        return tuple(Column("", name, written_type(of)) for name, _, of in row.columns)
    from headwater.cql import CreateQuery, parse  # which takes longer than the rest
    from headwater.runtime.definitions import Definitions

    (statement,) = parse(row.definition, Definitions(catalog).names)
    assert isinstance(statement, CreateQuery)
    return statement.query.columns
