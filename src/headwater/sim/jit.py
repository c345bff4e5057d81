"""Functions that Numba compiles, kept on disk so that a process need not compile them anew.

Numba looks at the file of a function alone, and would go on using machine code that has an old version
of what it calls in another file. So what is kept lies in a folder named after the contents of all
the files of this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def cached_njit(function: F) -> F:
    """The function in machine code; it runs beside other threads."""
    settings, folder = cast(Any, numba.config), _cache_dir()
    before = settings.CACHE_DIR
    try:
        settings.CACHE_DIR = str(folder or "")
        return cast(F, numba.njit(cache=folder is not None, nogil=True)(function))
    finally:
        settings.CACHE_DIR = before


@cache
def _cache_dir() -> Path | None:
    """Beside the package or in the home of the user, wherever it can be written."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.glob("*.py")):
        digest.update(file.read_bytes())
    for parent in (package / "__pycache__", Path.home() / ".cache" / "headwater"):
        folder = parent / f"compiled-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / "written"
            probe.touch()
        except OSError:
            continue
        return folder
    return None
