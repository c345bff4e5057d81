"""`headwater eval`: query results over files, computed by the reference evaluator.

All input is available from the start, so a query sees all of it unless it says STARTING AT TIMESTAMP.
A lifetime counts from that start, or from the first event of its inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.algebra.catalog import Stream, Table
from headwater.algebra.nodes import Scan, TableScan, walk_relations
from headwater.algebra.types import Value
from headwater.cli.cql_files import CqlSource, fail
from headwater.cli.output.formats import RowFormat
from headwater.cli.output.result_rows import QueryResults, check_columns, print_query_results
from headwater.cli.queries import NamedQuery, queries_of, select_queries
from headwater.cql import parse
from headwater.cql.statements import CreateStream, CreateTable, Statement
from headwater.reference import Result, evaluate
from headwater.reference.data import load_rows

Rows = Sequence[tuple[Value, ...]]


def evaluate_file(source: CqlSource, folder: Path, names: Sequence[str], format: RowFormat) -> None:
    """Print the results of the named queries, or of all, one query after the other.

    Raises CqlErrors if the file has mistakes, InputError if data is missing or does not fit.
    """
    statements = parse(source.text)
    queries = queries_of(statements)
    if not queries:
        fail(f"{source.name} has no query")
    if not folder.is_dir():
        fail(f"{folder}: {'not a directory' if folder.exists() else 'no such directory'}")
    inputs = EvaluationInputs.of(folder, statements)
    selected = select_queries(queries, names)
    # Checked for all first, so that no output is printed before a query is refused.
    for named in selected:
        check_columns(named.name, named.query.columns)
    for position, named in enumerate(selected):
        if position and format is not RowFormat.json:
            sys.stdout.write("\n")
        print_query_results(
            QueryResults(named.name, named.query.columns, inputs.evaluate(named)), format
        )


@dataclass
class EvaluationInputs:
    """The declared streams and tables; their rows are read when a query first needs them."""

    folder: Path
    streams: dict[str, Stream]
    tables: dict[str, Table]
    units: dict[str, str]
    """The `timestamp_unit` of the streams and tables whose source declares one."""
    _rows: dict[str, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, statements: Iterable[Statement]) -> EvaluationInputs:
        streams = [s.stream for s in statements if isinstance(s, CreateStream)]
        tables = [s.table for s in statements if isinstance(s, CreateTable)]
        units = {
            (s.stream if isinstance(s, CreateStream) else s.table).name: str(unit)
            for s in statements
            if isinstance(s, CreateStream | CreateTable) and s.source is not None
            if (unit := s.source.get("timestamp_unit")) is not None
        }
        return cls(folder, {s.name: s for s in streams}, {t.name: t for t in tables}, units)

    def evaluate(self, named: NamedQuery) -> list[Result]:
        """Compute the results of a query; raises InputError if data is missing or does not fit."""
        nodes = list(walk_relations(named.query.root))
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
            end=_end_time(named, scans, streams),
            keep={name: self.streams[name].keep for name in streams},
        )

    def _read(self, source: Stream | Table) -> Rows:
        if source.name not in self._rows:
            time = source.time if isinstance(source, Stream) else None
            unit = self.units.get(source.name)
            self._rows[source.name] = load_rows(
                self.folder, source.name, source.schema, time=time, timestamp_unit=unit
            )
        return self._rows[source.name]


def _end_time(named: NamedQuery, scans: Sequence[Scan], streams: dict[str, Rows]) -> int | None:
    """The last instant of a query; None without a lifetime, or without input to count it from."""
    if named.lifetime is None:
        return None
    # As in the runtime: with a start the lifetime counts from there, whatever the first event is.
    if named.start is not None:
        return named.start + named.lifetime
    times = [
        time
        for scan in scans
        for row in streams[scan.stream]
        if isinstance(time := row[_time_position(scan)], int)
    ]
    return min(times) + named.lifetime if times else None


def _time_position(scan: Scan) -> int:
    return [name.lower() for name in scan.schema.names].index(scan.time.lower())
