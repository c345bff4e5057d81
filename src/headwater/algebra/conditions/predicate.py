"""Conditions in normal form, and the calculus that sharing is based on.

A condition becomes a box; boxes are compared, intersected, relaxed and split. Every function is
sound for all boxes; implication is complete for conjunctions of comparisons of a column with
constants, IN lists, IS [NOT] NULL and equalities of columns.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import combinations

from headwater.algebra.conditions.box import (
    ANYTHING,
    NOTHING,
    Box,
    BoxIndex,
    Constraint,
    constraint_conjuncts,
    substitute_heads,
    to_expr,
)
from headwater.algebra.conditions.domain import Domain, full_domain, union_of
from headwater.algebra.conditions.facts import Facts, alternatives
from headwater.algebra.conditions.linear import columns_of_difference
from headwater.algebra.conditions.simplify import (
    COMPARISON_OF,
    OUTCOMES,
    canonical_text,
    negate,
    simplify,
)
from headwater.algebra.expressions import Call, Column, Expr, columns_of, substitute, walk
from headwater.algebra.types import BOOLEAN

__all__ = [
    "ANYTHING",
    "NOTHING",
    "Box",
    "Constraint",
    "Mode",
    "cover",
    "cover_alike",
    "covers",
    "implies",
    "intersect",
    "normalize",
    "rename_columns",
    "residue",
    "to_expr",
    "union",
]

Mode = typing.Literal["hull", "set"]

MAX_BRANCHES = 32
"""An OR of more branches is put in order, but not combined with the other conditions."""

MAX_BOXES = 256
"""Among more boxes, `union` does not look for those inside others."""

MAX_JOINED = 8
"""Among more boxes, `union` joins only those that differ in a single domain."""

MAX_STEPS = 5000
"""How many pairs of boxes `covers` compares before it gives up."""

MAX_CASES = 3
"""With more disjunctions in a box, `implies` does not examine their branches one by one."""


# ---- making boxes


def normalize(condition: Expr | None) -> Box:
    """The box of the rows for which a condition is true.

    v >= 3 AND v + 1 < 10 AND x = y AND y IN (1, 2)  ->  v in [3..8], x = y in {1, 2}
    v IS NULL OR v > 5                               ->  v in {NULL, [6..]}
    v > 5 AND v < 3                                  ->  NOTHING
    """
    facts = Facts()
    if condition is not None:
        facts.add_condition(condition)
    return _close_facts(facts)


def rename_columns(box: Box, mapping: Mapping[Expr, Expr]) -> Box:
    """The box with columns replaced by others of the same type, all at once."""
    if box.empty:
        return NOTHING
    facts = Facts()
    for c in box.constraints:
        xy = columns_of_difference(c.terms[0])
        terms = [mapping.get(term, term) for term in xy or c.terms]
        if not all(isinstance(term, Column) for term in terms):
            for part in constraint_conjuncts(c):
                facts.add_simplified(simplify(substitute(part, mapping)))
        elif xy is not None:
            facts.add_difference(terms[0], terms[1], c.domain)
        else:
            facts.add_equal_terms(terms, c.domain)
    for term in box.terms:
        facts.add_simplified(simplify(substitute(term, mapping)))
    return _close_facts(facts)


def intersect(a: Box, b: Box) -> Box:
    """The rows of both: `normalize(p AND q) == intersect(normalize(p), normalize(q))`."""
    return _close_facts(Facts(a, b))


def _close_facts(facts: Facts) -> Box:
    """The box of collected facts, disjunctions included."""
    base, ors = facts.close(), set(facts.ors)
    done: set[Call] = set()
    while ors and not base.empty:
        # In an order of its own, so that the result does not depend on how the condition was
        # written.
        call = min(ors, key=canonical_text)
        ors.remove(call)
        box, rest = _resolve_or(base, call)
        if box != base:
            facts = Facts(box)
            # A stronger base may resolve disjunctions that were left before, so all are tried
            # again.
            base, ors, done = facts.close(), ors | done | set(facts.ors), set()
        if rest is not None:
            done.add(rest)
    return base if base.empty or not done else _with_ors(base, done)


def _resolve_or(base: Box, call: Call) -> tuple[Box, Call | None]:
    """A box and an OR combined: a stronger box, and the OR of what each branch adds to it."""
    branches = _branches(call)
    if len(branches) > MAX_BRANCHES:
        rest = substitute_heads(_disjunction(branches), base.index.heads)
        return base, rest if _is_or(rest) else call
    cut = union(intersect(base, branch) for branch in branches)
    if len(cut) < 2:
        return cut[0] if cut else NOTHING, None
    # What all branches imply moves into the box: (v = 1 AND a) OR (v = 2 AND b) bounds v.
    around = intersect(base, reduce(lambda a, b: cover(a, b, "set"), cut))
    left = [residue(branch, around) or branch for branch in cut]
    return around, None if ANYTHING in left else _disjunction(left)


def _with_ors(base: Box, ors: set[Call]) -> Box:
    """The box with these disjunctions beside it, but none that follows from the rest."""
    remaining = sorted(ors, key=canonical_text)
    for term in tuple(remaining):
        others = [other for other in remaining if other is not term]
        beside = [other for other in others if columns_of(other) & columns_of(term)]
        if 0 < len(beside) < MAX_CASES and _implies_term(
            replace(base, terms=(*base.terms, *beside)), term
        ):
            remaining = others
    return replace(base, terms=tuple(sorted((*base.terms, *remaining), key=canonical_text)))


def _branches(call: Call) -> tuple[Box, ...]:
    """The boxes of an OR."""
    return _boxes_of(call, tuple(part.nullable for part in walk(call) if isinstance(part, Column)))


@lru_cache(maxsize=1024)
def _boxes_of(call: Call, nullable: tuple[bool, ...]) -> tuple[Box, ...]:
    """The boxes of an OR; `nullable` is in the cache key because equal columns may differ in it."""
    boxes = []
    for part in alternatives(call):
        facts = Facts()
        facts.add_simplified(part)
        boxes.append(_close_facts(facts))
    return union(boxes)


def _disjunction(boxes: Iterable[Box]) -> Call:
    parts: list[Expr] = []
    for box in boxes:
        condition = to_expr(box)
        assert condition is not None
        parts += condition.args if _is_or(condition) else [condition]
    return Call("or", tuple(sorted(parts, key=canonical_text)), BOOLEAN)


def _is_or(term: Expr) -> typing.TypeGuard[Call]:
    return isinstance(term, Call) and term.name == "or"


# ---- comparing boxes


def implies(a: Box, b: Box) -> bool:
    """Whether every row of `a` is one of `b`. False may also mean that it could not be shown.

    v = 3 AND w = 3   implies  v = w
    v > 3             implies  v >= 2
    s < t             implies  s <> t AND s IS NOT NULL
    """
    if a.empty:
        return True
    if b.empty:
        return False
    # One conjunct after the other first: cases multiply the work by the branches of an OR.
    if _implies_all(a, b):
        return True
    return bool(a.terms) and _implies_by_cases(a, b)


def _implies_all(a: Box, b: Box) -> bool:
    """Whether a box implies each conjunct of another by itself."""
    index = a.index
    # Loops, as a new query is compared with the conditions of thousands of operators.
    for constraint in b.constraints:
        if not _implies_constraint(index, constraint):
            return False
    return all(_implies_term(a, term) for term in b.terms)


def _implies_constraint(index: BoxIndex, constraint: Constraint) -> bool:
    """Whether a box implies a constraint."""
    first, *others = constraint.terms
    head = index.head(first)
    for term in others:
        if index.head(term) != head:
            return False
    return index.domain(head) <= constraint.domain


def _implies_term(box: Box, term: Expr) -> bool:
    """Whether a box implies an opaque term."""
    index = box.index
    if term in index.terms:
        return True
    if (changed := substitute_heads(term, index.heads)) != term:
        return implies(box, normalize(changed))
    if not isinstance(term, Call):
        return False
    if term.name in OUTCOMES:
        outcomes = index.outcomes(*term.args)
        return outcomes is not None and outcomes & ~OUTCOMES[term.name] == 0
    return _is_or(term) and covers(_branches(term), box)


def _implies_by_cases(a: Box, b: Box) -> bool:
    """Whether each branch of an OR in `a` implies `b`."""
    ors = [term for term in a.terms if _is_or(term) and columns_of(term) & _columns(b)]
    if not 0 < len(ors) <= MAX_CASES:
        return False
    branches = _branches(ors[0])
    rest = replace(a, terms=tuple(term for term in a.terms if term is not ors[0]))
    return len(branches) <= MAX_BRANCHES and all(
        implies(intersect(rest, branch), b) for branch in branches
    )


# ---- one box for two


def cover(a: Box, b: Box, mode: Mode) -> Box:
    """The least relaxation of two boxes: `implies(a, c) and implies(b, c)`.

    For each term the union of both domains, or with "hull" the least interval around it unless
    they are equal; equalities and opaque terms stay if both boxes imply them.

    v = 3 AND w = 1, v = 5       ->  v IN (3, 5)           with "set"
                                     v >= 3 AND v <= 5     with "hull"
    x = y AND x = 1, x = y       ->  x = y
    s < t, s = t                 ->  s <= t
    """
    if a.empty or b.empty:
        return b if a.empty else a
    facts = Facts()
    for c in a.constraints:
        for group in _classes(c.terms, b):
            facts.add_equal_terms(group, full_domain(group[0].type))
    for term in dict.fromkeys((*a.index.subjects, *b.index.subjects)):
        facts.add_domain(term, _join_domains(a.index.domain(term), b.index.domain(term), mode))
    for term in dict.fromkeys((*a.terms, *b.terms)):
        if (common := _relax_term(term, a, b)) is not None:
            facts.add_simplified(common)
    return _close_facts(facts)


def cover_alike(boxes: Sequence[Box], widen: Callable[[Domain], Domain]) -> Box:
    """The least box around boxes that restrict the same terms, however many, but for domains that are
    widened to be shorter.

    v = 3 AND w = 1, v = 5 AND w = 1, v = 9 AND w = 1  ->  v IN (3, 5, 9) AND w = 1
    """
    facts = Facts()
    for alike in zip(*(box.constraints for box in boxes), strict=True):
        domains = list({c.domain: None for c in alike})
        facts.add_equal_terms(alike[0].terms, widen(union_of(domains)))
    for term in boxes[0].terms:
        facts.add_simplified(term)
    return _close_facts(facts)


def _classes(terms: Sequence[Expr], box: Box) -> list[list[Expr]]:
    """The terms in groups that are equal in a box."""
    groups: dict[Expr, list[Expr]] = {}
    for term in terms:
        groups.setdefault(box.index.head(term), []).append(term)
    return list(groups.values())


def _join_domains(a: Domain, b: Domain, mode: Mode) -> Domain:
    if a == b:
        return a
    both = a.union(b)
    return both.hull() if mode == "hull" else both


def _relax_term(term: Expr, a: Box, b: Box) -> Expr | None:
    """The strongest form of an opaque term that both boxes imply."""
    if _implies_term(a, term) and _implies_term(b, term):
        return term
    if not isinstance(term, Call) or term.name not in OUTCOMES:
        return None
    first, second = a.index.outcomes(*term.args), b.index.outcomes(*term.args)
    name = COMPARISON_OF.get(first | second) if first is not None and second is not None else None
    return None if name is None else Call(name, term.args, BOOLEAN)


# ---- many boxes


def union(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Boxes with the same rows in total: none inside another, no two that could be merged.

    v = 1 AND w = 2, v = 1 AND w = 3, v = 1 AND w = 2 AND s = 'a'  ->  v = 1 AND w IN (2, 3)
    v < 5, v >= 5                                                  ->  v IS NOT NULL

    Among more than MAX_BOXES boxes, some may remain that are inside others.
    """
    result = _sort_boxes(boxes)
    while len(result) > 1:
        merged = _join_pair(
            _merge_by_constraint(
                # First with equal single values apart: x = 1 AND y = 1, x = 1 AND y = 2 differ in y
                # alone, though the first is the class x = y.
                _merge_by_constraint(_drop_absorbed(result), _split_points),
                _constraints,
            )
        )
        if merged == result:
            break
        result = merged
    return tuple(result)


