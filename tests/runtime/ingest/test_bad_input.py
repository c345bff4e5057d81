"""Input that cannot be read, disks that are full, catalogs that are locked: each is reported, each has a
way on, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_helpers import catalog_trouble, opened, settle

from headwater.runtime.api import Headwater
from headwater.runtime.catalog import Catalog
from headwater.runtime.engine.engine import Engine, Settings
from headwater.runtime.storage import segment_files

pytestmark = pytest.mark.spark

NO_WAIT = Settings(backoff=0.01)


def declare(headwater: Headwater, inbox: Path, format_: str) -> None:
    inbox.mkdir()
    headwater.execute(f"""
        CREATE STREAM s (item INT NOT NULL, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts LATENESS 1 DAY
          FROM files(path => '{inbox}', format => '{format_}');
        CREATE QUERY q AS SELECT item FROM s;
        """)


def content(format_: str, *items: Any) -> bytes:
    """A file with these items, a second apart."""
    rows = [(item, f"2026-01-01T00:00:{n:02}Z") for n, item in enumerate(items)]
    match format_:
        case "json":
            return "".join(json.dumps({"item": i, "ts": t}) + "\n" for i, t in rows).encode()
        case "csv":
            return "".join(f"{i},{t}\n" for i, t in [("item", "ts"), *rows]).encode()
    sink = pa.BufferOutputStream()
    times = pa.array([n * 1_000_000 for n in range(len(items))], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"item": pa.array(items), "ts": times}), sink)
    return bytes(sink.getvalue())


def items(headwater: Headwater) -> list[Any]:
    return sorted(row["item"] for row in headwater.query("q").results())


def rejects(headwater: Headwater) -> list[tuple[str, str]]:
    return [(r.reason, r.record) for r in headwater.catalog.rejects("s")]


BAD_FILES: dict[str, tuple[str, str, bytes, str]] = {
    "truncated Parquet": ("parquet", "2.parquet", content("parquet", 9)[:-20], "Parquet"),
    "no Parquet at all": ("parquet", "2.parquet", b"PAR1 and then something else", "Parquet"),
    "Parquet without the column": (
        "parquet",
        "2.parquet",
        content("parquet", 9).replace(b"item", b"itms"),
        "has no column item; it has itms, ts",
    ),
    "no gzip at all": ("json", "2.json.gz", b"this is not gzip" * 9, "gzip"),
    "truncated gzip": ("json", "2.json.gz", gzip.compress(os.urandom(99_999))[:-5000], ""),
    "CSV without the column": ("csv", "2.csv", b"itms,ts\n9,x\n", "has no column item"),
    "a header that is not UTF-8": ("csv", "2.csv", b"item,ts,\xff\n", "not UTF-8"),
    "an empty CSV": ("csv", "2.csv", b"", "its header is: nothing"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_read_is_set_aside(spark: Any, tmp_path: Path, kind: str) -> None:
    """The others are read; repaired, it is read too; only then may the stream end."""
    format_, name, wrong, said = BAD_FILES[kind]
    inbox = tmp_path / "in"
    with opened(tmp_path / "state", spark, settings=NO_WAIT) as headwater:
        declare(headwater, inbox, format_)
        for number in (1, 3):
            (inbox / f"{number}.{format_}").write_bytes(content(format_, number))
        bad = inbox / name
        bad.write_bytes(wrong)
        headwater.run(until_idle=True, interval=0.01)
        assert items(headwater) == [1, 3]
        ((reason, record),) = rejects(headwater)
        assert reason.startswith("unreadable file: ") and said in reason
        assert record == str(bad)
        (trouble,) = headwater.engine.ingestion.problems()
        assert f"stream s stays open: {bad} cannot be read; repair or remove it" in trouble
        headwater.run(until_idle=True, interval=0.01)
        assert len(rejects(headwater)) == 1, "it is tried once as it is"
        good = content(format_, 2)
        bad.write_bytes(gzip.compress(good) if name.endswith(".gz") else good)
        headwater.run(until_idle=True, interval=0.01)
        assert items(headwater) == [1, 2, 3]
        assert headwater.engine.ingestion.problems() == []
        stream = headwater.catalog.stream("s")
        assert stream is not None and stream.ended


def test_a_file_that_was_set_aside_may_be_removed(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    with opened(tmp_path / "state", spark, settings=NO_WAIT) as headwater:
        declare(headwater, inbox, "parquet")
        (inbox / "1.parquet").write_bytes(b"nothing")
        headwater.run(until_idle=True, interval=0.01)
        assert headwater.engine.ingestion.problems()
        (inbox / "1.parquet").unlink()
        headwater.run(until_idle=True, interval=0.01)
        assert headwater.engine.ingestion.problems() == []
        stream = headwater.catalog.stream("s")
        assert stream is not None and stream.ended


def test_bytes_that_are_not_utf8(spark: Any, tmp_path: Path) -> None:
    """A record with such bytes is refused, and can be shown."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (item STRING, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts LATENESS 1 DAY
              FROM files(path => '{inbox}', format => 'json');
            CREATE QUERY q AS SELECT item FROM s;
            """)
        lines = content("json", "one", "tw@o", "three").replace(b"@", b"\xff\xfe")
        (inbox / "1.json").write_bytes(lines)
        settle(headwater)
        assert items(headwater) == ["one", "three"]
        ((reason, record),) = rejects(headwater)
        assert reason.startswith("not UTF-8: byte 0xff") and "tw\ufffd\ufffdo" in record


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    with opened(tmp_path / "state", spark, settings=NO_WAIT) as headwater:
        declare(headwater, inbox, "json")
        file = inbox / "1.json"
        file.write_bytes(content("json", 1))
        file.chmod(0)
        headwater.run(until_idle=True, interval=0.01)
        assert "Permission denied" in rejects(headwater)[0][0]
        file.chmod(0o644)
        headwater.run(until_idle=True, interval=0.01)
        assert items(headwater) == [1]


# ---- tables


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.unlink(), "holds no file"),
        (lambda file: file.write_text("nr,label\n1,uno\n"), "has no column item; its header is"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "cannot be read"),
    ],
)
def test_a_table_that_is_gone_or_lost_a_column(
    spark: Any, tmp_path: Path, change: Callable[[Path], Any], message: str
) -> None:
    """The unit is parked with the reason; the way on is to restore the file and resume."""
    table = tmp_path / "items" / "items.csv"
    table.parent.mkdir()
    table.write_text("item,label\n1,one\n")
    with opened(tmp_path / "state", spark, settings=Settings(backoff=0.01, retries=2)) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE TABLE items (item INT, label STRING)
              FROM files(path => '{table.parent}', format => 'csv');
            CREATE QUERY q AS SELECT i.label AS item FROM s, items i WHERE s.item = i.item;
            """)
        change(table)
        headwater.push("s", [{"item": 1, "ts": "2026-01-01T00:00:00Z"}], timestamp_unit="us")
        headwater.run(until_idle=True, interval=0.01)
        (unit,) = headwater.catalog.units()
        assert unit.state == "parked" and message in unit.error
        table.write_text("item,label\n1,eins\n")
        headwater.execute("RESUME QUERY q")
        settle(headwater)
        assert items(headwater) == ["eins"]


