"""`headwater eval`: the rows of queries over files, by the reference evaluator.

All of the input is there, so a query sees all of it unless it says STARTING AT TIMESTAMP; a lifetime
counts from that start, or from the first event of its inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from headwater.algebra.catalog import Stream, Table
from headwater.algebra.nodes import Scan, TableScan, relations
from headwater.algebra.times import format_timestamp
from headwater.algebra.types import Value
from headwater.cli.files import WRONG, Source, fail
from headwater.cli.formats import RowFormat, json_line
from headwater.cli.queries import Named, queries_of, select
from headwater.cli.tables import console, table
from headwater.cql import parse
from headwater.cql.statements import CreateStream, CreateTable, Statement
from headwater.reference import Result, evaluate
from headwater.reference.data import load, to_json, to_text

TAU, QUERY = "_tau", "_query"

Rows = Sequence[tuple[Value, ...]]


def evaluate_file(source: Source, folder: Path, names: Sequence[str], format: RowFormat) -> None:
    """Print the rows of the queries of those names, or of all, one query after the other.

    Raises CqlErrors if the file has mistakes, InputError if data is missing or does not fit.
    """
    statements = parse(source.text)
    queries = queries_of(statements)
    if not queries:
        fail(f"{source.name} has no query")
    if not folder.is_dir():
        fail(f"{folder}: {'not a directory' if folder.exists() else 'no such directory'}")
    inputs = Inputs.of(folder, statements)
    show = {
        RowFormat.table: _show_table,
        RowFormat.json: _show_json,
        RowFormat.csv: _show_csv,
    }[format]
    selected = select(queries, names)
    for named in selected:
        if QUERY in (column.name.lower() for column in named.query.columns):
            fail(
                f"{named.name}: {QUERY} is the name of the query in every row; rename the column",
                WRONG,
            )
    for place, named in enumerate(selected):
        if place and format is not RowFormat.json:
            sys.stdout.write("\n")
        show(named, inputs.evaluate(named))


@dataclass
class Inputs:
    """The declared streams and tables, and their rows, read when a query first needs them."""

    folder: Path
    streams: dict[str, Stream]
    tables: dict[str, Table]
    _rows: dict[str, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, statements: Iterable[Statement]) -> Inputs:
        streams = [s.stream for s in statements if isinstance(s, CreateStream)]
        tables = [s.table for s in statements if isinstance(s, CreateTable)]
        return cls(folder, {s.name: s for s in streams}, {t.name: t for t in tables})

    def evaluate(self, named: Named) -> list[Result]:
        """The rows of a query; raises InputError if data is missing or does not fit."""
        nodes = list(relations(named.query.root))
        scans = [node for node in nodes if isinstance(node, Scan)]
        streams = {scan.stream: self._read(self.streams[scan.stream]) for scan in scans}
        tables = {
            node.table: self._read(self.tables[node.table])
            for node in nodes
            if isinstance(node, TableScan)
        }
        return evaluate(
            named.query,
            streams,
            tables,
            start=named.start,
            end=_end(named, scans, streams),
            keep={name: self.streams[name].keep for name in streams},
        )

    def _read(self, source: Stream | Table) -> Rows:
        if source.name not in self._rows:
            time = source.time if isinstance(source, Stream) else None
            self._rows[source.name] = load(self.folder, source.name, source.schema, time=time)
        return self._rows[source.name]


def _end(named: Named, scans: Sequence[Scan], streams: dict[str, Rows]) -> int | None:
    """The last instant of a query that has a lifetime."""
    if named.lifetime is None:
        return None
    if named.start is not None:
        return named.start + named.lifetime
    times = [
        time
        for scan in scans
        for row in streams[scan.stream]
        if isinstance(time := row[_place(scan)], int)
    ]
    return min(times) + named.lifetime if times else None


def _place(scan: Scan) -> int:
    return [name.lower() for name in scan.schema.names].index(scan.time.lower())


def _show_table(named: Named, results: Sequence[Result]) -> None:
    columns = named.query.columns
    null = Text("NULL", style="dim")
    rows = [
        [
            format_timestamp(result.tau),
            *(
                null if value is None else to_text(value, column.type)
                for value, column in zip(result.values, columns, strict=True)
            ),
        ]
        for result in results
    ]
    heading = [(TAU, False), *((column.name, column.type.is_numeric) for column in columns)]
    count = f"{len(rows)} row" + ("" if len(rows) == 1 else "s")
    console().print(table(f"{named.name}: {count}", heading, rows))


def _show_json(named: Named, results: Sequence[Result]) -> None:
    columns = named.query.columns
    for result in results:
        values = {
            column.name: to_json(value, column.type)
            for value, column in zip(result.values, columns, strict=True)
        }
        json_line({**values, TAU: format_timestamp(result.tau), QUERY: named.name})


def _show_csv(named: Named, results: Sequence[Result]) -> None:
    """A heading, then the rows; NULL is an empty field, and an empty text has quotes."""
    columns = named.query.columns
    _print_csv([*(column.name for column in columns), TAU, QUERY])
    for result in results:
        values = (
            None if value is None else to_text(value, column.type)
            for value, column in zip(result.values, columns, strict=True)
        )
        _print_csv([*values, format_timestamp(result.tau), named.name])


def _print_csv(fields: Iterable[str | None]) -> None:
    sys.stdout.write(",".join("" if text is None else _quoted(text) for text in fields) + "\n")


def _quoted(text: str) -> str:
    if text and not set(text) & set(',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