def _sort_boxes(boxes: Iterable[Box]) -> list[Box]:
    distinct = {box for box in boxes if not box.empty}
    return sorted(distinct, key=_box_text) if len(distinct) > 1 else list(distinct)


@lru_cache(maxsize=4096)
def _box_text(box: Box) -> str:
    condition = to_expr(box)
    return "" if condition is None else canonical_text(condition)


def _drop_absorbed(boxes: list[Box]) -> list[Box]:
    """The boxes that are not inside another."""
    if len(boxes) > MAX_BOXES:
        return boxes
    remaining: list[Box] = []
    for i, box in enumerate(boxes):
        if not any(implies(box, other) for other in (*remaining, *boxes[i + 1 :])):
            remaining.append(box)
    return remaining


def _merge_by_constraint(
    boxes: list[Box], view: Callable[[Box], Sequence[Constraint]]
) -> list[Box]:
    """Boxes that differ in the domain of one constraint become one, for each constraint in turn."""
    subjects = Counter(c.terms for box in boxes for c in view(box))
    for subject in [terms for terms, count in subjects.items() if count > 1]:
        groups: dict[object, list[Box]] = {}
        for box in boxes:
            constraints = view(box)
            rest = frozenset(c for c in constraints if c.terms != subject)
            has_it = len(rest) < len(constraints)
            groups.setdefault((rest, box.terms) if has_it else box, []).append(box)
        if len(groups) < len(boxes):
            boxes = _sort_boxes(_merge_group(subject, group, view) for group in groups.values())
    return boxes


