"""What of a batch becomes a segment, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.catalog import Stream
from headwater.runtime import files
from headwater.runtime.catalog import Refused, Rejects
from headwater.runtime.compile import ARRIVAL, TIME
from headwater.runtime.sources import Batch
from headwater.runtime.time_bounds import LATE, Bounds

REJECTS_KEPT_PER_BATCH = 1_000
TIMES = (TIME, TIME)

_REASON, _COLUMN = "_reason", "_column"


def taken_in(
    batch: Batch, stream: Stream, bounds: Bounds, folder: Path
) -> tuple[files.Written | None, Rejects]:
    """The segment's file of a batch, if it has one, and the tuples that are refused."""
    tally = _Tally(batch.place)
    written = files.write_tables(_good(batch, stream, bounds, tally), folder, TIMES)
    records = tuple(tally.records)
    return written, Rejects(stream.name.lower(), tally.malformed, tally.late, records)


@dataclass
class _Tally:
    """What was refused so far: how many, and the first ones."""

    place: Callable[[int], str]
    malformed: int = 0
    late: int = 0
    records: list[Refused] = field(default_factory=list)

    def add(self, refused: Sequence[Refused]) -> None:
        self.malformed += len(refused)
        self.records += refused[: REJECTS_KEPT_PER_BATCH - len(self.records)]

    def add_rows(self, rows: pa.Table, names: Sequence[str]) -> None:
        late = pc.sum(pc.equal(rows[_REASON], LATE)).as_py() or 0
        self.late += late
        self.malformed += rows.num_rows - late
        for row in rows.slice(0, REJECTS_KEPT_PER_BATCH - len(self.records)).to_pylist():
            record = json.dumps({name: row[name] for name in names}, default=str)
            self.records.append(
                Refused(row[_REASON], record, self.place(row[ARRIVAL]), row[_COLUMN] or "")
            )


def _good(batch: Batch, stream: Stream, bounds: Bounds, tally: _Tally) -> Iterator[pa.Table]:
    """The tuples of a batch with their times, without those that are refused."""
    for table, refused in batch.pieces or ():
        tally.add(refused)
        flagged = _flagged(table, stream, bounds)
        is_good = pc.is_null(flagged[_REASON])
        if not pc.all(is_good).as_py():
            tally.add_rows(flagged.filter(pc.invert(is_good)), stream.schema.names)
            flagged = flagged.filter(is_good)
        yield flagged.drop_columns([_REASON, _COLUMN])


def _flagged(table: pa.Table, stream: Stream, bounds: Bounds) -> pa.Table:
    """The tuples with event times in microseconds, and the reason and column of what is refused."""
    times = pc.cast(table[stream.schema[stream.time].name], pa.int64())
    reason, blamed = pa.nulls(table.num_rows, pa.string()), pa.nulls(table.num_rows, pa.string())
    for bound, is_beyond, why in (
        (bounds.watermark, pc.less, LATE),
        (bounds.earliest, pc.less, bounds.too_early),
        (bounds.latest, pc.greater, bounds.too_late),
    ):
        if bound is not None:
            beyond = pc.fill_null(is_beyond(times, bound), False)
            reason = pc.if_else(beyond, why, reason)
            blamed = pc.if_else(beyond, stream.schema[stream.time].name, blamed)
    for column in reversed(stream.schema.fields):
        if not column.nullable:
            absent = pc.is_null(table[column.name])
            reason = pc.if_else(absent, f"{column.name} is NULL", reason)
            blamed = pc.if_else(absent, column.name, blamed)
    kept = table.select(stream.schema.names)
    added = {TIME: times, ARRIVAL: table[ARRIVAL], _REASON: reason, _COLUMN: blamed}
    for name, values in added.items():
        kept = kept.append_column(name, values)
    return kept
