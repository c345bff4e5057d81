"""Random nested queries in which names clash: aliases that are names of streams, equal aliases and
equal columns on two levels, WITH names that hide streams. The texts are CQL, Spark SQL and DuckDB's
SQL alike, so that whoever judges what a name stands for is not the binder of Headwater."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

DECLARED = """
CREATE STREAM s (u INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM t (u INT, w INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
COLUMNS = {"s": ("u", "v"), "t": ("u", "w")}
"""The columns that queries name; all tuples have the same time."""
ALIASES = ("s", "t", "e")


def rows() -> st.SearchStrategy[dict[str, list[tuple[int | None, int | None]]]]:
    """Some rows of each stream, without their time."""
    value = st.sampled_from([0, 1, 2, 3, None])
    row = st.tuples(value, value)
    return st.fixed_dictionaries({name: st.lists(row, min_size=3, max_size=6) for name in COLUMNS})


@dataclass(frozen=True)
class _Level:
    """The relations of a FROM: what each is called, and its columns."""

    relations: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass
class _Writer:
    draw: st.DrawFn
    known: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(COLUMNS))
    """What can stand in FROM, WITH names included."""

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def choose(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def inside(self) -> _Writer:
        return _Writer(self.draw, dict(self.known))

    def query(self, depth: int, around: _Level | None, wanted: int) -> tuple[str, tuple[str, ...]]:
        """[WITH ..] SELECT .. of `wanted` columns, and how its columns are called."""
        prefix = ""
        if self.chance(25):
            name = self.choose(("s", "t", "c"))
            body, columns = self.inside().query(0, None, 2)
            prefix = f"WITH {name} AS ({body}) "
            self.known[name] = columns
        text, level = self.from_clause(depth)
        kept = self.where(depth, level, around)
        names = ("u", "v", "w")[:wanted]
        items = [f"{self.column(level, None)} AS {name}" for name in names]
        return f"{prefix}SELECT {', '.join(items)} FROM {text}{kept}", names

    def from_clause(self, depth: int) -> tuple[str, _Level]:
        text, first = self.item(depth, ())
        relations = [first]
        if self.chance(35):
            more, second = self.item(depth, (first[0],))
            relations.append(second)
            both = _Level(tuple(relations))
            kind = self.choose((",", "JOIN", "LEFT JOIN"))
            on = "" if kind == "," else f" ON {self.comparison(both, None)}"
            text = f"{text}{kind if kind == ',' else ' ' + kind} {more}{on}"
        return text, _Level(tuple(relations))

    def item(self, depth: int, taken: Sequence[str]) -> tuple[str, tuple[str, tuple[str, ...]]]:
        free = [alias for alias in ALIASES if alias not in taken]
        if depth and self.chance(15):
            body, columns = self.inside().query(depth - 1, None, 2)
            alias = self.choose(free)
            return f"({body}) AS {alias}", (alias, columns)
        name = self.choose(sorted(self.known))
        if name in taken or self.chance(60):
            alias = self.choose(free)
            return f"{name} AS {alias}", (alias, self.known[name])
        return name, (name, self.known[name])

    def where(self, depth: int, level: _Level, around: _Level | None) -> str:
        parts = []
        if around is not None or self.chance(30):
            parts.append(self.comparison(level, around))
        if around is not None and self.chance(40):
            parts.append(self.comparison(level, around))
        if depth and self.chance(80):
            parts.append(self.subquery(depth, level))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def subquery(self, depth: int, level: _Level) -> str:
        no = "NOT " if self.chance(40) else ""
        if self.chance(60):
            body, _ = self.inside().query(depth - 1, level, 1)
            return f"{no}EXISTS ({body})"
        body, _ = self.inside().query(depth - 1, level, 1)
        return f"{self.column(level, None)} {no}IN ({body})"

    def comparison(self, level: _Level, around: _Level | None) -> str:
        op = self.choose(("=", "=", "<", ">"))
        return f"{self.column(level, None)} {op} {self.column(level, around)}"

    def column(self, level: _Level, around: _Level | None) -> str:
        """A name that probably stands for something, of this level or of the one around."""
        shown = level if around is None or self.chance(30) else around
        alias, columns = self.draw(st.sampled_from(shown.relations))
        column = self.choose(columns)
        once = sum(column in others for _, others in shown.relations) == 1
        return column if self.chance(40 if once else 3) else f"{alias}.{column}"


@st.composite
def scoping_texts(draw: st.DrawFn) -> str:
    """A query in which names clash; not each of them means something."""
    return _Writer(draw).query(2, None, 2)[0]