def _merge_group(
    subject: tuple[Expr, ...], group: list[Box], view: Callable[[Box], Sequence[Constraint]]
) -> Box:
    """The box of all rows of the group, whose boxes differ in the domain of the subject only."""
    if len(group) == 1:
        return group[0]
    domains = [c.domain for box in group for c in view(box) if c.terms == subject]
    facts = Facts()
    facts.add_equal_terms(subject, reduce(Domain.union, domains))
    for c in view(group[0]):
        if c.terms != subject:
            facts.add_equal_terms(c.terms, c.domain)
    for term in group[0].terms:
        facts.add_simplified(term)
    return _close_facts(facts)


def _split_points(box: Box) -> list[Constraint]:
    """The constraints, with columns apart that have the same single value."""
    return [
        Constraint(terms, c.domain)
        for c in box.constraints
        for terms in ([(term,) for term in c.terms] if c.domain.is_point else [c.terms])
    ]


def _constraints(box: Box) -> tuple[Constraint, ...]:
    return box.constraints


def _join_pair(boxes: list[Box]) -> list[Box]:
    """Two boxes that fill the least box around them become that box: x < y, x = y."""
    if len(boxes) > MAX_JOINED:
        return boxes
    for a, b in combinations(boxes, 2):
        if _columns(a) == _columns(b) and covers((a, b), both := cover(a, b, "set")):
            return _sort_boxes((both, *(box for box in boxes if box not in (a, b))))
    return boxes


