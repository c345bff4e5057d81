"""Backpressure: how far a stream may be ahead of the units that read it.

A stream waits while the slowest running unit that reads it has more unread rows than a limit. A
unit that is paused, parked or finished holds up no stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.runtime.catalog import Catalog, stream_log


@dataclass(frozen=True)
class ReaderBacklog:
    """A unit and how many rows of a stream it has not read yet."""

    unit: str
    rows: int


def slowest_reader(catalog: Catalog, stream: str) -> ReaderBacklog | None:
    """The running unit that is furthest behind in a stream; None if no running unit reads it."""
    log = stream_log(stream)
    running = [u.id for u in catalog.units() if u.state == "running" and log in u.inputs]
    if not running:
        return None
    positions = catalog.reader_positions(log)
    read_up_to = {unit: int((positions.get(unit) or {"seq": 0})["seq"]) for unit in running}
    slowest = min(running, key=lambda unit: read_up_to[unit])
    return ReaderBacklog(slowest, sum(s.rows for s in catalog.segments(log, read_up_to[slowest])))
