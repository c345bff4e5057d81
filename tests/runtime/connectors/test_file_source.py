"""Streams from files: each file once, whatever its name; what cannot be read is named. No JVM is needed."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from headwater.algebra.types import INT, Field, Schema
from headwater.cql import Connector
from headwater.reference.records import MAX_LINE_BYTES
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.catalog.schema import FileName
from headwater.runtime.connectors.files import FileSource, read_table
from headwater.runtime.engine.engine import Engine
from headwater.runtime.storage.paths import allow_paths


@contextmanager
def reading(folder: Path, format_: str = "json", *, holder: str = "h") -> Iterator[Headwater]:
    """A state with a stream `s` from the folder `in`, and an engine that can only take in."""
    (folder / "in").mkdir(exist_ok=True)
    with open_state(folder / "state") as headwater:
        without_spark: Any = None
        headwater._engine = Engine(headwater.catalog, headwater.state, without_spark, holder=holder)
        headwater.execute(f"""
            CREATE STREAM s (item INT NOT NULL, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts LATENESS 1 DAY
              FROM files(path => '{folder / "in"}', format => '{format_}');
            """)
        yield headwater
        headwater.engine.leases.release_all()


def take_in(headwater: Headwater) -> list[int]:
    """Take in all there is; returns all the items so far."""
    headwater.engine.ingestion.refresh()
    while headwater.engine.ingestion.try_ingest("s"):
        pass
    found: list[int] = []
    for segment in headwater.catalog.segments(stream_log("s")):
        found += pq.read_table(segment.path)["item"].to_pylist()
    return sorted(found)


def content(format_: str, *items: Any) -> bytes:
    rows = [(item, f"2026-01-01T00:00:{n:02}Z") for n, item in enumerate(items)]
    if format_ == "json":
        return "".join(json.dumps({"item": i, "ts": t}) + "\n" for i, t in rows).encode()
    return "".join(f"{i},{t}\n" for i, t in [("item", "ts"), *rows]).encode()


def events(headwater: Headwater, kind: str) -> list[Any]:
    return [event.detail for event in headwater.catalog.events(kind=kind)]


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_names_are_never_patterns(tmp_path: Path, format_: str) -> None:
    """Each file is read once, whatever its name and whatever links lead to it."""
    inbox = tmp_path / "in"
    names = [
        *("a*", "ab", "data[1]", "data1", "{a,b}", "a?", "back\\slash", "a:b", "100%", "a%20b"),
        *("with space", "+1", "it's", "\u00fc", "\u2603", "#x", "line\nfeed"),
        os.fsdecode(b"latin-\xe9"),
    ]
    with reading(tmp_path, format_) as headwater:
        for number, name in enumerate(names):
            (inbox / name).write_bytes(content(format_, number))
        (inbox / "link").symlink_to(inbox / "ab")
        (inbox / "hard").hardlink_to(inbox / "data1")
        for name in (".hidden", "_hidden"):
            (inbox / name).write_bytes(content(format_, 1000))
        assert take_in(headwater) == list(range(len(names)))
        assert headwater.catalog.rejects("s") == [] == headwater.engine.ingestion.problems()
    with reading(tmp_path, format_, holder="other") as headwater:
        assert take_in(headwater) == list(range(len(names)))


def test_a_refused_record_says_where_it_is_and_what_did_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "in" / "1.json"
    with reading(tmp_path) as headwater:
        file.write_bytes(content("json", 1, "two", None, 4) + b"{'item': 5}\n")
        assert take_in(headwater) == [1, 4]
        found = sorted((r.place, r.column, r.reason) for r in headwater.catalog.rejects("s"))
        assert found[:2] == [
            (f"{file}, line 2", "item", '"two" is no INT'),
            (f"{file}, line 3", "item", "item is NULL"),
        ]
        assert found[2][0] == f"{file}, line 5" and found[2][2].startswith("not JSON: ")
        late = tmp_path / "in" / "2.json"
        late.write_text('{"item": 6, "ts": "2020-01-01"}\n{"item": 7, "ts": "2026-01-01"}\n')
        assert take_in(headwater) == [1, 4, 7]
        (newest, *_) = headwater.catalog.rejects("s")
        assert (newest.place, newest.reason) == (f"{late}, line 1", "late")


def test_a_line_that_never_ends_is_refused(tmp_path: Path) -> None:
    """Packed or not; the records beside it are read."""
    inbox = tmp_path / "in"
    long = b"x" * (2 * MAX_LINE_BYTES)
    with reading(tmp_path) as headwater:
        (inbox / "1.json").write_bytes(content("json", 1) + long)
        (inbox / "2.json.gz").write_bytes(gzip.compress(long + b"\n" + content("json", 2), 1))
        assert take_in(headwater) == [1, 2]
        found = {(r.place, r.reason) for r in headwater.catalog.rejects("s")}
        why = f"longer than {MAX_LINE_BYTES} bytes"
        assert found == {
            (f"{inbox}/{place}", why) for place in ("1.json, line 2", "2.json.gz, line 1")
        }


def test_how_long_a_line_may_be_is_declared(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_bytes(b'{"item": 1, "other": "%b"}\n{"item": 2}\n' % (b"x" * 90))
    with open_state(tmp_path / "state") as headwater:
        without_spark: Any = None
        headwater._engine = Engine(headwater.catalog, headwater.state, without_spark)
        headwater.execute(f"""
            CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts
              FROM files(path => '{tmp_path / "1.json"}', max_line_bytes => 50);
            """)
        headwater.engine.ingestion.refresh()
        headwater.engine.ingestion.try_ingest("s")
        reasons = {refused.reason for refused in headwater.catalog.rejects("s")}
        assert "longer than 50 bytes" in reasons


def test_csv_of_another_program(tmp_path: Path) -> None:
    """What Python's own writer makes of any texts is read back, line feeds and quotes and all."""
    texts = ['a "quoted" word', "two\nlines", "a,b", "", " blank ", '"', "\r\n", "\u2603", "x" * 9]
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "1.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["ts", "note", "n"])
        writer.writerows(["2026-01-01", text, n] for n, text in enumerate(texts))
    with open_state(tmp_path / "state") as headwater:
        without_spark: Any = None
        headwater._engine = Engine(headwater.catalog, headwater.state, without_spark)
        headwater.execute(
            f"""
            CREATE STREAM s (item INT, note STRING, ts TIMESTAMP) TIMESTAMP BY ts
              FROM files(path => '{tmp_path / "in"}', format => 'csv');
            """.replace("item", "n")
        )
        headwater.engine.ingestion.refresh()
        assert headwater.engine.ingestion.try_ingest("s")
        (segment,) = headwater.catalog.segments(stream_log("s"))
        found = pq.read_table(segment.path)
        assert found["note"].to_pylist() == texts
        assert found["n"].to_pylist() == list(range(len(texts)))


def test_a_large_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among small ones, of which those that fit together make one segment."""
    monkeypatch.setattr("headwater.runtime.connectors.files.MAX_BATCH_BYTES", 50_000)
    monkeypatch.setattr("headwater.runtime.connectors.record_parser.BLOCK", 10_000)
    monkeypatch.setattr("headwater.runtime.storage.segment_files.GROUP_BYTES", 30_000)
    inbox, at = tmp_path / "in", 1_700_000_000
    items = [[1], [2], list(range(1_000, 9_000)), [3]]
    with reading(tmp_path) as headwater:
        for n, some in enumerate(items):
            lines = [json.dumps({"item": item, "ts": "2026-01-01"}) for item in some]
            (inbox / f"{n}.json").write_text("\n".join([*lines, "{"]))
            os.utime(inbox / f"{n}.json", (at + n, at + n))
        assert take_in(headwater) == sorted(item for some in items for item in some)
        segments = headwater.catalog.segments(stream_log("s"))
        assert [segment.rows for segment in segments] == [2, 8_000, 1]
        stream = headwater.catalog.stream("s")
        assert stream is not None and stream.malformed == len(items)


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_files_that_cannot_be_read_are_set_aside(tmp_path: Path, format_: str) -> None:
    inbox = tmp_path / "in"
    with reading(tmp_path, format_) as headwater:
        good = content(format_, 1)
        (inbox / "a").write_bytes(good)
        for name in ("b.gz", "c.gz", "d.snappy"):
            (inbox / name).write_bytes(gzip.compress(os.urandom(99_999))[:-5000])
        assert take_in(headwater) == [1]
        paths = sorted(detail["path"] for detail in events(headwater, "file set aside"))
        assert paths == [str(inbox / name) for name in ("b.gz", "c.gz", "d.snappy")]
        assert take_in(headwater) == [1]
        assert len(events(headwater, "file set aside")) == 3, "each is tried once as it is"
        (inbox / "b.gz").write_bytes(gzip.compress(content(format_, 2)))
        assert take_in(headwater) == [1, 2]
        (inbox / "c.gz").unlink()
        (trouble,) = headwater.engine.ingestion.problems()
        assert f"{inbox / 'd.snappy'} cannot be read" in trouble


# ---- what is read when


CHANGED = "file changed after it was read"


def test_a_file_counts_once(tmp_path: Path) -> None:
    """However it is put back, renamed or linked; in other processes too."""
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        (inbox / "1.json").write_bytes(content("json", 1))
        (inbox / "2.json").write_bytes(content("json", 2))
        assert take_in(headwater) == [1, 2]
        (inbox / "1.json").rename(tmp_path / "1.json")
        assert take_in(headwater) == [1, 2]
        (tmp_path / "1.json").rename(inbox / "1.json")
        (inbox / "2.json").rename(inbox / "2.json.old")
        (inbox / "again.json").hardlink_to(inbox / "1.json")
        (inbox / "link.json").symlink_to(inbox / "1.json")
        assert take_in(headwater) == [1, 2]
        assert events(headwater, CHANGED) == []
    with reading(tmp_path, holder="other") as headwater:
        (inbox / "3.json").write_bytes(content("json", 3))
        assert take_in(headwater) == [1, 2, 3]
        copy = content("json", 4)
        (inbox / "2.json").write_bytes(copy)
        assert take_in(headwater) == [1, 2, 3], "the name was read"
        assert [detail["path"] for detail in events(headwater, CHANGED)] == [str(inbox / "2.json")]


def test_a_new_file_with_the_inode_size_and_time_of_one_that_was_removed_is_read(
    tmp_path: Path,
) -> None:
    """As where files are unpacked with their times, one after the other."""
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        (inbox / "1.json").write_bytes(content("json", 1))
        os.utime(inbox / "1.json", (0, 0))
        assert take_in(headwater) == [1]
        # The inode is given again by writing into the same file.
        (inbox / "1.json").rename(inbox / "2.json")
        (inbox / "2.json").write_bytes(content("json", 2))
        os.utime(inbox / "2.json", (0, 0))
        assert take_in(headwater) == [1, 2]
        (inbox / "2.json").rename(inbox / "3.json")
        assert take_in(headwater) == [1, 2], "renamed alone"
        assert events(headwater, CHANGED) == []


@pytest.mark.parametrize("roots", [False, True])
def test_a_link_that_cannot_be_followed_stops_no_other_file(tmp_path: Path, roots: bool) -> None:
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        if roots:
            allow_paths(headwater.catalog, [tmp_path])
        (inbox / "loop.json").symlink_to("loop.json")
        (inbox / "nowhere.json").symlink_to("nothing.json")
        (inbox / "1.json").write_bytes(content("json", 1))
        assert take_in(headwater) == [1]
        (aside,) = headwater.catalog.events(kind="file set aside")
        assert aside.detail["path"] == str(inbox / "loop.json")
        (inbox / "2.json").write_bytes(content("json", 2))
        assert take_in(headwater) == [1, 2]
        assert len(headwater.catalog.events(kind="file set aside")) == 1
        (inbox / "loop.json").unlink()
        (inbox / "loop.json").write_bytes(content("json", 3))
        assert take_in(headwater) == [1, 2, 3]


@pytest.mark.parametrize("how", ["grown", "replaced", "put back with other content"])
def test_a_file_that_changes_after_it_was_read_is_reported_once(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = tmp_path / "in"
    file = inbox / "1.json"
    with reading(tmp_path) as headwater:
        file.write_bytes(content("json", 1))
        assert take_in(headwater) == [1]
        if how == "grown":
            with file.open("ab") as opened:
                opened.write(content("json", 2))
        elif how == "replaced":
            (inbox / ".new").write_bytes(content("json", 2, 3))
            (inbox / ".new").rename(file)
        else:
            file.unlink()
            assert take_in(headwater) == [1]
            file.write_bytes(content("json", 2, 3))
        assert take_in(headwater) == [1]
        assert f"{file} has changed after it was read" in caplog.text
        with file.open("ab") as opened:
            opened.write(content("json", 4))
        assert take_in(headwater) == [1]
        assert [detail["path"] for detail in events(headwater, CHANGED)] == [str(file)]


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        (inbox / "1.json").write_bytes(content("json", 1))
        assert take_in(headwater) == [1]
        inbox.rename(tmp_path / "elsewhere")
        assert take_in(headwater) == [1]
        (trouble,) = headwater.engine.ingestion.problems()
        assert f"the folder {inbox} is gone" in trouble
        (tmp_path / "elsewhere").rename(inbox)
        assert take_in(headwater) == [1]
        assert headwater.engine.ingestion.problems() == []


def test_a_path_that_never_was_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(tmp_path) as headwater:
        (tmp_path / "in").rmdir()
        assert take_in(headwater) == take_in(headwater) == []
        (event,) = headwater.catalog.events(kind="path missing")
        assert event.subject == "s" and event.detail["path"] == str(tmp_path / "in")
        assert caplog.text.count("does not exist; it is read once it does") == 1
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.json").write_bytes(content("json", 1))
        assert take_in(headwater) == [1]


def test_a_file_that_goes_before_it_is_read(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        for n in range(3):
            (inbox / f"{n}.json").write_bytes(content("json", n))
        source = headwater.engine.ingestion.source("s")
        assert isinstance(source, FileSource)
        read = source._read
        taken, pieces = read([str(inbox / f"{n}.json") for n in (0, 7, 2)], 0)
        assert [Path(file.path).name for file in taken] == ["0.json", "2.json"]
        assert len(list(pieces)) == 2
        assert take_in(headwater) == [0, 1, 2]


# ---- positions


@pytest.mark.long
def test_a_position_does_not_grow_with_files(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    sizes = set()
    with reading(tmp_path) as headwater:
        for n in range(100, 900, 200):
            for more in range(200):
                (inbox / f"{n + more}.json").write_bytes(content("json", n + more))
            assert len(take_in(headwater)) == n + 100
            position = headwater.catalog.cursor("ingest:s", "source")
            sizes.add(len(json.dumps(position)))
        assert position["next"] == 800
        assert max(sizes) < 40
        assert (
            sum(file.state == "read" for file in headwater.catalog.seen_files("s").values()) == 800
        )


@pytest.mark.long
def test_files_that_are_gone_for_long_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.runtime.connectors.files.MAX_GONE_FILES", 10)
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        for n in range(60):
            (inbox / f"{n}.json").write_bytes(content("json", n))
            assert len(take_in(headwater)) == n + 1
            if n % 2:
                (inbox / f"{n}.json").unlink()
        known = {Path(path).stem for path in headwater.catalog.seen_files("s")}
        assert {str(n) for n in range(0, 60, 2)} <= known, "those that are there are known"
        assert "59" in known and "1" not in known
        assert len(known) <= 30 + 12


def test_the_position_of_an_earlier_release_is_taken_over(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    with reading(tmp_path) as headwater:
        for n in range(4):
            (inbox / f"{n}.json").write_bytes(content("json", n))
        old = {
            "files": [str(inbox / "0.json"), str(inbox / "1.json")],
            "next": 2,
            "aside": {str(inbox / "3.json"): [1, 2, 3]},
        }
        lease = headwater.engine.leases.acquire("ingest:s")
        headwater.catalog.commit(lease, cursors={("ingest:s", "source"): old})
        assert take_in(headwater) == [2, 3], "what was set aside is tried again"
        assert headwater.catalog.cursor("ingest:s", "source")["next"] == 4
        assert set(headwater.catalog.seen_files("s")) == {
            str(inbox / f"{n}.json") for n in range(4)
        }


def test_a_stream_that_is_declared_again_reads_again(tmp_path: Path) -> None:
    with reading(tmp_path) as headwater:
        (tmp_path / "in" / "1.json").write_bytes(content("json", 1))
        assert take_in(headwater) == [1]
        headwater.execute("DROP STREAM s")
        headwater.engine.ingestion.refresh()
    with reading(tmp_path, holder="other") as headwater:
        assert take_in(headwater) == [1]


@given(
    st.lists(st.sampled_from(["%", "%41", "A", "\udcff", "\udc80", "\xff", "\u2603"]), min_size=1)
)
def test_names_of_files_are_kept_as_they_are(parts: list[str]) -> None:
    name = "".join(parts)
    kept = FileName().process_bind_param(name, sqlite_dialect())
    assert kept is not None
    kept.encode("utf-8")
    assert FileName().process_result_value(kept, sqlite_dialect()) == name


# ---- tables


def test_a_large_table_stays_until_the_step_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the steps in other threads load meanwhile. A frame is the path that it will read
    here."""
    lazy: Any = SimpleNamespace(
        read=SimpleNamespace(parquet=Path), createDataFrame=lambda table: table
    )
    schema = Schema((Field("item", INT),))

    def read(name: str) -> Any:
        (tmp_path / name).write_text('{"item": 1}\n')
        options = (("path", str(tmp_path / name)), ("format", "json"))
        return read_table(lazy, Connector("files", options), schema)

    with ThreadPoolExecutor(1) as step, ThreadPoolExecutor(1) as others:
        with monkeypatch.context() as patched:
            patched.setattr("headwater.runtime.connectors.files.MAX_BATCH_BYTES", 0)
            large = step.submit(read, "large").result()
        for number in range(100):
            assert len(others.submit(read, f"small{number}").result()) == 1
        assert pq.read_table(large)["item"].to_pylist() == [1]
    assert not large.parent.exists(), "it went with the thread"
