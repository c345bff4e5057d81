"""Queries of any kind that read the same sources: which rows are whose, and in which columns.

Those of one family are computed together, and each family is a statement of one job. The statement is the shape of
a row, the number of the query within its family its row class.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.algebra.types import Type
from headwater.reuse.families import QueryFamily, Since, Template, family_of, template_of
from headwater.reuse.group_subscribers import assign_columns
from headwater.reuse.row_classes import Subscriber
from headwater.reuse.signature import QuerySignature


@dataclass(frozen=True)
class RelationStatement:
    """A family, its queries by digest, and the columns in which what it shows is emitted."""

    family: QueryFamily
    digests: tuple[str, ...]
    column_positions: tuple[int, ...]


@dataclass(frozen=True)
class RelationSubscribers:
    """The queries of a unit that are computed beside each other; `since` says from when on those see tuples
    whose results depend on that, by their digests."""

    signatures: tuple[QuerySignature, ...]
    since: Mapping[str, Since] = field(default_factory=dict)

    @property
    def statements(self) -> tuple[RelationStatement, ...]:
        return self._statements_and_types[0]

    @property
    def column_types(self) -> tuple[Type, ...]:
        """The types of the columns in which the rows of all queries are emitted."""
        return self._statements_and_types[1]

    @cached_property
    def _statements_and_types(self) -> tuple[tuple[RelationStatement, ...], tuple[Type, ...]]:
        alike: dict[Hashable, dict[str, Template]] = {}
        for signature in self.signatures:
            template = relation_template(signature, self.since.get(signature.digest))
            alike.setdefault(template.key, {})[signature.digest] = template
        types: list[Type] = []
        statements = []
        for templates in alike.values():
            family = family_of(list(templates.values()))
            columns = family.query.columns[: -1 if family.numbers else None]
            positions = assign_columns(columns, types)
            statements.append(RelationStatement(family, tuple(templates), positions))
        return tuple(statements), tuple(types)

    @cached_property
    def subscribers(self) -> dict[str, Subscriber]:
        """The queries by digest."""
        result = {}
        for at, statement in enumerate(self.statements):
            family, positions = statement.family, statement.column_positions
            numbers = family.numbers or (0,) * len(statement.digests)
            for digest, number, shown in zip(
                statement.digests, numbers, family.columns, strict=True
            ):
                columns = tuple(positions[n] for n in shown)
                result[digest] = Subscriber(at, ((number, number),), columns)
        return result


def relation_template(signature: QuerySignature, since: Since | None = None) -> Template:
    """What a query has in common with those that it can be one statement with."""
    assert signature.relation is not None
    return template_of(signature.relation, since)
