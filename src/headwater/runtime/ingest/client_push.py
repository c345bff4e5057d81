"""Tuples pushed by a client, committed immediately as a segment of their stream.

Pushing needs neither a lease nor Spark: concurrent pushes are kept apart by the cursor that counts
the pushed tuples, and the one that loses the race tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from headwater.algebra.catalog import Stream
from headwater.algebra.times import TIMESTAMP_UNITS, from_days, to_days, to_micros
from headwater.algebra.types import DATE, TIMESTAMP, Type, Value
from headwater.errors import AlgebraError, CommitConflict, InputError, suggest
from headwater.reference.records import value_from_json, value_from_text
from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    RejectedRecord,
)
from headwater.runtime.ingest.stream_append import append_to_stream
from headwater.runtime.ingest.time_bounds import LATE, EventTimeBounds
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import (
    build_arrow_table,
    event_time,
    stream_folder,
)
from headwater.runtime.storage.columns import TIME

Record = Mapping[str, object] | Sequence[object]


def push(
    catalog: Catalog,
    state_dir: Path,
    stream: Stream,
    records: Iterable[Record],
    timestamp_unit: str | None = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Append records to a stream; returns how many were accepted.

    Late records, and those too far from the clock, are counted and left out. Values are Python's,
    or texts as in files. A number is a timestamp if `timestamp_unit` (s, ms, us or ns since the
    epoch) is given, and a date if it counts days. Any number of threads and processes may push to
    one stream. Raises InputError for a record that does not fit, and if the stream has ended.
    """
    if timestamp_unit is not None and timestamp_unit not in TIMESTAMP_UNITS:
        hint = suggest(timestamp_unit, TIMESTAMP_UNITS)
        raise InputError(f"there is no timestamp_unit {timestamp_unit}; {hint}")
    # All before the first is written: a record that does not fit refuses the whole push.
    rows = [_convert_record(stream, record, timestamp_unit) for record in records]
    while True:
        try:
            return _try_push(catalog, state_dir, stream, rows, clock())
        except CommitConflict:  # another push came first: check times and number the tuples again
            continue


def _try_push(
    catalog: Catalog, state_dir: Path, stream: Stream, rows: Sequence[tuple[Value, ...]], now: float
) -> int:
    owner = f"ingest:{stream.name.lower()}"
    # Read before the stream: if another push or a rewind comes in between, the commit notices, and
    # no tuple is accepted by a watermark that is out of date.
    pushed = catalog.cursor(owner, "pushed")
    stream_row = catalog.stream(stream.name)
    if stream_row is None:
        raise InputError(f"stream {stream.name} was dropped: nothing can be added to it")
    if stream_row.ended:
        raise InputError(f"stream {stream.name} has ended: nothing can be added to it")
    bounds = EventTimeBounds.of(stream, stream_row.watermark, now)
    checked = [(bounds.rejection_reason(event_time(stream, row)), row) for row in rows]
    accepted = [row for reason, row in checked if reason is None]
    rejected = tuple(
        RejectedRecord(reason, str(row), "pushed") for reason, row in checked if reason is not None
    )
    late = sum(record.reason == LATE for record in rejected)
    first = int(pushed or 0)
    written = segment_files.write_arrow(
        build_arrow_table(stream, accepted, first),
        stream_folder(state_dir, stream_row.name),
        (TIME, TIME),
    )
    try:
        append_to_stream(
            catalog,
            None,
            stream_row,
            written,
            {(owner, "pushed"): first + len(accepted)},
            BatchRejects(stream_row.name, len(rejected) - late, late, rejected),
            expected_cursors={(owner, "pushed"): pushed},
        )
    except CommitConflict:
        if written is not None:
            segment_files.remove(written.path)  # not left to the sweep: a busy stream retries often
        raise
    return len(accepted)


def _convert_record(stream: Stream, record: Record, unit: str | None) -> tuple[Value, ...]:
    if isinstance(record, Mapping):
        by_name = {str(key).lower(): value for key, value in record.items()}
        for key in record:
            if stream.schema.get(str(key)) is None:
                raise InputError(
                    f"{stream.name} has no column {key}; {suggest(str(key), stream.schema.names)}"
                )
        values = [by_name.get(f.name.lower()) for f in stream.schema]
    elif isinstance(record, str | bytes) or not isinstance(record, Iterable):
        raise InputError(
            f"{stream.name}: a record is a mapping or a sequence of values, not {type(record).__name__}"
        )
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
        row.append(_convert_value(column.type, value, f"{stream.name}.{column.name}", unit))
    return tuple(row)


def _convert_value(type_: Type, value: object, where: str, unit: str | None) -> Value:
    try:
        match value:
            case None:
                return None
            case datetime() if type_ == TIMESTAMP:
                return to_micros(value)
            case date() if type_ == DATE:
                return to_days(value)
            # bool is a subclass of int in Python, and True is no date.
            case int() if type_ == DATE and not isinstance(value, bool):
                return to_days(from_days(value))
            case str():
                return value_from_text(value, type_, unit)
            case float():
                # By its shortest text, not its binary value: 0.1 is to be the decimal 0.1.
                return value_from_json(Decimal(repr(value)), type_, unit)
            case int() | Decimal():
                return value_from_json(value, type_, unit)
            case _:
                raise InputError(f"{where}: a value of {type(value).__name__} is no {type_}")
    except (AlgebraError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from error
