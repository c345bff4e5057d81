"""`headwater clean`: remove what nothing refers to any more.

A file that no segment names is either left over or about to be registered; its age tells which. What
lies in the folder of a unit that was dropped is never needed, whatever its age.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.runtime import files
from headwater.runtime.catalog import Catalog
from headwater.runtime.paths import file_name


@dataclass(frozen=True)
class Cleaned:
    """What was removed, and how many files were left because they are too young."""

    files: int
    bytes: int
    units: int
    forgotten: int
    young: int


def clean(catalog: Catalog, state: Path, older_than: float) -> Cleaned:
    """Remove files of dropped units, other files that nothing names and that were not touched for
    so many seconds, and the records of what was dropped."""
    log = state.resolve() / "log"
    gone = _dropped_units(catalog, log)
    removed = _remove(path for folder in gone for path in sorted(folder.iterdir()))
    known = catalog.all_paths()
    young = len(list(files.orphans(log, known, time.time() + 1)))
    orphans = list(files.orphans(log, known, time.time() - older_than))
    catalog.unnamed(map(str, orphans), lambda path: removed.extend(_remove([Path(path)])))
    for folder in log.glob("*/*"):
        if folder in gone or not _needed(catalog, folder):
            _remove_if_empty(folder)
    return Cleaned(
        files=len(removed),
        bytes=sum(removed),
        units=len(gone),
        forgotten=catalog.forget_dropped(),
        young=young - len(orphans),
    )


def _dropped_units(catalog: Catalog, log: Path) -> list[Path]:
    """The folders of units that are gone. Folders are listed first: a unit is in the catalog
    before it has one, so one that is not found there afterwards was dropped."""
    folders = [folder for folder in sorted(log.glob("units/*")) if folder.is_dir()]
    live = {row.id for row in catalog.units()}
    return [folder for folder in folders if folder.name not in live]


def _needed(catalog: Catalog, folder: Path) -> bool:
    if folder.parent.name == "streams":
        return folder.name in {file_name(row.name) for row in catalog.streams()}
    return catalog.unit(folder.name) is not None


def _remove(paths: Iterable[Path]) -> list[int]:
    """Delete files and folders of part files; returns the bytes of each."""
    sizes = []
    for path in paths:
        parts = path.rglob("*") if path.is_dir() else [path]
        sizes.append(sum(part.stat().st_size for part in parts if part.is_file()))
        files.remove(str(path))
    return sizes


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
