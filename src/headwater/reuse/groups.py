"""Grouped queries of one operator: the panes that all of them are told from, and how each is.

Panes are grouped by all keys of all queries, and by what their conditions ask beyond the operator's
own: by a term itself where queries want single values or many different stretches of it, else by whether
the condition holds. Coarser groups are sums of finer ones. Queries that differ only in single values are
evaluated together, with the term among their keys, and then distinguished by shape. Those that differ in
other constants see other panes; they are one family, which runs as one statement.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import gcd

from headwater.algebra.canonical import Block, Group
from headwater.algebra.canonical.block import GROUP, body_text
from headwater.algebra.domain import of
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Output
from headwater.algebra.predicate import ANYTHING
from headwater.algebra.simplify import text
from headwater.algebra.types import BOOLEAN, Type
from headwater.algebra.windows import Range
from headwater.reuse.form import Bound, Form
from headwater.reuse.member import Member
from headwater.reuse.operator import Operator
from headwater.reuse.shapes import Table, tables

MOST_VALUES = 64
"""A condition on a term with more values asks whether it holds, and not for the term."""

MOST_FLAGS = 8
"""Where queries ask for more different stretches of a term, panes are grouped by the term."""


@dataclass(frozen=True)
class Telling:
    """What some queries tell alike.

    `block` has the `terms` that tell them apart as its last items, and among its keys; `filters` say
    which panes it sees at all, by their keys. Tellings of one `family` differ in the constants of
    their filters alone.
    """

    output: Output
    block: Block
    filters: tuple[Bound, ...]
    terms: tuple[Expr, ...]
    table: Table[str]
    slots: tuple[int, ...]
    family: Hashable

    @property
    def keys(self) -> tuple[Expr, ...]:
        return self.block.items if self.block.group is None else self.block.group.keys


@dataclass(frozen=True)
class Groups:
    """The grouped queries of an operator."""

    operator: Operator
    forms: tuple[Form, ...]

    @cached_property
    def granule(self) -> int:
        """The length of time within which tuples come and go together, for all windows."""
        lengths = [n for w in _windows(self.forms) for n in (w.size, w.slide) if n]
        return gcd(*lengths) if self.slides else 1

    @cached_property
    def slides(self) -> frozenset[int]:
        return frozenset(w.slide for w in _windows(self.forms) if w.slide)

    @cached_property
    def reach(self) -> int:
        """How long after its time a tuple is gone from all windows."""
        return max((w.size or 0) + (w.slide or 0) for w in _windows(self.forms)) + 1

    @cached_property
    def layout(self) -> str:
        """What panes are made of, in short: panes of the same layout mean the same."""
        operator = self.operator
        content = Block(
            operator.sources if len(operator.sources) > 1 else (),
            operator.where,
            (),
            Group(self.keys, operator.calls, ANYTHING),
            (),
            False,
        )
        said = f"{self.granule} {self.reach} {body_text(content)}"
        return blake2b(said.encode(), digest_size=16).hexdigest()

    # ---- panes

    @cached_property
    def keys(self) -> tuple[Expr, ...]:
        """What panes are grouped by."""
        found = {text(key): key for form in self.forms for key in form.keys}
        flags: dict[str, dict[str, Expr]] = {}
        for form in self.forms:
            for bound in self._bounds(form):
                of_term = flags.setdefault(text(bound.term), {})
                if not _is_listed(bound) and len(of_term) <= MOST_FLAGS:
                    flag = _flag(bound)
                    of_term[text(flag)] = flag
                if _is_listed(bound) or len(of_term) > MOST_FLAGS:
                    found[text(bound.term)] = bound.term
        for term, of_term in flags.items():
            if term not in found:
                found |= of_term
        return tuple(found[name] for name in sorted(found))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text(key): at for at, key in enumerate(self.keys)}

    def place(self, key: Expr) -> int:
        """Where a key is among those of the panes."""
        return self._places[text(key)]

    def _bounds(self, form: Form) -> list[Bound]:
        """What the operator does not see to already."""
        known = self.operator.where.known
        return [b for b in form.bounds if not known.domain(b.term) <= b.domain]

    # ---- telling

    @property
    def tellings(self) -> tuple[Telling, ...]:
        return self._told[0]

    @property
    def columns(self) -> tuple[Type, ...]:
        """The types of the columns in which all queries are told."""
        return self._told[1]

    @cached_property
    def _told(self) -> tuple[tuple[Telling, ...], tuple[Type, ...]]:
        alike: dict[Hashable, dict[str, tuple[Bound, ...]]] = {}
        blocks: dict[Hashable, tuple[Form, tuple[Bound, ...]]] = {}
        families: dict[Hashable, Hashable] = {}
        for form in self.forms:
            apart, filters = self._split(form)
            family = (
                form.output,
                body_text(replace(form.content, where=self.operator.where)),
                tuple(text(b.term) for b in filters),
                tuple(text(b.term) for b in apart),
            )
            key: Hashable = (family, tuple(b.domain for b in filters))
            families[key] = family
            blocks.setdefault(key, (form, filters))
            alike.setdefault(key, {})[form.digest] = apart
        found = []
        columns: list[Type] = []
        for key, members in alike.items():
            form, filters = blocks[key]
            terms = tuple(bound.term for bound in next(iter(members.values())))
            block = _extended(form, terms)
            slots = _slots(form.content.items, columns)
            wanted = {digest: [b.domain for b in bounds] for digest, bounds in members.items()}
            for table in tables([term.type for term in terms], wanted):
                found.append(
                    Telling(form.output, block, filters, terms, table, slots, families[key])
                )
        return tuple(found), tuple(columns)

    def _split(self, form: Form) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        """The bounds that distinguish emitted rows, and those that select panes: if there is one of the
        latter all are, as each telling then sees panes of its own."""
        apart: list[Bound] = []
        filters: list[Bound] = []
        own = {text(key) for key in form.keys}
        shown = _shown(form)
        for bound in self._bounds(form):
            if text(bound.term) not in self._places:
                filters.append(Bound(_flag(bound), of(BOOLEAN, [True])))
            elif form.keys and (
                bound.domain.is_point
                or text(bound.term) in shown
                or (form.output is Output.RSTREAM and text(bound.term) in own)
            ):
                apart.append(bound)
            else:
                filters.append(bound)
        return ((), (*apart, *filters)) if filters else (tuple(apart), ())

    @cached_property
    def members(self) -> dict[str, Member]:
        """The queries by digest."""
        return {
            digest: Member(at, classes, telling.slots)
            for at, telling in enumerate(self.tellings)
            for digest, classes in telling.table.classes.items()
        }


def _windows(forms: Sequence[Form]) -> list[Range]:
    windows = (scan.window for form in forms for scan in form.scans)
    return [window for window in windows if isinstance(window, Range)]


def _slots(items: Sequence[Expr], columns: list[Type]) -> tuple[int, ...]:
    """Columns for items, shared with other tellings where types agree; new ones are added."""
    found: list[int] = []
    for item in items:
        free = (n for n, type_ in enumerate(columns) if type_ == item.type and n not in found)
        at = next(free, len(columns))
        if at == len(columns):
            columns.append(item.type)
        found.append(at)
    return tuple(found)


def _is_listed(bound: Bound) -> bool:
    return bound.domain.values(MOST_VALUES) is not None


def _flag(bound: Bound) -> Expr:
    """Whether a row is within a bound."""
    condition = bound.domain.as_expr(bound.term)
    assert condition is not None
    return condition


def _shown(form: Form) -> set[str]:
    """The keys that are told as they are."""
    block = form.content
    if block.group is None:
        return {text(item) for item in block.items}
    places = {text(Column(GROUP, f"k{n}", k.type)): text(k) for n, k in enumerate(form.keys)}
    return {places[text(item)] for item in block.items if text(item) in places}


def _extended(form: Form, terms: Sequence[Expr]) -> Block:
    """What a form tells, with terms among its keys and items."""
    block = form.content
    if block.group is None:
        return replace(block, items=(*block.items, *terms))
    known = {text(key) for key in form.keys}
    keys = (*form.keys, *(term for term in terms if text(term) not in known))
    at = {text(key): n for n, key in enumerate(keys)}
    shown = [Column(GROUP, f"k{at[text(term)]}", term.type) for term in terms]
    group = replace(block.group, keys=keys)
    return replace(block, group=group, items=(*block.items, *shown))
