"""Queries that differ only in constants, as one query that joins a table of these constants.

    NOT EXISTS .. WHERE o.region = 'north' AND o.amount > 100      (query 0)
    NOT EXISTS .. WHERE o.region = 'south' AND o.amount > 250      (query 1)

are one query whose rows carry the number of the query that they belong to. It is a query like any other, so whoever
can compute queries can compute families, and how to is not said again for each operator. The number is a column
like any other too: a group or a match of one query never has a row of another, as it is one more key.

The table is joined as late as it can be, where fewer rows stand for more queries: a row of NOT EXISTS is
found once, and given to all queries whose constants it meets. Below groups, DISTINCT and on the right of EXISTS the
rows of different queries differ, and the table is joined there.

From when on a query sees tuples is a constant too: a window over the tuples since some time holds those tuples of a
window over more of them that are not older. So queries of different starts can be a family, however far their windows reach.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product, zip_longest
from math import prod

from headwater.algebra.conditions.box import constraint_conjuncts
from headwater.algebra.conditions.domain import (
    BOTTOM,
    Domain,
    comparison_domain,
    full_domain,
    union_of,
    value_at,
)
from headwater.algebra.conditions.linear import columns_of_difference
from headwater.algebra.conditions.predicate import Constraint, normalize
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Call, Column, Expr, columns_of, conjunction, literal
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
    find_column,
    is_spj,
)
from headwater.algebra.types import BOOLEAN, INT, Field, Schema, Type, Value

Since = tuple[tuple[str, int | None], ...]
"""The least time of the tuples of each stream that a query sees; None if it sees all."""

QUERY = "$q"
"""The column with the number of the query that a row belongs to."""

CONSTANTS = "$constants"
"""What the tables of constants are called, followed by a number; no declared table has such a name."""

MAX_ROWS_PER_QUERY = 64
"""A query whose constants take more rows of a table than these keeps them in a statement of its own."""

MAX_COVER_PIECES = 64
"""Rows that no query wants are left out early by a condition of at most so many ranges."""


@dataclass(frozen=True)
class Template:
    """A query without its constants: `relation` has them cut out, and a constant of `slots[i]`, which is what
    is compared in the Select of that number, is one of `domains[i]`."""

    output: Output
    relation: Relation
    slots: tuple[tuple[int, Expr], ...]
    domains: tuple[Domain, ...]
    items: tuple[Item, ...]
    """What it shows, where queries that show something else may be of the same family."""

    @cached_property
    def key(self) -> Hashable:
        """Equal for queries of one family."""
        return self.output, self.relation, self.slots

    @property
    def rows(self) -> int:
        """How many rows the constants of a query take in a table."""
        return prod(len(intervals_of(domain)) for domain in self.domains)


@lru_cache(maxsize=4096)
def template_of(query: Query, since: Since | None = None) -> Template:
    """The template of a canonical query, which sees tuples since these times alone if there are any."""
    template = _cut_template(query, _Cutter(dict(since or ())))
    if template.rows > MAX_ROWS_PER_QUERY:
        template = _cut_template(query, _Cutter(dict(since or ()), only_times=True))
    root = template.relation
    # What is shown of a row that is identified by its tuples does not say which row it is.
    if isinstance(root, Project) and is_spj(root):
        return replace(template, relation=root.input, items=root.items)
    return template


def _cut_template(query: Query, cutter: _Cutter) -> Template:
    root = cutter.cut(query.root, True)
    return Template(query.output, root, tuple(cutter.slots), tuple(cutter.domains), ())


@dataclass(frozen=True)
class DomainInterval:
    """The first value of a stretch and the first after it, None where it has no end; or NULL alone."""

    low: Value
    high: Value
    is_null: bool = False


def intervals_of(domain: Domain) -> list[DomainInterval]:
    """What a domain is made of."""
    values = [None if cut == BOTTOM else value_at(domain.type, cut).value for cut in domain.cuts]
    intervals = [DomainInterval(low, high) for low, high in zip_longest(values[::2], values[1::2])]
    if domain.is_point and domain.point is not None:
        # The least value of a type has no cut below, and equality needs it.
        intervals = [replace(intervals[0], low=domain.point.value)]
    return [DomainInterval(None, None, True), *intervals] if domain.null else intervals


@dataclass(frozen=True)
class ConstantsTable:
    """A table of constants: in each row the number of a query, and an interval for each of its slots."""

    scan: TableScan
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class QueryFamily:
    """Queries of one template as one query.

    `numbers` has the number of each query, whose rows have that number in the last column; None if
    all are the same but for what they show. `columns` says where what a query shows is, and `terms` are what
    is compared with constants that differ.
    """

    query: Query
    tables: tuple[ConstantsTable, ...]
    numbers: tuple[int, ...] | None
    columns: tuple[tuple[int, ...], ...]
    terms: tuple[Expr, ...]


def family_of(templates: Sequence[Template]) -> QueryFamily:
    """Templates with one key as one query."""
    first = templates[0]
    items = tuple({canonical_text(i.expr): i for t in templates for i in t.items}.values())
    items = tuple(Item(f"c{n}", item.expr) for n, item in enumerate(items))
    places = {canonical_text(item.expr): n for n, item in enumerate(items)}
    root = Project(first.relation, items) if items else first.relation
    shown = tuple(
        tuple(places[canonical_text(i.expr)] for i in t.items) or tuple(range(len(root.columns)))
        for t in templates
    )
    distinct = list(dict.fromkeys(t.domains for t in templates))
    writer = _Writer(first.slots, distinct)
    part = writer.apply(writer.write(root))
    numbers = None
    if len(distinct) > 1:
        number_of = {domains: number for number, domains in enumerate(distinct)}
        numbers = tuple(number_of[t.domains] for t in templates)
    return QueryFamily(
        Query(first.output, part.relation), tuple(writer.tables), numbers, shown, writer.terms
    )


# ---- cutting constants out


class _Cutter:
    """Cuts constants out of a tree, inputs first, so that Selects are numbered as `_Writer` finds them."""

    def __init__(self, since: Mapping[str, int | None], only_times: bool = False) -> None:
        self.slots: list[tuple[int, Expr]] = []
        self.domains: list[Domain] = []
        self._since = since
        self._only_times = only_times
        self._selects = 0

    def cut(self, node: Relation, allowed: bool) -> Relation:
        match node:
            case Scan():
                return self._scan(node, allowed)
            case TableScan():
                return node
            case Select():
                return self._select(self.cut(node.input, allowed), node.condition, allowed)
            case Project() | Distinct():
                return replace(node, input=self.cut(node.input, allowed))
            case Aggregate():
                # Without keys there is a row also where there is no tuple, and none would say whose it is.
                return replace(node, input=self.cut(node.input, allowed and bool(node.keys)))
            case Join() | UnionAll():
                return replace(node, inputs=tuple(self.cut(i, allowed) for i in node.inputs))
            case SemiJoin():
                left = self.cut(node.left, allowed)
                return replace(node, left=left, right=self.cut(node.right, allowed))
            case OuterJoin():
                return self._outer_join(node, allowed)

    def _scan(self, node: Scan, allowed: bool) -> Relation:
        """A window, of which the query sees the tuples since some time."""
        if node.stream.lower() not in self._since:
            return node
        since = self._since[node.stream.lower()]
        number = self._selects
        self._selects += 1
        time = find_column(node.columns, node.time)
        domain = full_domain(time.type, False)
        if since is not None:
            domain = comparison_domain(time.type, ">=", since)
        if allowed:
            self.slots.append((number, time))
            self.domains.append(domain)
            return Select(node, literal(True))
        return Select(node, domain.as_expr(time) or literal(True))

    def _select(self, below: Relation, condition: Expr, allowed: bool) -> Relation:
        number = self._selects
        self._selects += 1
        box = normalize(condition)
        # A group is the same row as long as what is shown of it is the same, which it would not be if
        # it were joined before that is shown.
        allowed = allowed and not self._only_times and not isinstance(below, Aggregate)
        if not allowed or box.empty or not any(map(_is_bound, box.constraints)):
            return Select(below, condition)
        rest: list[Expr] = []
        for constraint in box.constraints:
            if not _is_bound(constraint):
                rest += constraint_conjuncts(constraint)
                continue
            head, *others = constraint.terms
            rest += [Call("=", (head, other), BOOLEAN) for other in others]
            self.slots.append((number, head))
            self.domains.append(constraint.domain)
        return Select(below, conjunction([*rest, *box.terms]) or literal(True))

    def _outer_join(self, node: OuterJoin, allowed: bool) -> Relation:
        """What ON says of the right alone is a condition on the right."""
        # Rows of both sides that match nothing are there once in a full join, for whichever query.
        allowed = allowed and not node.full
        left = self.cut(node.left, allowed)
        right, condition = node.right, node.condition
        own = set(right.columns)
        box = normalize(condition)
        inside = [c for c in box.constraints if _is_bound(c) and {*c.terms} <= own]
        if allowed and not self._only_times and inside and not box.empty:
            across = [
                e for c in box.constraints if c not in inside for e in constraint_conjuncts(c)
            ]
            condition = conjunction([*across, *box.terms]) or literal(True)
            moved = conjunction(e for c in inside for e in constraint_conjuncts(c))
            assert moved is not None
            right = Select(right, moved)
        return replace(node, left=left, right=self.cut(right, allowed), condition=condition)


def _is_bound(constraint: Constraint) -> bool:
    """Whether a constraint compares something with constants that can be in a table."""
    head = constraint.terms[0]
    return (
        not constraint.domain.has_all_values
        and not constraint.domain.is_empty
        and _is_storable(head.type)
        and columns_of_difference(head) is None
        and bool(columns_of(head))
    )


def _is_storable(type_: Type) -> bool:
    # An interval is no type of a column. The neighbours of a FLOAT are not those of its DOUBLE.
    return type_.name not in ("INTERVAL", "NULL", "FLOAT")


# ---- and joining them again


@dataclass(frozen=True)
class _Part:
    """A relation, the column with the number of the query if its rows have one, and the slots that its rows
    have not been compared with yet."""

    relation: Relation
    query: Column | None = None
    pending: tuple[int, ...] = ()


class _Writer:
    """Writes a template for several queries: constants that are equal in all of them stay where they were."""

    def __init__(
        self, slots: Sequence[tuple[int, Expr]], queries: Sequence[tuple[Domain, ...]]
    ) -> None:
        self.tables: list[ConstantsTable] = []
        self._slots = slots
        self._queries = queries
        self._selects = 0
        self._same = {n for n in range(len(slots)) if len({domains[n] for domains in queries}) == 1}

    @property
    def terms(self) -> tuple[Expr, ...]:
        """What is compared with constants that differ."""
        return tuple(term for n, (_, term) in enumerate(self._slots) if n not in self._same)

    def write(self, node: Relation) -> _Part:
        match node:
            case Scan() | TableScan():
                return _Part(node)
            case Select():
                return self._select(node)
            case Project():
                return self._project(node)
            case Join():
                return self._join(node)
            case SemiJoin() | OuterJoin():
                return self._beside(node)
            case Aggregate():
                part = self.apply(self.write(node.input))
                if part.query is None:
                    return _Part(replace(node, input=part.relation))
                keyed = replace(node, input=part.relation, keys=(*node.keys, part.query))
                return _Part(keyed, keyed.columns[len(node.keys)])
            case Distinct():
                part = self.apply(self.write(node.input))
                return replace(part, relation=Distinct(part.relation))
            case UnionAll():
                return self._union(node)

    def _select(self, node: Select) -> _Part:
        part = self.write(node.input)
        number = self._selects
        self._selects += 1
        own = [n for n, (select, _) in enumerate(self._slots) if select == number]
        conditions = [node.condition]
        for slot in own:
            cover = union_of([domains[slot] for domains in self._queries])
            if len(cover.cuts) > 2 * MAX_COVER_PIECES:
                cover = cover.hull()
            # Also where it says less than the queries do: what is left out here is not joined above.
            condition = cover.as_expr(self._slots[slot][1])
            if condition is not None:
                conditions.append(condition)
        whole = conjunction(conditions)
        relation = part.relation if whole is None else Select(part.relation, whole)
        pending = (*part.pending, *(slot for slot in own if slot not in self._same))
        return replace(part, relation=relation, pending=pending)

    def _project(self, node: Project) -> _Part:
        part = self.apply(self.write(node.input))
        if part.query is None:
            return _Part(replace(node, input=part.relation))
        items = (*node.items, Item(QUERY, part.query))
        shown = Project(part.relation, items, node.alias)
        return _Part(shown, shown.columns[-1])

    def _join(self, node: Join) -> _Part:
        parts = [self.write(each) for each in node.inputs]
        numbers = [part.query for part in parts if part.query is not None]
        alike = [_equal(numbers[0], other) for other in numbers[1:]]
        condition = conjunction([*_given(node.condition), *alike])
        joined = Join(tuple(part.relation for part in parts), condition)
        pending = tuple(slot for part in parts for slot in part.pending)
        return _Part(joined, numbers[0] if numbers else None, pending)

    def _beside(self, node: SemiJoin | OuterJoin) -> _Part:
        left, right = self.write(node.left), self.apply(self.write(node.right))
        condition = node.condition
        if right.query is not None:
            left = self._numbered(left)
            assert left.query is not None
            condition = conjunction([*_given(condition), _equal(left.query, right.query)])
        if isinstance(node, OuterJoin):
            assert condition is not None
            return replace(
                left,
                relation=OuterJoin(left.relation, right.relation, condition, node.full),
            )
        return replace(left, relation=SemiJoin(left.relation, right.relation, condition, node.anti))

    def _union(self, node: UnionAll) -> _Part:
        parts = [self.apply(self.write(each)) for each in node.inputs]
        if all(part.query is None for part in parts):
            return _Part(replace(node, inputs=tuple(part.relation for part in parts)))
        columns = [each.columns for each in node.inputs]
        shown = [self._shown(part, own) for part, own in zip(parts, columns, strict=True)]
        union = replace(node, inputs=tuple(shown))
        return _Part(union, union.columns[-1])

    def _shown(self, part: _Part, columns: Sequence[Column]) -> Relation:
        """A branch with its columns, and the number of the query as the last one."""
        if part.relation.columns[:-1] == columns and part.relation.columns[-1] == part.query:
            return part.relation
        part = self._numbered(part)
        assert part.query is not None
        items = [Item(c.name, c) for c in columns]
        return Project(part.relation, (*items, Item(QUERY, part.query)), columns[0].relation)

    # ---- tables of constants

    def apply(self, part: _Part) -> _Part:
        """A part whose rows have been compared with all constants."""
        return self._with_table(part) if part.pending else part

    def _numbered(self, part: _Part) -> _Part:
        """A part whose rows have the number of a query: if they differ in nothing, each is there for all."""
        return self._with_table(part) if part.pending or part.query is None else part

    def _with_table(self, part: _Part) -> _Part:
        slots = part.pending
        table = self._table(slots)
        columns = table.scan.columns
        conditions: list[Expr] = []
        for n, slot in enumerate(slots):
            domains = [domains[slot] for domains in self._queries]
            conditions += _within(self._slots[slot][1], columns[1 + 3 * n : 4 + 3 * n], domains)
        if part.query is not None:
            conditions.append(_equal(part.query, columns[0]))
        joined = Join((part.relation, table.scan), conjunction(conditions))
        return _Part(joined, part.query or columns[0])

    def _table(self, slots: Sequence[int]) -> ConstantsTable:
        """A new table of what the queries compare some slots with."""
        fields = [Field(QUERY, INT, nullable=False)]
        for n, slot in enumerate(slots):
            type_ = self._queries[0][slot].type
            fields += [Field(f"low{n}", type_), Field(f"high{n}", type_)]
            fields.append(Field(f"null{n}", BOOLEAN, nullable=False))
        name = f"{CONSTANTS}{len(self.tables)}"
        scan = TableScan(name, Schema(tuple(fields)), name)
        rows = tuple(
            (number, *(value for i in box for value in (i.low, i.high, i.is_null)))
            for number, domains in enumerate(self._queries)
            for box in product(*(intervals_of(domains[slot]) for slot in slots))
        )
        self.tables.append(ConstantsTable(scan, rows))
        return self.tables[-1]


def _within(term: Expr, columns: Sequence[Column], domains: Sequence[Domain]) -> Iterator[Expr]:
    """Conditions that a term is in the interval of a row."""
    low, high, null = columns
    if all(domain.is_point for domain in domains):
        # An equality alone: whoever computes it can then join by hash instead of comparing all pairs.
        yield _equal(term, low)
        return
    above = Call("or", (_is_null(low), Call(">=", (term, low), BOOLEAN)), BOOLEAN)
    below = Call("or", (_is_null(high), Call("<", (term, high), BOOLEAN)), BOOLEAN)
    inside = (above, below)
    if not any(domain.null for domain in domains):
        yield from inside
        return
    is_null = _is_null(term)
    without = Call("and", (is_null, null), BOOLEAN)
    within = Call("and", (_not(is_null), _not(null), *inside), BOOLEAN)
    yield Call("or", (without, within), BOOLEAN)


def _equal(a: Expr, b: Expr) -> Expr:
    return Call("=", (a, b), BOOLEAN)


def _is_null(term: Expr) -> Expr:
    return Call("is_null", (term,), BOOLEAN)


def _not(term: Expr) -> Expr:
    return Call("not", (term,), BOOLEAN)


def _given(condition: Expr | None) -> tuple[Expr, ...]:
    return () if condition is None else (condition,)