@lru_cache(maxsize=4096)
def _columns(box: Box) -> frozenset[Column]:
    condition = to_expr(box)
    return frozenset() if condition is None else frozenset(columns_of(condition))


def covers(boxes: Iterable[Box], box: Box) -> bool:
    """Whether every row of `box` is in one of the boxes.

    Exact for boxes without opaque terms, up to a limit of work beyond which it answers no.
    """
    others = [other for other in boxes if not other.empty]
    return _is_covered(box, others, iter(range(MAX_STEPS)))


def _is_covered(box: Box, boxes: Sequence[Box], steps: Iterator[int]) -> bool:
    if box.empty:
        return True
    # Once the steps are used up every box counts as near, and nothing is split any more.
    near = [other for other in boxes if next(steps, None) is None or not _are_apart(box, other)]
    if any(implies(box, other) for other in near):
        return True
    if len(near) < 2 or next(steps, None) is None:
        return False
    near.sort(key=_entanglement)
    return all(_is_covered(piece, near[1:], steps) for piece in _subtract(box, near[0]))


def _are_apart(a: Box, b: Box) -> bool:
    """Whether the domain of some term shows that no row is in both."""
    domain = a.index.domain
    return any(domain(term).intersect(c.domain).is_empty for c in b.constraints for term in c.terms)


