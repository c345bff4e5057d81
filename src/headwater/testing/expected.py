"""The rows that a query must emit, by the reference evaluator, over what its streams have ingested.

The evaluator computes each query alone and by definition; it shares no code with the engine, so the
two can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from headwater.algebra.catalog import Stream
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Query, Scan, walk_relations
from headwater.cql import CreateQuery, parse
from headwater.reference import Result, Row, evaluate
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import stream_log
from headwater.runtime.results.reader import ResultRow, rows, typed_results
from headwater.runtime.storage.append import build_arrow_table
from headwater.runtime.storage.columns import ARRIVAL, TIME, arrow_type
from headwater.runtime.storage.segment_files import read_arrow

Tables = Mapping[str, Sequence[Row]]

SHOWN_ROWS = 5
"""How many of the rows that differ an error shows."""


def expected_results(
    headwater: Headwater, name: str, tables: Tables | None = None
) -> list[ResultRow]:
    """The rows that a query emits over what its streams have ingested, once these have ended: as
    `headwater.query(name).results()` returns them, in order of `_tau` and then of values.

    `tables` has the rows of the tables that it reads, as tuples in the order of their columns.
    Raises EvaluationError if one is missing.
    """
    row = headwater.query(name).row
    if row.has_unknown_end:
        return []
    (statement,) = parse(row.definition, headwater.definitions.namespace)
    assert isinstance(statement, CreateQuery)
    query = statement.query
    names = {n.stream.lower() for n in walk_relations(query.root) if isinstance(n, Scan)}
    streams = {n: headwater.definitions.streams[n].stream for n in sorted(names)}
    results = evaluate(
        query,
        {stream.name: _ingested_rows(headwater, stream) for stream in streams.values()},
        tables,
        start=row.start_at,
        end=row.end_at,
        keep={stream.name: stream.keep for stream in streams.values() if stream.keep is not None},
    )
    return list(rows(_results_table(query, results)))


def check_results(headwater: Headwater, name: str, tables: Tables | None = None) -> None:
    """Raise AssertionError, showing rows, unless a query has emitted exactly the expected rows."""
    expected = _count(expected_results(headwater, name, tables))
    emitted = _count(headwater.query(name).results())
    if expected != emitted:
        missing, unexpected = expected - emitted, emitted - expected
        raise AssertionError(
            f"query {name} emitted {emitted.total():,} rows, {expected.total():,} were expected"
            f"{_shown('missing', missing)}{_shown('unexpected', unexpected)}"
        )


def _ingested_rows(headwater: Headwater, stream: Stream) -> list[Row]:
    """The tuples of a stream's log, in order of arrival."""
    segments = headwater.catalog.segments(stream_log(stream.name))
    empty = build_arrow_table(stream, [], 0)
    tables = [empty, *(read_arrow(segment) for segment in segments if segment.rows)]
    table = pa.concat_tables(tables, promote_options="permissive").sort_by(ARRIVAL)
    columns = [Column(stream.name, f.name, f.type, f.nullable) for f in stream.schema]
    return [
        result.values for result in typed_results(table.append_column("_tau", table[TIME]), columns)
    ]


def _results_table(query: Query, results: Sequence[Result]) -> pa.Table:
    """Results in the types that the engine writes, so that values compare equal."""
    columns = {
        column.name: pa.array([result.values[at] for result in results], arrow_type(column.type))
        for at, column in enumerate(query.columns)
    }
    tau = pa.array([result.tau for result in results], pa.timestamp("us", tz="UTC"))
    return pa.table({**columns, "_tau": tau})


def _count(results: Iterable[ResultRow]) -> Counter[str]:
    # By their texts, so that NaN equals NaN; the same row may be emitted more than once.
    return Counter(repr(row) for row in results)


def _shown(title: str, counts: Counter[str]) -> str:
    lines = list(counts.elements())
    more = f"\n  and {len(lines) - SHOWN_ROWS:,} more" if len(lines) > SHOWN_ROWS else ""
    shown = "".join(f"\n  {line}" for line in lines[:SHOWN_ROWS])
    return f"\n{title}:{shown}{more}" if lines else ""
