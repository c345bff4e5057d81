"""Durability: files and their names are on the disk before anything refers to them.

Writing a file puts it into the page cache; a crash of the machine loses it, or leaves it with a
length and no content. The catalog calls `make_durable` before each commit that names files, once
for all of them.
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
"""Modes of a state's folders and files: private to the owner, whatever the umask."""

_synced_folders: set[Path] = set()
"""Folders whose names this process has synced, with those of all parents."""


def make_folder(folder: Path, mode: int = OWNER_FOLDER) -> None:
    """Create a folder and its missing parents."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=mode, exist_ok=True)
        _synced_folders.discard(path)  # it was removed and created again: its name is new


def owner_only_opener(path: str | Path, flags: int) -> int:
    """An `opener` for files that other users may not read."""
    return os.open(path, flags, OWNER_FILE)


def write_file(path: Path, content: bytes | pa.Buffer) -> None:
    """Write a new private file; it is durable after `make_durable`."""
    with open(path, "xb", buffering=0, opener=owner_only_opener) as file:
        remaining = memoryview(content)
        while remaining:  # an unbuffered write may write less than asked, at most 2 GB on Linux
            remaining = remaining[file.write(remaining) :]


def make_durable(paths: Iterable[str | Path]) -> None:
    """Sync files, or folders with the files in them, and then the directories that name them."""
    # fsync of a file does not sync its directory entry, so the parents are synced too; each once.
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
    """Replace a file atomically: after a crash it has either the old content or the new.

    For files outside the state, which others may read: modes follow the umask.
    """
    temporary = path.with_name(f".{path.name}.new")
    make_folder(path.parent, 0o777)
    try:
        temporary.write_bytes(content)
        _sync(temporary)  # before the rename: a name must not become durable ahead of its content
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
        # Some file systems cannot sync folders, and say so.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _sync_parents(folder: Path) -> None:
    """Sync the parents of a folder, once per process."""
    # Parents that may not be opened belong to other users: this process did not create them.
    while folder not in _synced_folders and folder != folder.parent:
        with suppress(PermissionError):
            _sync(folder.parent)
        _synced_folders.add(folder)
        folder = folder.parent