def _entanglement(box: Box) -> int:
    """How many conditions of a box are no domain of a column; such boxes are subtracted last."""
    calls = sum(isinstance(c.terms[0], Call) for c in box.constraints)
    return len(box.terms) + calls + sum(len(c.terms) - 1 for c in box.constraints)


def _subtract(box: Box, other: Box) -> Iterator[Box]:
    """Disjoint boxes that hold the rows of one box that are not in the other."""
    for inside, *contraries in _parts(other):
        for contrary in contraries:
            yield intersect(box, contrary)
        box = intersect(box, inside)


def _parts(box: Box) -> Iterator[list[Box]]:
    """For each conjunct of a box, the box of that conjunct, and boxes in which it is not true."""
    for c in box.constraints:
        first, *others = c.terms
        for other in others:
            yield _with_contraries(Call("=", (first, other), BOOLEAN))
        domains = (c.domain, c.domain.outside())
        yield [Box((Constraint((first,), domain),), ()) for domain in domains]
    for term in box.terms:
        yield _with_contraries(term)


def _with_contraries(condition: Expr) -> list[Box]:
    # Not true is false or NULL, so the negation alone would lose the rows with NULL.
    missing = simplify(Call("is_null", (condition,), BOOLEAN))
    nulls = missing.args if _is_or(missing) else (missing,)
    return [normalize(expr) for expr in (condition, negate(condition), *nulls)]


# ---- what is left to check


def residue(member: Box, cover: Box) -> Box | None:
    """The check that selects the rows of `member` from those of `cover`; None if some are missing.

    member == intersect(cover, residue), and residue is as weak as possible:
        v = 3 AND w = 1,       v >= 1 AND w = 1            ->  v = 3
        v >= 3 AND v <= 9,     v >= 1 AND v <= 9           ->  v >= 3
        x = y AND x < 5,       y < 5                       ->  x = y
        v = 3,                 v = 3                       ->  ANYTHING
        v >= 3,                v >= 5                      ->  None
    """
    if not implies(member, cover):
        return None
    if member.empty:
        return ANYTHING if cover.empty else NOTHING
    facts = Facts()
    for c in member.constraints:
        _add_residue(facts, c, cover)
    for term in member.terms:
        if not _implies_term(cover, term):
            facts.add_simplified(term)
    return _weaken(_close_facts(facts), cover)


def _add_residue(facts: Facts, constraint: Constraint, cover: Box) -> None:
    index = cover.index
    heads = list(dict.fromkeys(map(index.head, constraint.terms)))
    if constraint.domain.is_point:
        for head in heads:
            facts.add_domain(head, constraint.domain.simplify_within(index.domain(head)))
        return
    left = reduce(Domain.intersect, map(index.domain, heads))
    if len(heads) > 1:
        left = left.with_null(False)
    facts.add_domain(heads[0], constraint.domain.simplify_within(left))
    for head in heads[1:]:
        facts.add_equality(heads[0], head)


def _weaken(box: Box, cover: Box) -> Box:
    """The box without the conjuncts that follow from the cover and the others."""
    # Between domains of columns nothing follows that `simplify_within` has not left out.
    if not (box.terms or cover.terms or _has_calls(box) or _has_calls(cover)):
        return box
    parts = [Box((c,), ()) for c in box.constraints] + [Box((), (t,)) for t in box.terms]
    remaining = list(parts)
    for part in parts:
        others = [other for other in remaining if other is not part]
        if implies(_close_facts(Facts(cover, *others)), part):
            remaining = others
    return box if len(remaining) == len(parts) else _close_facts(Facts(*remaining))


def _has_calls(box: Box) -> bool:
    return any(isinstance(c.terms[0], Call) for c in box.constraints)
