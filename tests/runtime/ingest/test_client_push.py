"""Tuples pushed by clients: by many at once, too late, and after the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.errors import CatalogError, InputError
from headwater.runtime.api import open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import ARRIVAL, TIME

S = "CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts {} FROM CLIENT"


def record(item: int, second: int = 0) -> dict[str, object]:
    return {"item": item, "ts": f"2026-01-01T00:00:{second:02}Z"}


def test_tuples_of_many_clients_have_places_of_their_own(where: str, tmp_path: Path) -> None:
    """An arrival number identifies a tuple of its stream, so it is assigned once."""
    clients, times = 4, 6
    with open_state(tmp_path / "state", catalog=where) as headwater:
        headwater.execute(S.format("LATENESS 1 HOUR"))

        def client(number: int) -> None:
            with open_state(tmp_path / "state", catalog=where) as own:
                for turn in range(times):
                    own.push("s", [record(number, turn), record(number, turn)], timestamp_unit="us")

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        segments = headwater.catalog.segments(stream_log("s"))
        tables = [segment_files.read_arrow(segment) for segment in segments]
        arrivals = [n for table in tables for n in table[ARRIVAL].to_pylist()]
        assert arrivals == list(range(2 * clients * times)), "in the order of the segments"
        there = {str(path) for path in (tmp_path / "state" / "log").glob("*/*/*")}
        assert there == headwater.catalog.all_paths(), "who was overtaken leaves nothing behind"


def test_no_tuple_is_ingested_behind_a_watermark(where: str, tmp_path: Path) -> None:
    """Whether a tuple is late is decided by the watermark that it really meets."""
    clients = 4
    with open_state(tmp_path / "state", catalog=where) as headwater:
        headwater.execute(S.format("LATENESS 1 SECOND"))

        def client(number: int) -> None:
            with open_state(tmp_path / "state", catalog=where) as own:
                for turn in range(8):
                    own.push(
                        "s", [record(number, (turn * 7 + number * 3) % 40)], timestamp_unit="us"
                    )

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        mark = None
        for segment in headwater.catalog.segments(stream_log("s")):
            times = segment_files.read_arrow(segment)[TIME].to_pylist()
            assert mark is None or min(times) >= mark
            mark = segment.watermark
        row = headwater.catalog.stream("s")
        assert row is not None
        taken = headwater.catalog.log_stats(stream_log("s")).rows
        assert taken + row.late == clients * 8 and row.late


def test_nothing_can_be_pushed_after_the_end(where: str, tmp_path: Path) -> None:
    with open_state(tmp_path / "state", catalog=where) as headwater:
        headwater.execute(S.format(""))
        headwater.push("s", [record(1)], timestamp_unit="us")
        headwater.execute("END STREAM s")
        with pytest.raises(InputError, match="stream s has ended"):
            headwater.push("s", [record(2)], timestamp_unit="us")
        with pytest.raises(CatalogError, match="has ended: nothing can be added"):
            headwater.catalog.commit(None, stream_progress=("s", 1))
        assert len(headwater.catalog.segments(stream_log("s"))) == 1


TYPED = "CREATE STREAM s (b STRING, c INT, d DATE, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"


@pytest.mark.parametrize(
    "record, reason",
    [
        ({"b": "\ud800"}, "s.b"),
        ({"b": b"x"}, "s.b: a value of bytes is no STRING"),
        ({"b": 5}, "s.b: 5 is no STRING"),
        ({"b": ["x"]}, "s.b: a value of list is no STRING"),
        ({"c": b"1"}, "s.c: a value of bytes is no INT"),
        ({"c": True}, "s.c: true is no INT"),
        ({"d": {}}, "s.d: a value of dict is no DATE"),
        ("abcd", "s: a record is a mapping or a sequence of values, not str"),
        (None, "s: a record is a mapping or a sequence of values, not NoneType"),
        (7, "s: a record is a mapping or a sequence of values, not int"),
    ],
)
def test_what_is_no_value_of_a_column_is_refused_with_all_of_the_call(
    tmp_path: Path, record: object, reason: str
) -> None:
    good = {"b": "5", "c": 5, "d": "2026-01-01", "ts": "2026-01-01"}
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TYPED)
        bad = good | record if isinstance(record, dict) else record
        with pytest.raises(InputError) as caught:
            headwater.push("s", [good, bad])  # type: ignore[list-item]
        assert reason in str(caught.value)
        assert not headwater.catalog.segments(stream_log("s"))
        assert headwater.push("s", [good]) == 1
