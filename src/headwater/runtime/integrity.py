"""Whether a file is still what was written: its size and a checksum of all its bytes, from the catalog.

Every read is checked, not only the first: a disk may change a bit at any time. Python checks the very
bytes that it then decodes; for Spark a file is read once right before, which also leaves it in the
cache of the operating system. An empty or shortened file, which Spark takes for one without rows,
is found by the same comparison.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from headwater.errors import DamagedFile, MissingFile

ADVICE = "restore it from a backup (headwater verify lists all damage and the queries it affects)"

_BLOCK = 1 << 20


class StoredFile(Protocol):
    """A segment's file as the catalog has it; a digest is missing for files of older releases."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def digest(self) -> int | None: ...


def parts(path: Path) -> list[Path]:
    """The Parquet files that a segment consists of."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def digest_of(contents: Iterable[bytes]) -> int:
    """The checksum of contents that follow each other: any single changed bit changes it."""
    found = 0
    for content in contents:
        found = zlib.crc32(content, found)
    return found


def digest_of_file(path: Path) -> int:
    """The checksum of a file, or of the parts of a folder."""
    return digest_of(block for part in parts(path) for block in _blocks(part))


def _blocks(path: Path) -> Iterable[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            yield block


def checked_contents(file: StoredFile) -> list[bytes]:
    """The bytes of each part of a file; raises DamagedFile if they are not those written."""
    try:
        contents = [part.read_bytes() for part in parts(Path(file.path))]
    except FileNotFoundError:
        raise _missing(file) from None
    _compare(file, sum(map(len, contents)), contents)
    return contents


def checked_paths(files: Iterable[StoredFile]) -> list[str]:
    """The paths of files that are as they were written; raises DamagedFile for one that is not."""
    return [check(file) for file in files]


def checked_once() -> Callable[[StoredFile], str]:
    """`check`, for a step that reads some files several times and compares each of them once."""
    known: dict[str, str] = {}

    def path_of(file: StoredFile) -> str:
        if file.path not in known:
            known[file.path] = check(file)
        return known[file.path]

    return path_of


def check(file: StoredFile) -> str:
    """The path of a file that is as it was written; raises DamagedFile if it is not."""
    try:
        found = parts(Path(file.path))
        size = sum(part.stat().st_size for part in found)
        _compare(file, size, (block for part in found for block in _blocks(part)))
    except FileNotFoundError:
        raise _missing(file) from None
    return file.path


def _compare(file: StoredFile, size: int, contents: Iterable[bytes]) -> None:
    if size != file.bytes:
        raise DamagedFile(
            f"the file {file.path} is damaged: it has {size:,} bytes, and was written with "
            f"{file.bytes:,}; {ADVICE}"
        )
    if file.digest is None:
        return
    found = digest_of(contents)
    if found != file.digest:
        raise DamagedFile(
            f"the file {file.path} is damaged: its checksum is {found:08x}, and was "
            f"{file.digest:08x} when it was written; {ADVICE}"
        )


def _missing(file: StoredFile) -> MissingFile:
    return MissingFile(f"the file {file.path} of {file.bytes:,} bytes is missing; {ADVICE}")
