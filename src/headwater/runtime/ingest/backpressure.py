"""Backpressure: how far a stream may be ahead of the units that read it.

A stream waits while the slowest running unit that reads it has more unread rows than a limit. A
unit that is paused, parked or finished holds up no stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.runtime.catalog import Catalog, LogPosition, stream_log


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
    reached = {unit: LogPosition.from_json(positions.get(unit)).seq for unit in running}
    # Only the slowest one is counted: what it has yet to read includes what any other has.
    unit = min(running, key=lambda one: reached[one])
    return ReaderBacklog(unit, sum(s.rows for s in catalog.segments(log, reached[unit])))
