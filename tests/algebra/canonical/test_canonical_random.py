"""Canonical form of random queries: the same for all ways to write one, and of the same meaning."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.expressions import (
    Call,
    Expr,
    Literal,
    conjunction,
    conjuncts,
    substitute,
    transform,
)
from headwater.algebra.functions import MIRRORED, build_call
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)
from headwater.cql import parse_query, unparse
from headwater.reference import evaluate
from headwater.reference.values import normalize_row, row_order_key
from strategies import SOURCES, Features, queries, streams, tables

EXAMPLES = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Without shrinking, which takes minutes for queries of this size."""
Rows = dict[str, list[Any]]
SEEDS = st.integers(0, 2**32)
TWINS = Features(scans=5, nesting=2, twins=True)


class Rewriting:
    """A random way to write the same query: aliases, orders, operands, nesting."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = (f"x{i}" for i in count())

    def query(self, query: Query) -> Query:
        root, _ = self.relation(query.root, top=True)
        return Query(query.output, root)

    def relation(self, node: Relation, top: bool = False) -> tuple[Relation, dict[Expr, Expr]]:
        match node:
            case Scan() | TableScan():
                new: Relation = replace(node, alias=next(self.names))
                if self.rng.random() < 0.3:
                    items = tuple(Item(c.name, c) for c in new.columns)
                    new = Project(new, items, next(self.names))
            case Select():
                below, names = self.relation(node.input)
                return Select(below, self.condition(substitute(node.condition, names))), names
            case Project():
                below, names = self.relation(node.input)
                items = tuple(
                    Item(i.name, self.expr(substitute(i.expr, names))) for i in node.items
                )
                alias = node.alias if top or node.alias.startswith("$") else next(self.names)
                new = Project(below, items, alias)
            case Join():
                parts = [self.relation(part) for part in node.inputs]
                names = {k: v for _, mapping in parts for k, v in mapping.items()}
                self.rng.shuffle(parts)
                join: Relation = Join(tuple(part for part, _ in parts))
                if node.condition is not None:
                    wanted = self.condition(substitute(node.condition, names))
                    if self.rng.random() < 0.5:
                        return Select(join, wanted), names
                    join = Join(tuple(part for part, _ in parts), wanted)
                return join, names
            case OuterJoin():
                left, one = self.relation(node.left)
                right, two = self.relation(node.right)
                wanted = self.condition(substitute(node.condition, one | two))
                if node.full and self.rng.random() < 0.5:
                    left, right = right, left
                outer = OuterJoin(left, right, wanted, node.full)
                may_be_null = {column: column for column in outer.columns}
                return outer, {old: may_be_null[new] for old, new in (one | two).items()}
            case SemiJoin():
                left, one = self.relation(node.left)
                right, two = self.relation(node.right)
                wanted_ = node.condition
                if wanted_ is not None:
                    wanted_ = self.condition(substitute(wanted_, one | two))
                return SemiJoin(left, right, wanted_, node.anti), one
            case Aggregate():
                below, names = self.relation(node.input)
                calls = tuple(
                    replace(
                        c,
                        arg=None if c.arg is None else self.expr(substitute(c.arg, names)),
                        filter=None
                        if c.filter is None
                        else self.condition(substitute(c.filter, names)),
                    )
                    for c in node.calls
                )
                keys = tuple(self.expr(substitute(key, names)) for key in node.keys)
                new = Aggregate(below, keys, calls, next(self.names))
            case Distinct():
                below, names = self.relation(node.input, top)
                return Distinct(below), names
            case UnionAll():
                parts = [self.relation(part, top=top) for part in node.inputs]
                self.rng.shuffle(parts)
                new = UnionAll(tuple(p for p, _ in parts), "" if top else next(self.names))
        mapping: dict[Expr, Expr] = dict(zip(node.columns, new.columns, strict=True))
        return new, mapping

    def condition(self, expr: Expr) -> Expr:
        parts = [self.expr(part) for part in conjuncts(expr)] or [expr]
        self.rng.shuffle(parts)
        if self.rng.random() < 0.2:
            parts.append(self.rng.choice(parts))
        result = conjunction(parts)
        assert result is not None
        if self.rng.random() < 0.2:
            result = build_call("not", build_call("not", result))
        return result

    def expr(self, expr: Expr) -> Expr:
        return transform(expr, self.part)

    def part(self, expr: Expr) -> Expr:
        if not isinstance(expr, Call) or self.rng.random() < 0.5:
            return expr
        args = list(expr.args)
        if expr.name in MIRRORED:
            return Call(MIRRORED[expr.name], (args[1], args[0]), expr.type)
        if expr.name in ("and", "or"):
            self.rng.shuffle(args)
            return Call(expr.name, tuple(args), expr.type)
        if expr.name == "in":
            rest = args[1:]
            self.rng.shuffle(rest)
            if self.rng.random() < 0.5:
                alternatives = [build_call("=", args[0], value) for value in rest]
                return alternatives[0] if len(rest) == 1 else build_call("or", *alternatives)
            return Call("in", (args[0], *rest), expr.type)
        return expr


def check_rewrite(query: Query, seed: int) -> None:
    rewritten = Rewriting(random.Random(seed)).query(query)
    note(canonicalize(rewritten).text + "\nVS\n" + canonicalize(query).text)
    assert canonicalize(rewritten).text == canonicalize(query).text


def emitted(query: Query, streams: Rows, tables: Rows, order: list[int] | None = None) -> list[Any]:
    found = evaluate(query, streams, tables)
    places = order or range(len(query.columns))
    rows = [(r.tau, *normalize_row(tuple(r.values[at] for at in places))) for r in found]
    return sorted(rows, key=row_order_key)


def check_meaning(query: Query, streams: Rows, tables: Rows) -> None:
    canonical = canonicalize(query)
    order = [at for _, at in canonical.columns]
    assert emitted(canonical.query, streams, tables, order) == emitted(query, streams, tables)
    assert canonicalize(canonical.query).text == canonical.text


def mutated(query: Query, rng: random.Random) -> Query:
    """The query with one constant, window, operator or output changed, if there is any."""
    changed = [False]

    def change(expr: Expr) -> Expr:
        if changed[0] or rng.random() < 0.6:
            return expr
        if isinstance(expr, Literal) and type(expr.value) is int:
            changed[0] = True
            return Literal(expr.value + rng.choice((-1, 1)), expr.type)
        if isinstance(expr, Call) and expr.name in ("<", "<=", ">", ">=", "=", "<>"):
            changed[0] = True
            name = rng.choice([n for n in ("<", "<=", ">", ">=", "=", "<>") if n != expr.name])
            return Call(name, expr.args, expr.type)
        return expr

    def visit(node: Relation) -> Relation:
        match node:
            case Select():
                return Select(visit(node.input), transform(node.condition, change))
            case Project():
                return replace(node, input=visit(node.input))
            case Distinct():
                if rng.random() < 0.3:
                    return visit(node.input)
                return Distinct(visit(node.input))
            case Aggregate():
                return replace(node, input=visit(node.input))
            case Join():
                inputs = tuple(map(visit, node.inputs))
                wanted = node.condition
                if wanted is not None:
                    wanted = transform(wanted, change)
                return Join(inputs, wanted)
            case SemiJoin():
                anti = node.anti if rng.random() < 0.7 else not node.anti
                return replace(node, left=visit(node.left), right=visit(node.right), anti=anti)
            case OuterJoin():
                full = node.full if rng.random() < 0.7 else not node.full
                return replace(node, left=visit(node.left), right=visit(node.right), full=full)
            case UnionAll():
                return replace(node, inputs=tuple(map(visit, node.inputs)))
            case _:
                return node

    return Query(query.output, visit(query.root))


def check_digest(query: Query, seed: int, streams: Rows, tables: Rows) -> None:
    other = mutated(query, random.Random(seed))
    if canonicalize(query).digest == canonicalize(other).digest:
        assert emitted(other, streams, tables) == emitted(query, streams, tables)


@given(queries(), SEEDS)
@settings(EXAMPLES, max_examples=60)
def test_rewrites_keep_the_digest(query: Query, seed: int) -> None:
    check_rewrite(query, seed)


@given(queries(TWINS), SEEDS)
@settings(EXAMPLES, max_examples=60)
def test_inputs_that_can_be_exchanged_have_one_order(query: Query, seed: int) -> None:
    check_rewrite(query, seed)


@given(queries(), streams(), tables())
@settings(EXAMPLES, max_examples=60)
def test_canonical_form_means_the_same(query: Query, streams: Rows, tables: Rows) -> None:
    check_meaning(query, streams, tables)


@given(queries(), SEEDS, streams(), tables())
@settings(EXAMPLES, max_examples=40)
def test_equal_digest_means_equal_rows(
    query: Query, seed: int, streams: Rows, tables: Rows
) -> None:
    check_digest(query, seed, streams, tables)


@given(queries())
@settings(EXAMPLES, max_examples=40)
def test_canonical_form_can_be_written_down(query: Query) -> None:
    canonical = canonicalize(query)
    read = parse_query(unparse(canonical.query), SOURCES)
    assert canonicalize(read).digest == canonical.digest


@pytest.mark.slow
@given(st.one_of(queries(), queries(TWINS)), SEEDS, streams(), tables())
@settings(EXAMPLES, max_examples=5_000)
def test_canonical_form_in_the_long_run(
    query: Query, seed: int, streams: Rows, tables: Rows
) -> None:
    check_rewrite(query, seed)
    check_meaning(query, streams, tables)
    check_digest(query, seed, streams, tables)
