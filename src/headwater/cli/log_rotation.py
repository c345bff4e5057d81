"""Log files that do not grow without end.

Java and the sites hold their files open, so a file is not renamed: what it holds is copied aside, and the
file cut to nothing. They were opened to be appended to, hence go on at its new end. What is written
between the two is lost, which for words about what happened is acceptable.
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
    """Put a file that has grown beyond so many bytes aside as `NAME.1`, what was there as `NAME.2`, and so
    on; returns whether it had."""
    if not path.is_file() or path.stat().st_size <= max_bytes:
        return False
    for number in range(MAX_ROTATED_FILES - 1, 0, -1):
        older = rotated_path(path, number)
        if older.exists():
            older.replace(rotated_path(path, number + 1))
    shutil.copyfile(path, rotated_path(path, 1))
    os.truncate(path, 0)
    return True


def rotated_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


@contextmanager
def rotate_periodically(paths: Iterable[Path]) -> Iterator[None]:
    """Look after files now, and now and then until the block ends."""
    watched = list(paths)

    def look() -> None:
        for path in watched:
            with suppress(OSError):  # a disk that is full is told elsewhere
                rotate(path)

    look()
    with run_periodically(look, CHECK_SECONDS, "log files"):
        yield
