"""The directory of a state, and whether its segments are in it."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import CatalogError, RuntimeFailure
from headwater.runtime.catalog import Catalog
from headwater.runtime.durability import make_folder
from headwater.runtime.sites.deployment import deployed


def made(state: Path) -> Path:
    """The whole path of a state directory, which is made if need be; raises RuntimeFailure."""
    try:
        make_folder(state.absolute().parent, 0o777)
        make_folder(state.absolute())
        return state.resolve()
    except OSError as error:
        raise RuntimeFailure(
            f"the state directory {state} cannot be made: {error.strerror}; "
            "name another one, or give this user permission to write there"
        ) from error


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
