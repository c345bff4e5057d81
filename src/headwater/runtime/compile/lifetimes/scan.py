"""Windows and tables as relations with lifetimes."""

from __future__ import annotations

from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.windows import Range, Rows
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name
from headwater.runtime.compile.windows import (
    FOREVER,
    entry_instant_sql,
    exit_time_sql,
    rows_window_sql,
)
from headwater.runtime.spark.sql import quote_identifier
from headwater.runtime.storage.columns import ARRIVAL, TIME


def scan_sql(timeline: Timeline, node: Scan, view: str) -> str:
    """A window: each tuple from the first instant at which it holds it until the first at which it no
    longer does; a tuple that is in the window at no instant is no row."""
    window = node.window
    source = rows_window_sql(view, window) if isinstance(window, Rows) else view
    entry = entry_instant_sql(f"s.{TIME}", window, timeline.slides)
    leaving = exit_time_sql("s", window)
    if not (isinstance(window, Range) and (window.slide or window.size is None)):
        leaving = timeline.slide_up_sql(leaving)
    lifetime = [
        f"greatest({entry}, {timeline.start}L) AS {FROM}",
        f"IF({leaving} > {timeline.last}L, {FOREVER}L, {leaving}) AS {TO}",
    ]
    rows = f"(SELECT {', '.join([*lifetime, *_columns(node, view)])} FROM {source} s)"
    seen = f"(SELECT * FROM {rows} WHERE {FROM} < {TO} AND {FROM} <= {timeline.last}L)"
    return timeline.band_rows_sql(_names(node), seen)


def table_sql(timeline: Timeline, node: TableScan, view: str) -> str:
    """A table: all its rows, all the time."""
    lifetime = [f"{timeline.start}L AS {FROM}", f"{FOREVER}L AS {TO}"]
    rows = f"(SELECT {', '.join([*lifetime, *_columns(node, view)])} FROM {view} s)"
    return timeline.band_rows_sql(_names(node), rows)


def _columns(node: Scan | TableScan, view: str) -> list[str]:
    columns = [f"s.{quote_identifier(c.name)} AS {flat_name(c)}" for c in node.columns]
    return [f"concat('{view}:', s.{ARRIVAL}) AS {ID}", *columns]


def _names(node: Scan | TableScan) -> str:
    return ", ".join([ID, *map(flat_name, node.columns)])
