"""EXISTS of a smaller or larger value, where what matches once matches for ever.

`EXISTS (SELECT * FROM bid AS later WHERE later.time >= a.expires)` has no key: as a join it would be a product. But
of windows without an end the matches of a row only become more, so all that matters is when the first one came:
the least begin of those on the right side of the value, in the order of values.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.expressions import Call, Expr, columns_of
from headwater.algebra.nodes import Relation
from headwater.runtime.compile.lifetimes.endless import is_endless
from headwater.runtime.compile.lifetimes.matches import Match
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name, flat_names
from headwater.runtime.spark.sql import expression_sql

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Comparison:
    """A condition that a value of the right is above (below) one of the left."""

    left: Expr
    right: Expr
    operator: str


def comparison_of(match: Match, left: Relation, right: Relation) -> Comparison | None:
    """What a match compares besides its keys, if that is all and the right only grows; else None."""
    rest = match.rest
    if not (isinstance(rest, Call) and rest.name in MIRRORED and is_endless(right)):
        return None
    a, b = rest.args
    own, theirs = set(left.columns), set(right.columns)
    # Windows order floating-point numbers by their bits, where zero has a sign.
    if a.type != b.type or a.type.is_floating:
        return None
    if columns_of(a) <= own and columns_of(b) <= theirs:
        return Comparison(a, b, MIRRORED[rest.name])
    if columns_of(b) <= own and columns_of(a) <= theirs:
        return Comparison(b, a, rest.name)
    return None


def first_match_sql(
    timeline: Timeline,
    left: Relation,
    match: Match,
    comparison: Comparison,
    anti: bool,
    texts: tuple[str, str],
) -> str:
    """Left rows from when they have a match (anti: until then), which is the begin of the first right row with
    their keys and a value on the right side of theirs."""
    columns = flat_names(left.columns)
    keys = [f"_k{n}" for n in range(len(match.pairs))]
    pairs = list(zip(match.pairs, keys, strict=True))
    own = [f"{expression_sql(one, flat_name)} AS {key}" for (one, _), key in pairs]
    theirs = [f"{expression_sql(other, flat_name)} AS {key}" for (_, other), key in pairs]
    own.append(f"{expression_sql(comparison.left, flat_name)} AS _value")
    theirs.append(f"{expression_sql(comparison.right, flat_name)} AS _value")
    # Of equal values those of the right come first if they match.
    is_strict = comparison.operator in ("<", ">")
    sides = (0, 1) if is_strict else (1, 0)
    mine = [f"{sides[0]} AS _side", "CAST(NULL AS BIGINT) AS _begin", FROM, TO, ID, *columns]
    nothing = [f"NULL AS {name}" for name in (FROM, TO, ID, *columns)]
    found = [f"{sides[1]} AS _side", f"{FROM} AS _begin", *nothing]
    where = "" if match.right is None else f" WHERE {expression_sql(match.right, flat_name)}"
    rows = (
        f"SELECT {timeline.select([*own, *mine])} FROM {texts[0]} "
        f"UNION ALL SELECT {timeline.select([*theirs, *found])} FROM {texts[1]}{where}"
    )
    by = ", ".join([*timeline.keys, *keys]) or "1"
    order = "DESC" if comparison.operator in (">", ">=") else "ASC"
    first = (
        f"min(_begin) OVER (PARTITION BY {by} ORDER BY _value {order}, _side "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    # NULL is equal to nothing, and neither above nor below.
    comparable = [f"{name} IS NOT NULL" for name in ("_value", *keys)]
    if match.left is not None:
        comparable.append(expression_sql(match.left, flat_name))
    matched = f"IF({' AND '.join(comparable)}, {first}, NULL) AS _first"
    ranked = f"SELECT *, {matched} FROM ({rows}) WHERE _side = {sides[0]} OR _value IS NOT NULL"
    begin, end = (FROM, f"coalesce(least({TO}, _first), {TO})")
    condition = f"_side = {sides[0]} AND (_first IS NULL OR {FROM} < _first)"
    if not anti:
        begin, end = (f"greatest({FROM}, _first)", TO)
        condition = f"_side = {sides[0]} AND _first < {TO}"
    lifetime = [f"{begin} AS {FROM}", f"{end} AS {TO}"]
    return (
        f"(SELECT {timeline.select([*lifetime, ID, *columns])} FROM ({ranked}) WHERE {condition})"
    )
