"""When a row has a match: the lifetimes of matches, as stretches that do not overlap.

`covered` is the union of the lifetimes of equal keys, `gaps` is the time outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.expressions import Call, Column, Expr, columns_of, conjunction, conjuncts
from headwater.algebra.nodes import Relation
from headwater.algebra.types import BOOLEAN
from headwater.runtime.compile.lifetimes.rows import FROM, TO
from headwater.runtime.compile.windows import FOREVER

MAX_BRANCHES = 4
"""An OR of more branches than these is not taken apart."""


@dataclass(frozen=True)
class Match:
    """A condition between a left and a right row, by what its parts read."""

    pairs: tuple[tuple[Expr, Expr], ...]
    """Expressions of the left and of the right that have to be equal."""
    left: Expr | None
    right: Expr | None
    rest: Expr | None
    """What is about both and no such equality."""


def branches(condition: Expr | None, left: Relation, right: Relation) -> tuple[Match, ...]:
    """The condition as an OR of matches. NOT IN is one: `x = y OR x IS NULL OR y IS NULL`."""
    parts = conjuncts(condition)
    for part in parts:
        if isinstance(part, Call) and part.name == "or" and len(part.args) <= MAX_BRANCHES:
            others = [p for p in parts if p is not part]
            split = [_match([*others, *conjuncts(arg)], left, right) for arg in part.args]
            if all(match.rest is None for match in split):
                return tuple(split)
    return (_match(parts, left, right),)


def _match(parts: Sequence[Expr], left: Relation, right: Relation) -> Match:
    own, theirs = set(left.columns), set(right.columns)
    pairs: list[tuple[Expr, Expr]] = []
    sorted_parts: dict[str, list[Expr]] = {"left": [], "right": [], "rest": []}
    for part in parts:
        read = columns_of(part)
        if read <= own:  # a constant too: it holds for every left row or for none
            sorted_parts["left"].append(part)
        elif read <= theirs:
            sorted_parts["right"].append(part)
        elif (pair := _equal_pair(part, own, theirs)) is not None:
            pairs.append(pair)
        else:
            sorted_parts["rest"].append(part)
    return Match(tuple(pairs), *(conjunction(found) for found in sorted_parts.values()))


def _equal_pair(part: Expr, own: set[Column], theirs: set[Column]) -> tuple[Expr, Expr] | None:
    """The sides of an equality of the left with the right, left first."""
    if not (isinstance(part, Call) and part.name == "="):
        return None
    a, b = part.args
    # Of two types several keys of one side may equal one of the other: their stretches would overlap.
    if a.type != b.type and not (a.type.is_integer and b.type.is_integer):
        return None
    for one, other in ((a, b), (b, a)):
        read, other_read = columns_of(one), columns_of(other)
        if read and other_read and read <= own and other_read <= theirs:
            return one, other
    return None


def whole_condition(match: Match) -> Expr | None:
    """The condition that a match stands for."""
    equalities = [Call("=", pair, BOOLEAN) for pair in match.pairs]
    others = [part for part in (match.left, match.right, match.rest) if part is not None]
    return conjunction([*equalities, *others])


def covered_sql(keys: Sequence[str], rows: str) -> str:
    """The union of the lifetimes of rows with equal keys, in as few stretches as possible."""
    by = f"PARTITION BY {', '.join(keys) or '1'} ORDER BY {FROM}"
    listed = ", ".join([*keys, FROM, TO])
    reach = f"max({TO}) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS _reach"
    begins = f"IF({FROM} <= _reach, 0, 1)"
    # Rows that begin together are counted together, in whatever order they were met above.
    number = f"sum({begins}) OVER ({by} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    numbered = f"SELECT {listed}, {number} AS _stretch FROM (SELECT {listed}, {reach} FROM {rows})"
    group = ", ".join([*keys, "_stretch"])
    columns = ", ".join([*keys, f"min({FROM}) AS {FROM}", f"max({TO}) AS {TO}"])
    return f"(SELECT {columns} FROM ({numbered}) GROUP BY {group})"


def gaps_sql(keys: Sequence[str], stretches: str) -> str:
    """The time outside of the stretches of each key. The one before the first is always there, if only
    as an empty one: a key without gaps is a key without rows."""
    by = f"PARTITION BY {', '.join(keys) or '1'} ORDER BY {FROM}"
    listed = ", ".join([*keys, FROM, TO])
    before = f"coalesce(lag({TO}) OVER ({by}), {-FOREVER}L) AS _before"
    following = f"lead({FROM}) OVER ({by}) AS _following"
    gap = f"struct(_before AS {FROM}, {FROM} AS {TO})"
    last = f"struct({TO} AS {FROM}, {FOREVER}L AS {TO})"
    gaps = f"explode(IF(_following IS NULL, array({gap}, {last}), array({gap}))) AS _gap"
    rows = f"SELECT {listed}, {before}, {following} FROM {stretches}"
    rows = f"SELECT {', '.join([*keys, gaps])} FROM ({rows})"
    columns = ", ".join([*keys, f"_gap.{FROM} AS {FROM}", f"_gap.{TO} AS {TO}"])
    return f"(SELECT {columns} FROM ({rows}))"
