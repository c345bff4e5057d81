"""Queries: from sqlglot's syntax tree to relations of the algebra.

A SELECT block becomes, from the top: [Distinct] Project [Select, for HAVING] [Aggregate]
[SemiJoin, for each EXISTS or IN] [Select, for WHERE] and what FROM says. WITH names are put in where
they are used. The conditions that the inside of an EXISTS shares with the query around it become
the condition of its semi-join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.expressions import TRUE, Expr, conjunction, conjuncts
from headwater.algebra.nodes import (
    Distinct,
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
from headwater.algebra.windows import UNBOUNDED, Range, Rows, Window
from headwater.cql.expressions import Aggregates, Binder, called, is_aggregate
from headwater.cql.joins import (
    Asked,
    Joined,
    check_aliases,
    is_grouped,
    join_condition,
    membership,
    semi_join,
    shared_columns,
    speaks_of,
    subquery_condition,
)
from headwater.cql.names import Scope
from headwater.cql.outputs import NOTHING, grouped, named, numbered, read_outputs
from headwater.cql.refusals import Node, Place, name_of, operands
from headwater.cql.sizes import largest
from headwater.cql.syntax import Bracket, Syntax
from headwater.errors import CqlError, nearest

MAX_BLOCKS = 300
MAX_BLOCK_DEPTH = 30
MAX_RELATIONS = 64
MAX_PARTS = 25_000
"""More than a text can have in one expression, so that only what merging makes of it is refused."""


class UnknownName(CqlError):
    """A stream or table that is not declared."""

    def __init__(self, name: str, known: Iterable[str], text: str, start: int, end: int) -> None:
        hint = nearest(name, known)
        super().__init__(f"no stream or table {name}", text, start, end - start + 1, hint)
        self.name = name


def bind(syntax: Syntax, names: Namespace) -> Query:
    """The query that the syntax tree says over these streams and tables; raises CqlError."""
    queries = _Queries(syntax, names)
    root = queries.query(syntax.tree, _Around())
    queries.check_unused()
    queries.check_size(root)
    return Query(syntax.output or default_output(root), root)


@dataclass(frozen=True, slots=True)
class _With:
    """A WITH name: its query, and the names that were known where it was written."""

    name: str
    node: Any
    known: dict[str, _With]


@dataclass(frozen=True, slots=True)
class _Around:
    """What a query is told from outside: the alias of its columns (`counted`: they are called c0,
    c1, ..), the WITH names, the scope of the query around, a window to put on its one stream.

    `apart`: relations of its FROM that are called as one of the query around get another name in
    the algebra, which knows columns by the name of their relation alone."""

    alias: str = ""
    known: dict[str, _With] = field(default_factory=dict)
    scope: Scope | None = None
    window: Bracket | None = None
    counted: bool = False
    apart: bool = False
    depth: int = 0

    def inside(self, alias: str, known: dict[str, _With] | None = None) -> _Around:
        """What a query in it is told."""
        known = self.known if known is None else known
        return _Around(alias, known, depth=self.depth + 1)


class _Queries:
    """Binds one query with all its subqueries."""

    def __init__(self, syntax: Syntax, names: Namespace) -> None:
        self.place = Place(syntax.text, syntax.start)
        self.windows = syntax.windows
        self.stars = syntax.stars
        self.names = names
        self.used_windows: set[int] = set()
        self.with_names: list[_With] = []
        self.used_names: set[int] = set()
        self.semi_joins = 0
        self.names_given = 1
        self.blocks = 0

    def at(self, token: Token, message: str, hint: str = "") -> CqlError:
        return CqlError(message, self.place.text, token.start, token.end - token.start + 1, hint)

    def check_unused(self) -> None:
        """WITH names and windows that no query used are bound or refused all the same."""
        for entry in self.with_names:
            if id(entry.node) not in self.used_names:
                self.used_names.add(id(entry.node))
                self.query(entry.node, _Around(entry.name, entry.known))
        for end, bracket in self.windows.items():
            if end not in self.used_windows:
                raise self.at(bracket.token, "a window stands after a stream in FROM")

    def check_size(self, root: Relation) -> None:
        size = largest(root)
        if size > MAX_PARTS:
            raise CqlError(
                f"an expression of {size:,} parts, once the queries inside are put in",
                self.place.text,
                self.place.start,
                1,
                f"at most {MAX_PARTS:,} parts; name a column of an inner query less often",
            )

    # ---- queries

    def query(self, node: Any, around: _Around) -> Relation:
        """A SELECT, or several joined by UNION ALL."""
        while type(node) is exp.Subquery:
            self.place.check_parts(node, _SUBQUERY_PARTS)
            around = self.with_clause(node, around)
            node = node.args.get("this")
        if type(node) is exp.Select:
            return self.select(node, around)
        if type(node) is exp.Union:
            return self.union(node, around)
        if type(node) in (exp.Intersect, exp.Except):
            other = "EXISTS" if type(node) is exp.Intersect else "NOT EXISTS"
            raise self.place.at_keyword(
                f"{node.key.upper()} is not part of the language; write WHERE {other} (SELECT ..)",
                node.args.get("expression"),
            )
        raise self.place.not_known(node, "a query")

    def union(self, node: Any, around: _Around) -> Relation:
        if around.window is not None:
            raise self.no_window(around.window, "it is a UNION ALL")
        top = node
        sides: list[Any] = []
        while type(node) is exp.Union:
            self.place.check_parts(node, _UNION_PARTS)
            last = node.args.get("expression")
            if node.args.get("distinct"):
                raise self.place.at_keyword(
                    "UNION alone is not part of the language; "
                    "write UNION ALL, or SELECT DISTINCT over it",
                    last,
                )
            around = self.with_clause(node, around)
            sides.append(last)
            node = node.args.get("this")
        inside = replace(around, alias="")
        inputs = tuple([self.query(side, inside) for side in (node, *reversed(sides))])
        return self.place.build(top, UnionAll, inputs, around.alias)

    def with_clause(self, node: Node, around: _Around) -> _Around:
        clause = node.args.get("with_")
        if clause is None:
            return around
        self.place.check_parts(clause, _LIST)
        known = dict(around.known)
        here: set[str] = set()
        for table in clause.args.get("expressions") or []:
            if type(table) is not exp.CTE:
                raise self.place.not_known(table, "a WITH query")
            self.place.check_parts(table, frozenset({"this", "alias"}))
            name = self.alias(table.args.get("alias"))
            if name is None or name.lower() in here:
                raise self.place.error("each WITH query needs a name of its own", table)
            entry = _With(name, table.args.get("this"), dict(known))
            here.add(name.lower())
            known[name.lower()] = entry
            self.with_names.append(entry)
        return replace(around, known=known)

    def alias(self, node: Any) -> str | None:
        """The name in an alias; None if there is no alias."""
        if node is None:
            return None
        if type(node) is not exp.TableAlias:
            raise self.place.not_known(node, "an alias")
        self.place.check_parts(node, _THIS)
        name = name_of(node.args.get("this"))
        if name is None or "$" in name or not name.strip():
            raise self.place.error("an alias is a name without $", node)
        return name

    # ---- one SELECT

    def select(self, node: Node, around: _Around) -> Relation:
        around = self.enter(node, around)
        joined = self.from_clause(node, around)
        scope = joined.scope(around.scope)
        relation = self.where(node, joined, scope, around, [], [])
        aggregates = Aggregates(around.alias + "$agg")
        outputs = read_outputs(self.place, node, Binder(self.place, scope, "SELECT", aggregates))
        relation = grouped(self.place, node, relation, scope, outputs, aggregates)
        items = numbered(outputs) if around.counted else named(self.place, outputs)
        projected = self.place.build(node, Project, relation, items, around.alias)
        distinct = node.args.get("distinct")
        if distinct is None:
            return projected
        self.place.check_parts(distinct, NOTHING)
        return Distinct(projected)

    def enter(self, node: Node, around: _Around) -> _Around:
        self.place.check_parts(node, _SELECT_PARTS)
        self.blocks += 1
        if self.blocks > MAX_BLOCKS:
            raise self.place.error(f"there are more than {MAX_BLOCKS} SELECTs in this query", node)
        if around.depth > MAX_BLOCK_DEPTH:
            raise self.place.error(f"queries nested more than {MAX_BLOCK_DEPTH} deep", node)
        if around.window is not None:
            self.check_plain(node, around.window)
        return self.with_clause(node, around)

    def from_clause(self, node: Node, around: _Around) -> Joined:
        clause = node.args.get("from_")
        if clause is None:
            raise self.place.error("a SELECT needs FROM and a stream or table", node)
        self.place.check_parts(clause, _THIS)
        joined = self.item(clause.args.get("this"), around)
        return self.joins(joined, node.args.get("joins") or [], around)

    def where(
        self,
        node: Node,
        joined: Joined,
        scope: Scope,
        around: _Around,
        local: list[Expr],
        outer: list[Expr],
    ) -> Relation:
        """What FROM joins and WHERE keeps, `local` conditions too; `outer` gets the conditions that
        name columns of the query around."""
        relation = joined.relation(self.place, node)
        inside = joined.relations()
        queries: list[tuple[Node, bool]] = []
        clause = node.args.get("where")
        if clause is not None:
            binder = Binder(self.place, scope, "WHERE")
            for part in operands(clause.args.get("this"), exp.And):
                query, anti = subquery_condition(part)
                if query is not None:
                    queries.append((query, anti))
                    continue
                for bound in conjuncts(binder.condition(part)):
                    own = not scope.correlated or speaks_of(bound, inside)
                    (local if own else outer).append(bound)
        condition = conjunction(local)
        if condition is not None:
            relation = self.place.build(clause, Select, relation, condition)
        here = joined.scope()
        for join in joined.semis:
            relation = self.semi(join, joined, relation, around)
        for query, anti in queries:
            relation = self.exists(query, anti, here, relation, around)
        return relation

    # ---- FROM

    def item(self, node: Any, around: _Around) -> Joined:
        """A relation in FROM: a stream, a table, a WITH name, a subquery, a join in parentheses."""
        if type(node) is exp.Table:
            self.place.check_parts(node, _ITEM_PARTS)
            joined = self.named(node, around)
            return self.joins(joined, node.args.get("joins") or [], around)
        if type(node) is not exp.Subquery:
            raise self.place.not_known(node, "the name of a stream or table in FROM")
        self.place.check_parts(node, _ITEM_PARTS)
        inner = node.args.get("this")
        alias = self.alias(node.args.get("alias"))
        if type(inner) in (exp.Table, exp.Subquery) and alias is None:
            joined = self.item(inner, around)
            joined.crossed = False
        elif type(inner) is exp.Table:
            hint = "write (SELECT .. FROM ..) AS it"
            raise self.place.error("a join in parentheses has no alias", node.args["alias"], hint)
        else:
            joined = self.subquery(node, alias, around)
        joined = self.joins(joined, node.args.get("joins") or [], around)
        if joined.semis:
            raise self.place.error("SEMI and ANTI joins cannot stand in parentheses", node)
        return joined

    def subquery(self, node: Node, alias: str | None, around: _Around) -> Joined:
        if alias is None:
            raise self.place.error(
                "a subquery in FROM needs a name", node, "write (SELECT ..) AS x"
            )
        window = self.window(around, node.args["alias"].args["this"])
        inside = replace(around.inside(self.told_apart(alias, around)), window=window)
        return Joined.one(self.query(node.args.get("this"), inside), alias)

    def named(self, node: Node, around: _Around) -> Joined:
        identifier = node.args["this"]
        name = name_of(identifier)
        if name is None:
            what = "a function is no relation here" if called(identifier) else "expected a name"
            raise self.place.error(what, node)
        if identifier.meta.get("end", -1) in self.stars:
            raise self.place.error("* is not expected behind the name of a relation", node)
        alias = self.alias(node.args.get("alias"))
        places = [identifier] if alias is None else [identifier, node.args["alias"].args["this"]]
        window = self.window(around, *places)
        entry = around.known.get(name.lower())
        if entry is None:
            relation = self.scan(identifier, name, alias, window)
            alias = relation.alias
            return Joined.one(replace(relation, alias=self.told_apart(alias, around)), alias)
        self.used_names.add(id(entry.node))
        alias = alias or entry.name
        called_apart = self.told_apart(alias, around)
        inside = replace(around.inside(called_apart, entry.known), window=window)
        return Joined.one(self.query(entry.node, inside), alias)

    def told_apart(self, alias: str, around: _Around) -> str:
        """What the algebra calls a relation: its alias, or a name that occurs nowhere in the query
        if one of the query around is called so and its columns are needed as well."""
        if not around.apart or around.scope is None:
            return alias
        if alias.lower() not in {relation.lower() for relation in around.scope.relations()}:
            return alias
        text = self.place.text.lower()
        self.names_given += 1
        while (name := f"{alias}_{self.names_given}").lower() in text:
            self.names_given += 1
        return name

    def scan(
        self, node: Node, name: str, alias: str | None, bracket: Bracket | None
    ) -> Scan | TableScan:
        source = self.names.get(name)
        if source is None:
            start = node.meta.get("start", self.place.start)
            end = node.meta.get("end", start)
            raise UnknownName(name, self.names.names, self.place.text, start, end)
        if alias is None and "$" in source.name:
            raise self.place.error(f"{name} needs an alias, one without $", node)
        if isinstance(source, Stream):
            return source.scan(self.stream_window(source, bracket), alias or "")
        if bracket is not None:
            raise self.at(bracket.token, f"{source.name} is a table; only a stream has a window")
        return source.scan(alias or "")

    # ---- windows

    def window(self, around: _Around, *identifiers: Node) -> Bracket | None:
        """The window that stands behind one of the names, or that the query is told to use."""
        found: Bracket | None = None
        for identifier in identifiers:
            end = identifier.meta.get("end", -1)
            bracket = self.windows.get(end)
            if bracket is not None:
                self.used_windows.add(end)
                if found is not None:
                    raise self.at(bracket.token, "a stream has one window")
                found = bracket
        if around.window is not None and found is not None:
            raise self.no_window(around.window, "the stream inside has one already")
        return found or around.window

    def stream_window(self, stream: Stream, bracket: Bracket | None) -> Window:
        """The window, with the columns it partitions by spelt as they were declared."""
        if bracket is None:
            return UNBOUNDED
        if not bracket.keys or not isinstance(bracket.window, Rows):
            return bracket.window
        spelt = []
        for key in bracket.keys:
            column = stream.schema.get(key.text)
            if column is None:
                hint = nearest(key.text, stream.schema.names)
                raise self.at(key, f"no column {key.text} in {stream.name}", hint)
            spelt.append(column.name)
        return Rows(bracket.window.count, tuple(spelt))

    def no_window(self, bracket: Bracket, why: str) -> CqlError:
        return self.at(
            bracket.token,
            f"there can be no window on this query: {why}",
            "put the window on the stream inside it",
        )

    def check_plain(self, node: Node, bracket: Bracket) -> None:
        """Only over SELECT .. FROM one stream [WHERE ..] is a window the same outside and inside."""
        args = node.args
        if not isinstance(bracket.window, Range):
            raise self.no_window(bracket, "ROWS counts the tuples of a stream")
        if args.get("group") or args.get("having") or is_aggregate(args.get("expressions")):
            raise self.no_window(bracket, "it has an aggregate")
        if args.get("distinct"):
            raise self.no_window(bracket, "it is DISTINCT")
        source = args["from_"].args.get("this") if args.get("from_") is not None else None
        if args.get("joins") or (isinstance(source, exp.Expr) and source.args.get("joins")):
            raise self.no_window(bracket, "it is a join")
        where = args.get("where")
        if where is not None and where.find(exp.Exists, exp.Subquery, exp.Select) is not None:
            raise self.no_window(bracket, "it has a subquery in WHERE")

    # ---- joins

    def joins(self, joined: Joined, nodes: list[Any], around: _Around) -> Joined:
        for node in nodes:
            self.place.check_parts(node, _JOIN_PARTS)
            side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
            if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
                joined.semis.append(node)
            elif side in ("", *_OUTER) and kind in ("", "INNER", "CROSS", "OUTER"):
                joined = self.join(joined, node, side, kind, around)
            else:
                what = " ".join(filter(None, (side, kind, "JOIN")))
                raise self.place.error(f"{what} is not part of the language", node)
        return joined

    def join(self, left: Joined, node: Node, side: str, kind: str, around: _Around) -> Joined:
        right = self.item(node.args.get("this"), around)
        if len(left.sources) + len(right.sources) > MAX_RELATIONS:
            raise self.place.error(f"a query joins at most {MAX_RELATIONS} relations", node)
        check_aliases(self.place, node, left, right)
        condition = join_condition(self.place, node, left, right)
        shared = shared_columns(node, left, right, side)
        if side:
            return self.outer_join(left, right, node, side, condition or TRUE, shared)
        return Joined(
            [*left.inputs, *right.inputs],
            [*left.conditions, *right.conditions, *conjuncts(condition)],
            [*left.sources, *right.sources],
            shared,
            left.semis,
            left.crossed or kind == "CROSS",
        )

    def outer_join(
        self, left: Joined, right: Joined, node: Node, side: str, condition: Expr, shared: Any
    ) -> Joined:
        if side != "LEFT" and left.crossed:
            raise self.place.error(
                f"a {side} JOIN after a comma or CROSS JOIN could be read in two ways",
                node,
                "put the relations that belong together in parentheses",
            )
        if side != "LEFT" and left.semis:
            raise self.place.error(f"a SEMI or ANTI join goes after the {side} JOIN", node)
        first, second = left.relation(self.place, node), right.relation(self.place, node)
        if side == "RIGHT":
            first, second = second, first
        made = self.place.build(node, OuterJoin, first, second, condition, side == "FULL")
        lefts = left.sources if side == "LEFT" else [s.nullable() for s in left.sources]
        rights = right.sources if side == "RIGHT" else [s.nullable() for s in right.sources]
        return Joined([made], [], [*lefts, *rights], shared, left.semis, left.crossed)

    # ---- EXISTS and IN

    def next_semi_join(self) -> str:
        self.semi_joins += 1
        return f"$exists{self.semi_joins - 1}"

    def semi(self, node: Node, outer: Joined, left: Relation, around: _Around) -> Relation:
        """A SEMI or ANTI JOIN: the same as EXISTS with the ON condition inside."""
        alias = self.next_semi_join()
        inner = self.item(node.args.get("this"), around)
        check_aliases(self.place, node, outer, inner)
        inside = inner.relations()
        local: list[Expr] = []
        shared: list[Expr] = []
        for part in conjuncts(join_condition(self.place, node, outer, inner)):
            (local if speaks_of(part, inside) else shared).append(part)
        right = inner.relation(self.place, node)
        condition = conjunction(local)
        if condition is not None:
            right = Select(right, condition)
        anti = str(node.args.get("kind")) == "ANTI"
        return semi_join(self.place, node, left, right, inside, shared, alias, anti)

    def exists(
        self, node: Node, anti: bool, outer: Scope, left: Relation, around: _Around
    ) -> Relation:
        """The rows of `left` for which EXISTS (..) or IN (..) holds, or does not."""
        alias = self.next_semi_join()
        self.place.check_parts(node, frozenset({"this", "query"}))
        operand: Expr | None = None
        query = node.args.get("this")
        if type(node) is exp.In:
            operand = Binder(self.place, outer, "WHERE").bind(query)
            query = node.args.get("query")
        while type(query) is exp.Subquery:
            self.place.check_parts(query, _SUBQUERY_PARTS)
            around = self.with_clause(query, around)
            query = query.args.get("this")
        inside = replace(around.inside(alias), scope=outer, counted=True)
        if type(query) is exp.Select and not is_grouped(query):
            return self.correlated(node, query, operand, anti, left, inside)
        right = self.query(query, inside)
        condition = None
        if operand is not None:
            self.check_one_column(node, len(right.columns))
            condition = membership(self.place, node, operand, right.columns[0], anti)
        return self.place.build(node, SemiJoin, left, right, condition, anti)

    def correlated(
        self,
        node: Node,
        query: Node,
        operand: Expr | None,
        anti: bool,
        left: Relation,
        around: _Around,
    ) -> Relation:
        """A plain SELECT inside EXISTS or IN: what it shares with the query around it becomes the
        condition of the semi-join. Of its SELECT list only IN makes use."""
        around = self.enter(query, around)
        joined = self.from_clause(query, around)
        if joined.scope(around.scope).hides(_columns_named(query)):
            around = replace(around, apart=True)
            joined = self.from_clause(query, around)
        scope = joined.scope(around.scope)
        scope.correlated = True
        outputs = read_outputs(self.place, query, Binder(self.place, scope, "SELECT"))
        inside = joined.relations()
        local: list[Expr] = []
        shared: list[Expr] = []
        asked: Asked | None = None
        if operand is not None:
            self.check_one_column(node, len(outputs))
            asked = Asked(operand, outputs[0].expr)
            if asked.is_local(inside):
                local.append(membership(self.place, node, asked.operand, asked.value, anti))
                asked = None
        relation = self.where(query, joined, scope, around, local, shared)
        return semi_join(
            self.place, node, left, relation, inside, shared, around.alias, anti, asked
        )

    def check_one_column(self, node: Node, count: int) -> None:
        if count != 1:
            raise self.place.error(f"IN takes a query of one column, this has {count}", node)


def _columns_named(query: Node) -> set[tuple[str | None, str]]:
    """The columns that a query names anywhere, each with the alias before it."""
    columns = (node.args for node in query.walk() if type(node) is exp.Column)
    return {(name_of(c.get("table")), name_of(c.get("this")) or "") for c in columns}


_OUTER = ("LEFT", "RIGHT", "FULL")
_THIS = frozenset({"this"})
_LIST = frozenset({"expressions"})
_SELECT_PARTS = frozenset(
    {"with_", "expressions", "distinct", "from_", "joins", "where", "group", "having"}
)
_UNION_PARTS = frozenset({"with_", "this", "expression", "distinct"})
_SUBQUERY_PARTS = frozenset({"this", "with_"})
_ITEM_PARTS = frozenset({"this", "alias", "joins"})
_JOIN_PARTS = frozenset({"this", "on", "using", "side", "kind"})
