"""Log files are put aside when they have grown, while somebody writes to them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headwater.cli.running.log_rotation import MAX_ROTATED_FILES, rotate, rotated_path
from headwater.cli.running.run import ENGINE_LOG, SPARK_LOG, log_to_files


def test_a_file_in_use_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    with path.open("ab", buffering=0) as writer:
        for number in range(MAX_ROTATED_FILES + 3):
            writer.write(b"%d" % number * 100)
            assert rotate(path, max_bytes=50)
            assert not rotate(path, max_bytes=50), "there is nothing left to put aside"
        writer.write(b"on")
    assert path.read_bytes() == b"on", "the writer goes on at the new end"
    held = [rotated_path(path, n).read_bytes()[:1] for n in range(1, MAX_ROTATED_FILES + 1)]
    assert held == [b"%d" % (MAX_ROTATED_FILES + 2 - n) for n in range(MAX_ROTATED_FILES)], (
        "the newest are kept"
    )
    assert len(list(tmp_path.iterdir())) == MAX_ROTATED_FILES + 1


def test_small_or_missing_files_are_left(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    assert not rotate(path)
    path.write_text("words")
    assert not rotate(path)
    assert path.read_text() == "words"


def test_logs_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """They hold rows that failed; and the next command would warn that others could read them."""
    previous = os.umask(0o022)
    try:
        with log_to_files(tmp_path):
            logging.getLogger("headwater").error("something failed")
        path = tmp_path / SPARK_LOG
        path.touch(0o600)
        path.write_text("words")
        assert rotate(path, max_bytes=1)
    finally:
        os.umask(previous)
    names = {ENGINE_LOG, SPARK_LOG, rotated_path(path, 1).name}
    assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == dict.fromkeys(
        names, 0o600
    )