# ---- disks


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A disk of its own at that place; skips the test where none can be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all space that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_a_full_disk_is_waited_for(spark: Any, tmp_path: Path) -> None:
    """First in taking in, then in a step: nothing is lost, nothing parked, nothing left behind."""
    inbox, state = tmp_path / "in", tmp_path / "state"
    limits = Settings(backoff=0.01, retries=1)
    with small_disk(state / "log", "2m"), opened(state, spark, settings=limits) as headwater:
        declare(headwater, inbox, "json")
        ballast = fill(state / "log")
        (inbox / "1.json").write_bytes(content("json", *range(50)))
        headwater.run(until_idle=True, interval=0.01)
        assert "the disk is full: free some space" in headwater.engine.ingestion.problems()[0]
        assert rejects(headwater) == [], "the file is not to blame"
        ballast.unlink()
        assert headwater.engine.ingestion.ingest("s")

        ballast = fill(state / "log")
        headwater.run(until_idle=True, interval=0.01)
        (unit,) = headwater.catalog.units()
        assert unit.state == "running" and "the disk is full" in unit.error
        assert unit.retries > limits.retries
        ballast.unlink()
        left = {str(path) for path in (state / "log").glob("*/*/*")}
        assert left == headwater.catalog.all_paths(), "what was written in part is removed"
        headwater.catalog.set_unit_state(unit.id, "running", retries=unit.retries)
        headwater.run(until_idle=True, interval=0.01)
        assert items(headwater) == list(range(50))
        (unit,) = headwater.catalog.units()
        assert unit.error == ""


