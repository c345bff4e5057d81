"""What a commit names is on the disk before: seen in the calls, on any machine.

`test_power_cut` cuts the power of a real file system, where that can be had.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from headwater.runtime import durability
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.durability import make_durable, replace_file
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.maintenance.stream_logs import RetainedLog, compact_log
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import stream_folder

TEXT = "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"


@dataclass
class Disk:
    """What is durable: of files the size that was synced, of folders the names."""

    sizes: dict[int, int] = field(default_factory=dict)
    names: dict[int, set[str]] = field(default_factory=dict)

    def sync(self, handle: int) -> None:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            self.names[found.st_ino] = set(os.listdir(handle))
        else:
            self.sizes[found.st_ino] = found.st_size

    def has(self, path: Path, root: Path) -> bool:
        """Whether a file would be there whole after a power cut, with all folders below the root."""
        above = [parent for parent in path.parents if parent.is_relative_to(root)]
        named = all(
            child.name in self.names.get(child.parent.stat().st_ino, ())
            for child in (path, *above)
            if child != root
        )
        return named and self.sizes.get(path.stat().st_ino) == path.stat().st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    recorded = Disk()
    monkeypatch.setattr(os, "fsync", recorded.sync)
    monkeypatch.setattr(durability, "_synced_folders", set())
    return recorded


def lost_at_commits(headwater: Headwater, disk: Disk, work: Callable[[], object]) -> set[str]:
    """The files that were not durable when a transaction of the work was committed."""
    lost: set[str] = set()

    def look(connection: Connection) -> None:
        if not connection.get_execution_options().get("immediate"):
            return  # it only read
        there = (headwater.state / "log").rglob("*.parquet")
        lost.update(str(path) for path in there if not disk.has(path, headwater.state))

    engine = headwater.catalog._database._engine
    event.listen(engine, "commit", look)
    work()
    event.remove(engine, "commit", look)
    return lost


def test_segments_are_durable_before_their_commit(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 3)
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
        for moment in range(4):
            push = partial(headwater.push, "s", [(moment, moment)], timestamp_unit="us")
            lost = lost_at_commits(headwater, disk, push)
            assert not lost
        (stream,) = headwater.catalog.streams()
        kept = RetainedLog(stream, "stream:s", stream_folder(headwater.state, "s"))
        lost = lost_at_commits(
            headwater, disk, lambda: compact_log(headwater.catalog, kept, [], None)
        )
        (merged,) = headwater.catalog.segments("stream:s")
        assert merged.rows == 4 and not lost


def test_the_pieces_of_a_merge_are_removed_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 3)
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
        for moment in range(4):
            headwater.push("s", [(moment, moment)], timestamp_unit="us")
        removed: list[str] = []

        def remove(path: str) -> None:
            assert path not in headwater.catalog.all_paths()
            removed.append(path)

        monkeypatch.setattr(segment_files, "remove", remove)
        (stream,) = headwater.catalog.streams()
        kept = RetainedLog(stream, "stream:s", stream_folder(headwater.state, "s"))
        assert compact_log(headwater.catalog, kept, [], None)
        assert len(removed) == 4


def test_a_folder_of_parts_is_durable_with_every_part(tmp_path: Path, disk: Disk) -> None:
    folder = tmp_path / "log" / "units" / "u" / "x.parquet"
    folder.mkdir(parents=True)
    parts = [folder / f"part-{n}.parquet" for n in range(3)]
    for part in parts:
        part.write_bytes(b"rows")
    make_durable([folder])
    assert all(disk.has(part, tmp_path) for part in parts)


def test_a_replaced_file_is_the_old_or_the_new_one(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "new" / "folder" / "costs.toml"
    replace_file(path, b"one")
    inode = path.stat().st_ino
    replace_file(path, b"another")
    assert path.read_bytes() == b"another" and disk.has(path, tmp_path)
    assert path.stat().st_ino != inode and [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_catalog_waits_for_the_disk(tmp_path: Path) -> None:
    """SQLite syncs its log with every commit, so that a commit outlives a power cut too."""
    with open_state(tmp_path / "state") as headwater:
        with headwater.catalog._database.read() as connection:
            level = connection.exec_driver_sql("PRAGMA synchronous").scalar()
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        assert (level, mode) == (2, "wal")
