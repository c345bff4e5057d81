"""When a window holds a tuple, as SQL over the tuple's event time.

A window holds a tuple from an instant on (its entry) until before another time (its exit): a row made
of several tuples is visible from the last entry until the first exit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Range, Rows, Window
from headwater.runtime.spark.sql import quote_identifier
from headwater.runtime.storage.columns import ARRIVAL, TIME

UNTIL = "_until"
"""The column of an opened ROWS window: the time from which it no longer holds the tuple."""

WINDOW = "window_"
"""What the names of windows begin with."""

FOREVER = 2**62
"""A time after all others."""


def entry_instant_sql(time: str, window: Window, all_slides: frozenset[int]) -> str:
    """SQL of the first instant at which a window could hold a tuple of that time."""
    own = window.slide if isinstance(window, Range) else None
    if own is not None:
        return next_multiple_sql(time, own)
    if all_slides:
        return least_sql([next_multiple_sql(time, slide) for slide in sorted(all_slides)])
    return time


def exit_time_sql(alias: str, window: Window) -> str:
    """SQL of the time from which a window no longer holds a tuple of that source."""
    if isinstance(window, Rows):
        return f"{alias}.{UNTIL}"
    time = f"{alias}.{TIME}"
    if window.size is None:
        return f"{FOREVER}L"
    if window.slide is None:
        # Exclusive: a tuple that is exactly as old as the window is long is still held.
        return f"({time} + {window.size + 1}L)"
    return f"({last_multiple_sql(f'({time} + {window.size}L)', window.slide)} + {window.slide}L)"


def holds_sql(time: str, instant: str, window: Range) -> str | None:
    """SQL: the window at that instant holds a tuple of that time, given it is not younger."""
    if window.size is None:
        return None
    at = instant if window.slide is None else last_multiple_sql(instant, window.slide)
    return f"{time} >= {at} - {window.size}L"


def window_name(scan: Scan, all_slides: frozenset[int]) -> str:
    """What a window is called, whichever query has it: what it holds at the instants of these slides."""
    text = f"{scan.stream.lower()} {scan.window} {sorted(all_slides)}"
    return f"{WINDOW}{blake2b(text.encode(), digest_size=8).hexdigest()}"


def window_start(scan: Scan, instant: int) -> int | None:
    """The least time a window can hold at that instant or later; None if there is none."""
    window = scan.window
    if not isinstance(window, Range) or window.size is None:
        return None
    return instant - window.size - (window.slide or 0)


def rows_window_sql(view: str, window: Rows) -> str:
    """SQL of the tuples of a view, each with the time of the tuple that pushes it out."""
    keys = ", ".join(quote_identifier(name) for name in window.partition_by)
    # Among equal times the arrival decides, so that every step counts tuples in the same order.
    order = f"{f'PARTITION BY {keys} ' if keys else ''}ORDER BY {TIME}, {ARRIVAL}"
    later = f"lead({TIME}, {window.count}) OVER ({order})"
    return f"(SELECT *, coalesce({later}, {FOREVER}L) AS {UNTIL} FROM {view})"


def with_views(views: Mapping[str, str], text: str) -> str:
    """A query with names for other queries, in front of those that it has itself."""
    prelude = ", ".join(f"{name} AS ({query})" for name, query in views.items())
    more = "," if text.startswith("WITH ") else ""
    return f"WITH {prelude}{more}\n{text.removeprefix('WITH ')}"


def slides_of(windows: Iterable[Window]) -> frozenset[int]:
    """The slides that windows have."""
    return frozenset(w.slide for w in windows if isinstance(w, Range) and w.slide)


def next_multiple_sql(time: str, slide: int) -> str:
    # Not %, which is negative for times before 1970.
    return f"({time} + pmod(-{time}, {slide}L))"


def last_multiple_sql(time: str, slide: int) -> str:
    return f"({time} - pmod({time}, {slide}L))"


def next_multiple_of(time: int, slide: int) -> int:
    return time + -time % slide


def last_multiple_of(time: int, slide: int) -> int:
    return time - time % slide


def least_sql(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"least({', '.join(texts)})"


def greatest_sql(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"greatest({', '.join(texts)})"
