"""The canonical form of a query: blocks of select-project-join-group with nothing left to choice.

A block holds its sources, the condition on combinations of their tuples, the grouping and the
output expressions. Sources are called s0, s1, .. in canonical order; names that the user gave to
outputs are kept elsewhere. Two queries with the same body are the same query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.algebra.conditions.predicate import Box
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Expr
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.types import Type

GROUP = "$agg"
"""The alias of keys and aggregates in the HAVING and the outputs of a grouped block."""


@dataclass(frozen=True)
class Outer:
    """An outer join of two bodies; its columns are l0, l1, .. and r0, r1, .."""

    left: Body
    right: Body
    condition: Box
    full: bool


@dataclass(frozen=True)
class Union:
    """UNION ALL of blocks whose items correspond by position."""

    branches: tuple[Block, ...]
    types: tuple[Type, ...]


@dataclass(frozen=True)
class Semi:
    """EXISTS (anti: NOT EXISTS) over sources e0, e1, ..; `where` may name the block's own."""

    sources: tuple[Source, ...]
    where: Box
    anti: bool


@dataclass(frozen=True)
class Group:
    """Keys and aggregates, called $agg.k0, .. and $agg.a0, .. above, and the HAVING condition."""

    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    having: Box


@dataclass(frozen=True)
class Block:
    """Sources joined, filtered, grouped and projected."""

    sources: tuple[Source, ...]
    where: Box
    semis: tuple[Semi, ...]
    group: Group | None
    items: tuple[Expr, ...]
    distinct: bool


Body = Block | Union
Source = Scan | TableScan | Block | Union | Outer


def body_text(body: Body) -> str:
    """The whole of a body as text: equal for equal bodies, different for different ones."""
    if isinstance(body, Union):
        return f"union({_join_texts(map(body_text, body.branches))};{_join_texts(map(str, body.types))})"
    parts = [f"from({_join_texts(map(source_text, body.sources))})"]
    if body.where.constraints or body.where.terms or body.where.empty:
        parts.append(f"where({box_text(body.where)})")
    parts += map(semi_text, body.semis)
    if body.group is not None:
        parts.append(group_text(body.group))
    parts.append(
        f"{'distinct' if body.distinct else 'items'}({_join_texts(map(canonical_text, body.items))})"
    )
    return " ".join(parts)


def source_text(source: Source) -> str:
    """The text of a source without its alias, which follows from its position in the block."""
    match source:
        case Scan():
            # Names are quoted: one with a blank or a parenthesis in it must not look like other
            # text.
            return f"stream({source.stream.lower()!r} {str(source.window).lower()})"
        case TableScan():
            return f"table({source.table.lower()!r})"
        case Outer():
            kind = "full" if source.full else "left"
            sides = f"{body_text(source.left)};{body_text(source.right)}"
            return f"{kind}({sides};{box_text(source.condition)})"
        case _:
            return f"({body_text(source)})"


def semi_text(semi: Semi) -> str:
    sources = _join_texts(map(source_text, semi.sources))
    return f"{'anti' if semi.anti else 'semi'}({sources};{box_text(semi.where)})"


def group_text(group: Group) -> str:
    calls = _join_texts(map(call_text, group.calls))
    return f"group({_join_texts(map(canonical_text, group.keys))};{calls};{box_text(group.having)})"


def call_text(call: AggregateCall) -> str:
    """The text of an aggregate call."""
    arg = "*" if call.arg is None else canonical_text(call.arg)
    filter_text = "" if call.filter is None else f" if {canonical_text(call.filter)}"
    return f"{call.name}({'distinct ' if call.distinct else ''}{arg}{filter_text})"


def box_text(box: Box) -> str:
    """The text of a condition in normal form."""
    if box.empty:
        return "nothing"
    constraints = (
        "=".join(map(canonical_text, c.terms)) + ":" + str(c.domain) for c in box.constraints
    )
    return "&".join((*constraints, *map(canonical_text, box.terms)))


def _join_texts(texts: Iterable[str]) -> str:
    return ",".join(texts)
