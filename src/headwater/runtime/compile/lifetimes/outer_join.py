"""LEFT, RIGHT and FULL joins."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import OuterJoin
from headwater.runtime.compile.lifetimes.rows import (
    FROM,
    ID,
    TO,
    Timeline,
    flat_name,
    flat_names,
    overlap_sql,
)
from headwater.runtime.compile.lifetimes.semi_join import anti_join_sql
from headwater.runtime.spark.sql import expression_sql, spark_type


def outer_join_sql(timeline: Timeline, node: OuterJoin, texts: tuple[str, str]) -> str:
    """The inner join, and the rows of the left (FULL: of the right too) while they have no match, with
    NULLs beside them."""
    rows = _left_join_sql(timeline, node, texts)
    if not node.full:
        return rows
    left, right = texts
    lone = anti_join_sql(timeline, node.right, node.left, node.condition, (right, left))
    beside = [*_nulls(node.left.columns), *flat_names(node.right.columns)]
    padded = timeline.select([FROM, TO, f"concat('-|', {ID}) AS {ID}", *beside])
    return f"(SELECT * FROM {rows} UNION ALL SELECT {padded} FROM {lone})"


def _left_join_sql(timeline: Timeline, node: OuterJoin, texts: tuple[str, str]) -> str:
    """Each left row with its matches, ordered by their begin: a match is a piece of its lifetime, and so are
    the time since those before it have ended, and the time after the last."""
    own, theirs = flat_names(node.left.columns), flat_names(node.right.columns)
    sides = [
        f"l.{column} AS {name}"
        for column, name in ((FROM, "_left_from"), (TO, "_left_to"), (ID, "_left"))
    ]
    sides += [
        f"r.{column} AS {name}"
        for column, name in ((FROM, "_match_from"), (TO, "_match_to"), (ID, "_match"))
    ]
    # Equal rows of groups are several rows: a number tells them apart.
    numbered = f"(SELECT *, monotonically_increasing_id() AS _row FROM {texts[0]})"
    on = [*timeline.same("l", "r"), overlap_sql("l", "r")]
    on.append(expression_sql(node.condition, flat_name))
    columns = timeline.select(["_row", *sides, *own, *theirs], "l")
    met = f"SELECT {columns} FROM {numbered} l LEFT JOIN {texts[1]} r ON {' AND '.join(on)}"
    by = "PARTITION BY _row ORDER BY _match_from"
    before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    windows = [
        f"max(_match_to) OVER ({by} {before}) AS _ended",
        f"lead(_match_from) OVER ({by}) AS _following",
        "max(_match_to) OVER (PARTITION BY _row) AS _last",
    ]
    # GREATEST and LEAST pass NULLs over, so that nothing would be said of a missing match.
    met_from = "IF(_match_from IS NULL, NULL, greatest(_left_from, _match_from))"
    pieces = [
        _piece(met_from, "least(_left_to, _match_to)", True),
        _piece("greatest(_left_from, _ended)", "coalesce(_match_from, _left_to)", False),
        _piece("IF(_following IS NULL, _last, NULL)", "_left_to", False),
    ]
    cut = f"SELECT *, explode(array({', '.join(pieces)})) AS _piece FROM (SELECT *, {', '.join(windows)} FROM ({met}))"
    shown = [f"IF(_piece.met, {name}, NULL) AS {name}" for name in theirs]
    identity = f"concat(_left, '|', IF(_piece.met, _match, '-')) AS {ID}"
    lifetime = [f"_piece.begin AS {FROM}", f"_piece.until AS {TO}"]
    selected = timeline.select([*lifetime, identity, *own, *shown])
    return f"(SELECT {selected} FROM ({cut}) WHERE _piece.begin < _piece.until)"


def _piece(begin: str, until: str, is_met: bool) -> str:
    met = "TRUE" if is_met else "FALSE"
    return f"struct({begin} AS begin, {until} AS until, {met} AS met)"


def _nulls(columns: Sequence[Column]) -> list[str]:
    return [f"CAST(NULL AS {spark_type(c.type)}) AS {flat_name(c)}" for c in columns]
