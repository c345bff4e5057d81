"""Relations whose rows stay: those over windows without an end."""

from __future__ import annotations

from headwater.algebra.nodes import (
    Distinct,
    Join,
    Project,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)
from headwater.algebra.windows import Range


def is_endless(relation: Relation) -> bool:
    """Whether every row of a relation, once it is there, is there for ever."""
    match relation:
        case Scan():
            return isinstance(relation.window, Range) and relation.window.size is None
        case TableScan():
            return True
        case Select() | Project() | Join() | UnionAll() | Distinct():
            return all(map(is_endless, relation.inputs))
        case SemiJoin():
            return not relation.anti and all(map(is_endless, relation.inputs))
        case _:
            return False
