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

CHANGED, TOUCHED = "changed", "touched"
"""The views of the values of which tuples enter or leave, one for each part, in the column `k`: of any scan,
and of one beside the spine."""


def scan_sql(timeline: Timeline, node: Scan, view: str, parts: Sequence[Part] = ()) -> str:
    """A window: each tuple from the first instant at which it holds it until the first at which it no
    longer does; a tuple that is in the window at no instant is no row. With parts, the tuples alone of
    those that change."""
    for number, part in enumerate(parts):
        if view in part.columns:
            rows = _changed_rows_sql(timeline, node, view, part, number)
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
        others = [_moving_values(timeline, scans, alias, c) for alias, c in part.others.items()]
        if others:
            texts[f"{TOUCHED}{number}"] = " UNION ALL ".join(others)
            changed = f"SELECT k FROM {TOUCHED}{number}"
            if part.spine is not None and (column := part.columns[part.spine]) is not None:
                changed += f" UNION ALL {_moving_values(timeline, scans, part.spine, column)}"
            texts[f"{CHANGED}{number}"] = changed
    return texts


def _moving_values(
    timeline: Timeline, scans: Mapping[str, Scan], alias: str, column: Column
) -> str:
    moving = _moving_sql(timeline, scans[alias], alias, column)
    return f"SELECT {_value_sql(column, flat_name(column))} AS k FROM {moving}"


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


def _changed_rows_sql(timeline: Timeline, node: Scan, view: str, part: Part, number: int) -> str:
    """Those of the tuples that are in a part that changes."""
    column = part.columns[view]
    if column is None or (view == part.spine and not part.others):
        return _moving_sql(timeline, node, view, column)
    if view == part.spine:
        return _spine_rows_sql(timeline, node, view, column, f"{TOUCHED}{number}")
    found = "(SELECT /*+ BROADCAST(c) */ s.* FROM {} s LEFT SEMI JOIN {} c ON {} = c.k)"
    changed = f"{CHANGED}{number}"
    if _is_pushed_out_by_equals(node, column):
        name = quote_identifier(column.name)
        source = found.format(view, changed, _value_sql(column, f"s.{name}"))
        return _rows_sql(timeline, node, view, source)
    rows = _rows_sql(timeline, node, view, view)
    return found.format(rows, changed, _value_sql(column, f"s.{flat_name(column)}"))


def _spine_rows_sql(timeline: Timeline, node: Scan, view: str, column: Column, touched: str) -> str:
    """The tuples that move, and those that others which move may meet."""
    rows = _rows_sql(timeline, node, view, view)
    value = _value_sql(column, f"s.{flat_name(column)}")
    return (
        f"(SELECT /*+ BROADCAST(c) */ s.* FROM {rows} s "
        f"LEFT JOIN (SELECT DISTINCT k FROM {touched}) c ON {value} = c.k "
        f"WHERE s.{FROM} > {timeline.start}L OR s.{TO} < {FOREVER}L OR c.k IS NOT NULL)"
    )


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
    """A number for the value of a column, equal for equal values: parts may be larger than they need be, and
    numbers are compared faster."""
    if column.type.is_integer:
        return f"coalesce(CAST({text} AS BIGINT), 0L)"
    return f"xxhash64({text})"


def _columns(node: Scan | TableScan, view: str) -> list[str]:
    columns = [f"s.{quote_identifier(c.name)} AS {flat_name(c)}" for c in node.columns]
    return [f"concat('{view}:', s.{ARRIVAL}) AS {ID}", *columns]


def _names(node: Scan | TableScan) -> str:
    return ", ".join([ID, *map(flat_name, node.columns)])
