"""Queries as CQL text, formatted for people.

For a query that was parsed, the text reads back as the same query. A relation that no text produces
(another layer may have moved its operators) is written as the nearest query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.algebra.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    conjuncts,
    literal,
    substitute,
)
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
    default_output,
)
from headwater.cql.writer import (
    ColumnText,
    call_text,
    column_text,
    condition_text,
    expr_text,
    name_text,
    operand_text,
    window_text,
)

WIDTH = 88


def query_lines(query: Query) -> list[str]:
    """The query, line by line."""
    lines = _query(query.root)
    if query.output == default_output(query.root):
        return lines
    return _wrap(f"{query.output.value}(", lines, ")")


def _query(relation: Relation, named: bool = True) -> list[str]:
    """A query: one block, or several under UNION ALL; in EXISTS and IN its columns need no names."""
    if not isinstance(relation, UnionAll):
        return _Block(relation, named).lines()
    lines: list[str] = []
    for side in relation.inputs:
        if lines:
            lines.append("UNION ALL")
        inside = _query(side, named)
        lines += _wrap("(", inside, ")") if isinstance(side, UnionAll) else inside
    return lines


def _wrap(opening: str, lines: list[str], closing: str) -> list[str]:
    return [opening, *_indent(lines), closing]


def _prefix(word: str, lines: list[str]) -> list[str]:
    return [f"{word} {lines[0]}" if word else lines[0], *lines[1:]]


def _indent(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]


def _fill(prefix: str, parts: list[str]) -> list[str]:
    """The prefix and the parts, separated by commas, with as many on a line as fit."""
    lines = [prefix + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= WIDTH:
            lines[-1] += ", " + part
        else:
            lines[-1] += ","
            lines.append(" " * len(prefix) + part)
    return lines


def _conditions(word: str, tests: list[list[str]]) -> list[str]:
    """The tests, each with its own lines, joined by AND."""
    lines: list[str] = []
    for test in tests:
        lines += _indent(_prefix("AND", test)) if lines else _prefix(word, test)
    return lines


class _Block:
    """A relation split into the clauses of one SELECT."""

    def __init__(self, relation: Relation, named: bool = True) -> None:
        self.named = named
        self.distinct = isinstance(relation, Distinct)
        body = relation.input if isinstance(relation, Distinct) else relation
        self.items: tuple[Item, ...] = ()
        if isinstance(body, Project):
            self.items, body = body.items, body.input
        self.having: tuple[Expr, ...] = ()
        self.aggregate: Aggregate | None = None
        below = body.input if isinstance(body, Select) else body
        if isinstance(below, Aggregate):
            self.having = conjuncts(body.condition) if isinstance(body, Select) else ()
            self.aggregate, body = below, below.input
            self.items = self.items or tuple(Item(c.name, c) for c in below.columns)
        self.where: list[Expr] = []
        self.semis: list[SemiJoin] = []
        while isinstance(body, Select | SemiJoin):
            if isinstance(body, Select):
                self.where[:0] = conjuncts(body.condition)
                body = body.input
            else:
                # The outermost is found first, and was written last.
                self.semis.insert(0, body)
                body = body.left
        self.source: Relation = body

    @property
    def is_plain(self) -> bool:
        """Its rows are those of its FROM."""
        return bool(self.items) and not self.distinct and self.aggregate is None

    def lines(self) -> list[str]:
        listed = [self.item(item) for item in self.items] or ["*"]
        lines = _fill("SELECT DISTINCT " if self.distinct else "SELECT ", listed)
        lines += _from_lines("FROM", self.source)
        tests = [[condition_text(part, self.column)] for part in self.where]
        queries = [_semi_join(semi, self.column) for semi in self.semis]
        lines += _conditions("WHERE", [*tests, *queries])
        if self.aggregate is not None and self.aggregate.keys:
            lines += _fill("GROUP BY ", [self.key(key) for key in self.aggregate.keys])
        # In HAVING a bare name may be that of an output, so columns are written with their alias.
        having = [condition_text(self.expand_keys(part), self.full_column) for part in self.having]
        if self.is_hidden_aggregate():
            # True of every group: without it the text would read back as a query that does not
            # aggregate.
            having.append("count(*) >= 0")
        return lines + _conditions("HAVING", [[test] for test in having])

    def is_hidden_aggregate(self) -> bool:
        """Whether this is an aggregation without keys that neither SELECT nor HAVING shows."""
        if self.aggregate is None or self.aggregate.keys:
            return False
        written = (*(item.expr for item in self.items), *self.having)
        return not any(self.is_call(column) for expr in written for column in columns_of(expr))

    def item(self, item: Item) -> str:
        expr = self.expand_keys(item.expr)
        text = expr_text(expr, self.column)
        if not self.named:
            return text
        if isinstance(expr, Column) and expr.name == item.name and not self.is_call(expr):
            return text
        return f"{text} AS {name_text(item.name)}"

    def key(self, key: Expr) -> str:
        text = expr_text(key, self.column)
        # A bare number would be the position of an output.
        return f"({text})" if isinstance(key, Literal) and key.type.is_numeric else text

    def expand_keys(self, expr: Expr) -> Expr:
        """The expression with the keys of the aggregation written out."""
        if self.aggregate is None:
            return expr
        keys = dict(zip(self.aggregate.columns, self.aggregate.keys, strict=False))
        return substitute(expr, keys)

    def is_call(self, column: Column) -> bool:
        return self.aggregate is not None and column.relation == self.aggregate.alias

    def column(self, column: Column) -> str:
        """Without the alias if there is but one relation in FROM."""
        if self.is_call(column):
            return self.call(column, self.column)
        if not isinstance(self.source, Join | OuterJoin) and column in self.source.columns:
            return name_text(column.name)
        return column_text(column)

    def full_column(self, column: Column) -> str:
        return self.call(column, self.full_column) if self.is_call(column) else column_text(column)

    def call(self, column: Column, inside: ColumnText) -> str:
        assert self.aggregate is not None
        return call_text(self.aggregate.calls[int(column.name[1:])], inside)


# ---- FROM


def _from_lines(word: str, relation: Relation) -> list[str]:
    """The relations of a FROM, with the word before the first."""
    if isinstance(relation, Join):
        return _inner_join(word, relation)
    if isinstance(relation, OuterJoin):
        lines = (
            _from_lines(word, relation.left)
            if isinstance(relation.left, OuterJoin)
            else _operand(word, relation.left)
        )
        kind = "FULL JOIN" if relation.full else "LEFT JOIN"
        return lines + _on(_operand(kind, relation.right), conjuncts(relation.condition))
    return _operand(word, relation)


def _inner_join(word: str, join: Join) -> list[str]:
    first, *others = join.inputs
    lines = _from_lines(word, first) if isinstance(first, OuterJoin) else _operand(word, first)
    if join.condition is None and word == "FROM":
        for relation in others:
            lines[-1] += ","
            lines += [" " * 5 + line for line in _operand("", relation)]
        return lines
    for relation, conditions in zip(others, _assign_conditions(join), strict=True):
        if conditions:
            lines += _on(_operand("JOIN", relation), conditions)
        else:
            lines += _operand("CROSS JOIN", relation)
    return lines


def _assign_conditions(join: Join) -> list[list[Expr]]:
    """The conditions by the input after which they are written: the first at which all their
    columns are available if that keeps their order, otherwise the last."""
    aliases = [{column.relation for column in relation.columns} for relation in join.inputs]
    conditions = conjuncts(join.condition)
    last = len(join.inputs) - 1
    positions: list[int] = []
    for condition in conditions:
        needed = {column.relation for column in columns_of(condition)}
        positions.append(
            max([1, *(i for i, available in enumerate(aliases) if available & needed)])
        )
    # Reading collects the conditions of all ON clauses in order, so that order has to survive.
    if positions != sorted(positions):
        positions = [last] * len(conditions)
    return [
        [c for c, at in zip(conditions, positions, strict=True) if at == position]
        for position in range(1, last + 1)
    ]


def _on(lines: list[str], conditions: Sequence[Expr]) -> list[str]:
    tests = [condition_text(part) for part in conditions] or ["TRUE"]
    return [*lines, f"  ON {tests[0]}", *(f"  AND {test}" for test in tests[1:])]


def _operand(word: str, relation: Relation) -> list[str]:
    """One relation after a keyword; a join is in parentheses, a query gets its alias."""
    if isinstance(relation, Scan | TableScan):
        return _prefix(word, [_scan(relation)])
    if isinstance(relation, Join | OuterJoin):
        return _prefix(word, _wrap("(", _from_lines("", relation), ")"))
    alias = name_text(relation.columns[0].relation)
    return _prefix(word, _wrap("(", _query(relation), f") AS {alias}"))


def _scan(relation: Scan | TableScan) -> str:
    name = relation.stream if isinstance(relation, Scan) else relation.table
    parts = [name_text(name)]
    if isinstance(relation, Scan) and (window := window_text(relation.window)):
        parts.append(window)
    if relation.alias != name:
        parts.append(f"AS {name_text(relation.alias)}")
    return " ".join(parts)


# ---- EXISTS and IN


def _semi_join(semi: SemiJoin, column: ColumnText) -> list[str]:
    """The semi-join as a condition: EXISTS, or IN where EXISTS would not mean the same."""
    no = "NOT " if semi.anti else ""
    membership = _membership(semi)
    block = _Block(semi.right, named=False)
    if block.is_plain:
        names = dict(zip(semi.right.columns, (item.expr for item in block.items), strict=True))
        conditions = [substitute(part, names) for part in conjuncts(semi.condition)]
        # In EXISTS the operand would be written inside, where its alias means another relation.
        if membership is not None and _is_hidden(membership[0], block.source):
            block.items = (Item("c0", substitute(membership[1], names)),)
            block.where += conditions[1:]
            opening = f"{operand_text(membership[0], column)} {no}IN ("
        else:
            block.items = (Item("c0", literal(1)),)
            block.where += conditions
            opening = f"{no}EXISTS ("
        return _wrap(opening, block.lines(), ")")
    if semi.condition is None:
        return _wrap(f"{no}EXISTS (", _query(semi.right, named=False), ")")
    if membership is not None and (membership[1],) == semi.right.columns and not _others(semi):
        opening = f"{operand_text(membership[0], column)} {no}IN ("
        return _wrap(opening, _query(semi.right, named=False), ")")
    tests = [[condition_text(part)] for part in conjuncts(semi.condition)]
    inside = ["SELECT 1", *_operand("FROM", semi.right), *_conditions("WHERE", tests)]
    return _wrap(f"{no}EXISTS (", inside, ")")


def _membership(semi: SemiJoin) -> tuple[Expr, Expr] | None:
    """The operand and the value of IN, if the first condition has that form."""
    first = next(iter(conjuncts(semi.condition)), None)
    match first:
        case Call("=", (operand, value)) if not semi.anti:
            pass
        case Call(
            "or", (Call("=", (operand, value)), Call("is_null", (x,)), Call("is_null", (y,)))
        ):
            if not semi.anti or (x, y) != (operand, value):
                return None
        case _:
            return None
    outside, inside = columns_of(operand), columns_of(value)
    apart = outside <= set(semi.left.columns) and inside <= set(semi.right.columns)
    return (operand, value) if apart else None


def _others(semi: SemiJoin) -> tuple[Expr, ...]:
    return conjuncts(semi.condition)[1:]


def _is_hidden(expr: Expr, source: Relation) -> bool:
    """Whether the expression could not be written inside: a relation there has the same alias."""
    inside = {column.relation.lower() for column in source.columns}
    return any(column.relation.lower() in inside for column in columns_of(expr))
