"""EXISTS and NOT EXISTS, IN and NOT IN."""

from __future__ import annotations

from headwater.algebra.expressions import Expr
from headwater.algebra.nodes import Relation
from headwater.runtime.compile.lifetimes.first_match import comparison_of, first_match_sql
from headwater.runtime.compile.lifetimes.matches import (
    Match,
    branches,
    covered_sql,
    gaps_sql,
    whole_condition,
)
from headwater.runtime.compile.lifetimes.rows import (
    FROM,
    ID,
    TO,
    Timeline,
    flat_name,
    flat_names,
    overlap_sql,
)
from headwater.runtime.compile.windows import FOREVER
from headwater.runtime.spark.sql import expression_sql


def semi_join_sql(
    timeline: Timeline,
    left: Relation,
    right: Relation,
    condition: Expr | None,
    texts: tuple[str, str],
) -> str:
    """Left rows while they have a match: their lifetimes intersected with the union of those of their
    matches, in pieces that neither overlap nor touch."""
    matches = branches(condition, left, right)
    match = matches[0] if len(matches) == 1 else Match((), None, None, condition)
    if (comparison := comparison_of(match, left, right)) is not None:
        return first_match_sql(timeline, left, match, comparison, False, texts)
    keys, stretches, conditions = _stretches(timeline, match, texts)
    conditions.append(overlap_sql("l", "k"))
    return (
        f"(SELECT {_piece(timeline, left, f'k.{FROM}', f'k.{TO}')} "
        f"FROM {texts[0]} l JOIN {covered_sql(keys, stretches)} k ON {' AND '.join(conditions)})"
    )


def anti_join_sql(
    timeline: Timeline,
    left: Relation,
    right: Relation,
    condition: Expr | None,
    texts: tuple[str, str],
) -> str:
    """Left rows while they have no match: their lifetimes without the union of those of their matches. No
    match of A OR B is no match of A and none of B."""
    rows = texts[0]
    for match in branches(condition, left, right):
        rows = _without(timeline, left, right, match, (rows, texts[1]))
    return rows


def _without(
    timeline: Timeline, left: Relation, right: Relation, match: Match, texts: tuple[str, str]
) -> str:
    if (comparison := comparison_of(match, left, right)) is not None:
        return first_match_sql(timeline, left, match, comparison, True, texts)
    keys, stretches, conditions = _stretches(timeline, match, texts)
    begin, end = f"coalesce(k.{FROM}, {-FOREVER}L)", f"coalesce(k.{TO}, {FOREVER}L)"
    gaps = gaps_sql(keys, covered_sql(keys, stretches))
    # Overlap is no condition of the LEFT JOIN: a row without a gap has matches all the time, and must
    # not look like one whose key has no match.
    return (
        f"(SELECT {_piece(timeline, left, begin, end)} "
        f"FROM {texts[0]} l LEFT JOIN {gaps} k ON {' AND '.join(conditions) or 'TRUE'} "
        f"WHERE k.{FROM} IS NULL OR ({overlap_sql('l', 'k')}))"
    )


def _piece(timeline: Timeline, left: Relation, begin: str, end: str) -> str:
    """The columns of a left row, cut to a stretch."""
    lifetime = [f"greatest(l.{FROM}, {begin}) AS {FROM}", f"least(l.{TO}, {end}) AS {TO}"]
    return timeline.select([*lifetime, f"l.{ID}", *flat_names(left.columns, "l")], "l")


def _stretches(
    timeline: Timeline, match: Match, texts: tuple[str, str]
) -> tuple[list[str], str, list[str]]:
    """The lifetimes of matches with their keys, the names of these, and the conditions by which a left
    row `l` finds those that are its own in `k`."""
    if match.rest is not None:
        return _stretches_of_rows(timeline, match, texts)
    names = [f"_k{n}" for n in range(len(match.pairs))]
    keys = [
        f"{expression_sql(theirs, flat_name)} AS {name}"
        for (_, theirs), name in zip(match.pairs, names, strict=True)
    ]
    where = "" if match.right is None else f" WHERE {expression_sql(match.right, flat_name)}"
    lifetimes = f"(SELECT {timeline.select([*keys, FROM, TO])} FROM {texts[1]}{where})"
    conditions = timeline.same("l", "k")
    conditions += [
        f"{expression_sql(own, flat_name)} = k.{name}"
        for (own, _), name in zip(match.pairs, names, strict=True)
    ]
    if match.left is not None:
        conditions.append(expression_sql(match.left, flat_name))
    return [*timeline.keys, *names], lifetimes, conditions


def _stretches_of_rows(
    timeline: Timeline, match: Match, texts: tuple[str, str]
) -> tuple[list[str], str, list[str]]:
    """The same where rows with equal keys may have different matches: for each left row its own."""
    condition = whole_condition(match)
    assert condition is not None
    conditions = [*timeline.same("l", "r"), overlap_sql("l", "r")]
    conditions.append(expression_sql(condition, flat_name))
    columns = [
        f"l.{ID} AS _k0",
        f"l.{FROM} AS _k1",
        f"greatest(l.{FROM}, r.{FROM}) AS {FROM}",
        f"least(l.{TO}, r.{TO}) AS {TO}",
    ]
    lifetimes = (
        f"(SELECT {timeline.select(columns, 'l')} "
        f"FROM {texts[0]} l JOIN {texts[1]} r ON {' AND '.join(conditions)})"
    )
    found = [*timeline.same("l", "k"), f"l.{ID} = k._k0", f"l.{FROM} = k._k1"]
    return [*timeline.keys, "_k0", "_k1"], lifetimes, found
