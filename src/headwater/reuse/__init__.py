"""What queries have in common, and how one operator serves them all.

A query is reduced to a signature: its sharing key, which two queries must have in common to share an
operator, and its bounds, which may differ. An operator is the least relaxation of the signatures it
serves. Shapes say which rows are whose: tables of constants that give every row its row class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

if TYPE_CHECKING:
    from headwater.reuse.lattice import Lattice
    from headwater.reuse.operator import (
        Containment,
        Operator,
        classify_containment,
        minimal_operator,
        relax,
    )
    from headwater.reuse.signature import (
        Bound,
        QuerySignature,
        SharingKind,
        partial_join_queries,
        signature_of,
    )

__all__ = [
    "Bound",
    "Containment",
    "Lattice",
    "Operator",
    "QuerySignature",
    "SharingKind",
    "classify_containment",
    "minimal_operator",
    "partial_join_queries",
    "relax",
    "signature_of",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Bound": "headwater.reuse.signature",
        "QuerySignature": "headwater.reuse.signature",
        "SharingKind": "headwater.reuse.signature",
        "signature_of": "headwater.reuse.signature",
        "partial_join_queries": "headwater.reuse.signature",
        "Lattice": "headwater.reuse.lattice",
        "Operator": "headwater.reuse.operator",
        "Containment": "headwater.reuse.operator",
        "minimal_operator": "headwater.reuse.operator",
        "classify_containment": "headwater.reuse.operator",
        "relax": "headwater.reuse.operator",
    },
)
