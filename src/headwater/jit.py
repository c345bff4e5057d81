"""Functions that Numba compiles, kept on disk so that only the first process has to compile them.

Numba looks at the file of a function alone, and would go on using machine code that contains an old
version of what it calls, or of a constant, in another file. So what is kept lies in a folder named
after the contents of the function's module and of all modules of Headwater that it imports, and after
the versions of Numba and Python. The folders are in the user's cache, not beside the sources: these are
read-only where Headwater is installed for all users.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

PACKAGE = Path(__file__).parent

LAST_USE = "used"
"""An empty file in each folder; its time is that of the last process that used the folder."""

UNUSED_SECONDS = 30 * 24 * 3600.0
"""Seconds after which an unused folder is removed."""

TOUCH_INTERVAL_SECONDS = 3600.0
"""Seconds within which the time of a folder's last use need not be written again."""


def cached_njit_with(**options: Any) -> Callable[[F], F]:
    """A decorator: the function in machine code, with these options of `numba.njit`; it runs beside
    other threads."""

    def decorate(function: F) -> F:
        settings, folder = (
            cast(Any, numba.config),
            cache_folder(Path(function.__code__.co_filename)),
        )
        before = settings.CACHE_DIR
        try:
            settings.CACHE_DIR = str(folder or "")
            return cast(F, numba.njit(cache=folder is not None, nogil=True, **options)(function))
        finally:
            settings.CACHE_DIR = before

    return decorate


@cache
def cache_folder(module: Path) -> Path | None:
    """Where the machine code of a module is kept; nowhere if no such folder can be written."""
    root = cache_root()
    folder = root / source_digest(module, PACKAGE)
    used = folder / LAST_USE
    try:
        if not folder.exists():
            _remove_unused(root)
        folder.mkdir(parents=True, exist_ok=True)
        if not used.exists() or used.stat().st_mtime < time.time() - TOUCH_INTERVAL_SECONDS:
            used.touch()
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def cache_root() -> Path:
    """Numba's folder where the user named one, else that of all caches of the user."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named) / "headwater"
    caches = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path: https://specifications.freedesktop.org/basedir-spec
    root = Path(caches) if Path(caches).is_absolute() else Path("~/.cache").expanduser()
    return root / "headwater" / "numba"


def source_digest(module: Path, package: Path) -> str:
    """The digest of everything a module's machine code depends on: sources, and compiler versions."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for file, content in sorted(imported_sources(module, package).items()):
        name = file.relative_to(package) if file.is_relative_to(package) else file.name
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def imported_sources(module: Path, package: Path) -> dict[Path, bytes]:
    """A module's file and those of the package's modules that it imports, and so on.

    A name of a module in quotes counts as well: a package whose names are loaded when they are first
    used lists their modules so.
    """
    found: dict[Path, bytes] = {}
    todo = [module]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found[file] = content = file.read_bytes()
        text = content.decode()
        names = re.findall(r"""(?:^ *import |^ *from |["'])([\w.]+)""", text, re.M)
        for start, imported in re.findall(r"^ *from (\S+) import (\([^)]*\)|.*)", text, re.M):
            names += [f"{start}.{name}" for name in re.findall(r"\w+", imported)]
        for name in names:
            top, *inside = name.split(".")
            if top == package.name and inside:
                at = package.joinpath(*inside)
                todo += [f for f in (at.with_suffix(".py"), at / "__init__.py") if f.is_file()]
    return found


def _remove_unused(root: Path) -> None:
    """Remove folders that have not been used for long: each change of a source leaves one."""
    for used in root.glob(f"*/{LAST_USE}"):
        if used.stat().st_mtime < time.time() - UNUSED_SECONDS:
            shutil.rmtree(used.parent, ignore_errors=True)


cached_njit = cached_njit_with()
"""With Numba's own settings."""
