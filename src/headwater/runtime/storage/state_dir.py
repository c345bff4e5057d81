"""The state directory: creating it, keeping it private, checking that its segments are there."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from headwater.errors import CatalogError, RuntimeFailure, is_url, remote_state_message
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.database import CATALOG_FILE
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.durability import OWNER_FILE, OWNER_FOLDER, make_folder

log = logging.getLogger("headwater")


def ensure_state_dir(state_dir: Path) -> Path:
    """The absolute path of a state directory, created if necessary; raises RuntimeFailure."""
    if is_url(state_dir):
        raise RuntimeFailure(remote_state_message(state_dir))
    try:
        # Folders above the state are the user's, with the usual permissions; only the state is
        # private.
        make_folder(state_dir.absolute().parent, 0o777)
        make_folder(state_dir.absolute())
        make_private(state_dir)
        return state_dir.resolve()
    except OSError as error:
        raise RuntimeFailure(
            f"the state directory {state_dir} cannot be created: {error.strerror}; "
            "name another one, or give this user permission to write there"
        ) from error


def make_private(state_dir: Path) -> None:
    """Revoke permissions of other users on a state, which earlier releases granted, and log it.

    In a folder that holds other things too, only the entries of the state are changed.
    """
    entries = list(state_dir.iterdir())
    ours = [entry for entry in entries if _belongs_to_state(entry)]
    exposed = [
        path
        for path in (*ours, *([state_dir] if len(ours) == len(entries) else ()))
        if _is_open_to_others(path)
    ]
    for path in exposed:
        with suppress(FileNotFoundError):
            path.chmod(OWNER_FOLDER if path.is_dir() else OWNER_FILE)
    if exposed:
        log.warning(
            "%s could be read by other users of this machine; now only its owner can", state_dir
        )


def _belongs_to_state(path: Path) -> bool:
    """Whether an entry of a state directory is the state's: catalog, logs, segments, stores."""
    if path.is_dir():
        return path.name == "log" or (path / "log").is_dir()
    return path.name.startswith((CATALOG_FILE, "engine.log", "spark.log", "site-", "costs.toml"))


def _is_open_to_others(path: Path) -> bool:
    """Whether other users have any permission on a file or folder of this user."""
    try:
        status = path.lstat()  # not through a link: its target is not part of the state
    except FileNotFoundError:
        # SQLite deletes its journal and log while another process lists the directory.
        return False
    is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    is_own = status.st_uid == os.geteuid()
    return is_plain and is_own and bool(stat.S_IMODE(status.st_mode) & 0o077)


def check_state_dir(catalog: Catalog, state_dir: Path) -> None:
    """Raise CatalogError if all segments are in another directory and in no store of a site.

    That can happen where paths are absolute: the catalog is not in the state directory, or was
    written by a release without relative paths.
    """
    paths = catalog.all_paths()
    sites = current_deployment(catalog)
    stores = [] if sites is None else [worker.store for worker in sites.workers if worker.store]
    roots = [state_dir.resolve(), *(state_dir.resolve() / store for store in stores)]
    if not paths or any(Path(path).is_relative_to(root) for path in paths for root in roots):
        return
    log = next((p for p in Path(min(paths)).parents if p.name == "log"), Path(min(paths)))
    if "://" in catalog.name:
        raise CatalogError(
            f"the segments of {catalog.name} are in {log.parent}, not in {state_dir}: "
            f"name that directory with --state"
        )
    raise CatalogError(
        f"{state_dir} was moved: its segments are in {log.parent}; move it back there"
    )
