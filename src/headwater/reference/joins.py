"""Joins of the contents of relations at an instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from headwater.algebra.expressions import Call, Column, Expr, columns_of, conjuncts
from headwater.algebra.nodes import Join, OuterJoin, SemiJoin
from headwater.reference.scalar import (
    RowFunction,
    common_type,
    compile_cast,
    compile_condition,
)
from headwater.reference.values import Content, Entry, Identity, Row, normalize_value


@dataclass(frozen=True)
class JoinMatcher:
    """Finds the rows of the right that satisfy a condition with a row of the left: by hashing the
    sides of its equalities, then testing the remaining conditions."""

    left_key: list[RowFunction]
    right_key: list[RowFunction]
    residual: list[Callable[[Row], bool]]

    @classmethod
    def of(
        cls, conditions: Sequence[Expr], left: Sequence[Column], right: Sequence[Column]
    ) -> JoinMatcher:
        result = cls([], [], [])
        for condition in conditions:
            sides = _sides(condition, left, right)
            if sides is None:
                result.residual.append(compile_condition(condition, (*left, *right)))
                continue
            # 1 and 1.0 hash alike in Python, but DATE and TIMESTAMP are equal only in one unit.
            common = common_type([side.type for side in sides])
            result.left_key.append(compile_cast(sides[0], common, left))
            result.right_key.append(compile_cast(sides[1], common, right))
        return result

    def build_lookup(self, entries: list[Entry]) -> Callable[[Row], list[Entry]]:
        """A function that returns the partners of a row among the entries."""
        index: dict[Row, list[Entry]] = {}
        for entry in entries:
            index.setdefault(_key(self.right_key, entry[1]), []).append(entry)

        def find(row: Row) -> list[Entry]:
            key = _key(self.left_key, row)
            # NULL = NULL is not true; keys with NULL in the index are thus never looked up.
            found = [] if None in key else index.get(key, [])
            for condition in self.residual:
                found = [entry for entry in found if condition(row + entry[1])]
            return found

        return find


def _key(parts: Sequence[RowFunction], row: Row) -> Row:
    return tuple(normalize_value(part(row)) for part in parts)


def _sides(
    condition: Expr, left: Sequence[Column], right: Sequence[Column]
) -> tuple[Expr, Expr] | None:
    """The operands of an equality between the left and the right; None for another condition."""
    if not (isinstance(condition, Call) and condition.name == "="):
        return None
    a, b = condition.args
    if _reads(a, left) and _reads(b, right):
        return a, b
    return (b, a) if _reads(b, left) and _reads(a, right) else None


def _reads(expr: Expr, columns: Sequence[Column]) -> bool:
    """Whether the expression reads columns of these alone, and at least one."""
    read = _aliases(columns_of(expr))
    return bool(read) and read <= _aliases(columns)


def _aliases(columns: Sequence[Column] | set[Column]) -> set[str]:
    return {column.relation.lower() for column in columns}


def join(node: Join, extra_conditions: Sequence[Expr], contents: Sequence[Content]) -> Content:
    """The inputs joined one after the other, with each condition (of the join, and the extra ones
    above it) applied as soon as all its columns are available."""
    conditions = [*conjuncts(node.condition), *extra_conditions]
    order = _join_order(node, conditions)
    joined: tuple[Column, ...] = ()
    steps: list[tuple[Content, JoinMatcher]] = []
    for position in order:
        columns = node.inputs[position].columns
        available = _aliases((*joined, *columns))
        applicable = [c for c in conditions if _aliases(columns_of(c)) <= available]
        conditions = [c for c in conditions if c not in applicable]
        local = [c for c in applicable if _aliases(columns_of(c)) <= _aliases(columns)]
        steps.append(
            (
                _filter_content(contents[position], local, columns),
                JoinMatcher.of([c for c in applicable if c not in local], joined, columns),
            )
        )
        joined += columns
    restore = _order_restorer(node, order)

    def content(tau: int) -> list[Entry]:
        found: list[Entry] = [((), ())]
        for relation, partners in steps:
            find = partners.build_lookup(relation(tau))
            found = [
                ((*identity, other), row + values)
                for identity, row in found
                for other, values in find(row)
            ]
            if not found:
                return []
        return restore(found)

    return content


def _join_order(node: Join, conditions: Sequence[Expr]) -> list[int]:
    """The order as written, but an input with an equality to those before it comes first."""
    order, left = [0], list(range(1, len(node.inputs)))
    while left:
        joined = [c for i in order for c in node.inputs[i].columns]
        tied = [
            i for i in left if any(_sides(c, joined, node.inputs[i].columns) for c in conditions)
        ]
        order.append((tied or left)[0])
        left.remove(order[-1])
    return order


def _order_restorer(node: Join, order: list[int]) -> Callable[[list[Entry]], list[Entry]]:
    """A function that puts rows and identities back into the order of the inputs."""
    if order == sorted(order):
        return lambda entries: entries
    places: dict[int, range] = {}
    width = 0
    for i in order:
        places[i] = range(width, width + len(node.inputs[i].columns))
        width = places[i].stop
    values = itemgetter(*(p for i in sorted(places) for p in places[i]))
    parts = itemgetter(*(order.index(i) for i in sorted(order)))
    return lambda entries: [(parts(identity), values(row)) for identity, row in entries]


def _filter_content(
    content: Content, conditions: Sequence[Expr], columns: Sequence[Column]
) -> Content:
    tests = [compile_condition(condition, columns) for condition in conditions]
    if not tests:
        return content
    return lambda tau: [e for e in content(tau) if all(test(e[1]) for test in tests)]


def outer_join(node: OuterJoin, left: Content, right: Content) -> Content:
    partners = JoinMatcher.of(conjuncts(node.condition), node.left.columns, node.right.columns)
    no_left, no_right = (None,) * len(node.left.columns), (None,) * len(node.right.columns)

    def content(tau: int) -> list[Entry]:
        others = right(tau)
        find, found = partners.build_lookup(others), list[Entry]()
        met: set[Identity] = set()
        for identity, row in left(tau):
            matches = find(row)
            met.update(other for other, _ in matches)
            found += [((identity, other), row + values) for other, values in matches]
            if not matches:
                found.append(((identity, None), row + no_right))
        if node.full:
            found += [((None, i), no_left + row) for i, row in others if i not in met]
        return found

    return content


def semi_join(node: SemiJoin, left: Content, right: Content) -> Content:
    partners = JoinMatcher.of(conjuncts(node.condition), node.left.columns, node.right.columns)

    def content(tau: int) -> list[Entry]:
        find = partners.build_lookup(right(tau))
        return [entry for entry in left(tau) if bool(find(entry[1])) != node.anti]

    return content
