"""What a name in a query stands for: the relations of a FROM and their columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.algebra.expressions import Column, Expr, columns_of
from headwater.algebra.functions import call
from headwater.errors import AlgebraError, nearest


class Source:
    """A relation of a FROM: its alias, the name it had before, and its columns by small letters."""

    __slots__ = ("alias", "columns", "name")

    def __init__(self, alias: str, name: str, columns: Iterable[Column]) -> None:
        self.alias = alias
        self.name = name
        self.columns = {column.name.lower(): column for column in columns}

    def nullable(self) -> Source:
        """The same beside rows that have no partner: any column may be NULL."""
        columns = (Column(c.relation, c.name, c.type) for c in self.columns.values())
        return Source(self.alias, self.name, columns)


@dataclass(frozen=True, slots=True)
class Shared:
    """A column joined by USING: the aliases (in small letters) whose value it has, the first that
    is not NULL; and all the aliases that it was joined from."""

    values: tuple[str, ...]
    joined: tuple[str, ...]


class Scope:
    """The columns that an expression may name, and beyond them those of the query around it.

    A column of the query around may be named only where `correlated` is set. Columns `shared` by
    USING go without alias.
    """

    __slots__ = ("around", "by_alias", "correlated", "shared", "sources")

    def __init__(
        self,
        sources: list[Source],
        shared: dict[str, Shared] | None = None,
        around: Scope | None = None,
    ) -> None:
        self.sources = sources
        self.by_alias = {source.alias.lower(): source for source in sources}
        self.shared = shared or {}
        self.around = around
        self.correlated = False

    def column(self, name: str) -> Expr:
        """The column of that name; raises AlgebraError if there is none, or more than one."""
        found = self.find(name)
        if found is not None:
            return found
        if self.around is not None and (beyond := self.around.find(name)) is not None:
            return self._beyond(beyond, name)
        raise AlgebraError(f"no column {name}; {nearest(name, self._names())}")

    def qualified(self, alias: str, name: str) -> Expr:
        """The column of that relation; raises AlgebraError."""
        source = self.source(alias)
        if source is not None:
            return _of(source, name)
        if self.around is not None and (beyond := self.around.source(alias)) is not None:
            return self._beyond(_of(beyond, name), f"{alias}.{name}")
        raise self.no_source(alias)

    def no_source(self, alias: str) -> AlgebraError:
        known = [source.alias for source in self.sources]
        return AlgebraError(f"no stream or alias {alias} in this FROM; {nearest(alias, known)}")

    def find(self, name: str) -> Expr | None:
        """The column of that name, None if there is none; raises AlgebraError if there are more."""
        key = name.lower()
        found: list[Expr] = [s.columns[key] for s in self.sources if key in s.columns]
        if key in self.shared:
            found = self._shared(key)
        if len(found) > 1:
            choices = " or ".join(str(column) for column in found[:6])
            raise AlgebraError(f"{name} is ambiguous; write {choices}")
        return found[0] if found else None

    def source(self, alias: str) -> Source | None:
        """The relation of that alias, or the one whose name that was; None if there is none."""
        found = self.by_alias.get(alias.lower())
        if found is not None:
            return found
        named = [source for source in self.sources if source.name.lower() == alias.lower()]
        if len(named) > 1:
            aliases = " or ".join(source.alias for source in named[:6])
            raise AlgebraError(f"{alias} is ambiguous; write {aliases}")
        return named[0] if named else None

    def all_columns(self) -> list[tuple[str, Expr]]:
        """What * stands for: columns joined by USING first and once, then each relation's."""
        made: list[tuple[str, Expr]] = []
        for key, shared in self.shared.items():
            name = self.by_alias[shared.joined[0]].columns[key].name
            made.append((name, self._shared(key)[0]))
        for source in self.sources:
            for key, column in source.columns.items():
                if key not in self.shared or source.alias.lower() not in self.shared[key].joined:
                    made.append((column.name, column))
        return made

    def _shared(self, key: str) -> list[Expr]:
        shared = self.shared[key]
        values = [self.by_alias[alias].columns[key] for alias in shared.values]
        first = values[0] if len(values) == 1 else call("coalesce", *values)
        others = [s for s in self.sources if s.alias.lower() not in shared.joined]
        return [first, *(s.columns[key] for s in others if key in s.columns)]

    def _beyond(self, found: Expr, name: str) -> Expr:
        if not self.correlated:
            raise AlgebraError(
                f"{name} belongs to the query around; only a condition in WHERE may name it, in an"
                " inner query without aggregates and DISTINCT"
            )
        for column in columns_of(found):
            if column.relation.lower() in self.by_alias:
                raise AlgebraError(
                    f"{name} belongs to the outer {column.relation}, which the inner one hides;"
                    " give one of them another alias"
                )
        return found

    def _names(self) -> list[str]:
        return [column.name for source in self.sources for column in source.columns.values()]


def _of(source: Source, name: str) -> Column:
    column = source.columns.get(name.lower())
    if column is None:
        known = (c.name for c in source.columns.values())
        raise AlgebraError(f"no column {name} in {source.alias}; {nearest(name, known)}")
    return column
