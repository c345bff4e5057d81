"""Units without an operator, indexed by what they have in common with a new query.

Such a unit computes relations beside each other, which share the reading of their sources and the steps. A query
joins the unit of an equal one, one that has a statement for it already, or one with room for another statement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from headwater.algebra.nodes import Output
from headwater.reuse.relation_subscribers import relation_template
from headwater.reuse.signature import QuerySignature
from headwater.runtime.compile.lifetimes.partition import parts_of

MAX_STATEMENTS = 24
"""A unit has at most so many statements: each adds to what a step takes to plan, and one that is slow keeps
the others waiting."""


@dataclass
class _UnitRelations:
    """What a unit computes: the digests of its queries, and their templates."""

    digests: set[str] = field(default_factory=set)
    templates: set[Hashable] = field(default_factory=set)


@dataclass
class RelationIndex:
    """The units without an operator, by what queries must have in common to be computed beside each other."""

    _units: dict[Hashable, dict[str, _UnitRelations]] = field(default_factory=dict)
    _keys: dict[str, Hashable] = field(default_factory=dict)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._keys

    def insert(self, unit_id: str, signatures: Iterable[QuerySignature]) -> None:
        """Add queries to a unit."""
        for signature in signatures:
            key = self._keys.setdefault(unit_id, _beside_key(signature))
            relations = self._units.setdefault(key, {}).setdefault(unit_id, _UnitRelations())
            relations.digests.add(signature.digest)
            if signature.relation is not None:
                relations.templates.add(relation_template(signature).key)

    def remove(self, unit_id: str) -> None:
        """Forget a unit."""
        key = self._keys.pop(unit_id, None)
        if key is not None:
            del self._units[key][unit_id]

    def candidates(self, signature: QuerySignature) -> Iterator[str]:
        """The units that a query could join, those first to which it adds least."""
        units = self._units.get(_beside_key(signature), {})
        template = None if signature.relation is None else relation_template(signature).key
        ranked = sorted(
            (signature.digest not in unit.digests, template not in unit.templates, name)
            for name, unit in units.items()
        )
        for _, is_new, name in ranked:
            if not is_new or len(units[name].templates) < MAX_STATEMENTS:
                yield name


def _beside_key(signature: QuerySignature) -> Hashable:
    if signature.relation is None:
        return signature.sharing_key
    # What reads its windows whole is not computed beside what follows changes: it would be as slow.
    follows_changes = signature.output is not Output.RSTREAM and bool(
        parts_of(signature.relation.root)
    )
    return signature.sharing_key, follows_changes
