"""What of a batch becomes a segment, and what is refused.

A small batch comes to the driver once, and is divided there; a large one stays with Spark's tasks,
which count what they leave out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from headwater.algebra.catalog import Stream
from headwater.runtime import files
from headwater.runtime.catalog import Rejects
from headwater.runtime.compile import ARRIVAL, TIME
from headwater.runtime.sources import MALFORMED, WHY, Batch
from headwater.runtime.sparksql import quoted, text_sql
from headwater.runtime.time_bounds import LATE, Bounds

REJECTS_KEPT_PER_BATCH = 1_000
REASON = "_reason"
RECORD = "_record"
TIMES = (TIME, TIME)


def taken_in(
    batch: Batch, stream: Stream, bounds: Bounds, folder: Path
) -> tuple[files.Written | None, Rejects]:
    """The segment's file of a batch, if it has one, and the tuples that are refused."""
    if batch.table is not None:
        return _taken_in_here(_flagged_here(batch.table, stream, bounds), stream, folder)
    assert batch.frame is not None
    flagged = _flagged(batch.frame, stream, bounds)
    if batch.small:
        return _taken_in_here(flagged.toArrow(), stream, folder)
    seen = Observation()
    flagged = flagged.observe(
        seen,
        F.count(F.when(F.col(REASON) == LATE, 1)).alias(LATE),
        F.count(REASON).alias("refused"),
    )
    good = flagged.where(f"{REASON} IS NULL").drop(REASON, RECORD)
    written = files.write(good, folder, TIMES, small=False)
    late, refused = seen.get[LATE], seen.get["refused"]
    records: tuple[tuple[str, str], ...] = ()
    if refused:
        kept = flagged.where(f"{REASON} IS NOT NULL").limit(REJECTS_KEPT_PER_BATCH)
        records = tuple((row[0], row[1]) for row in kept.select(REASON, RECORD).collect())
    return written, Rejects(stream.name.lower(), refused - late, late, records)


def _taken_in_here(
    flagged: pa.Table, stream: Stream, folder: Path
) -> tuple[files.Written | None, Rejects]:
    is_good = pc.is_null(flagged[REASON])
    good = flagged.filter(is_good).drop_columns([REASON, RECORD])
    written = files.write_arrow(good, folder, TIMES)
    refused = flagged.filter(pc.invert(is_good)).select([REASON, RECORD])
    late = pc.sum(pc.equal(refused[REASON], LATE)).as_py() or 0
    kept = refused.slice(0, REJECTS_KEPT_PER_BATCH).to_pylist()
    records = tuple((row[REASON], row[RECORD]) for row in kept)
    return written, Rejects(stream.name.lower(), refused.num_rows - late, late, records)


def _flagged(frame: DataFrame, stream: Stream, bounds: Bounds) -> DataFrame:
    """The batch with event times in microseconds, and the reason and record of what is refused."""
    time = f"unix_micros({quoted(stream.time)})"
    why = f"coalesce({WHY}, 'malformed')" if WHY in frame.columns else "'malformed'"
    reasons = [f"WHEN {MALFORMED} IS NOT NULL THEN {why}"]
    for column in stream.schema:
        if not column.nullable:
            why = text_sql(f"{column.name} is NULL")
            reasons.append(f"WHEN {quoted(column.name)} IS NULL THEN {why}")
    if bounds.latest is not None:
        reasons.append(f"WHEN {time} > {bounds.latest}L THEN {text_sql(bounds.too_late)}")
    if bounds.earliest is not None:
        reasons.append(f"WHEN {time} < {bounds.earliest}L THEN {text_sql(bounds.too_early)}")
    if bounds.watermark is not None:
        reasons.append(f"WHEN {time} < {bounds.watermark}L THEN '{LATE}'")
    names = [quoted(f.name) for f in stream.schema]
    record = f"make_valid_utf8(coalesce({MALFORMED}, to_json(struct({', '.join(names)}))))"
    flagged = frame.selectExpr(
        "*", f"{time} AS {TIME}", f"CASE {' '.join(reasons)} END AS {REASON}"
    )
    kept = f"CASE WHEN {REASON} IS NOT NULL THEN {record} END AS {RECORD}"
    return flagged.selectExpr(*names, TIME, ARRIVAL, REASON, kept)


def _flagged_here(table: pa.Table, stream: Stream, bounds: Bounds) -> pa.Table:
    """The same for records that the driver has read."""
    times = pc.cast(table[stream.schema[stream.time].name], pa.int64())
    conditions, reasons = [], []
    for column in stream.schema:
        if not column.nullable:
            conditions.append(pc.is_null(table[column.name]))
            reasons.append(pa.scalar(f"{column.name} is NULL"))
    for bound, is_beyond, why in (
        (bounds.latest, pc.greater, bounds.too_late),
        (bounds.earliest, pc.less, bounds.too_early),
        (bounds.watermark, pc.less, LATE),
    ):
        if bound is not None:
            conditions.append(is_beyond(times, bound))
            reasons.append(pa.scalar(why))
    reason = pa.nulls(table.num_rows, pa.string())
    for condition, why in zip(reversed(conditions), reversed(reasons), strict=True):
        reason = pc.if_else(pc.fill_null(condition, False), why, reason)
    kept = table.select(stream.schema.names)
    added = {TIME: times, ARRIVAL: table[ARRIVAL], REASON: reason, RECORD: _texts(kept, reason)}
    for name, values in added.items():
        kept = kept.append_column(name, values)
    return kept


def _texts(table: pa.Table, reason: pa.Array) -> pa.Array:
    """The first refused records as text; nothing for the others."""
    refused = pc.indices_nonzero(pc.is_valid(reason)).slice(0, REJECTS_KEPT_PER_BATCH)
    texts: list[str | None] = [None] * table.num_rows
    for at, row in zip(refused.to_pylist(), table.take(refused).to_pylist(), strict=True):
        texts[at] = json.dumps(row, default=str)
    return pa.array(texts, pa.string())
