"""Rotation of log files that other processes hold open.

Java and the sites keep their log files open, so a file cannot be renamed: its content is copied to another
file and the file is truncated. It was opened in append mode, so its writer continues at the new end. Lines
written between copy and truncation are lost, which is acceptable for logs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.runtime.leases import run_periodically

MAX_BYTES = 10_000_000
MAX_ROTATED_FILES = 5
CHECK_SECONDS = 60.0


def rotate(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Rotate a file of more than `max_bytes` to `NAME.1`, the previous `NAME.1` to `NAME.2`, and so on;
    returns whether it did."""
    if not path.is_file() or path.stat().st_size <= max_bytes:
        return False
    # From the oldest on, so that no file is overwritten before it has moved.
    for number in range(MAX_ROTATED_FILES - 1, 0, -1):
        older = rotated_path(path, number)
        if older.exists():
            older.replace(rotated_path(path, number + 1))
    shutil.copy(path, rotated_path(path, 1))  # with its mode: logs are private
    # Not removed: the writer would go on with the file that has lost its name.
    os.truncate(path, 0)
    return True


def rotated_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


@contextmanager
def rotate_periodically(paths: Iterable[Path]) -> Iterator[None]:
    """Rotate files now, and periodically until the block ends."""
    watched = list(paths)

    def rotate_all() -> None:
        for path in watched:
            with suppress(OSError):  # a full disk is reported by the engine
                rotate(path)

    rotate_all()
    with run_periodically(rotate_all, CHECK_SECONDS, "log files"):
        yield
