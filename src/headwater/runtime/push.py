"""Tuples pushed by a client, made durable as a segment of their stream at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from headwater.algebra.catalog import Stream
from headwater.algebra.times import TIMESTAMP_UNITS, from_days, to_days, to_micros
from headwater.algebra.types import DATE, STRING, TIMESTAMP, Type, Value
from headwater.errors import AlgebraError, InputError, Overtaken, nearest
from headwater.reference.records import from_json, from_text
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    Cursors,
    FileChanges,
    Lease,
    NewSegment,
    Refused,
    Rejects,
    StreamRow,
    stream_log,
)
from headwater.runtime.compile import ARRIVAL, TIME
from headwater.runtime.limits import Limits, effective
from headwater.runtime.paths import file_name
from headwater.runtime.rates import arrived
from headwater.runtime.shares import Alarm, recent, share_alarms
from headwater.runtime.sparksql import arrow_type
from headwater.runtime.time_bounds import LATE, Bounds

logger = logging.getLogger("headwater")

Record = Mapping[str, object] | Sequence[object]


def push(
    catalog: Catalog,
    state: Path,
    stream: Stream,
    records: Iterable[Record],
    timestamp_unit: str | None = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Append records to a stream; those that are late or too far from the clock are counted and left
    out, wrong ones raise InputError.

    Values are Python's, or texts as in files. A number is a time if it is said what it counts since
    the epoch (s, ms, us or ns), and a date if it counts days.
    Any number of threads and processes may push to one stream: who is overtaken begins again.
    Raises InputError too if the stream has ended.
    """
    if timestamp_unit is not None and timestamp_unit not in TIMESTAMP_UNITS:
        known = nearest(timestamp_unit, TIMESTAMP_UNITS)
        raise InputError(f"there is no timestamp_unit {timestamp_unit}; {known}")
    rows = [_row(stream, record, timestamp_unit) for record in records]
    while True:
        try:
            return _push(catalog, state, stream, rows, clock())
        except Overtaken:
            continue


def _push(
    catalog: Catalog, state: Path, stream: Stream, rows: Sequence[tuple[Value, ...]], now: float
) -> int:
    owner = f"ingest:{stream.name.lower()}"
    pushed = catalog.cursor(owner, "pushed")
    known = catalog.stream(stream.name)
    assert known is not None
    if known.ended:
        raise InputError(f"stream {stream.name} has ended: nothing can be added to it")
    bounds = Bounds.of(stream, known.watermark, now)
    judged = [(bounds.refusal(_time(stream, row)), row) for row in rows]
    kept = [row for why, row in judged if why is None]
    refused = tuple(Refused(why, str(row), "pushed") for why, row in judged if why is not None)
    late = sum(one.reason == LATE for one in refused)
    first = int(pushed or 0)
    written = files.write_arrow(
        arrow_table(stream, kept, first), stream_folder(state, known.name), (TIME, TIME)
    )
    try:
        append(
            catalog,
            None,
            known,
            written,
            {(owner, "pushed"): first + len(kept)},
            Rejects(known.name, len(refused) - late, late, refused),
            expecting={(owner, "pushed"): pushed},
        )
    except Overtaken:
        if written is not None:
            files.remove(written.path)
        raise
    return len(kept)


def append(
    catalog: Catalog,
    lease: Lease | None,
    stream: StreamRow,
    written: files.Written | None,
    cursors: Cursors,
    refused: Rejects,
    expecting: Cursors | None = None,
    limits: Limits | None = None,
    files: FileChanges | None = None,
) -> None:
    """Register a stream's new segment, the position behind it and what was refused, at once.

    If that makes too large a share of what comes late or refused, an event says so with it.
    """
    segments = []
    progress = None
    log, now = stream_log(stream.name), time.time()
    known = catalog.statistics(log)
    counted = recent(known, 0 if written is None else written.rows, refused, now)
    alarms: list[Alarm] = []
    values = dict(counted)
    if len(counted) > 1:  # something was late or refused
        limits = limits or effective(Limits(), catalog.options(), {})
        alarms, raised = share_alarms(known, counted, limits, refused)
        values |= raised
    if written is not None:
        values |= arrived(known, written.rows, written.bytes, now)
        largest = written.largest_time
        if stream.max_event_time is not None:
            largest = max(largest, stream.max_event_time)
        progress = (stream.name, largest)
        mark = stream.watermark_at(largest)
        segments = [segment(log, written, mark)]
    catalog.commit(
        lease,
        segments=segments,
        cursors=cursors,
        statistics={(log, name): value for name, value in values.items()},
        stream_progress=progress,
        rejects=[refused] if refused.malformed or refused.late else [],
        expecting=expecting,
        events=[(alarm.kind, stream.name, alarm.detail) for alarm in alarms],
        files=files,
    )
    for alarm in alarms:
        logger.warning("stream %s: %s", stream.spelled, alarm.sentence)


def segment(log: str, written: files.Written, watermark: int | None) -> NewSegment:
    """A written file as the catalog wants to know it."""
    return NewSegment(
        log=log,
        path=written.path,
        rows=written.rows,
        bytes=written.bytes,
        least_time=written.least_time,
        largest_time=written.largest_time,
        watermark=watermark,
        keys={name: list(span) for name, span in written.ranges.items()} or None,
        on_disk=True,
        digest=written.digest,
    )


def stream_folder(state: Path, name: str) -> Path:
    """Where the segments of a stream lie."""
    return state / "log" / "streams" / file_name(name)


def _time(stream: Stream, row: Sequence[Value]) -> int:
    value = row[stream.schema.names.index(stream.schema[stream.time].name)]
    assert isinstance(value, int)
    return value


def arrow_table(stream: Stream, rows: Sequence[Sequence[Value]], first: int) -> pa.Table:
    """Rows of a stream, values as the algebra has them, as a segment's table."""
    columns: dict[str, pa.Array] = {}
    for n, column in enumerate(stream.schema):
        columns[column.name] = pa.array([row[n] for row in rows], arrow_type(column.type))
    columns[TIME] = pa.array([_time(stream, row) for row in rows], pa.int64())
    columns[ARRIVAL] = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.table(columns)


def _row(stream: Stream, record: Record, unit: str | None) -> tuple[Value, ...]:
    if isinstance(record, Mapping):
        given = {str(key).lower(): value for key, value in record.items()}
        for key in record:
            if stream.schema.get(str(key)) is None:
                raise InputError(
                    f"{stream.name} has no column {key}; {nearest(str(key), stream.schema.names)}"
                )
        values = [given.get(f.name.lower()) for f in stream.schema]
    else:
        values = list(record)
        if len(values) != len(stream.schema.fields):
            raise InputError(
                f"{stream.name} has {len(stream.schema.fields)} columns, not {len(values)}"
            )
    row = []
    for column, value in zip(stream.schema, values, strict=True):
        if value is None and not column.nullable:
            raise InputError(f"{stream.name}.{column.name} is NULL")
        row.append(_value(column.type, value, f"{stream.name}.{column.name}", unit))
    return tuple(row)


def _value(type_: Type, value: object, where: str, unit: str | None) -> Value:
    try:
        match value:
            case None:
                return None
            case datetime() if type_ == TIMESTAMP:
                return to_micros(value)
            case date() if type_ == DATE:
                return to_days(value)
            case int() if type_ == DATE and not isinstance(value, bool):
                return to_days(from_days(value))
            case _ if type_ == STRING:
                return str(value)
            case str():
                return from_text(value, type_, unit)
            case float():
                return from_json(Decimal(repr(value)), type_, unit)
            case _:
                return from_json(value, type_, unit)
    except (AlgebraError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from error
