"""The rows that a query must emit, by the reference evaluator, over what its streams have ingested.

The evaluator computes each query alone and by definition; it shares no code with the engine, so the
two can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa

from headwater.algebra.catalog import Stream
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Query, Scan, walk_relations
from headwater.cql import CreateQuery, parse
from headwater.errors import EvaluationError
from headwater.reference import Result, Row, evaluate
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import stream_log
from headwater.runtime.results.reader import ResultRow, rows, typed_results
from headwater.runtime.storage.append import build_arrow_table
from headwater.runtime.storage.columns import ARRIVAL, TIME, arrow_type
from headwater.runtime.storage.segment_files import read_arrow

Tables = Mapping[str, Sequence[Row]]

ROUNDING = 1e-9
"""By how much, relative to its size, a floating-point value may differ from the expected one."""
SHOWN_ROWS = 5
"""How many of the rows that differ an error shows."""


def expected_results(
    headwater: Headwater, name: str, tables: Tables | None = None
) -> list[ResultRow]:
    """The rows that a query emits over what its streams have ingested, once these have ended: as
    `headwater.query(name).results()` returns them, in order of `_tau` and then of values.

    `tables` has the rows of the tables that it reads, as tuples in the order of their columns.
    Raises EvaluationError if one is missing, or if a stream no longer holds all of its tuples.
    """
    row = headwater.query(name).row
    # Results are held back until the end is known: rows after it might be among them.
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
    """Raise AssertionError, showing rows, unless a query has emitted exactly the expected rows.

    Floating-point values may differ in their last digits (a relative `ROUNDING`), because a sum of
    them depends on the order in which rows are added.
    """
    expected = expected_results(headwater, name, tables)
    emitted = list(headwater.query(name).results())
    missing, unexpected = row_differences(expected, emitted)
    if missing or unexpected:
        raise AssertionError(
            f"query {name} emitted {len(emitted):,} rows, {len(expected):,} were expected"
            f"{_shown('missing', missing)}{_shown('unexpected', unexpected)}"
        )


def _ingested_rows(headwater: Headwater, stream: Stream) -> list[Row]:
    """The tuples of a stream's log, in order of arrival."""
    stats = headwater.catalog.log_stats(stream_log(stream.name))
    # By rows, as sequence numbers do not tell: all may be gone, and what a rewind leaves gets a new one.
    if stats.rows < stats.total_rows:
        raise EvaluationError(
            f"the oldest tuples of {stream.name} were deleted when KEEP had passed, so its queries "
            "cannot be evaluated: declare it with a longer KEEP in this test"
        )
    segments = headwater.catalog.segments(stream_log(stream.name))
    # For the types of the columns, where there is no segment yet.
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


def row_differences(
    expected: Sequence[ResultRow], emitted: Sequence[ResultRow]
) -> tuple[list[ResultRow], list[ResultRow]]:
    """The expected rows that were not emitted, and the emitted ones that were not expected."""
    missing, unexpected = _without(expected, emitted), _without(emitted, expected)
    # By what is no float, as only rows that agree in that are worth comparing one by one.
    candidates: dict[str, list[ResultRow]] = {}
    for row in unexpected:
        candidates.setdefault(_exact_part(row), []).append(row)
    unmatched = []
    for row in missing:
        group = candidates.get(_exact_part(row), [])
        near = next((at for at, other in enumerate(group) if _nearly_equal(row, other)), None)
        if near is None:
            unmatched.append(row)
        else:
            del group[near]
    return unmatched, [row for group in candidates.values() for row in group]


def _without(results: Sequence[ResultRow], others: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows that the others do not have, or have less often."""
    # By their texts, so that NaN equals NaN; the same row may be emitted more than once.
    left = Counter(map(repr, others))
    found = []
    for row in results:
        text = repr(row)
        left[text] -= 1
        if left[text] < 0:
            found.append(row)
    return found


def _exact_part(row: ResultRow) -> str:
    return repr({name: v for name, v in row.items() if not isinstance(v, float)})


def _nearly_equal(row: ResultRow, other: ResultRow) -> bool:
    """Whether two rows with the same exact part differ in the last digits of floats at most."""
    return all(
        repr(v) == repr(other[name])
        # Near 0 a tolerance that is relative alone would allow nothing.
        or math.isclose(v, cast(float, other[name]), rel_tol=ROUNDING, abs_tol=ROUNDING)
        for name, v in row.items()
        if isinstance(v, float)
    )


def _shown(title: str, differing: Sequence[ResultRow]) -> str:
    more = f"\n  and {len(differing) - SHOWN_ROWS:,} more" if len(differing) > SHOWN_ROWS else ""
    shown = "".join(f"\n  {row}" for row in differing[:SHOWN_ROWS])
    return f"\n{title}:{shown}{more}" if differing else ""
