"""Safe file names, and the restriction of declared paths to allowed folders.

A stream or query may have any name; files and folders named after it use a few harmless characters.
The owner of a state may restrict the folders that sources, tables and sinks use (`--allow-path`);
symbolic links are resolved before the comparison.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.cql.statements import Connector
from headwater.errors import InputError
from headwater.runtime.catalog import Catalog

MAX_NAME_LENGTH = 80
"""Longest encoded name that is not cut: file systems allow 255 bytes with all suffixes."""

ALLOWED_PATHS_OPTION = "allow_path"
"""The setting that holds the allowed folders. `SET` rejects it, so no statement can lift it."""


def file_name(name: str) -> str:
    """A name encoded for use in a file name, unique also on case-insensitive file systems.

    Lower-case letters, digits, `_` and `-` stay; every other byte becomes `~` and two hex digits. A
    long name is cut, and ends in a digest of the whole.
    """
    # `surrogatepass`, because a name may contain a lone surrogate, which strict UTF-8 would refuse.
    raw = name.lower().encode("utf-8", "surrogatepass")
    safe = re.sub(rb"[^a-z0-9_-]", lambda match: b"~%02x" % match[0][0], raw).decode("ascii")
    if len(safe) <= MAX_NAME_LENGTH:
        return safe
    return f"{safe[:40]}~~{hashlib.sha256(raw).hexdigest()[:24]}"


def allow_paths(catalog: Catalog, roots: Iterable[str | Path]) -> None:
    """Restrict the paths of sources, tables and sinks to these folders; `/` allows all.

    Raises InputError if one of them is not a folder.
    """
    resolved = [Path(root).resolve() for root in roots]
    for root in resolved:
        if not root.is_dir():
            raise InputError(f"--allow-path {root}: there is no such folder")
    catalog.set_option(ALLOWED_PATHS_OPTION, json.dumps(sorted({str(root) for root in resolved})))


def allowed_paths(catalog: Catalog) -> tuple[Path, ...]:
    """The folders that sources, tables and sinks are restricted to; empty if unrestricted."""
    return tuple(
        Path(root) for root in json.loads(catalog.options().get(ALLOWED_PATHS_OPTION, "[]"))
    )


def check_connector_paths(connector: Connector | None, roots: Sequence[Path]) -> None:
    """Raise InputError if a path of a source or sink is outside the allowed folders."""
    options = connector.options if connector is not None else ()
    paths = [value for name, value in options if is_path_option(name) and isinstance(value, str)]
    check_paths(paths, roots)


def is_path_option(option: str) -> bool:
    """Whether an option of a source or sink names a file or folder, of data or of a secret."""
    return option == "path" or option.endswith("_file")


def check_paths(paths: Iterable[str | Path], roots: Sequence[Path]) -> None:
    """Raise InputError for a path that, with links resolved, is outside the allowed folders."""
    if not roots:
        return
    for path in paths:
        # Resolved first: a link inside an allowed folder may lead out of it. (`Path.resolve` would raise
        # for one that leads to itself.)
        target = Path(os.path.realpath(path))
        if not any(target.is_relative_to(root) for root in roots):
            subject = (
                f"{path} leads to {target}, which is" if str(target) != str(path) else f"{path} is"
            )
            raise InputError(
                f"{subject} outside of what this state allows ({', '.join(map(str, roots))}): use a "
                "path below, or let the owner of the state run it with another --allow-path"
            )
