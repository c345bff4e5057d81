"""Verification that a file is what was written, by its size and a checksum of all its bytes.

Every read is verified, not only the first: a disk may change a bit at any time. Python verifies the
very bytes that it then decodes; for Spark a file is read once right before, which also leaves it in
the cache of the operating system. An empty or truncated file, which Spark may read as one without
rows, fails the same comparison.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from headwater.errors import DamagedFile, MissingFile

RESTORE_ADVICE = (
    "restore it from a backup (headwater verify lists all damage and the queries it affects)"
)

_BLOCK = 1 << 20


class StoredFile(Protocol):
    """The file of a segment as recorded in the catalog; files of older releases have no digest."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def digest(self) -> int | None: ...


def part_files(path: Path) -> list[Path]:
    """The Parquet files that a segment consists of."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def compute_digest(contents: Iterable[bytes]) -> int:
    """The checksum of concatenated contents."""
    # CRC-32 detects every single-bit error, at a quarter of the cost of a cryptographic hash. It
    # need not resist an attacker, who could change the catalog as well.
    digest = 0
    for content in contents:
        digest = zlib.crc32(content, digest)
    return digest


def compute_file_digest(path: Path) -> int:
    """The checksum of a file, or of the parts of a folder."""
    return compute_digest(block for part in part_files(path) for block in _blocks(part))


def _blocks(path: Path) -> Iterable[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            yield block


def read_verified(file: StoredFile) -> list[bytes]:
    """The bytes of each part of a file; raises DamagedFile if they differ from those written."""
    try:
        contents = [part.read_bytes() for part in part_files(Path(file.path))]
    except FileNotFoundError:
        raise _missing_file(file) from None
    _verify_content(file, sum(map(len, contents)), contents)
    return contents


def verify_paths(files: Iterable[StoredFile]) -> list[str]:
    """The paths of files, all verified; raises DamagedFile if one has changed."""
    return [verify_file(file) for file in files]


def make_cached_verifier() -> Callable[[StoredFile], str]:
    """A `verify_file` for one step, which reads some files several times and verifies each once."""
    verified: dict[str, str] = {}

    def path_of(file: StoredFile) -> str:
        if file.path not in verified:
            verified[file.path] = verify_file(file)
        return verified[file.path]

    return path_of


def verify_file(file: StoredFile) -> str:
    """The path of a file, verified; raises DamagedFile if it has changed."""
    try:
        part_paths = part_files(Path(file.path))
        size = sum(part.stat().st_size for part in part_paths)
        _verify_content(file, size, (block for part in part_paths for block in _blocks(part)))
    except FileNotFoundError:
        raise _missing_file(file) from None
    return file.path


def _verify_content(file: StoredFile, size: int, contents: Iterable[bytes]) -> None:
    # The size first: it costs nothing, and is all that files of older releases can be compared by.
    if size != file.bytes:
        raise DamagedFile(
            f"the file {file.path} is damaged: it has {size:,} bytes, and was written with "
            f"{file.bytes:,}; {RESTORE_ADVICE}"
        )
    if file.digest is None:
        return
    digest = compute_digest(contents)
    if digest != file.digest:
        raise DamagedFile(
            f"the file {file.path} is damaged: its checksum is {digest:08x}, and was "
            f"{file.digest:08x} when it was written; {RESTORE_ADVICE}"
        )


def _missing_file(file: StoredFile) -> MissingFile:
    return MissingFile(f"the file {file.path} of {file.bytes:,} bytes is missing; {RESTORE_ADVICE}")
