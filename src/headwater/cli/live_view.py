"""What `headwater run` shows while it runs: a live view on a terminal, else a line now and then.

Both read the catalog in a thread of their own, so they move on while a long step is under way.
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

from headwater.cli.formats import pluralize
from headwater.cli.listing import (
    format_count,
    format_factor,
    format_names,
    format_rate,
    format_seconds,
    format_size,
)
from headwater.cli.tables import console, table
from headwater.errors import HeadwaterError
from headwater.runtime.inspect.status import Observer, Overview, StreamView
from headwater.runtime.inspect.views import format_instant

LINE_SECONDS = 5.0


@dataclass
class LiveView:
    """The overview at this moment, as a renderable or as a line."""

    observer: Observer
    started_at: float = field(default_factory=time.monotonic)
    last: Overview = field(default_factory=lambda: Overview((), (), ()))

    def refresh(self) -> Overview:
        """A new overview; the one before if the catalog cannot be read now."""
        with suppress(HeadwaterError):
            self.last = self.observer.overview()
        return self.last

    @property
    def elapsed(self) -> str:
        return f"{time.monotonic() - self.started_at:.0f} s"

    # ---- lines

    def line(self) -> str:
        """`2,718 rows in, 1,024 to work on, 345 rows out`."""
        now = self.refresh()
        rows = sum(view.rows for view in now.streams)
        out = sum(view.rows for view in now.queries)
        due = (
            f" and instants of {pluralize(now.units_with_more_due, 'unit')}"
            if now.units_with_more_due
            else ""
        )
        line = f"{format_count(rows)} rows in, {format_count(now.backlog)}{due} to work on, {format_count(out)} rows out"
        return "; ".join([line, *map(describe_waiting, (v for v in now.streams if v.waits_for))])

    # ---- the live view

    def render(self, height: int) -> RenderableType:
        now = self.refresh()
        left = max(height - len(now.streams) - 10, 6)
        units = now.units[: max(left * 2 // 3, 3)]
        return Group(
            self._title(now),
            self._streams(now),
            Text(),
            self._units(now, len(units)),
            Text(),
            self._queries(now),
        )

    def _title(self, now: Overview) -> Text:
        return Text(
            f"{len(now.queries)} queries in {len(now.units)} units, {self.elapsed}", style="bold"
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
                (format_instant(view.row.watermark) or "")[11:19],
                describe_waiting(view) if view.waits_for else "ended" if view.row.ended else "",
            ]
            for view in now.streams
        ]
        heading = [("stream", False), ("rows", True), ("rate", True), ("", True)]
        heading += [("pending", True), ("lag", True), ("watermark", False), ("", False)]
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
        heading = [("unit of", False), ("pending", True), ("lag", True), ("rows out", True)]
        heading += [("step", True), ("wait", True), ("slowdown", True), ("", False)]
        return table("", heading, rows)

    def _queries(self, now: Overview) -> Text:
        words = (f"{view.row.spelled} {format_count(view.rows)}" for view in now.queries)
        return Text("rows of queries: " + " · ".join(words), style="dim", overflow="ellipsis")


def describe_waiting(view: StreamView) -> str:
    """That a stream takes nothing in, and why."""
    return f"{view.row.spelled} waits for {format_names(view.waits_for)}"


@contextmanager
def show_progress(observer: Observer, quiet: bool) -> Iterator[None]:
    """Show how it goes until the block ends."""
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

    def tell() -> None:
        before = ""
        while not done.wait(LINE_SECONDS):
            line = view.line()
            if line != before:
                typer.echo(f"{view.elapsed}: {line}")
            before = line

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=10)
