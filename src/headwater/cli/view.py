"""What `headwater run` shows while it runs: a live view on a terminal, else a line now and then.

Both read the catalog in a thread of their own, so they move on while a long step is under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.cli.listing import count, instant, names, seconds
from headwater.cli.tables import console, table
from headwater.errors import HeadwaterError
from headwater.runtime.overview import Observer, Overview

LINE_SECONDS = 5.0
RATE_SECONDS = 10.0


@dataclass
class Pace:
    """How fast a number grows, over the last seconds."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def rate(self, number: int, now: float) -> float:
        self.seen.append((now, number))
        while len(self.seen) > 2 and self.seen[1][0] <= now - RATE_SECONDS:
            self.seen.popleft()
        (then, before), (last, after) = self.seen[0], self.seen[-1]
        return (after - before) / (last - then) if last > then else 0.0


@dataclass
class View:
    """The overview at this moment, as a renderable or as a line."""

    observer: Observer
    begun: float = field(default_factory=time.monotonic)
    paces: dict[str, Pace] = field(default_factory=dict)
    last: Overview = field(default_factory=lambda: Overview((), (), ()))

    def look(self) -> Overview:
        """A new overview; the one before if the catalog cannot be read now."""
        with suppress(HeadwaterError):
            self.last = self.observer.overview()
        return self.last

    def rate(self, name: str, number: int) -> str:
        pace = self.paces.setdefault(name, Pace())
        return f"{pace.rate(number, time.monotonic()):,.0f}/s"

    @property
    def elapsed(self) -> str:
        return f"{time.monotonic() - self.begun:.0f} s"

    # ---- lines

    def line(self) -> str:
        """`2,718 rows in, 1,024 to work on, 345 rows out`."""
        now = self.look()
        rows = sum(view.rows for view in now.streams)
        out = sum(view.rows for view in now.queries)
        return f"{count(rows)} rows in, {count(now.pending)} to work on, {count(out)} rows out"

    # ---- the live view

    def render(self, height: int) -> RenderableType:
        now = self.look()
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
                count(view.rows),
                self.rate(view.row.name, view.rows),
                f"{view.lag / 1e6:,.0f} s",
                (instant(view.row.watermark) or "")[11:19],
                "ended" if view.row.ended else "",
            ]
            for view in now.streams
        ]
        heading = [("stream", False), ("rows", True), ("rate", True), ("lag", True)]
        return table("", [*heading, ("watermark", False), ("", False)], rows)

    def _units(self, now: Overview, most: int) -> RenderableType:
        rows = [
            [
                names(view.queries),
                count(view.pending),
                count(view.rows),
                seconds(view.seconds),
                view.row.error[:60] or ("" if view.row.state == "running" else view.row.state),
            ]
            for view in now.units[:most]
        ]
        if len(now.units) > most:
            rows.append([f"and {len(now.units) - most} more", "", "", "", ""])
        heading = [("unit of", False), ("pending", True), ("rows out", True), ("last step", True)]
        return table("", [*heading, ("", False)], rows)

    def _queries(self, now: Overview) -> Text:
        words = (f"{view.row.spelled} {count(view.rows)}" for view in now.queries)
        return Text("rows of queries: " + " · ".join(words), style="dim", overflow="ellipsis")


@contextmanager
def shown(observer: Observer, quiet: bool) -> Iterator[None]:
    """Show how it goes until the block ends."""
    view = View(observer)
    out = console()
    if quiet:
        yield
    elif out.is_terminal:
        with _live(view, out):
            yield
    else:
        with _lines(view):
            yield


@contextmanager
def _live(view: View, out: Console) -> Iterator[None]:
    live = Live(
        console=out,
        get_renderable=lambda: view.render(out.height),
        refresh_per_second=2,
        vertical_overflow="crop",
    )
    with live:
        yield


@contextmanager
def _lines(view: View) -> Iterator[None]:
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
