"""`headwater clean`: remove files that nothing refers to any more.

A file that no segment refers to is either left over or about to be registered; its age decides which.
Files in the folder of a dropped unit are never needed, whatever their age.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.runtime.catalog import Catalog
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.paths import file_name


@dataclass(frozen=True)
class CleanResult:
    """What was removed, and how many files were left because they are too young."""

    files: int
    bytes: int
    units: int
    forgotten: int
    young: int


def clean_state(catalog: Catalog, state: Path, older_than: float) -> CleanResult:
    """Remove files of dropped units, unreferenced files older than `older_than` seconds, and the catalog
    records of what was dropped."""
    log = state.resolve() / "log"
    dropped = _dropped_units(catalog, log)
    removed = _remove_files(path for folder in dropped for path in sorted(folder.iterdir()))
    referenced = catalog.all_paths()
    # A second into the future, so that every file counts whatever the resolution of file times.
    young = len(list(segment_files.find_orphans(log, referenced, time.time() + 1)))
    orphans = list(segment_files.find_orphans(log, referenced, time.time() - older_than))
    # The catalog checks again before each removal: a step may have registered the file since.
    catalog.remove_unreferenced(
        map(str, orphans), lambda path: removed.extend(_remove_files([Path(path)]))
    )
    for folder in log.glob("*/*"):
        if folder in dropped or not _is_needed(catalog, folder):
            _remove_if_empty(folder)
    return CleanResult(
        files=len(removed),
        bytes=sum(removed),
        units=len(dropped),
        forgotten=catalog.forget_dropped(),
        young=young - len(orphans),
    )


def _dropped_units(catalog: Catalog, log: Path) -> list[Path]:
    """The folders of dropped units.

    Not those of units that the catalog does not know: one to which queries are being moved has files
    before it is there.
    """
    dropped = {row.id for row in catalog.units(dropped=True) if row.state == "dropped"}
    return [path for path in sorted(log.glob("units/*")) if path.is_dir() and path.name in dropped]


def _is_needed(catalog: Catalog, folder: Path) -> bool:
    if folder.parent.name == "streams":
        return folder.name in {file_name(row.name) for row in catalog.streams()}
    return catalog.unit(folder.name) is not None


def _remove_files(paths: Iterable[Path]) -> list[int]:
    """Delete files, and folders of part files; returns the size of each."""
    sizes = []
    for path in paths:
        parts = path.rglob("*") if path.is_dir() else [path]
        sizes.append(sum(part.stat().st_size for part in parts if part.is_file()))
        segment_files.remove(str(path))
    return sizes


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
