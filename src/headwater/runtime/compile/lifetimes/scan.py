"""Windows and tables as relations with lifetimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.windows import Range, Rows
from headwater.runtime.compile.lifetimes.partition import Part
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name
from headwater.runtime.compile.windows import (
    FOREVER,
    entry_instant_sql,
    exit_time_sql,
    rows_window_sql,
)
from headwater.runtime.spark.sql import quote_identifier
from headwater.runtime.storage.columns import ARRIVAL, TIME

CHANGED = "changed"
"""The views of the values of which tuples enter or leave, one for each part, in the column `k`."""


def scan_sql(timeline: Timeline, node: Scan, view: str, parts: Sequence[Part] = ()) -> str:
    """A window: each tuple from the first instant at which it holds it until the first at which it no
    longer does; a tuple that is in the window at no instant is no row. With parts, the tuples alone of
    those that change."""
    for number, part in enumerate(parts):
        if view in part.columns:
            rows = _changed_rows_sql(timeline, node, view, part.columns[view], f"{CHANGED}{number}")
            break
    else:
        rows = _rows_sql(timeline, node, view, view)
    return timeline.band_rows_sql(_names(node), rows)


def table_sql(timeline: Timeline, node: TableScan, view: str) -> str:
    """A table: all its rows, all the time."""
    lifetime = [f"{timeline.start}L AS {FROM}", f"{FOREVER}L AS {TO}"]
    rows = f"(SELECT {', '.join([*lifetime, *_columns(node, view)])} FROM {view} s)"
    return timeline.band_rows_sql(_names(node), rows)


def changed_values_sql(
    timeline: Timeline, scans: Mapping[str, Scan], parts: Sequence[Part]
) -> dict[str, str]:
    """SQL of the views of the values that change, by their names."""
    texts = {}
    for number, part in enumerate(parts):
        moves = [
            f"SELECT {_value_sql(column, flat_name(column))} AS k "
            f"FROM {_moving_sql(timeline, scans[alias], alias, column)}"
            for alias, column in part.columns.items()
            if column is not None
        ]
        if moves:
            texts[f"{CHANGED}{number}"] = " UNION ALL ".join(moves)
    return texts


def _rows_sql(timeline: Timeline, node: Scan, view: str, source: str) -> str:
    """The tuples of a source that the window holds at an instant, with lifetimes."""
    window = node.window
    opened = rows_window_sql(source, window) if isinstance(window, Rows) else source
    entry = entry_instant_sql(f"s.{TIME}", window, timeline.slides)
    leaving = exit_time_sql("s", window)
    if not (isinstance(window, Range) and (window.slide or window.size is None)):
        leaving = timeline.slide_up_sql(leaving)
    lifetime = [
        f"greatest({entry}, {timeline.start}L) AS {FROM}",
        f"IF({leaving} > {timeline.last}L, {FOREVER}L, {leaving}) AS {TO}",
    ]
    rows = f"(SELECT {', '.join([*lifetime, *_columns(node, view)])} FROM {opened} s)"
    return f"(SELECT * FROM {rows} WHERE {FROM} < {TO} AND {FROM} <= {timeline.last}L)"


def _changed_rows_sql(
    timeline: Timeline, node: Scan, view: str, column: Column | None, changed: str
) -> str:
    """Those of the tuples that are in a part that changes."""
    if column is None:
        return _moving_sql(timeline, node, view, column)
    found = "(SELECT /*+ BROADCAST(c) */ s.* FROM {} s LEFT SEMI JOIN {} c ON {} <=> c.k)"
    if _is_pushed_out_by_equals(node, column):
        name = quote_identifier(column.name)
        source = found.format(view, changed, _value_sql(column, f"s.{name}"))
        return _rows_sql(timeline, node, view, source)
    rows = _rows_sql(timeline, node, view, view)
    return found.format(rows, changed, _value_sql(column, f"s.{flat_name(column)}"))


def _moving_sql(timeline: Timeline, node: Scan, view: str, column: Column | None) -> str:
    """The tuples that enter the window, or leave it, after the last instant evaluated."""
    window = node.window
    if isinstance(window, Rows) and column is not None and _is_pushed_out_by_equals(node, column):
        # Those that leave have the value of the one that enters.
        entering = f"(SELECT * FROM {view} WHERE {TIME} > {timeline.start}L)"
        return f"(SELECT {', '.join(_columns(node, view))} FROM {entering} s)"
    source = view
    if isinstance(window, Range):
        # Said of the time itself, so that files are skipped by the times that they hold.
        entered = f"{TIME} > {timeline.start - (window.slide or 0)}L"
        left = "" if window.size is None else f" OR {TIME} <= {timeline.last - window.size}L"
        source = f"(SELECT * FROM {view} WHERE {entered}{left})"
    rows = _rows_sql(timeline, node, view, source)
    return f"(SELECT * FROM {rows} WHERE {FROM} > {timeline.start}L OR {TO} < {FOREVER}L)"


def _is_pushed_out_by_equals(node: Scan, column: Column) -> bool:
    """Whether tuples leave a ROWS window only for others that are equal in the column."""
    names = node.window.partition_by if isinstance(node.window, Rows) else ()
    return column.name.lower() in {name.lower() for name in names}


def _value_sql(column: Column, text: str) -> str:
    """The value of a column as all that it is compared with have it."""
    return f"CAST({text} AS BIGINT)" if column.type.is_integer else text


def _columns(node: Scan | TableScan, view: str) -> list[str]:
    columns = [f"s.{quote_identifier(c.name)} AS {flat_name(c)}" for c in node.columns]
    return [f"concat('{view}:', s.{ARRIVAL}) AS {ID}", *columns]


def _names(node: Scan | TableScan) -> str:
    return ", ".join([ID, *map(flat_name, node.columns)])
