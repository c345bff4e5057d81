"""Packages whose names are loaded when they are first used.

Importing a package should not cost what only some of its users need: `headwater.network`, for one,
has functions that Numba compiles, and most commands only read a file of sites.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, targets: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package: each name comes from its home, which is `module` where the name
    is the same there, else `module:name`."""

    def load(name: str) -> object:
        if name not in targets:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = targets[name].partition(":")
        value: object = getattr(import_module(module), attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def hide_module(name: str) -> None:
    """Let every later import of a module fail in this process, as if it were not installed."""
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # what the import system documents
