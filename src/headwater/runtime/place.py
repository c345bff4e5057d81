"""The directory of a state, and whether its segments are in it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from headwater.errors import CatalogError, RuntimeFailure, is_url, local_only
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.database import FILE
from headwater.runtime.durability import OWNER_FILE, OWNER_FOLDER, make_folder
from headwater.runtime.sites.deployment import deployed

log = logging.getLogger("headwater")


def made(state: Path) -> Path:
    """The whole path of a state directory, which is made if need be; raises RuntimeFailure."""
    if is_url(state):
        raise RuntimeFailure(local_only(state))
    try:
        make_folder(state.absolute().parent, 0o777)
        make_folder(state.absolute())
        make_private(state)
        return state.resolve()
    except OSError as error:
        raise RuntimeFailure(
            f"the state directory {state} cannot be made: {error.strerror}; "
            "name another one, or give this user permission to write there"
        ) from error


def make_private(state: Path) -> None:
    """Take from others the permission to read a state, which earlier releases gave them, and say so.

    A folder that holds more than a state is left as it is, but for what is the state's in it.
    """
    entries = list(state.iterdir())
    ours = [entry for entry in entries if _is_ours(entry)]
    found = [
        path for path in (*ours, *([state] if len(ours) == len(entries) else ())) if _is_open(path)
    ]
    for path in found:
        path.chmod(OWNER_FOLDER if path.is_dir() else OWNER_FILE)
    if found:
        log.warning(
            "%s could be read by other users of this machine; now its owner alone can", state
        )


def _is_ours(path: Path) -> bool:
    """Whether something in a state directory is the state's: its catalog, logs, segments, stores."""
    if path.is_dir():
        return path.name == "log" or (path / "log").is_dir()
    return path.name.startswith((FILE, "engine.log", "spark.log", "site-", "costs.toml"))


def _is_open(path: Path) -> bool:
    """Whether others may do anything with a file or folder that this user can change."""
    found = path.lstat()
    own = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return own and found.st_uid == os.geteuid() and bool(stat.S_IMODE(found.st_mode) & 0o077)


def check_place(catalog: Catalog, state: Path) -> None:
    """Raises CatalogError if all segments are in some other directory, and in no store of a site.

    They are known by whole paths where the catalog is not in the state directory, or is of a
    release that knew no others.
    """
    paths = catalog.all_paths()
    sites = deployed(catalog)
    stores = [] if sites is None else [worker.store for worker in sites.workers if worker.store]
    known = [state.resolve(), *(state.resolve() / store for store in stores)]
    if not paths or any(Path(path).is_relative_to(place) for path in paths for place in known):
        return
    log = next((p for p in Path(min(paths)).parents if p.name == "log"), Path(min(paths)))
    if "://" in catalog.name:
        raise CatalogError(
            f"the segments of {catalog.name} are in {log.parent}, not in {state}: "
            f"name that directory with --state"
        )
    raise CatalogError(f"{state} was moved: its segments are in {log.parent}; move it back there")
