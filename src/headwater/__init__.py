"""Headwater: many continuous queries for the price of few.

The names below are the whole Python interface; each is loaded when it is first used, so that
`import headwater` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.algebra.canonical import canonicalize
    from headwater.cql import parse, parse_query
    from headwater.errors import CqlError, HeadwaterError
    from headwater.reference import evaluate
    from headwater.runtime.api import open_state as open

__version__ = "0.1.0"

__all__ = [
    "CqlError",
    "HeadwaterError",
    "__version__",
    "canonicalize",
    "evaluate",
    "open",
    "parse",
    "parse_query",
]

_HOMES = {
    "CqlError": ("headwater.errors", "CqlError"),
    "HeadwaterError": ("headwater.errors", "HeadwaterError"),
    "canonicalize": ("headwater.algebra.canonical", "canonicalize"),
    "evaluate": ("headwater.reference", "evaluate"),
    "open": ("headwater.runtime.api", "open_state"),
    "parse": ("headwater.cql", "parse"),
    "parse_query": ("headwater.cql", "parse_query"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
