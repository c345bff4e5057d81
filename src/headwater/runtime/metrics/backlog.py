"""The backlog of units: rows that they have not read yet, and since when these wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headwater.runtime.catalog import Catalog, UnitRow, is_log


@dataclass(frozen=True)
class Backlog:
    """The unread rows of a unit, and when the oldest of them arrived."""

    rows: int
    since: float


def unit_backlogs(catalog: Catalog, units: Iterable[UnitRow]) -> dict[str, Backlog]:
    """The backlog of each unit; units without one are left out."""
    rows = list(units)
    backlogs: dict[str, Backlog] = {}
    # By log, not by unit: many units read the same few logs, and each is queried once.
    for log in dict.fromkeys(name for row in rows for name in row.inputs if is_log(name)):
        positions = catalog.reader_positions(log)
        readers = {row.id: _seq(positions.get(row.id)) for row in rows if log in row.inputs}
        arrivals = catalog.arrivals(log, min(readers.values()))
        for unit, seq in readers.items():
            new = [arrival for arrival in arrivals if arrival.seq > seq]
            if new:
                before = backlogs.get(unit, Backlog(0, new[0].created_at))
                backlogs[unit] = Backlog(
                    before.rows + sum(arrival.rows for arrival in new),
                    min(before.since, *(arrival.created_at for arrival in new)),
                )
    return backlogs


def _seq(position: Any) -> int:
    return int((position or {"seq": 0})["seq"])
