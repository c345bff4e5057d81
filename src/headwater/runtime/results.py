"""Reading a query's results: rows of its unit's log between its start and end, as it named them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.types import Value
from headwater.runtime import files
from headwater.runtime.catalog import Catalog, QueryRow, unit_log

Row = dict[str, Value]


def read(catalog: Catalog, query: QueryRow, after: int = 0) -> tuple[pa.Table, int]:
    """The results after a sequence number, columns as the query names them, then `_tau`; and the
    number to go on from. While the end of a query is not known, there are none."""
    if query.unsettled:
        query = catalog.query(query.name) or query
        if query.unsettled:
            return pa.table({}), after
    segments = catalog.segments(unit_log(query.unit_id), after)
    tables = [_shown(query, files.read_arrow(s.path)) for s in segments if s.rows]
    end = segments[-1].seq if segments else after
    return (pa.concat_tables(tables) if tables else pa.table({}), end)


def rows(table: pa.Table) -> Iterator[Row]:
    """The rows of a table of results, one dict each."""
    for batch in table.to_batches():
        yield from batch.to_pylist()


def _shown(query: QueryRow, table: pa.Table) -> pa.Table:
    tau = table["_tau"]
    kept = None
    if query.start_at is not None:
        kept = pc.greater(tau, query.start_at)
    if query.end_at is not None:
        before = pc.less_equal(tau, query.end_at)
        kept = before if kept is None else pc.and_(kept, before)
    if kept is not None:
        table = table.filter(kept)
    columns = {name: table[f"c{at}"] for name, at in query.columns}
    tau = table["_tau"].cast(pa.timestamp("us", tz="UTC"))
    return pa.table({**columns, "_tau": tau})
