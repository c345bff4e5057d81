"""From a draft to a block: conditions in normal form, everything in canonical order.

Sources are ordered by their text, by the conditions on each alone and by the columns they are
equated with; where that leaves ties (self-joins), every order of the tied sources is tried and the
one with the least text wins, so that it does not matter how a query was written. Several orders may
give the same least text (two scans of one stream that no condition distinguishes): the block is
then the same, but outputs correspond to its items in several ways. All these `PositionChoices` are
passed to the enclosing block, which tries each of them as it tries orders. Beyond `MAX_ORDERS`
trials the written order is kept: equal queries may then have different digests, but different ones
never the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations, product
from math import factorial, prod
from typing import Any, TypeVar

from headwater.algebra.canonical.block import (
    GROUP,
    Block,
    Body,
    Group,
    Outer,
    Semi,
    Source,
    Union,
    body_text,
    call_text,
    semi_text,
    source_text,
)
from headwater.algebra.canonical.draft import (
    Draft,
    GroupDraft,
    OuterDraft,
    SemiDraft,
    SourceDraft,
    UnionDraft,
    trivial_union,
    union_positions,
)
from headwater.algebra.conditions.predicate import ANYTHING, Box, normalize, to_expr
from headwater.algebra.conditions.simplify import canonical_text, simplify
from headwater.algebra.expressions import (
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    literal,
    substitute,
)
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Scan, TableScan, is_nullable
from headwater.algebra.types import BIGINT, INT

MAX_ORDERS = 720  # 6!: up to six sources that nothing distinguishes, in every order
COUNT_ALL = AggregateCall("count", None, BIGINT)

# A source of which no column is read still has to have one, as its rows count: the same one,
# whichever columns it was written with.
UNREAD = literal(1)
UNREAD_COLUMN = Column("", "c0", INT)

Positions = list[int]
PositionChoices = list[Positions]
"""Every way (at least one) in which the outputs correspond to the items of one body."""
Moves = dict[Column, Column]
"""New names for the columns of a source after it was pruned and sorted."""
_Canonicalizer = Callable[[Expr], Expr]
_T = TypeVar("_T")


def finish_body(draft: Draft) -> tuple[Body, Positions]:
    """The canonical body of a draft, and the position of each output among the body's items."""
    union = trivial_union(draft)
    if union is not None:
        body, placings = _finish_union(union, sorted(set(union_positions(draft))))
        return body, [placings[0][at] for at in union_positions(draft)]
    block, found = _finish_block(draft, list(draft.outputs.values()))
    return block, found[0]


