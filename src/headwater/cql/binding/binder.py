"""Queries: from sqlglot's syntax tree to relations of the algebra.

A SELECT block becomes, from the top: [Distinct] Project [Select, for HAVING] [Aggregate]
[SemiJoin, for each EXISTS or IN] [Select, for WHERE] and the relations of FROM. WITH queries are
inlined where their names are used. Conditions inside an EXISTS that name columns of the enclosing
query become the condition of its semi-join.
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
from headwater.cql.binding.expressions import (
    AggregateCollector,
    Binder,
    called_function,
    is_aggregate,
)
from headwater.cql.binding.joins import (
    JoinedRelations,
    MembershipTest,
    check_aliases,
    is_grouped,
    join_condition,
    membership_condition,
    reads_only,
    semi_join,
    shared_columns,
    subquery_condition,
)
from headwater.cql.binding.names import Scope
from headwater.cql.binding.outputs import (
    NO_PARTS,
    bind_grouping,
    name_outputs,
    number_outputs,
    read_outputs,
)
from headwater.cql.binding.refusals import ErrorLocator, Node, name_of, operands
from headwater.cql.sizes import largest_expression
from headwater.cql.syntax import Bracket, Syntax
from headwater.errors import CqlError, suggest

# The binder is recursive and inlines WITH names wherever they are used, so a short text can stand
# for very many blocks; the limits keep time and stack bounded whatever is submitted.
MAX_BLOCKS = 300
MAX_BLOCK_DEPTH = 30
MAX_RELATIONS = 64
MAX_PARTS = 25_000
"""More than one text can contain in an expression, so that only merged expressions are refused."""


class UnknownName(CqlError):
    """A stream or table that is not declared."""

    def __init__(
        self, name: str, candidates: Iterable[str], text: str, start: int, end: int
    ) -> None:
        hint = suggest(name, candidates)
        super().__init__(f"no stream or table {name}", text, start, end - start + 1, hint)
        self.name = name


def bind(syntax: Syntax, names: Namespace) -> Query:
    """The query of the syntax tree over these streams and tables; raises CqlError."""
    queries = _QueryBinder(syntax, names)
    root = queries.query(syntax.tree, _Context())
    # After the query: only then is it known which WITH names and windows it has used.
    queries.check_unused()
    queries.check_size(root)
    return Query(syntax.output or default_output(root), root)


@dataclass(frozen=True, slots=True)
class _WithQuery:
    """A WITH name: its query, and the WITH names that were visible where it was written."""

    name: str
    node: Any
    visible: dict[str, _WithQuery]


@dataclass(frozen=True, slots=True)
class _Context:
    """What a query gets from outside: the alias of its columns (`number_columns`: they are called
    c0, c1, ..), the WITH names, the scope of the enclosing query, a window to put on its only
    stream.

    `rename_clashes`: relations of its FROM that have the name of one of the enclosing query get
    another name in the algebra, which identifies columns by the name of their relation alone."""

    alias: str = ""
    with_queries: dict[str, _WithQuery] = field(default_factory=dict)
    scope: Scope | None = None
    window: Bracket | None = None
    number_columns: bool = False
    rename_clashes: bool = False
    depth: int = 0

    def nested(self, alias: str, with_queries: dict[str, _WithQuery] | None = None) -> _Context:
        """The context of a query nested in this one."""
        with_queries = self.with_queries if with_queries is None else with_queries
        return _Context(alias, with_queries, depth=self.depth + 1)


class _QueryBinder:
    """Binds one query with all its subqueries."""

    def __init__(self, syntax: Syntax, names: Namespace) -> None:
        self.locator = ErrorLocator(syntax.text, syntax.start)
        self.windows = syntax.windows
        self.stars = syntax.stars
        self.names = names
        self.used_windows: set[int] = set()
        self.with_names: list[_WithQuery] = []
        self.used_names: set[int] = set()
        self.semi_joins = 0
        self.alias_counter = 1
        self.blocks = 0

    def error_at(self, token: Token, message: str, hint: str = "") -> CqlError:
        return CqlError(message, self.locator.text, token.start, token.end - token.start + 1, hint)

    def check_unused(self) -> None:
        """Bind WITH queries that were not used, to find their mistakes; refuse windows not used."""
        for entry in self.with_names:
            if id(entry.node) not in self.used_names:
                self.used_names.add(id(entry.node))
                self.query(entry.node, _Context(entry.name, entry.visible))
        for end, bracket in self.windows.items():
            if end not in self.used_windows:
                raise self.error_at(bracket.token, "a window goes after a stream in FROM")

    def check_size(self, root: Relation) -> None:
        size = largest_expression(root)
        if size > MAX_PARTS:
            raise CqlError(
                f"an expression of {size:,} parts, once nested queries are merged",
                self.locator.text,
                self.locator.start,
                1,
                f"at most {MAX_PARTS:,} parts; use a column of an inner query less often",
            )

    # ---- queries

    def query(self, node: Any, around: _Context) -> Relation:
        """A SELECT, or several joined by UNION ALL."""
        while type(node) is exp.Subquery:
            self.locator.check_parts(node, _SUBQUERY_PARTS)
            around = self.with_clause(node, around)
            node = node.args.get("this")
        if type(node) is exp.Select:
            return self.select(node, around)
        if type(node) is exp.Union:
            return self.union(node, around)
        if type(node) in (exp.Intersect, exp.Except):
            other = "EXISTS" if type(node) is exp.Intersect else "NOT EXISTS"
            raise self.locator.error_at_keyword(
                f"{node.key.upper()} is not part of the language; write WHERE {other} (SELECT ..)",
                node.args.get("expression"),
            )
        raise self.locator.unsupported(node, "a query")

    def union(self, node: Any, around: _Context) -> Relation:
        if around.window is not None:
            raise self.window_error(around.window, "it is a UNION ALL")
        top = node
        sides: list[Any] = []
        while type(node) is exp.Union:
            self.locator.check_parts(node, _UNION_PARTS)
            last = node.args.get("expression")
            if node.args.get("distinct"):
                raise self.locator.error_at_keyword(
                    "UNION alone is not part of the language; "
                    "write UNION ALL, or SELECT DISTINCT over it",
                    last,
                )
            around = self.with_clause(node, around)
            sides.append(last)
            node = node.args.get("this")
        # A loop, not recursion: sqlglot nests UNION ALL to the left, one level for each SELECT.
        inside = replace(around, alias="")
        inputs = tuple([self.query(side, inside) for side in (node, *reversed(sides))])
        return self.locator.build(top, UnionAll, inputs, around.alias)

    def with_clause(self, node: Node, around: _Context) -> _Context:
        clause = node.args.get("with_")
        if clause is None:
            return around
        self.locator.check_parts(clause, _LIST)
        visible = dict(around.with_queries)
        declared: set[str] = set()
        for table in clause.args.get("expressions") or []:
            if type(table) is not exp.CTE:
                raise self.locator.unsupported(table, "a WITH query")
            self.locator.check_parts(table, frozenset({"this", "alias"}))
            name = self.alias(table.args.get("alias"))
            if name is None or name.lower() in declared:
                raise self.locator.error("each WITH query needs a name of its own", table)
            # A copy, so that a WITH query sees the names before it only, and never itself.
            entry = _WithQuery(name, table.args.get("this"), dict(visible))
            declared.add(name.lower())
            visible[name.lower()] = entry
            self.with_names.append(entry)
        return replace(around, with_queries=visible)

    def alias(self, node: Any) -> str | None:
        """The name in an alias; None if there is no alias."""
        if node is None:
            return None
        if type(node) is not exp.TableAlias:
            raise self.locator.unsupported(node, "an alias")
        self.locator.check_parts(node, _THIS)
        name = name_of(node.args.get("this"))
        # $ is for the names that the binder generates itself ($exists0, x$agg).
        if name is None or "$" in name or not name.strip():
            raise self.locator.error("an alias is a name without $", node)
        return name

    # ---- one SELECT

    def select(self, node: Node, around: _Context) -> Relation:
        around = self.enter(node, around)
        joined = self.from_clause(node, around)
        scope = joined.scope(around.scope)
        relation = self.where(node, joined, scope, around, [], [])
        aggregates = AggregateCollector(around.alias + "$agg")
        outputs = read_outputs(
            self.locator, node, Binder(self.locator, scope, "SELECT", aggregates)
        )
        relation = bind_grouping(self.locator, node, relation, scope, outputs, aggregates)
        items = (
            number_outputs(outputs)
            if around.number_columns
            else name_outputs(self.locator, outputs)
        )
        projected = self.locator.build(node, Project, relation, items, around.alias)
        distinct = node.args.get("distinct")
        if distinct is None:
            return projected
        self.locator.check_parts(distinct, NO_PARTS)
        return Distinct(projected)

    def enter(self, node: Node, around: _Context) -> _Context:
        self.locator.check_parts(node, _SELECT_PARTS)
        self.blocks += 1
        if self.blocks > MAX_BLOCKS:
            raise self.locator.error(
                f"there are more than {MAX_BLOCKS} SELECTs in this query", node
            )
        if around.depth > MAX_BLOCK_DEPTH:
            raise self.locator.error(f"queries nested more than {MAX_BLOCK_DEPTH} deep", node)
        if around.window is not None:
            self.check_window_allowed(node, around.window)
        return self.with_clause(node, around)

    def from_clause(self, node: Node, around: _Context) -> JoinedRelations:
        clause = node.args.get("from_")
        if clause is None:
            raise self.locator.error("a SELECT needs FROM and a stream or table", node)
        self.locator.check_parts(clause, _THIS)
        joined = self.from_item(clause.args.get("this"), around)
        return self.joins(joined, node.args.get("joins") or [], around)

    def where(
        self,
        node: Node,
        joined: JoinedRelations,
        scope: Scope,
        around: _Context,
        local: list[Expr],
        outer: list[Expr],
    ) -> Relation:
        """The relations of FROM, filtered by WHERE and the `local` conditions; conditions that name
        columns of the enclosing query are added to `outer`."""
        relation = joined.relation(self.locator, node)
        inside = joined.relations()
        queries: list[tuple[Node, bool]] = []
        clause = node.args.get("where")
        if clause is not None:
            binder = Binder(self.locator, scope, "WHERE")
            for part in operands(clause.args.get("this"), exp.And):
                query, anti = subquery_condition(part)
                if query is not None:
                    queries.append((query, anti))
                    continue
                for bound in conjuncts(binder.condition(part)):
                    own = not scope.correlated or reads_only(bound, inside)
                    (local if own else outer).append(bound)
        condition = conjunction(local)
        if condition is not None:
            relation = self.locator.build(clause, Select, relation, condition)
        # SEMI joins and EXISTS only filter rows, so they can follow all other conditions.
        here = joined.scope()
        for join in joined.semis:
            relation = self.bind_semi_join(join, joined, relation, around)
        for query, anti in queries:
            relation = self.bind_exists(query, anti, here, relation, around)
        return relation

    # ---- FROM

    def from_item(self, node: Any, around: _Context) -> JoinedRelations:
        """A relation in FROM: a stream, a table, a WITH name, a subquery, a join in parentheses."""
        if type(node) is exp.Table:
            self.locator.check_parts(node, _ITEM_PARTS)
            joined = self.named_relation(node, around)
            return self.joins(joined, node.args.get("joins") or [], around)
        if type(node) is not exp.Subquery:
            raise self.locator.unsupported(node, "the name of a stream or table in FROM")
        self.locator.check_parts(node, _ITEM_PARTS)
        inner = node.args.get("this")
        alias = self.alias(node.args.get("alias"))
        if type(inner) in (exp.Table, exp.Subquery) and alias is None:
            joined = self.from_item(inner, around)
            # In parentheses the order of joins is explicit, so a RIGHT JOIN behind is not
            # ambiguous.
            joined.crossed = False
        elif type(inner) is exp.Table:
            hint = "write (SELECT .. FROM ..) AS it"
            raise self.locator.error("a join in parentheses has no alias", node.args["alias"], hint)
        else:
            joined = self.subquery(node, alias, around)
        joined = self.joins(joined, node.args.get("joins") or [], around)
        if joined.semis:
            raise self.locator.error("SEMI and ANTI joins cannot stand in parentheses", node)
        return joined

    def subquery(self, node: Node, alias: str | None, around: _Context) -> JoinedRelations:
        if alias is None:
            raise self.locator.error(
                "a subquery in FROM needs a name", node, "write (SELECT ..) AS x"
            )
        window = self.window(around, node.args["alias"].args["this"])
        inside = replace(around.nested(self.unique_alias(alias, around)), window=window)
        return JoinedRelations.single(self.query(node.args.get("this"), inside), alias)

    def named_relation(self, node: Node, around: _Context) -> JoinedRelations:
        identifier = node.args["this"]
        name = name_of(identifier)
        if name is None:
            what = (
                "a function is no relation here"
                if called_function(identifier)
                else "expected a name"
            )
            raise self.locator.error(what, node)
        # sqlglot drops a * behind the name of a relation, so the words are consulted.
        if identifier.meta.get("end", -1) in self.stars:
            raise self.locator.error("* is not expected behind the name of a relation", node)
        alias = self.alias(node.args.get("alias"))
        identifiers = (
            [identifier] if alias is None else [identifier, node.args["alias"].args["this"]]
        )
        window = self.window(around, *identifiers)
        entry = around.with_queries.get(name.lower())
        if entry is None:
            relation = self.scan(identifier, name, alias, window)
            alias = relation.alias
            return JoinedRelations.single(
                replace(relation, alias=self.unique_alias(alias, around)), alias
            )
        self.used_names.add(id(entry.node))
        alias = alias or entry.name
        unique = self.unique_alias(alias, around)
        inside = replace(around.nested(unique, entry.visible), window=window)
        return JoinedRelations.single(self.query(entry.node, inside), alias)

    def unique_alias(self, alias: str, around: _Context) -> str:
        """The name of a relation in the algebra: its alias, or a name that occurs nowhere in the
        query if the enclosing query has a relation of that alias whose columns are needed as
        well."""
        if not around.rename_clashes or around.scope is None:
            return alias
        if alias.lower() not in {relation.lower() for relation in around.scope.relations()}:
            return alias
        text = self.locator.text.lower()
        self.alias_counter += 1
        while (name := f"{alias}_{self.alias_counter}").lower() in text:
            self.alias_counter += 1
        return name

    def scan(
        self, node: Node, name: str, alias: str | None, bracket: Bracket | None
    ) -> Scan | TableScan:
        source = self.names.get(name)
        if source is None:
            start = node.meta.get("start", self.locator.start)
            end = node.meta.get("end", start)
            raise UnknownName(name, self.names.names, self.locator.text, start, end)
        if alias is None and "$" in source.name:
            raise self.locator.error(f"{name} needs an alias, one without $", node)
        if isinstance(source, Stream):
            return source.scan(self.stream_window(source, bracket), alias or "")
        if bracket is not None:
            raise self.error_at(
                bracket.token, f"{source.name} is a table; only a stream has a window"
            )
        return source.scan(alias or "")

    # ---- windows

    def window(self, around: _Context, *identifiers: Node) -> Bracket | None:
        """The window after one of the names, or the one that the query gets from its context."""
        chosen: Bracket | None = None
        for identifier in identifiers:
            end = identifier.meta.get("end", -1)
            bracket = self.windows.get(end)
            if bracket is not None:
                self.used_windows.add(end)
                if chosen is not None:
                    raise self.error_at(bracket.token, "a stream has one window")
                chosen = bracket
        if around.window is not None and chosen is not None:
            raise self.window_error(around.window, "the stream inside has one already")
        return chosen or around.window

    def stream_window(self, stream: Stream, bracket: Bracket | None) -> Window:
        """The window, with its partition columns spelt as declared; UNBOUNDED if there is none."""
        if bracket is None:
            return UNBOUNDED
        if not bracket.keys or not isinstance(bracket.window, Rows):
            return bracket.window
        spelt = []
        for key in bracket.keys:
            column = stream.schema.get(key.text)
            if column is None:
                hint = suggest(key.text, stream.schema.names)
                raise self.error_at(key, f"no column {key.text} in {stream.name}", hint)
            spelt.append(column.name)
        return Rows(bracket.window.count, tuple(spelt))

    def window_error(self, bracket: Bracket, why: str) -> CqlError:
        return self.error_at(
            bracket.token,
            f"there can be no window on this query: {why}",
            "put the window on the stream inside it",
        )

    def check_window_allowed(self, node: Node, bracket: Bracket) -> None:
        """Refuse a window on a query unless it is SELECT .. FROM one stream [WHERE ..]: only there
        is it the same as a window on the stream."""
        args = node.args
        if not isinstance(bracket.window, Range):
            raise self.window_error(bracket, "ROWS counts the tuples of a stream")
        if args.get("group") or args.get("having") or is_aggregate(args.get("expressions")):
            raise self.window_error(bracket, "it has an aggregate")
        if args.get("distinct"):
            raise self.window_error(bracket, "it is DISTINCT")
        source = args["from_"].args.get("this") if args.get("from_") is not None else None
        if args.get("joins") or (isinstance(source, exp.Expr) and source.args.get("joins")):
            raise self.window_error(bracket, "it is a join")
        where = args.get("where")
        if where is not None and where.find(exp.Exists, exp.Subquery, exp.Select) is not None:
            raise self.window_error(bracket, "it has a subquery in WHERE")

    # ---- joins

    def joins(self, joined: JoinedRelations, nodes: list[Any], around: _Context) -> JoinedRelations:
        for node in nodes:
            self.locator.check_parts(node, _JOIN_PARTS)
            side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
            if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
                joined.semis.append(node)
            elif side in ("", *_OUTER) and kind in ("", "INNER", "CROSS", "OUTER"):
                joined = self.join(joined, node, side, kind, around)
            else:
                what = " ".join(filter(None, (side, kind, "JOIN")))
                raise self.locator.error(f"{what} is not part of the language", node)
        return joined

    def join(
        self, left: JoinedRelations, node: Node, side: str, kind: str, around: _Context
    ) -> JoinedRelations:
        right = self.from_item(node.args.get("this"), around)
        if len(left.sources) + len(right.sources) > MAX_RELATIONS:
            raise self.locator.error(f"a query joins at most {MAX_RELATIONS} relations", node)
        check_aliases(self.locator, node, left, right)
        condition = join_condition(self.locator, node, left, right)
        shared = shared_columns(node, left, right, side)
        if side:
            return self.outer_join(left, right, node, side, condition or TRUE, shared)
        return JoinedRelations(
            [*left.inputs, *right.inputs],
            [*left.conditions, *right.conditions, *conjuncts(condition)],
            [*left.sources, *right.sources],
            shared,
            left.semis,
            left.crossed or kind == "CROSS",
        )

    def outer_join(
        self,
        left: JoinedRelations,
        right: JoinedRelations,
        node: Node,
        side: str,
        condition: Expr,
        shared: Any,
    ) -> JoinedRelations:
        if side != "LEFT" and left.crossed:
            raise self.locator.error(
                f"a {side} JOIN after a comma or CROSS JOIN could be read in two ways",
                node,
                "put the relations that belong together in parentheses",
            )
        if side != "LEFT" and left.semis:
            raise self.locator.error(f"a SEMI or ANTI join goes after the {side} JOIN", node)
        first, second = left.relation(self.locator, node), right.relation(self.locator, node)
        # The algebra has no RIGHT JOIN.
        if side == "RIGHT":
            first, second = second, first
        relation = self.locator.build(node, OuterJoin, first, second, condition, side == "FULL")
        lefts = left.sources if side == "LEFT" else [s.as_nullable() for s in left.sources]
        rights = right.sources if side == "RIGHT" else [s.as_nullable() for s in right.sources]
        return JoinedRelations([relation], [], [*lefts, *rights], shared, left.semis, left.crossed)

    # ---- EXISTS and IN

    def next_semi_join(self) -> str:
        self.semi_joins += 1
        return f"$exists{self.semi_joins - 1}"

    def bind_semi_join(
        self, node: Node, outer: JoinedRelations, left: Relation, around: _Context
    ) -> Relation:
        """A SEMI or ANTI JOIN: the same as EXISTS with the ON condition inside."""
        alias = self.next_semi_join()
        inner = self.from_item(node.args.get("this"), around)
        check_aliases(self.locator, node, outer, inner)
        inside = inner.relations()
        local: list[Expr] = []
        shared: list[Expr] = []
        for part in conjuncts(join_condition(self.locator, node, outer, inner)):
            (local if reads_only(part, inside) else shared).append(part)
        right = inner.relation(self.locator, node)
        condition = conjunction(local)
        if condition is not None:
            right = Select(right, condition)
        anti = str(node.args.get("kind")) == "ANTI"
        return semi_join(self.locator, node, left, right, inside, shared, alias, anti)

    def bind_exists(
        self, node: Node, anti: bool, outer: Scope, left: Relation, around: _Context
    ) -> Relation:
        """The rows of `left` for which EXISTS (..) or IN (..) holds, or does not."""
        alias = self.next_semi_join()
        self.locator.check_parts(node, frozenset({"this", "query"}))
        operand: Expr | None = None
        query = node.args.get("this")
        if type(node) is exp.In:
            operand = Binder(self.locator, outer, "WHERE").bind(query)
            query = node.args.get("query")
        while type(query) is exp.Subquery:
            self.locator.check_parts(query, _SUBQUERY_PARTS)
            around = self.with_clause(query, around)
            query = query.args.get("this")
        inside = replace(around.nested(alias), scope=outer, number_columns=True)
        # Only in a plain SELECT can a condition on the enclosing query be moved out of the
        # subquery: above a group or DISTINCT its columns may be gone.
        if type(query) is exp.Select and not is_grouped(query):
            return self.bind_correlated(node, query, operand, anti, left, inside)
        right = self.query(query, inside)
        condition = None
        if operand is not None:
            self.check_one_column(node, len(right.columns))
            condition = membership_condition(self.locator, node, operand, right.columns[0], anti)
        return self.locator.build(node, SemiJoin, left, right, condition, anti)

    def bind_correlated(
        self,
        node: Node,
        query: Node,
        operand: Expr | None,
        anti: bool,
        left: Relation,
        around: _Context,
    ) -> Relation:
        """A plain SELECT inside EXISTS or IN: its conditions on the enclosing query become the
        condition of the semi-join. Its SELECT list is used by IN only."""
        around = self.enter(query, around)
        joined = self.from_clause(query, around)
        # Bound again under other names only where they clash, so that most queries keep the aliases
        # that the user wrote.
        if joined.scope(around.scope).hides(_named_columns(query)):
            around = replace(around, rename_clashes=True)
            joined = self.from_clause(query, around)
        scope = joined.scope(around.scope)
        # Not before: FROM and ON must not name columns of the enclosing query.
        scope.correlated = True
        outputs = read_outputs(self.locator, query, Binder(self.locator, scope, "SELECT"))
        inside = joined.relations()
        local: list[Expr] = []
        shared: list[Expr] = []
        test: MembershipTest | None = None
        if operand is not None:
            self.check_one_column(node, len(outputs))
            test = MembershipTest(operand, outputs[0].expr)
            if test.is_local(inside):
                local.append(
                    membership_condition(self.locator, node, test.operand, test.value, anti)
                )
                test = None
        relation = self.where(query, joined, scope, around, local, shared)
        return semi_join(
            self.locator, node, left, relation, inside, shared, around.alias, anti, test
        )

    def check_one_column(self, node: Node, count: int) -> None:
        if count != 1:
            raise self.locator.error(f"IN takes a query of one column, this has {count}", node)


def _named_columns(query: Node) -> set[tuple[str | None, str]]:
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
