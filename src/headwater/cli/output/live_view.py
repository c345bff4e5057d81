"""Progress of `headwater run` and `up`: a live view on a terminal, otherwise a line every few seconds.

Both read the catalog in a thread of their own, so they update while a long step is running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.cli.output.formats import pluralize
from headwater.cli.output.listing import (
    format_count,
    format_factor,
    format_names,
    format_rate,
    format_seconds,
    format_size,
)
from headwater.cli.output.tables import console, table
from headwater.errors import HeadwaterError
from headwater.runtime.inspect.status import Observer, Overview, StreamView
from headwater.runtime.inspect.views import format_instant

LINE_SECONDS = 5.0


@dataclass
class LiveView:
    """The current overview, as a Rich renderable or as a line."""

    observer: Observer
    started_at: float = field(default_factory=time.monotonic)
    last: Overview = field(default_factory=lambda: Overview((), (), ()))

    def refresh(self) -> Overview:
        """Read the overview; returns the previous one if the catalog cannot be read now."""
        with suppress(HeadwaterError):
            self.last = self.observer.overview()
        return self.last

    @property
    def elapsed(self) -> str:
        return f"{time.monotonic() - self.started_at:.0f} s"

    # ---- lines

    def line(self) -> str:
        """`2,718 rows in, 345 rows out, backlog 1,024 rows`."""
        now = self.refresh()
        rows = sum(view.rows for view in now.streams)
        out = sum(view.rows for view in now.queries)
        backlog = describe_backlog(now) or "none"
        line = f"{format_count(rows)} rows in, {format_count(out)} rows out, backlog {backlog}"
        return "; ".join([line, *map(describe_waiting, (v for v in now.streams if v.waits_for))])

    # ---- the live view

    def render(self, height: int) -> RenderableType:
        now = self.refresh()
        # What fits below the title, the streams and the headings; a third is left for the queries.
        lines_left = max(height - len(now.streams) - 10, 6)
        max_units = max(lines_left * 2 // 3, 3)
        return Group(
            self._title(now),
            self._streams(now),
            Text(),
            self._units(now, max_units),
            Text(),
            self._queries(now),
        )

    def _title(self, now: Overview) -> Text:
        return Text(
            f"{pluralize(len(now.queries), 'query')} in {pluralize(len(now.units), 'unit')}, {self.elapsed}",
            style="bold",
        )

    def _streams(self, now: Overview) -> RenderableType:
        rows = [
            [
                view.row.spelled,
                format_count(view.rows),
                format_rate(view.rate),
                f"{format_size(round(view.bytes_rate))}/s",
                format_count(view.backlog),
                f"{view.lag / 1e6:,.0f} s",
                (format_instant(view.row.watermark) or "")[11:19],  # the time of day
                describe_waiting(view) if view.waits_for else "ended" if view.row.ended else "",
            ]
            for view in now.streams
        ]
        heading = [("stream", False), ("rows", True), ("rate", True), ("", True)]
        heading += [("backlog", True), ("lag", True), ("watermark", False), ("", False)]
        return table("", heading, rows)

    def _units(self, now: Overview, max_units: int) -> RenderableType:
        rows = [
            [
                format_names(view.queries),
                format_count(view.backlog),
                f"{view.lag / 1e6:,.0f} s",
                format_count(view.rows),
                format_seconds(view.step_seconds),
                format_seconds(view.wait),
                format_factor(view.mean_slowdown),
                view.row.error[:60] or ("" if view.state == "running" else view.state),
            ]
            for view in now.units[:max_units]
        ]
        if len(now.units) > max_units:
            rows.append([f"and {len(now.units) - max_units} more", *[""] * 6])
        heading = [("queries of unit", False), ("backlog", True), ("lag", True), ("rows out", True)]
        heading += [("step time", True), ("wait", True), ("slowdown", True), ("", False)]
        return table("", heading, rows)

    def _queries(self, now: Overview) -> Text:
        counts = (f"{view.row.spelled} {format_count(view.rows)}" for view in now.queries)
        return Text("rows emitted: " + " · ".join(counts), style="dim", overflow="ellipsis")


def describe_backlog(overview: Overview) -> str:
    """`1,024 rows and instants of 2 units`; empty without a backlog."""
    parts = []
    if overview.backlog:
        parts.append(pluralize(overview.backlog, "row"))
    if overview.units_with_more_due:
        parts.append(f"instants of {pluralize(overview.units_with_more_due, 'unit')}")
    return " and ".join(parts)


def describe_waiting(view: StreamView) -> str:
    """Which queries a stream is waiting for before it ingests more."""
    return f"{view.row.spelled} is waiting for {format_names(view.waits_for)}"


@contextmanager
def show_progress(observer: Observer, quiet: bool) -> Iterator[None]:
    """Show progress until the block ends."""
    view = LiveView(observer)
    out = console()
    if quiet:
        yield
    elif out.is_terminal:
        with _show_live(view, out):
            yield
    else:
        with _print_lines(view):
            yield


@contextmanager
def _show_live(view: LiveView, out: Console) -> Iterator[None]:
    live = Live(
        console=out,
        get_renderable=lambda: view.render(out.height),
        refresh_per_second=2,
        vertical_overflow="crop",
    )
    with live:
        yield


@contextmanager
def _print_lines(view: LiveView) -> Iterator[None]:
    done = Event()

    def print_changes() -> None:
        before = ""
        while not done.wait(LINE_SECONDS):
            line = view.line()
            # An idle state would else add a line every few seconds to what may be a log.
            if line != before:
                typer.echo(f"{view.elapsed}: {line}")
            before = line

    # A daemon, so that a catalog that does not answer cannot keep the process alive.
    thread = Thread(target=print_changes, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # Not for ever: it may be waiting for a catalog that does not answer.
        thread.join(timeout=10)
