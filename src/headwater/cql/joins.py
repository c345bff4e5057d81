"""Relations of a FROM being joined, and the parts of EXISTS and IN that need no recursion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from headwater.algebra.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    literal,
)
from headwater.algebra.nodes import Item, Join, Project, Relation, SemiJoin, nullable
from headwater.algebra.types import BOOLEAN
from headwater.cql.expressions import Binder, is_aggregate
from headwater.cql.names import Scope, Shared, Source
from headwater.cql.refusals import Node, Place, name_of, operands, unwrapped


@dataclass
class Joined:
    """Relations joined so far: inputs of one n-way join, its conditions, and the names they have.

    `semis` are the SEMI and ANTI joins of the same FROM; they are bound like EXISTS, once all else
    is joined. `crossed` says that a comma or CROSS JOIN was met.
    """

    inputs: list[Relation]
    conditions: list[Expr]
    sources: list[Source]
    shared: dict[str, Shared] = field(default_factory=dict)
    semis: list[Node] = field(default_factory=list)
    crossed: bool = False

    @classmethod
    def one(cls, relation: Relation, alias: str) -> Joined:
        return cls([relation], [], [Source(alias, relation.columns)])

    def scope(self, around: Scope | None = None) -> Scope:
        return Scope(self.sources, self.shared, around)

    def relation(self, place: Place, node: object) -> Relation:
        if len(self.inputs) == 1:
            return self.inputs[0]
        return place.build(node, Join, tuple(self.inputs), conjunction(self.conditions))

    def relations(self) -> set[str]:
        """What the algebra calls them."""
        return self.scope().relations()


def check_aliases(place: Place, node: Node, left: Joined, right: Joined) -> None:
    taken = {source.alias.lower() for source in left.sources}
    for source in right.sources:
        if source.alias.lower() in taken:
            raise place.error(
                f"{source.alias} is joined twice",
                node.args.get("this"),
                "give each an alias of its own, with AS",
            )


def join_condition(place: Place, node: Node, left: Joined, right: Joined) -> Expr | None:
    """What ON or USING asks of a row of the left and one of the right."""
    using, on = node.args.get("using"), node.args.get("on")
    scope = Scope([*left.sources, *right.sources], {**left.shared, **right.shared})
    if not using:
        if on is None:
            return None
        binder = Binder(place, scope, "ON")
        return conjunction([binder.condition(part) for part in operands(on, exp.And)])
    parts = []
    for identifier in using:
        name = name_of(identifier)
        if name is None:
            raise place.error("USING takes names of columns", identifier)
        one = place.build(identifier, left.scope().column, name)
        other = place.build(identifier, right.scope().column, name)
        parts.append(Binder(place, scope, "USING").call(identifier, "=", one, other))
    return conjunction(parts)


def shared_columns(node: Node, left: Joined, right: Joined, side: str) -> dict[str, Shared]:
    """The columns that go without alias after this join: what was shared before, and its USING."""
    made = {**left.shared, **right.shared}
    for identifier in node.args.get("using") or []:
        key = (name_of(identifier) or "").lower()
        one, other = _shared(key, left), _shared(key, right)
        values = {"RIGHT": other.values, "FULL": one.values + other.values}.get(side, one.values)
        made[key] = Shared(values, one.joined + other.joined)
    return made


def _shared(key: str, joined: Joined) -> Shared:
    before = joined.shared.get(key)
    if before is not None:
        return before
    aliases = tuple(s.alias.lower() for s in joined.sources if key in s.columns)
    return Shared(aliases, aliases)


# ---- EXISTS and IN


def subquery_condition(node: Any) -> tuple[Any, bool]:
    """The EXISTS or IN (SELECT ..) that a condition of WHERE is (or None), and if it is negated."""
    anti = False
    node = unwrapped(node)
    while type(node) is exp.Not:
        anti = not anti
        node = unwrapped(node.args.get("this"))
    if type(node) is exp.Exists and not node.args.get("expression"):
        return node, anti
    if type(node) is exp.In and node.args.get("query"):
        return node, anti
    return None, False


def is_grouped(query: Node) -> bool:
    """Whether the rows of a SELECT are not those of its FROM: grouped, or DISTINCT."""
    grouping = (query.args.get(part) for part in ("distinct", "group", "having"))
    return any(grouping) or is_aggregate(query.args.get("expressions"))


def speaks_of(expr: Expr, aliases: set[str]) -> bool:
    """Whether all its columns are of these relations."""
    return all(column.relation in aliases for column in columns_of(expr))


def membership(place: Place, node: Node, operand: Expr, value: Expr, anti: bool) -> Expr:
    """operand = value; for NOT IN also true if one of them is NULL, as then it is not known."""
    binder = Binder(place, Scope([]), "IN")
    equal = binder.call(node, "=", operand, value)
    if not anti:
        return equal
    unknown = [binder.call(node, "is_null", side) for side in (operand, value)]
    return binder.call(node, "or", equal, *unknown)


@dataclass(frozen=True, slots=True)
class Asked:
    """What IN asks of a row inside: that its value is equal to the operand."""

    operand: Expr
    value: Expr

    def is_local(self, inside: set[str]) -> bool:
        """Whether it speaks of the inside alone: a constant IN (..)."""
        return not columns_of(self.operand) and speaks_of(self.value, inside)


def semi_join(
    place: Place,
    node: Node,
    left: Relation,
    right: Relation,
    inside: set[str],
    shared: list[Expr],
    alias: str,
    anti: bool,
    asked: Asked | None = None,
) -> SemiJoin:
    """The semi-join on conditions over both sides; `inside` are the aliases of the right.

    The operand of IN is the outer query's alone, even if a relation inside has the same alias.
    """
    items: dict[Expr, Column] = {}
    parts: list[Expr] = []
    if asked is not None:
        value = _lifted(asked.value, inside, alias, items)
        parts.append(membership(place, node, asked.operand, value, anti))
    parts += [_lifted(part, inside, alias, items) for part in shared]
    named = tuple(Item(column.name, expr) for expr, column in items.items())
    projected = Project(right, named or (Item("c0", literal(1)),), alias)
    return place.build(node, SemiJoin, left, projected, conjunction(parts), anti)


def _lifted(expr: Expr, inside: set[str], alias: str, items: dict[Expr, Column]) -> Expr:
    """The condition with every value that is known inside alone replaced by a column c0, c1, ..

    Values are replaced, conditions are not: y IS NULL becomes c0 IS NULL.
    """
    if isinstance(expr, Literal):
        return expr
    own = bool(columns_of(expr)) and speaks_of(expr, inside)
    if own and (isinstance(expr, Column) or expr.type != BOOLEAN):
        if expr not in items:
            items[expr] = Column(alias, f"c{len(items)}", expr.type, nullable(expr))
        return items[expr]
    if isinstance(expr, Column):
        return expr
    args = tuple(_lifted(arg, inside, alias, items) for arg in expr.args)
    return Call(expr.name, args, expr.type)
