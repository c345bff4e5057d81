"""The SQL of lifetimes on DuckDB, which answers in milliseconds: for the rules, not for expressions.

Only the syntax in which the two differ is translated, and what is not known here fails. What an expression
means, and Spark's own part, are tested on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from engine_helpers import Rows, plain_value

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Query
from headwater.reference.values import normalize_row, row_order_key
from headwater.runtime.compile.lifetimes import Lifetimes
from headwater.runtime.storage.append import build_arrow_table
from headwater.runtime.storage.columns import ARRIVAL

MACROS = """
CREATE MACRO pmod(a, b) AS ((a % b) + b) % b;
CREATE MACRO try_add(a, b) AS a + b;
CREATE MACRO slice(a, first, n) AS a[first : first + n - 1];
CREATE MACRO json_text(value) AS to_json(value)::VARCHAR;
CREATE MACRO xxhash64(value) AS coalesce((hash(value) % 1000)::BIGINT, 42);
CREATE MACRO get(a, i) AS a[i + 1];
CREATE MACRO shiftright(a, n) AS a >> n;
CREATE MACRO sequence(a, b) AS generate_series(a::BIGINT, b::BIGINT),
             (a, b, step) AS generate_series(a::BIGINT, b::BIGINT, step::BIGINT);
"""


def connect(streams: Sequence[Stream], rows: Rows) -> duckdb.DuckDBPyConnection:
    """A database with the tuples of each stream as a table `stream NAME`."""
    connection = duckdb.connect()
    connection.execute(MACROS)
    for stream in streams:
        table = build_arrow_table(stream, rows[stream.name], 0)
        connection.register(f"stream {stream.name.lower()}", table)
    return connection


def emitted_rows(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    steps: Sequence[Sequence[int]],
    tables: Rows,
    rows_per_step: int = 0,
) -> list[tuple[Any, ...]]:
    """The rows that a canonical query emits in steps over these instants, as the evaluator has them,
    if each were to read so many rows."""
    plan = Lifetimes(query)
    for alias, table in plan.tables:
        values = [tuple(row) for row in tables[table.table]]
        columns = {name: [row[i] for row in values] for i, name in enumerate(table.schema.names)}
        arrow = pa.table({**columns, ARRIVAL: list(range(len(values)))})
        connection.register(alias, arrow)
    found: list[tuple[Any, ...]] = []
    before: int | None = None
    for instants in steps:
        for alias, scan in plan.scans:
            connection.execute(
                f'CREATE OR REPLACE TEMP VIEW {alias} AS SELECT * FROM "stream {scan.stream.lower()}" '
                f"WHERE _ts <= {instants[-1]}"
            )
        shown = [*([] if before is None else [before]), *instants]
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW instants AS SELECT {shown}::BIGINT[] AS ts"
        )
        timeline = plan.timeline(before, instants, rows_per_step, 0)
        text = plan.result_sql(timeline, len(shown))
        columns = ", ".join(f"c{i}" for i in range(len(plan.query.columns)))
        text = f"SELECT _tau, {columns} FROM ({translated(text)})"
        found += connection.execute(text).fetchall()
        before = instants[-1]
    rows = ((row[0], *normalize_row(tuple(map(plain_value, row[1:])))) for row in found)
    return sorted(rows, key=row_order_key)


def count_up_to(array: str, value: str, length: int) -> str:
    """What `search_sql` counts, without searching in halves."""
    return f"len(list_filter({array}, lambda x: x <= {value}))"


def translated(text: str) -> str:
    """Spark's SQL as DuckDB's."""
    text = re.sub(r"\b(\d+)L\b", r"\1", text).replace("`", '"').replace(" div ", " // ")
    text = text.replace("<=>", "IS NOT DISTINCT FROM").replace("EXCEPT (", "EXCLUDE (")
    text = re.sub(r"\bexplode\(", "unnest(", text).replace("LEFT SEMI JOIN", "SEMI JOIN")
    text = text.replace("to_json(", "json_text(")
    text = text.replace("monotonically_increasing_id()", "row_number() OVER ()")
    text = _calls(text, "array", lambda args: f"[{', '.join(args)}]")
    return _calls(text, "struct", _struct)


def _struct(args: list[str]) -> str:
    parts = [arg.rpartition(" AS ") if " AS " in arg else (arg, "", "") for arg in args]
    return "struct_pack({})".format(
        ", ".join(f"{name or f'x{i}'} := {value}" for i, (value, _, name) in enumerate(parts))
    )


def _calls(text: str, name: str, write: Callable[[list[str]], str]) -> str:
    """The text with each call of a function written otherwise."""
    while (found := re.search(rf"\b{name}\(", text)) is not None:
        at = found.end()
        depth, begin, args = 1, at, list[str]()
        while depth:
            char = text[at]
            depth += (char in "([") - (char in ")]")
            if (char == "," and depth == 1) or depth == 0:
                args.append(text[begin:at].strip())
                begin = at + 1
            at += 1
        text = text[: found.start()] + write(args) + text[at:]
    return text
