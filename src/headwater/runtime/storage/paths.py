"""Where names and declared paths may lead: never out of the state, and only below roots that are allowed.

A stream or query may have any name; the file or folder that is named after it has a name made of a few
harmless characters. The owner of a state may restrict the folders that sources, tables and sinks use
(`--allow-path`); links are followed before the comparison.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.cql.statements import Connector
from headwater.errors import InputError
from headwater.runtime.catalog import Catalog

MAX_NAME_LENGTH = 80
"""Characters of a name that are kept; a file system allows 255 bytes for a file with all that follows."""

ALLOWED_PATHS_OPTION = "allow_path"
"""The setting that holds the roots; `SET` does not know it, so a statement cannot lift it."""


def file_name(name: str) -> str:
    """A name as part of a file's: other than any other name's, also where case is disregarded.

    Lower-case letters, digits, `_` and `-` stay; every other byte is written as `~` and two digits. A
    long name is cut, and ends in a digest of the whole.
    """
    raw = name.lower().encode("utf-8", "surrogatepass")
    safe = re.sub(rb"[^a-z0-9_-]", lambda found: b"~%02x" % found[0][0], raw).decode("ascii")
    if len(safe) <= MAX_NAME_LENGTH:
        return safe
    return f"{safe[:40]}~~{hashlib.sha256(raw).hexdigest()[:24]}"


def allow_paths(catalog: Catalog, roots: Iterable[str | Path]) -> None:
    """Restrict the paths of sources, tables and sinks to these folders, from now on; `/` is any.

    Raises InputError if one of them is no folder.
    """
    resolved = [Path(root).resolve() for root in roots]
    for root in resolved:
        if not root.is_dir():
            raise InputError(f"--allow-path {root}: there is no such folder")
    catalog.set_option(ALLOWED_PATHS_OPTION, json.dumps(sorted({str(root) for root in resolved})))


def allowed_paths(catalog: Catalog) -> tuple[Path, ...]:
    """The folders that sources, tables and sinks are restricted to; empty if to none."""
    return tuple(
        Path(root) for root in json.loads(catalog.options().get(ALLOWED_PATHS_OPTION, "[]"))
    )


def check_connector_paths(connector: Connector | None, roots: Sequence[Path]) -> None:
    """Raises InputError if a source or sink has a path that is not below an allowed root."""
    options = connector.options if connector is not None else ()
    paths = [value for name, value in options if is_path_option(name) and isinstance(value, str)]
    check_paths(paths, roots)


def is_path_option(option: str) -> bool:
    """Whether an option of a source or sink names a file or folder: of data, or of a secret."""
    return option == "path" or option.endswith("_file")


def check_paths(paths: Iterable[str | Path], roots: Sequence[Path]) -> None:
    """Raises InputError for a path that leads, all links followed, out of the allowed roots."""
    if not roots:
        return
    for path in paths:
        target = Path(path).resolve()
        if not any(target.is_relative_to(root) for root in roots):
            leads = (
                f"{path} leads to {target}, which is" if str(target) != str(path) else f"{path} is"
            )
            raise InputError(
                f"{leads} outside of what this state allows ({', '.join(map(str, roots))}): use a "
                "path below, or let the owner of the state run it with another --allow-path"
            )
