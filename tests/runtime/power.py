"""A disk whose power can be cut: an ext4 file system in a file, mounted by a loop device.

The cut is the file system's own shutdown, which drops at once all that was not written to the device:
what a machine that loses its power leaves behind. It needs root.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_JOURNAL = struct.pack("I", 2)  # EXT4_GOING_FLAGS_NOLOGFLUSH
_SIZE = 64 << 20


class NoDisk(Exception):
    """This machine, or this user, cannot mount a file."""


@dataclass
class Disk:
    """A mounted file system; after a cut another one with the same content is mounted there."""

    mounted: Path
    images: Path
    cuts: int = 0

    @property
    def _image(self) -> Path:
        return self.images / f"disk-{self.cuts}"

    def cut(self) -> None:
        """End all writing at once; nothing reaches the disk after this."""
        handle = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, _WITHOUT_JOURNAL)
        finally:
            os.close(handle)

    def restore(self) -> None:
        """Mount what the disk holds after a cut; whoever has files open there keeps the old one."""
        _run("umount", "--lazy", str(self.mounted))
        before = self._image
        self.cuts += 1
        _run("cp", "--sparse=always", str(before), str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mounted))


@contextmanager
def disk(mounted: Path, images: Path) -> Iterator[Disk]:
    """A new disk, mounted on a folder until the block ends; raises NoDisk where that is impossible."""
    mounted.mkdir(parents=True)
    images.mkdir(parents=True, exist_ok=True)
    new = Disk(mounted, images)
    if os.geteuid() != 0:
        raise NoDisk("mounting a file needs root")
    with new._image.open("wb") as file:
        file.truncate(_SIZE)
    _run("mkfs.ext4", "-q", "-F", str(new._image))
    new.mount()
    try:
        yield new
    finally:
        _run("umount", "--lazy", str(mounted))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoDisk(f"there is no {command[0]}") from None
    except subprocess.CalledProcessError as error:
        raise NoDisk(f"{' '.join(command)}: {error.stderr.strip()}") from error
