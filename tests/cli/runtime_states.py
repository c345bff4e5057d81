"""State directories for the tests of the commands, created without Spark.

A unit's segment is written as the engine would write it: the rows of the reference evaluator for
the unit's canonical query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headwater.algebra.canonical import canonicalize
from headwater.algebra.types import Value
from headwater.cql import CreateQuery, parse
from headwater.reference import evaluate
from headwater.reuse import minimal_operator, signature_of
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.row_classes import ROW_CLASS_COLUMN, SHAPE_COLUMN
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import NewSegment, stream_log, subscribers_log, unit_log
from headwater.runtime.compile.unit_plans import write_subscribers
from headwater.runtime.results.subscribers import SUBSCRIBERS
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.columns import arrow_type

Rows = list[tuple[Value, ...]]

TEXT = """\
CREATE STREAM s (a INT NOT NULL, b STRING, c DECIMAL(6,2), ts TIMESTAMP NOT NULL)
  TIMESTAMP BY ts LATENESS 1 SECOND FROM CLIENT;
CREATE QUERY big AS SELECT a, b FROM s [NOW] WHERE a > 1;
CREATE QUERY large AS SELECT b AS word, a AS number FROM s [NOW] WHERE NOT a <= 1;
CREATE QUERY total AS SELECT SUM(c) AS sum FROM s [RANGE 1 MIN SLIDE 1 MIN];
"""
ROWS: list[dict[str, object]] = [
    {"a": 1, "b": "one", "c": "1.50", "ts": "2026-03-01T08:00:01Z"},
    {"a": 2, "b": None, "c": "2.25", "ts": "2026-03-01T08:00:02Z"},
    {"a": 3, "b": 'drei, "3"', "c": None, "ts": "2026-03-01T08:00:03.5Z"},
]


@dataclass(frozen=True)
class Made:
    """A state directory for a test."""

    path: Path

    def open(self) -> Headwater:
        return open_state(self.path)

    def unit(self, query: str) -> str:
        with self.open() as headwater:
            return headwater.query(query).row.unit_id

    def answer(self, name: str, streams: dict[str, Rows]) -> int:
        """Append the results of a query over these rows to its unit's log; returns their number."""
        with self.open() as headwater:
            row = headwater.query(name).row
            (statement,) = parse(row.definition, headwater.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            canonical = canonicalize(statement.query)
            results = evaluate(canonical.query, streams)
            columns: dict[str, pa.Array] = {
                column.name: pa.array(
                    [result.values[at] for result in results], arrow_type(column.type)
                )
                for at, column in enumerate(canonical.query.columns)
            }
            columns["_tau"] = pa.array([result.tau for result in results], pa.int64())
            unit = headwater.catalog.unit(row.unit_id)
            assert unit is not None
            shared: list[NewSegment] = []
            if unit.digest != row.result_key:
                columns |= dict.fromkeys(
                    (SHAPE_COLUMN, ROW_CLASS_COLUMN), pa.array([0] * len(results), pa.int64())
                )
                signature = replace(signature_of(canonical), digest=row.result_key)
                subscribers = write_subscribers(
                    JoinSubscribers(minimal_operator(signature), (signature,)),
                    headwater.state / "log" / "members" / "x",
                )
                shared.append(build_segment(subscribers_log(row.unit_id), subscribers, None))
            folder = headwater.state / "log" / "units" / row.unit_id
            written = segment_files.write_arrow(pa.table(columns), folder, ("_tau", "_tau"))
            assert written is not None
            cursors = {
                (row.unit_id, stream_log(stream)): {
                    "seq": declared.next_seq - 1,
                    "watermark": declared.watermark,
                }
                for stream in streams
                if (declared := headwater.catalog.stream(stream)) is not None
            }
            segment = build_segment(unit_log(row.unit_id), written, None)
            if shared:
                version = headwater.catalog.log_ends()[subscribers_log(row.unit_id)].seq + 1
                segment = replace(segment, keys={SUBSCRIBERS: version})
            headwater.catalog.commit(None, segments=[*shared, segment], cursors=cursors)
            return len(results)


def make(path: Path, text: str = TEXT) -> Made:
    """Create a state directory and submit a text to it."""
    with open_state(path) as headwater:
        headwater.execute(text)
    return Made(path)
