"""What outlives a power cut: files and their names are on the disk before anything refers to them.

Writing a file puts it into memory; a crash of the machine loses it, or leaves it with a length and no
content. The catalog calls `make_durable` before each commit that names files, once for all of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

OWNER_FOLDER, OWNER_FILE = 0o700, 0o600
"""What a state consists of is its owner's alone, whatever the umask."""

_synced_folders: set[Path] = set()
"""Folders whose own names this process has synced, up to the root."""


def make_folder(folder: Path, mode: int = OWNER_FOLDER) -> None:
    """Make a folder and those above it that are missing."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=mode, exist_ok=True)
        _synced_folders.discard(path)


def owner_only_opener(path: str | Path, flags: int) -> int:
    """The `opener` of files that others may not read."""
    return os.open(path, flags, OWNER_FILE)


def write_file(path: Path, content: bytes | pa.Buffer) -> None:
    """Write a new file of the state; it is durable when `make_durable` has it synced."""
    with open(path, "xb", buffering=0, opener=owner_only_opener) as file:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[file.write(remaining) :]


def make_durable(paths: Iterable[str | Path]) -> None:
    """Sync files, or folders with the files in them, and then the names that lead to them."""
    folders: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            for part in path.iterdir():
                _sync(part)
        _sync(path)
        folders[path.parent] = None
    for folder in folders:
        _sync(folder)
        _sync_parents(folder)


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in the place of another, so that a crash leaves the one or the other whole.

    It may be for others to read, and so may folders that are made for it: it is as the umask says.
    """
    temporary = path.with_name(f".{path.name}.new")
    make_folder(path.parent, 0o777)
    try:
        temporary.write_bytes(content)
        _sync(temporary)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)
    _sync_parents(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def _sync_parents(folder: Path) -> None:
    """Sync the folders above one, once; those of others that may not be opened are not ours."""
    while folder not in _synced_folders and folder != folder.parent:
        with suppress(PermissionError):
            _sync(folder.parent)
        _synced_folders.add(folder)
        folder = folder.parent
