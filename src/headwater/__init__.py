"""Headwater: many continuous queries for the price of few.

The names below are the whole Python interface; each is loaded when it is first used, so that
`import headwater` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

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

__getattr__ = lazy_exports(
    __name__,
    {
        "CqlError": "headwater.errors",
        "HeadwaterError": "headwater.errors",
        "canonicalize": "headwater.algebra.canonical",
        "evaluate": "headwater.reference",
        "open": "headwater.runtime.api:open_state",
        "parse": "headwater.cql",
        "parse_query": "headwater.cql",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
