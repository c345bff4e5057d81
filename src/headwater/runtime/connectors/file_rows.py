"""Counting the rows of files without parsing them, so that a batch stays within its limit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pyarrow.parquet as pq

MIN_ROW_BYTES = 2
"""The smallest possible row of a text file: one character and a line feed."""


_READ_BYTES = 1 << 20


def limit_by_rows(files: Sequence[str], limit: int | None) -> list[str]:
    """The first files that together have no more rows than the limit, but at least one."""
    if limit is None or sum(map(_max_possible_rows, files)) <= limit:
        return list(files)
    total = 0
    first: list[str] = []
    for name in files:
        total += _count_rows(Path(name), limit)
        if first and total > limit:
            break
        first.append(name)
    return first


def _max_possible_rows(name: str) -> int:
    """An upper bound of the rows of a file, without reading it."""
    file = Path(name)
    try:
        return (
            _count_rows(file, 0)
            if file.suffix == ".parquet"
            else file.stat().st_size // MIN_ROW_BYTES
        )
    except OSError:
        return 0


def _count_rows(file: Path, limit: int) -> int:
    """How many rows a file has, or some number above the limit.

    0 for a file that cannot be read: ingesting it reports why.
    """
    try:
        if file.suffix == ".parquet":
            return int(pq.read_metadata(file).num_rows)
        return _count_lines(file, limit)
    except (OSError, ValueError):
        return 0


def _count_lines(file: Path, limit: int) -> int:
    count = 0
    with file.open("rb") as stream:
        for block in takewhile(bool, iter(lambda: stream.read(_READ_BYTES), b"")):
            count += block.count(b"\n")
            if count > limit:
                break
    return count
