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
from headwater.algebra.nodes import Item, Join, Project, Relation, SemiJoin, is_nullable
from headwater.algebra.types import BOOLEAN
from headwater.cql.binding.expressions import Binder, is_aggregate
from headwater.cql.binding.names import NamedRelation, Scope, UsingColumn
from headwater.cql.binding.refusals import ErrorLocator, Node, name_of, operands, strip_parens


@dataclass
class JoinedRelations:
    """Relations joined so far: inputs of one n-way join, its conditions, and their names.

    `semis` are the SEMI and ANTI joins of the same FROM; they are bound like EXISTS, after all
    other joins. `crossed` is set once there was a comma or CROSS JOIN.
    """

    inputs: list[Relation]
    conditions: list[Expr]
    sources: list[NamedRelation]
    shared: dict[str, UsingColumn] = field(default_factory=dict)
    semis: list[Node] = field(default_factory=list)
    crossed: bool = False

    @classmethod
    def single(cls, relation: Relation, alias: str) -> JoinedRelations:
        return cls([relation], [], [NamedRelation(alias, relation.columns)])

    def scope(self, outer: Scope | None = None) -> Scope:
        return Scope(self.sources, self.shared, outer)

    def relation(self, locator: ErrorLocator, node: object) -> Relation:
        if len(self.inputs) == 1:
            return self.inputs[0]
        return locator.build(node, Join, tuple(self.inputs), conjunction(self.conditions))

    def relations(self) -> set[str]:
        """The names of the relations in the algebra."""
        return self.scope().relations()


def check_aliases(
    locator: ErrorLocator, node: Node, left: JoinedRelations, right: JoinedRelations
) -> None:
    taken = {source.alias.lower() for source in left.sources}
    for source in right.sources:
        if source.alias.lower() in taken:
            raise locator.error(
                f"{source.alias} is joined twice",
                node.args.get("this"),
                "give each an alias of its own, with AS",
            )


def join_condition(
    locator: ErrorLocator, node: Node, left: JoinedRelations, right: JoinedRelations
) -> Expr | None:
    """The condition of ON or USING on a row of the left and one of the right."""
    using, on = node.args.get("using"), node.args.get("on")
    scope = Scope([*left.sources, *right.sources], {**left.shared, **right.shared})
    if not using:
        if on is None:
            return None
        binder = Binder(locator, scope, "ON")
        return conjunction([binder.condition(part) for part in operands(on, exp.And)])
    parts = []
    for identifier in using:
        name = name_of(identifier)
        if name is None:
            raise locator.error("USING takes names of columns", identifier)
        left_column = locator.build(identifier, left.scope().column, name)
        right_column = locator.build(identifier, right.scope().column, name)
        parts.append(
            Binder(locator, scope, "USING").call(identifier, "=", left_column, right_column)
        )
    return conjunction(parts)


def shared_columns(
    node: Node, left: JoinedRelations, right: JoinedRelations, side: str
) -> dict[str, UsingColumn]:
    """The columns that need no alias after this join: those shared before, and its USING."""
    columns = {**left.shared, **right.shared}
    for identifier in node.args.get("using") or []:
        key = (name_of(identifier) or "").lower()
        first, second = _shared_column(key, left), _shared_column(key, right)
        # The value comes from the side whose rows are all kept; of a FULL JOIN, from whichever has
        # one.
        values = {"RIGHT": second.values, "FULL": first.values + second.values}.get(
            side, first.values
        )
        columns[key] = UsingColumn(values, first.joined + second.joined)
    return columns


def _shared_column(key: str, joined: JoinedRelations) -> UsingColumn:
    before = joined.shared.get(key)
    if before is not None:
        return before
    aliases = tuple(s.alias.lower() for s in joined.sources if key in s.columns)
    return UsingColumn(aliases, aliases)


# ---- EXISTS and IN


def subquery_condition(node: Any) -> tuple[Any, bool]:
    """The EXISTS or IN (SELECT ..) that a condition of WHERE is (or None), and if it is negated."""
    anti = False
    node = strip_parens(node)
    while type(node) is exp.Not:
        anti = not anti
        node = strip_parens(node.args.get("this"))
    if type(node) is exp.Exists and not node.args.get("expression"):
        return node, anti
    if type(node) is exp.In and node.args.get("query"):
        return node, anti
    return None, False


def is_grouped(query: Node) -> bool:
    """Whether the rows of a SELECT are not those of its FROM: grouped, or DISTINCT."""
    grouping = (query.args.get(part) for part in ("distinct", "group", "having"))
    return any(grouping) or is_aggregate(query.args.get("expressions"))


def reads_only(expr: Expr, aliases: set[str]) -> bool:
    """Whether all its columns are of these relations."""
    return all(column.relation in aliases for column in columns_of(expr))


def membership_condition(
    locator: ErrorLocator, node: Node, operand: Expr, value: Expr, anti: bool
) -> Expr:
    """operand = value; for NOT IN also true if one of them is NULL, as it is then unknown."""
    binder = Binder(locator, Scope([]), "IN")
    equal = binder.call(node, "=", operand, value)
    if not anti:
        return equal
    unknown = [binder.call(node, "is_null", side) for side in (operand, value)]
    return binder.call(node, "or", equal, *unknown)


@dataclass(frozen=True, slots=True)
class MembershipTest:
    """The test of IN on a row of the subquery: that its value is equal to the operand."""

    operand: Expr
    value: Expr

    def is_local(self, inside: set[str]) -> bool:
        """Whether it reads columns of the subquery only: a constant IN (..)."""
        return not columns_of(self.operand) and reads_only(self.value, inside)


def semi_join(
    locator: ErrorLocator,
    node: Node,
    left: Relation,
    right: Relation,
    inside: set[str],
    shared: list[Expr],
    alias: str,
    anti: bool,
    test: MembershipTest | None = None,
) -> SemiJoin:
    """The semi-join on conditions over both sides; `inside` are the aliases of the right.

    The operand of IN belongs to the outer query, even if a relation inside has the same alias.
    """
    items: dict[Expr, Column] = {}
    parts: list[Expr] = []
    if test is not None:
        # First, and apart from `shared`: only the value is lifted, and `query_text` recognises IN
        # by its first condition.
        value = _lift(test.value, inside, alias, items)
        parts.append(membership_condition(locator, node, test.operand, value, anti))
    parts += [_lift(part, inside, alias, items) for part in shared]
    named = tuple(Item(column.name, expr) for expr, column in items.items())
    projected = Project(right, named or (Item("c0", literal(1)),), alias)
    return locator.build(node, SemiJoin, left, projected, conjunction(parts), anti)


def _lift(expr: Expr, inside: set[str], alias: str, items: dict[Expr, Column]) -> Expr:
    """The condition with every value that depends on the inside alone replaced by c0, c1, ..

    Values are replaced, conditions are not: y IS NULL becomes c0 IS NULL.
    """
    if isinstance(expr, Literal):
        return expr
    own = bool(columns_of(expr)) and reads_only(expr, inside)
    if own and (isinstance(expr, Column) or expr.type != BOOLEAN):
        if expr not in items:
            items[expr] = Column(alias, f"c{len(items)}", expr.type, is_nullable(expr))
        return items[expr]
    if isinstance(expr, Column):
        return expr
    args = tuple(_lift(arg, inside, alias, items) for arg in expr.args)
    return Call(expr.name, args, expr.type)
