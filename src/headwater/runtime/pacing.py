"""How fast streams may take in: not too far ahead of the units that read them.

A stream waits while the slowest running unit that reads it has more than so many rows left to take
in. A unit that is paused, parked or finished holds up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pyarrow.parquet as pq

from headwater.runtime.catalog import Catalog, stream_log

LEAST_BYTES = 2
"""No row of a text file has less."""

_PIECE = 1 << 20


@dataclass(frozen=True)
class Behind:
    """A unit and how many rows of a stream it has not taken in."""

    unit: str
    rows: int


def slowest(catalog: Catalog, stream: str) -> Behind | None:
    """The running unit that is furthest behind in a stream; None if no running unit reads it."""
    log = stream_log(stream)
    running = [u.id for u in catalog.units() if u.state == "running" and log in u.inputs]
    if not running:
        return None
    known = catalog.readers(log)
    reached = {unit: int((known.get(unit) or {"seq": 0})["seq"]) for unit in running}
    unit = min(running, key=lambda one: reached[one])
    return Behind(unit, sum(s.rows for s in catalog.segments(log, reached[unit])))


# ---- files


def within_rows(files: Sequence[str], limit: int | None) -> list[str]:
    """The first files that have together no more rows than the limit, and at least one."""
    if limit is None or sum(map(_at_most, files)) <= limit:
        return list(files)
    total = 0
    chosen: list[str] = []
    for name in files:
        total += _rows(Path(name), limit)
        if chosen and total > limit:
            break
        chosen.append(name)
    return chosen


def _at_most(name: str) -> int:
    """A number that the rows of a file cannot exceed, found without reading it."""
    file = Path(name)
    try:
        return _rows(file, 0) if file.suffix == ".parquet" else file.stat().st_size // LEAST_BYTES
    except OSError:
        return 0


def _rows(file: Path, limit: int) -> int:
    """How many rows a file has, or some number above the limit; 0 for one that cannot be read,
    which taking it in will tell."""
    try:
        if file.suffix == ".parquet":
            return int(pq.read_metadata(file).num_rows)
        return _lines(file, limit)
    except (OSError, ValueError):
        return 0


def _lines(file: Path, limit: int) -> int:
    found = 0
    with file.open("rb") as opened:
        for piece in takewhile(bool, iter(lambda: opened.read(_PIECE), b"")):
            found += piece.count(b"\n")
            if found > limit:
                break
    return found
