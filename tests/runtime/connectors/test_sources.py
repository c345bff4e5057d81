"""Every source brings each tuple once, over restarts, crashes and servers that go away."""

from __future__ import annotations

import csv
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bids_streams import declare_bids, ingested_rows, sample
from engine_helpers import (
    Stop,
    expected,
    json_lines,
    opened,
    result_rows,
    settle,
    stop_at,
    submit,
    tick_until,
)
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.times import to_micros
from headwater.cql import parse_query
from headwater.errors import InputError
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import FOREVER, EventRow, stream_log
from headwater.runtime.connectors.replay import StagedFile
from headwater.runtime.connectors.socket import MAX_LINE_BYTES, LineReader, SocketLine
from headwater.runtime.results import reader
from headwater.runtime.storage.columns import TIME
from strategies import BIDS, SOURCES

spark_test = pytest.mark.spark

QUERY = parse_query("SELECT item, bidder, note FROM bids [ROWS 3] WHERE item > 0", SOURCES)


def declare(headwater: Headwater, kind: str, **options: Any) -> None:
    """Bids from that source, and a query over them."""
    declare_bids(headwater, kind, **options)
    submit(headwater, "q", QUERY)


# ---- rate


@spark_test
def test_rate_counts_on_after_a_restart(spark: Any, tmp_path: Path) -> None:
    for wanted in (300, 900):
        with opened(tmp_path / "state", spark) as headwater:
            headwater.execute("""
                CREATE STREAM ticks (n BIGINT, ts TIMESTAMP, again BIGINT) TIMESTAMP BY ts
                  FROM rate(rows_per_second => 700, rows_per_step => 250);
                CREATE QUERY q AS SELECT n, again, ts FROM ticks;
                """)
            results = headwater.query("q").results
            tick_until(
                headwater, lambda wanted=wanted, results=results: len(list(results())) > wanted
            )
            settled = list(results())
    rows = sorted((row["n"], row["again"], to_micros(row["ts"])) for row in settled)
    first = rows[0][2]
    assert rows == [(n, n, first + n * 10**6 // 700) for n in range(len(rows))]
    assert len(rows) > 300


# ---- socket


@contextmanager
def server(*texts: bytes) -> Iterator[int]:
    """A server whose n-th client gets the n-th text and is then left; the last one stays."""
    ready = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for text in texts:
            client, _ = ready.accept()
            client.sendall(text)
            if text is texts[-1]:
                stay.append(client)
            else:
                client.close()

    stay: list[socket.socket] = []
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield ready.getsockname()[1]
    finally:
        thread.join()
        for one in (ready, *stay):
            one.close()


@spark_test
def test_socket_reconnects_and_gives_again_what_was_not_kept(spark: Any, tmp_path: Path) -> None:
    data = sample(3)
    texts = [json_lines(BIDS, data[:20]) + '{"item": 3, "bid', json_lines(BIDS, data[20:])]
    failures = ["ingest: written"]

    def fail_once(point: str) -> None:
        if point in failures:
            failures.remove(point)
            raise OSError("no room")

    with (
        server(*(text.encode() for text in texts)) as port,
        opened(tmp_path / "state", spark, at_point=fail_once) as headwater,
    ):
        declare(headwater, "socket", host="127.0.0.1", port=port, rows_per_step=17)
        tick_until(headwater, lambda: ingested_rows(headwater) == len(data))
        headwater.execute("END STREAM bids")
        settle(headwater)
        assert not failures
        assert result_rows(headwater, "q", QUERY) == expected(QUERY, {"Bids": data}, {})
        (refused,) = headwater.catalog.rejects("bids")
        assert refused.reason == "ends without a line feed, or is too long"
        assert (refused.record, refused.place) == ('{"item": 3, "bid', "line 21 received")


@pytest.mark.long
def test_a_server_waits_while_its_lines_are_not_taken() -> None:
    """The buffer holds one line more than it may at most; nothing is lost or moved."""
    text = b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(5_000))
    with server(text) as port:
        reader = LineReader("127.0.0.1", port, max_bytes=10_000)
        seen = -1
        while seen < 4_999:
            assert reader.buffered_bytes < reader.max_bytes + 1_010
            for line in reader.take(50):
                assert line.is_complete
                assert int(line.text.split()[0]) == seen + 1
                seen += 1
        reader.close()


def test_a_line_that_is_too_long_is_cut_and_not_taken_for_one() -> None:
    with server(b"a" * (2 * MAX_LINE_BYTES + 5) + b"\nb\n") as port:
        reader = LineReader("127.0.0.1", port)
        found: list[SocketLine] = []
        while len(found) < 2:
            found += reader.take(5)
        reader.close()
    assert [(line.text[:1], line.is_complete) for line in found] == [("a", False), ("b", True)]


@spark_test
def test_an_unreachable_server_is_reported_and_stops_no_other_stream(
    spark: Any, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, "socket", host="127.0.0.1", port=port)
        headwater.execute("CREATE STREAM other (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
        headwater.execute("CREATE QUERY o AS SELECT ts FROM other")
        headwater.push("other", [(0,)], timestamp_unit="us")

        def unread() -> list[EventRow]:
            return [e for e in headwater.catalog.events() if e.kind == "stream unread"]

        tick_until(headwater, lambda: bool(unread()))
        (event,) = unread()
        assert str(port) in event.detail["error"]
        settle(headwater)
        assert len(list(headwater.query("o").results())) == 1


# ---- replay


def write_csv(path: Path, rows: list[Any]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(BIDS.schema.names)
        writer.writerows([*row[:-1], f"1970-01-01T00:00:{row[-1] / 10**6:09.6f}Z"] for row in rows)


@spark_test
@pytest.mark.parametrize("point", ["ingest: written", "ingest: committed"])
def test_replay_goes_on_after_a_crash(spark: Any, tmp_path: Path, point: str) -> None:
    data = sample(5, 50)
    (tmp_path / "in").mkdir()
    write_csv(tmp_path / "in" / "1.csv", data[:30])
    write_csv(tmp_path / "in" / "2.csv", [])
    write_csv(tmp_path / "in" / "3.csv", data[30:])
    crashes = 0
    for after in (1, 2, 1, 10**6):
        crash = stop_at(point, after)
        with opened(tmp_path / "state", spark, at_point=crash, holder=f"h{crashes}") as headwater:
            declare(
                headwater,
                "replay",
                path=str(tmp_path / "in"),
                format="csv",
                speed=40,
                rows_per_step=16,
            )
            try:
                headwater.run(until_idle=True, interval=0.01)
            except Stop:
                crashes += 1
                continue
            assert ingested_rows(headwater) == len(data)
            assert result_rows(headwater, "q", QUERY) == expected(QUERY, {"Bids": data}, {})
            log = headwater.catalog.segments(stream_log("bids"))
            notes = [row["note"] for s in log for row in reader.rows(pq.read_table(s.path))]
            assert notes == [row[3] for row in data]
            assert len(log) > len(data) / 16
    assert crashes


@spark_test
def test_a_replay_can_be_ended(spark: Any, tmp_path: Path) -> None:
    """It would go on for days; what was fed until its end is answered."""
    data = sample(2, 20)
    write_csv(tmp_path / "in.csv", data)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, "replay", path=str(tmp_path / "in.csv"), speed=0.0001)
        tick_until(headwater, lambda: ingested_rows(headwater) > 0)
        headwater.execute("END STREAM bids")
        headwater.run(until_idle=True)
        fed = data[: ingested_rows(headwater)]
        assert len(fed) < len(data)
        assert result_rows(headwater, "q", QUERY) == expected(QUERY, {"Bids": fed}, {})


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=12),
    st.integers(0, 12),
    st.integers(-1, 10),
)
def test_a_row_is_due_when_the_clock_has_reached_all_up_to_it(
    times: list[int | None], done: int, clock: int
) -> None:
    staged = StagedFile("file", rows=5)
    try:
        staged.folder.mkdir()
        for part, begin in enumerate(range(0, len(times) or 1, 7)):
            column = pa.array(times[begin : begin + 7], pa.int64())
            pq.write_table(pa.table({TIME: column}), staged.folder / f"part-{part}.parquet")
        running = list(accumulate((-FOREVER if t is None else t for t in times), max))
        largest = running[min(done, len(times)) - 1] if done and times else -FOREVER
        found, last = staged.due_rows(done, clock, largest)
        due = [t for t, r in zip(times[done:], running[done:], strict=True) if r <= clock]
        assert found[TIME].to_pylist() == due[: found.num_rows]
        assert found.num_rows == len(due) or found.num_rows > 0
        assert last == ([largest, *running[done:]][found.num_rows])
        assert staged.is_end(done) == (done >= len(times))
    finally:
        staged.close()


# ---- Kafka without a broker


@spark_test
def test_a_missing_broker_is_reported_at_once(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, "kafka", servers="127.0.0.1:1", topic="t")
        with pytest.raises(
            InputError, match=r"no Kafka broker answers|without the Kafka connector"
        ):
            headwater.engine.ingestion.ingest("bids")