def _finish_block(
    draft: Draft, outputs: Sequence[Expr], sort: bool = True
) -> tuple[Block, PositionChoices]:
    """The block with these outputs as items; they keep their order unless `sort` is set."""
    if draft.group is not None:
        outputs = [simplify(item) for item in outputs]
        draft = _without_unused_calls(_having_on_keys_to_where(draft), outputs)
    # Only the columns of nested sources are pruned, so a flat block is simplified once, later.
    if not all(isinstance(source, Scan | TableScan) for source in draft.sources.values()):
        draft, outputs = _simplify_draft(draft, outputs)
    sources, choices = _finish_sources(draft, outputs)
    moves = _combine_moves(choices)
    candidates = [
        _name_block(draft, sources, columns, outputs, order, sort)
        for columns in moves
        # Both choices multiply, so they share one budget.
        for order in _orders(draft, sources, columns, MAX_ORDERS // len(moves))
    ]
    best = _with_least_text(candidates, [named.text for named in candidates])
    return best[0].block, _deduplicate([named.positions for named in best])


def _with_least_text(candidates: Sequence[_T], texts: Sequence[str]) -> list[_T]:
    """The candidates that have the least text."""
    least = min(texts)
    return [
        candidate
        for candidate, its_text in zip(candidates, texts, strict=True)
        if its_text == least
    ]


def _deduplicate(placings: Iterable[_T]) -> list[_T]:
    """The distinct ones, in their first order; they are lists or dicts, so not hashable."""
    result: list[_T] = []
    for placing in placings:
        if placing not in result:
            result.append(placing)
    return result


def _combine_moves(choices: Sequence[Sequence[Moves]]) -> list[Moves]:
    """All combinations of one choice per source; only the first choices if there are too many."""
    if prod(map(len, choices)) > MAX_ORDERS:
        choices = [alternatives[:1] for alternatives in choices]
    return [
        {k: v for moves in combined for k, v in moves.items()} for combined in product(*choices)
    ]


# ---- sources


def _simplify_draft(draft: Draft, outputs: Sequence[Expr]) -> tuple[Draft, Sequence[Expr]]:
    """The draft simplified before its sources are pruned, so that no dead term keeps a column."""
    group = draft.group
    if group is not None:
        calls = [_canonical_call(call, simplify) for call in group.calls]
        having = list(conjuncts(to_expr(normalize(conjunction(group.having)))))
        group = GroupDraft(list(map(simplify, group.keys)), calls, having)
    conditions = list(conjuncts(to_expr(normalize(conjunction(draft.conditions)))))
    semis = [
        replace(semi, conditions=list(conjuncts(to_expr(normalize(conjunction(semi.conditions))))))
        for semi in draft.semis
    ]
    simple = replace(draft, group=group, conditions=conditions, semis=semis)
    return simple, [simplify(item) for item in outputs]


def _finish_sources(
    draft: Draft, outputs: Sequence[Expr]
) -> tuple[dict[str, Source], list[list[Moves]]]:
    """Every source in canonical form, and for each the ways in which its columns moved."""
    used = _columns_used(draft, outputs)
    sources: dict[str, Source] = {}
    choices: list[list[Moves]] = []
    own = [draft.sources, *(semi.sources for semi in draft.semis)]
    for alias, source in (pair for sources_ in own for pair in sources_.items()):
        sources[alias], moves = _finish_source(source, [c for c in used if c.relation == alias])
        choices.append(moves)
    return sources, choices


def _columns_used(draft: Draft, outputs: Sequence[Expr]) -> set[Column]:
    exprs = [*outputs, *draft.conditions]
    exprs += [condition for semi in draft.semis for condition in semi.conditions]
    if draft.group is not None:
        exprs += [*draft.group.keys, *draft.group.having]
        exprs += [e for call in draft.group.calls for e in (call.arg, call.filter) if e is not None]
    return {column for expr in exprs for column in columns_of(expr)}


def _finish_source(source: SourceDraft, used: list[Column]) -> tuple[Source, list[Moves]]:
    numbers = sorted(int(c.name[1:]) for c in used if c.name[1:].isdecimal())
    match source:
        case Scan() | TableScan():
            return source, [{}]
        case OuterDraft():
            return _finish_outer(source, used)
        case UnionDraft():
            union, ways = _finish_union(source, numbers)
            return union, _deduplicate(_moves(union, way, used) for way in ways)
        case Draft():
            outputs = list(source.outputs.values())
            if source.by_value:  # unread outputs identify its rows too, so they stay
                numbers = list(range(len(outputs)))
            block, placings = _finish_block(source, [outputs[n] for n in numbers] or [UNREAD])
            places = (dict(zip(numbers, positions, strict=False)) for positions in placings)
            return block, _deduplicate(_moves(block, place, used) for place in places)


def _moves(body: Body, place: Mapping[int, int], used: Iterable[Column]) -> Moves:
    return {c: _item_column(body, "c", place[int(c.name[1:])], c) for c in used}


def _item_column(body: Body, letter: str, at: int, column: Column) -> Column:
    """A column of a source, renamed to its position in the finished body."""
    blocks = body.branches if isinstance(body, Union) else (body,)
    may_be_null = column.nullable and any(is_nullable(block.items[at]) for block in blocks)
    return Column(column.relation, f"{letter}{at}", column.type, may_be_null)


def _finish_outer(source: OuterDraft, used: list[Column]) -> tuple[Outer, list[Moves]]:
    """The outer join; the sides of a FULL JOIN can be exchanged, so both orders are tried."""
    on = to_expr(normalize(source.condition)) or TRUE
    inside = columns_of(on)
    sides: list[tuple[Body, list[dict[str, int]]]] = []
    for side, draft in (("l", source.left), ("r", source.right)):
        outputs = list(draft.outputs.values())
        numbers = sorted({int(c.name[1:]) for c in {*used, *inside} if c.name[0] == side})
        if draft.by_value:
            numbers = list(range(len(outputs)))
        block, placings = _finish_block(draft, [outputs[n] for n in numbers] or [UNREAD])
        names = [f"{side}{n}" for n in numbers]
        sides.append((block, [dict(zip(names, p, strict=False)) for p in placings]))
    candidates: list[tuple[Outer, dict[str, str]]] = []
    for first, second in ((0, 1), (1, 0)) if source.full else ((0, 1),):
        (left, lefts), (right, rights) = sides[first], sides[second]
        if len(lefts) * len(rights) > MAX_ORDERS:
            lefts, rights = lefts[:1], rights[:1]
        for from_left, from_right in product(lefts, rights):
            moved = {name: f"l{at}" for name, at in from_left.items()}
            moved |= {name: f"r{at}" for name, at in from_right.items()}
            renamed = {c: Column("", moved[c.name], c.type, c.nullable) for c in inside}
            condition = normalize(substitute(on, renamed))
            candidates.append((Outer(left, right, condition, source.full), moved))
    best = _with_least_text(candidates, [source_text(outer) for outer, _ in candidates])
    moves = ({c: replace(c, name=moved[c.name]) for c in used} for _, moved in best)
    return best[0][0], _deduplicate(moves)


def _finish_union(union: UnionDraft, numbers: list[int]) -> tuple[Union, list[dict[int, int]]]:
    """The union of the columns `numbers`, and the ways in which they correspond to its items.

    Branches and columns are put in canonical order. Columns are ordered by what the branches put
    there; where that leaves ties, every order of the tied columns is tried.
    """
    if any(branch.by_value for branch in union.branches):
        numbers = list(range(len(union.types)))
    if not numbers:
        unread = [replace(branch, outputs={UNREAD_COLUMN: UNREAD}) for branch in union.branches]
        union, numbers = UnionDraft(unread, [INT]), [0]

    def expressions_of(branch: Draft, order: Iterable[int]) -> list[Expr]:
        outputs = list(branch.outputs.values())
        return [outputs[n] for n in order]

    rough = [_finish_block(branch, expressions_of(branch, numbers)) for branch in union.branches]
    rough.sort(key=lambda finished: body_text(finished[0]))

    def column_key(at: int) -> tuple[tuple[str, ...], ...]:
        """What each branch may put there, branches of one text in any order."""
        items = (
            (body_text(block), *sorted({canonical_text(block.items[p[at]]) for p in placings}))
            for block, placings in rough
        )
        return tuple(sorted(items))

    candidates: list[tuple[Union, list[int]]] = []
    for order in _tied_orders({at: column_key(at) for at in range(len(numbers))}, MAX_ORDERS):
        kept = [numbers[at] for at in order]
        # Items correspond by position in all branches, so no branch may sort its own.
        branches = [
            _finish_block(b, expressions_of(b, kept), sort=False)[0] for b in union.branches
        ]
        branches.sort(key=body_text)
        types = tuple(union.types[n] for n in kept)
        candidates.append((Union(tuple(branches), types), kept))
    best = _with_least_text(candidates, [body_text(body) for body, _ in candidates])
    return best[0][0], [{n: at for at, n in enumerate(kept)} for _, kept in best]


# ---- order of the sources


def _tied_orders(key: Mapping[_T, Any], most: int) -> Iterator[tuple[_T, ...]]:
    """All orders that sort by the key; only one, ties as written, if there are more than `most`."""
    ranked = sorted(key, key=lambda one: key[one])
    ties = [list(group) for _, group in groupby(ranked, key=lambda one: key[one])]
    if prod(factorial(len(tie)) for tie in ties) > most:
        yield tuple(ranked)
        return
    for choice in product(*(permutations(tie) for tie in ties)):
        yield tuple(one for tie in choice for one in tie)


def _orders(
    draft: Draft, sources: Mapping[str, Source], columns: Mapping[Column, Column], most: int
) -> Iterator[tuple[str, ...]]:
    """The orders of a draft's sources that are worth comparing; one if there are no ties."""
    key = {alias: source_text(sources[alias]) for alias in draft.sources}
    if len(set(key.values())) == len(key):
        return _tied_orders(key, most)
    return _tied_orders(_distinguish_sources(key, draft, columns), most)


def _distinguish_sources(
    key: Mapping[str, str], draft: Draft, columns: Mapping[Column, Column]
) -> dict[str, int]:
    """Ranks of the sources by text, refined repeatedly by the columns they are equated with.

    A rank depends neither on the spelling of aliases nor on the order in which anything was
    written, so that sources with the same role in two texts of a query have the same rank in both.
    """
    where = conjunction(substitute(condition, columns) for condition in draft.conditions)
    equated = [
        (str(constraint.domain), [c for c in constraint.terms if isinstance(c, Column)])
        for constraint in normalize(where).constraints
    ]
    # Colour refinement: a source is distinguished by the colours of those it is equated with, until
    # a round changes nothing. Every order of the remaining ties is then tried.
    colour = _rank(key)
    while len(set(colour.values())) < len(colour):
        finer = _rank({alias: (colour[alias], roles) for alias, roles in _roles(colour, equated)})
        if finer == colour:
            break
        colour = finer
    return colour


def _rank(key: Mapping[str, Any]) -> dict[str, int]:
    """Every alias with the rank of its key among all keys."""
    keys = sorted(key.values())
    return {alias: bisect_left(keys, own) for alias, own in key.items()}


def _roles(
    colour: Mapping[str, int], equated: Sequence[tuple[str, Sequence[Column]]]
) -> list[tuple[str, list[str]]]:
    """For every source, the classes of equal columns that its columns belong to."""
    roles: dict[str, list[str]] = {alias: [] for alias in colour}
    for domain, columns in equated:
        beside = sorted((colour[c.relation], c.name) for c in columns)
        for column in columns:
            roles[column.relation].append(f"{column.name}:{domain}:{beside}")
    return [(alias, sorted(found)) for alias, found in roles.items()]


# ---- naming


@dataclass(frozen=True)
class _NamedBlock:
    block: Block
    positions: Positions
    text: str


def _name_block(
    draft: Draft,
    sources: Mapping[str, Source],
    columns: Mapping[Column, Column],
    outputs: Sequence[Expr],
    order: Sequence[str],
    sort: bool,
) -> _NamedBlock:
    """The block with its sources in the given order."""
    alias = {old: f"s{i}" for i, old in enumerate(order)}
    rename = _Renamer(alias, columns)
    where = normalize(conjunction(rename(c) for c in draft.conditions))
    represent = representatives(where)

    def canonical(expr: Expr) -> Expr:
        renamed = rename(expr)
        return simplify(substitute(renamed, represent) if represent else renamed)

    semis = [_finish_semi(semi, sources, rename, represent) for semi in draft.semis]
    group: Group | None = None
    if draft.group is not None:
        group, numbers = _finish_group(draft.group, outputs, canonical)
        items = [simplify(substitute(item, numbers)) for item in outputs]
    else:
        items = [canonical(item) for item in outputs]
    kept, positions = _sort_items(items) if sort else (items, list(range(len(items))))
    block = Block(
        tuple(_with_alias(sources[old], alias[old]) for old in order),
        where,
        tuple(sorted(set(semis), key=semi_text)),
        group,
        tuple(kept),
        draft.distinct and not _is_keyed(group, kept),
    )
    return _NamedBlock(block, positions, body_text(block))


class _Renamer:
    """Renames leaf columns to their canonical names; each is computed once."""

    def __init__(self, alias: Mapping[str, str], columns: Mapping[Column, Column]) -> None:
        self.alias = alias
        self.columns = columns
        self._renamed: dict[Column, Column] = {}

    def __call__(self, expr: Expr) -> Expr:
        if isinstance(expr, Column):
            return self._column(expr)
        if isinstance(expr, Call) and expr.args:
            return Call(expr.name, tuple(map(self, expr.args)), expr.type)
        return expr

    def _column(self, column: Column) -> Column:
        renamed = self._renamed.get(column)
        if renamed is None:
            renamed = self.columns.get(column, column)
            if renamed.relation in self.alias:
                alias = self.alias[renamed.relation]
                renamed = Column(alias, renamed.name, renamed.type, renamed.nullable)
            self._renamed[column] = renamed
        return renamed


def representatives(box: Box) -> dict[Expr, Expr]:
    """Columns that a condition makes equal, each mapped to the first of its class.

    Only between columns of one type, so that an output keeps its own.
    """
    return {
        term: c.terms[0]
        for c in box.constraints
        for term in c.terms[1:]
        if isinstance(term, Column) and isinstance(c.terms[0], Column)
        if term.type == c.terms[0].type
    }


def _with_alias(source: Source, alias: str) -> Source:
    if isinstance(source, Scan):
        return Scan(source.stream, source.schema, source.time, source.window, alias)
    if isinstance(source, TableScan):
        return TableScan(source.table, source.schema, alias)
    return source


def _sort_items(items: Sequence[Expr]) -> tuple[list[Expr], Positions]:
    by_text = {canonical_text(item): item for item in items}
    order = {key: at for at, key in enumerate(sorted(by_text))}
    return [by_text[key] for key in order], [order[canonical_text(item)] for item in items]


def _is_keyed(group: Group | None, items: Sequence[Expr]) -> bool:
    """Rows of a group differ in a key, so DISTINCT has no effect where all keys are outputs."""
    if group is None:
        return False
    return all(any(_is_group_column(i, f"k{n}") for i in items) for n in range(len(group.keys)))


def _is_group_column(expr: Expr, name: str) -> bool:
    return isinstance(expr, Column) and expr.relation == GROUP and expr.name == name


def _finish_semi(
    semi: SemiDraft,
    sources: Mapping[str, Source],
    rename: _Renamer,
    represent: Mapping[Expr, Expr],
) -> Semi:
    key = {alias: source_text(sources[alias]) for alias in semi.sources}
    candidates = []
    for order in _tied_orders(key, MAX_ORDERS):
        alias = dict(rename.alias) | {old: f"e{i}" for i, old in enumerate(order)}
        inner = _Renamer(alias, rename.columns)
        where = normalize(conjunction(substitute(inner(c), represent) for c in semi.conditions))
        own = tuple(_with_alias(sources[old], alias[old]) for old in order)
        candidates.append(Semi(own, where, semi.anti))
    return min(candidates, key=semi_text)


# ---- groups


def _having_on_keys_to_where(draft: Draft) -> Draft:
    """A condition on keys alone selects groups as one on tuples does, so it becomes WHERE."""
    if draft.group is None or not draft.group.having:
        return draft
    keys: dict[Expr, Expr] = {
        Column(GROUP, f"k{n}", key.type): key for n, key in enumerate(draft.group.keys)
    }
    remaining: list[Expr] = []
    moved: list[Expr] = []
    for part in conjuncts(to_expr(normalize(conjunction(draft.group.having)))):
        read = columns_of(part)
        # A constant stays in HAVING: without keys there is a row even over no tuples, so HAVING
        # FALSE is not WHERE FALSE.
        if read and all(c.name.startswith("k") for c in read):
            moved.append(substitute(part, keys))
        # `count(*) >= 0` is always true; `query_text` writes it where nothing else shows that a
        # query aggregates.
        elif not _is_a_count_at_least_zero(part, draft.group):
            remaining.append(part)
    group = replace(draft.group, having=remaining)
    return replace(draft, group=group, conditions=[*draft.conditions, *moved])


def _is_a_count_at_least_zero(part: Expr, group: GroupDraft) -> bool:
    if not (isinstance(part, Call) and part.name == ">="):
        return False
    column, least = part.args
    if not (isinstance(column, Column) and isinstance(least, Literal) and least.value == 0):
        return False
    return group.calls[int(column.name[1:])].name == "count"


def _without_unused_calls(draft: Draft, outputs: Sequence[Expr]) -> Draft:
    """An aggregate that neither an output nor HAVING reads need not be computed."""
    if draft.group is None:
        return draft
    read = {c.name for e in (*outputs, *draft.group.having) for c in columns_of(e)}
    # Replaced, not removed: the names a0, a1, .. count positions in this list.
    calls = [call if f"a{n}" in read else COUNT_ALL for n, call in enumerate(draft.group.calls)]
    return replace(draft, group=replace(draft.group, calls=calls))


def _finish_group(
    group: GroupDraft, outputs: Sequence[Expr], canonical: _Canonicalizer
) -> tuple[Group, dict[Expr, Expr]]:
    """Keys and the aggregates in use, each once and sorted, and the new names of $agg columns."""
    keys = [canonical(key) for key in group.keys]
    calls = [_canonical_call(call, canonical) for call in group.calls]
    key_order = {k: n for n, k in enumerate(sorted(set(map(canonical_text, keys))))}
    used = {column for expr in (*outputs, *group.having) for column in columns_of(expr)}
    names = {column.name for column in used}
    used_calls = {call_text(c) for n, c in enumerate(calls) if f"a{n}" in names}
    # SELECT 1 .. GROUP BY nothing is still one row, and an aggregation has to have a key or a call.
    if not keys and not used_calls:
        calls, used_calls = [COUNT_ALL], {call_text(COUNT_ALL)}
    call_order = {c: n for n, c in enumerate(sorted(used_calls))}
    numbers: dict[Expr, Expr] = {}
    for column in used:
        at = int(column.name[1:])
        if column.name[0] == "k":
            name, may_be_null = f"k{key_order[canonical_text(keys[at])]}", is_nullable(keys[at])
        else:
            name, may_be_null = f"a{call_order[call_text(calls[at])]}", column.nullable
        numbers[column] = Column(GROUP, name, column.type, may_be_null)
    by_key = {canonical_text(key): key for key in keys}
    by_call = {call_text(call): call for call in calls}
    having = normalize(conjunction(substitute(h, numbers) for h in group.having))
    return (
        Group(
            tuple(by_key[k] for k in key_order),
            tuple(by_call[c] for c in call_order),
            having if group.having else ANYTHING,
        ),
        numbers,
    )


def _canonical_call(call: AggregateCall, canonical: _Canonicalizer) -> AggregateCall:
    arg = None if call.arg is None else canonical(call.arg)
    condition = None if call.filter is None else to_expr(normalize(canonical(call.filter)))
    # COUNT(x) is COUNT(*) where x cannot be NULL.
    counts_all = call.name == "count" and not call.distinct
    if counts_all and isinstance(arg, Column) and not arg.nullable:
        arg = None
    return replace(call, arg=arg, filter=condition)