def test_a_catalog_on_a_full_disk_is_waited_for(spark: Any, tmp_path: Path) -> None:
    inbox, state = tmp_path / "in", tmp_path / "state"
    with small_disk(state, "2m"), opened(state, spark) as headwater:
        declare(headwater, inbox, "json")
        headwater.engine.tick()
        ballast = fill(state)
        (inbox / "1.json").write_bytes(content("json", *range(50)))
        with running(headwater):
            until(lambda: bool(catalog_trouble(headwater) or headwater.engine.ingestion.problems()))
            ballast.unlink()
            until(lambda: len(items(headwater)) == 50)
        assert items(headwater) == list(range(50))


@contextmanager
def running(headwater: Headwater) -> Iterator[None]:
    """The engine at work in a thread."""
    stop: list[bool] = []
    options = {"stopping": lambda: bool(stop), "interval": 0.05}
    thread = Thread(target=headwater.run, kwargs=options)
    thread.start()
    try:
        yield
    finally:
        stop.append(True)
        thread.join()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


# ---- catalogs


def test_a_catalog_that_another_process_locks_is_waited_for(spark: Any, tmp_path: Path) -> None:
    inbox, state = tmp_path / "in", tmp_path / "state"
    state.mkdir()
    with Catalog.open(state, timeout=0.1) as catalog:
        headwater = Headwater(catalog, state, "local[2]", {})
        headwater._engine = Engine(catalog, state, spark)
        declare(headwater, inbox, "json")
        other = sqlite3.connect(state / "catalog.sqlite", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        (inbox / "1.json").write_bytes(content("json", 1, 2))
        with running(headwater):
            until(lambda: "is locked by another process" in catalog_trouble(headwater))
            other.rollback()
            until(lambda: items(headwater) == [1, 2])
            until(lambda: catalog_trouble(headwater) == "")
        other.close()


def test_a_step_whose_file_was_swept_is_taken_again(spark: Any, tmp_path: Path) -> None:
    """A step may stand still between its write and its commit until a sweep takes its file."""
    inbox, state = tmp_path / "in", tmp_path / "state"
    swept: list[Path] = []

    def at_point(point: str) -> None:
        if point == "unit: written" and not swept:
            swept.extend((state / "log" / "units").glob("*/*"))
            for path in swept:
                segment_files.remove(str(path))

    with opened(state, spark, at_point=at_point, settings=NO_WAIT) as headwater:
        declare(headwater, inbox, "json")
        (inbox / "1.json").write_bytes(content("json", 1, 2))
        headwater.run(until_idle=True, interval=0.01)
        assert swept
        assert items(headwater) == [1, 2]


def test_a_stream_that_cannot_be_read_may_be_dropped(spark: Any, tmp_path: Path) -> None:
    """Then nothing waits for it; declared again, it reads what the new declaration says."""
    (tmp_path / "in").write_bytes(content("json", 1))
    text = """
        CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts
          FROM files(path => '{}', format => '{}');
        CREATE QUERY q AS SELECT item FROM s;
        """
    with opened(tmp_path / "state", spark, settings=NO_WAIT) as headwater:
        headwater.execute(text.format(tmp_path / "in", "csv"))
        headwater.run(until_idle=True, interval=0.01)
        assert headwater.engine.ingestion.problems()
        headwater.execute("DROP QUERY q; DROP STREAM s")
        headwater.run(until_idle=True, interval=0.01)
        assert headwater.engine.ingestion.problems() == []
        headwater.execute(text.format(tmp_path / "in", "json"))
        headwater.run(until_idle=True, interval=0.01)
        assert items(headwater) == [1]
