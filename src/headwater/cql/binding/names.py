"""Name resolution in a query: the relations of a FROM and their columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.algebra.expressions import Column, Expr, columns_of
from headwater.algebra.functions import build_call
from headwater.errors import AlgebraError, suggest


class NamedRelation:
    """A relation of a FROM: its name in the query (its alias or, without one, its own name, which
    an alias hides), and its columns by lower-case name."""

    __slots__ = ("alias", "columns")

    def __init__(self, alias: str, columns: Iterable[Column]) -> None:
        self.alias = alias
        self.columns = {column.name.lower(): column for column in columns}

    def as_nullable(self) -> NamedRelation:
        """The same on the optional side of an outer join: any column may be NULL."""
        columns = (Column(c.relation, c.name, c.type) for c in self.columns.values())
        return NamedRelation(self.alias, columns)


@dataclass(frozen=True, slots=True)
class UsingColumn:
    """A column joined by USING: the aliases (in lower case) of which the first value that is not
    NULL is taken, and all the aliases that it was joined from."""

    values: tuple[str, ...]
    joined: tuple[str, ...]


class Scope:
    """The columns that an expression may name, and beyond them those of the enclosing query.

    A column of the enclosing query may be named only where `correlated` is set. Columns `shared` by
    USING need no alias.
    """

    __slots__ = ("by_alias", "correlated", "outer", "shared", "sources")

    def __init__(
        self,
        sources: list[NamedRelation],
        shared: dict[str, UsingColumn] | None = None,
        outer: Scope | None = None,
    ) -> None:
        self.sources = sources
        self.by_alias = {source.alias.lower(): source for source in sources}
        self.shared = shared or {}
        self.outer = outer
        self.correlated = False

    def column(self, name: str) -> Expr:
        """The column of that name; raises AlgebraError if there is none, or more than one."""
        column = self.find_column(name) or self._outer_column(None, name)
        if column is None:
            raise AlgebraError(f"no column {name}; {suggest(name, self._names())}")
        return column

    def qualified_column(self, alias: str, name: str) -> Expr:
        """The column of that relation; raises AlgebraError. If the relation of that alias here has
        no such column, one of the enclosing query is used, as in Spark."""
        column = self.find_qualified(alias, name) or self._outer_column(alias, name)
        if column is not None:
            return column
        source = self.source(alias)
        if source is None and self.outer is not None and self.correlated:
            source = self.outer.source(alias)
        if source is None:
            raise self.unknown_source_error(alias)
        names = (c.name for c in source.columns.values())
        raise AlgebraError(f"no column {name} in {source.alias}; {suggest(name, names)}")

    def unknown_source_error(self, alias: str) -> AlgebraError:
        aliases = [source.alias for source in self.sources]
        return AlgebraError(f"no stream or alias {alias} in this FROM; {suggest(alias, aliases)}")

    def find_column(self, name: str) -> Expr | None:
        """The column of that name, None if there is none; raises AlgebraError if there are more."""
        key = name.lower()
        matches: list[Expr] = [s.columns[key] for s in self.sources if key in s.columns]
        if key in self.shared:
            matches = self._shared(key)
        if len(matches) > 1:
            choices = " or ".join(str(column) for column in matches[:6])
            raise AlgebraError(f"{name} is ambiguous; write {choices}")
        return matches[0] if matches else None

    def find_qualified(self, alias: str, name: str) -> Expr | None:
        """The column of that name of the relation of that alias here; None if there is none."""
        source = self.source(alias)
        return None if source is None else source.columns.get(name.lower())

    def source(self, alias: str) -> NamedRelation | None:
        """The relation of that alias; None if there is none."""
        return self.by_alias.get(alias.lower())

    def relations(self) -> set[str]:
        """What the algebra calls the relations."""
        return {c.relation for source in self.sources for c in source.columns.values()}

    def hides(self, names: Iterable[tuple[str | None, str]]) -> bool:
        """Whether one of the names (alias or None, column) belongs to a relation of the enclosing
        query that has the name of one here, so that the algebra could not distinguish the two."""
        return any(self._hides(alias, name) for alias, name in names)

    def _hides(self, alias: str | None, name: str) -> bool:
        try:
            if self._look_up(alias, name) is not None or self.outer is None:
                return False
            column = self.outer._look_up(alias, name)
        except AlgebraError:
            return False  # ambiguous, which is reported where it is bound
        return column is not None and not self._has_no_clash_with(column)

    def _look_up(self, alias: str | None, name: str) -> Expr | None:
        return self.find_column(name) if alias is None else self.find_qualified(alias, name)

    def _has_no_clash_with(self, expr: Expr) -> bool:
        own = {relation.lower() for relation in self.relations()}
        return all(column.relation.lower() not in own for column in columns_of(expr))

    def all_columns(self) -> list[tuple[str, Expr]]:
        """The columns of *: those joined by USING first and once, then those of each relation."""
        columns: list[tuple[str, Expr]] = []
        for key, shared in self.shared.items():
            name = self.by_alias[shared.joined[0]].columns[key].name
            columns.append((name, self._shared(key)[0]))
        for source in self.sources:
            for key, column in source.columns.items():
                if key not in self.shared or source.alias.lower() not in self.shared[key].joined:
                    columns.append((column.name, column))
        return columns

    def _shared(self, key: str) -> list[Expr]:
        shared = self.shared[key]
        values = [self.by_alias[alias].columns[key] for alias in shared.values]
        first = values[0] if len(values) == 1 else build_call("coalesce", *values)
        # A relation that USING did not join may have a column of that name too: then it is
        # ambiguous.
        others = [s for s in self.sources if s.alias.lower() not in shared.joined]
        return [first, *(s.columns[key] for s in others if key in s.columns)]

    def _outer_column(self, alias: str | None, name: str) -> Expr | None:
        """The column of that name in the enclosing query; None if there is none."""
        column = None if self.outer is None else self.outer._look_up(alias, name)
        if column is None:
            return None
        if not self.correlated:
            shown = name if alias is None else f"{alias}.{name}"
            raise AlgebraError(
                f"{shown} belongs to the enclosing query; only a condition in WHERE may name it, in an"
                " inner query without aggregates and DISTINCT"
            )
        # `bind_correlated` has renamed relations that would clash.
        assert self._has_no_clash_with(column), name
        return column

    def _names(self) -> list[str]:
        return [column.name for source in self.sources for column in source.columns.values()]
