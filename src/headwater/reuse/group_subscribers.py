"""Grouped queries of one operator: the panes that serve all of them, and how each is computed from these.

Panes are grouped by all keys of all queries, and by what their conditions ask beyond the operator's
own: by a term itself where queries ask for single values or many different ranges of it, else by whether
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
from headwater.algebra.conditions.domain import domain_of
from headwater.algebra.conditions.predicate import ANYTHING
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Output
from headwater.algebra.types import BOOLEAN, Type
from headwater.algebra.windows import Range
from headwater.reuse.operator import Operator, relax
from headwater.reuse.row_classes import Subscriber
from headwater.reuse.shapes import ShapeTable, build_tables
from headwater.reuse.signature import (
    Bound,
    QuerySignature,
    bound_condition,
    can_rebuild_panes,
    has_few_values,
)

MAX_FLAGS = 8
"""Where queries ask for more different ranges of a term than these, panes are grouped by the term."""


@dataclass(frozen=True)
class GroupEvaluation:
    """Queries whose rows are computed by one statement.

    `block` has the `terms` that distinguish them as its last items, and among its keys; `filters` select
    the panes that it reads, by their keys. Evaluations of one `family` differ only in the constants of
    their filters.
    """

    output: Output
    block: Block
    filters: tuple[Bound, ...]
    terms: tuple[Expr, ...]
    table: ShapeTable[str]
    column_positions: tuple[int, ...]
    family: Hashable

    @property
    def keys(self) -> tuple[Expr, ...]:
        return self.block.items if self.block.group is None else self.block.group.keys


@dataclass(frozen=True)
class GroupSubscribers:
    """The grouped queries of an operator."""

    operator: Operator
    signatures: tuple[QuerySignature, ...]

    @property
    def panes_can_be_rebuilt(self) -> bool:
        """Whether panes can be made again from what streams keep. Otherwise those of other queries
        follow from the panes that there are, whose keys are those of the operator."""
        return can_rebuild_panes(self.operator.sources)

    @property
    def has_several_windows(self) -> bool:
        """Whether its queries may have different windows: over one stream, if they have an end."""
        return len(self.operator.sources) == 1 and self.panes_can_be_rebuilt

    @cached_property
    def granule(self) -> int:
        """The length of time within which tuples come and go together, for all windows."""
        lengths = [n for w in _range_windows(self.signatures) for n in (w.size, w.slide) if n]
        # Sizes as well as slides: a tuple leaves a window at its time plus the size, so panes may
        # not straddle a multiple of either. Without a slide windows move with every event, and no
        # two event times may share a pane.
        return gcd(*lengths) if self.slides else 1

    @cached_property
    def slides(self) -> frozenset[int]:
        return frozenset(w.slide for w in _range_windows(self.signatures) if w.slide)

    @cached_property
    def reach(self) -> int:
        """How long after its event time a tuple has left all windows."""
        return max((w.size or 0) + (w.slide or 0) for w in _range_windows(self.signatures)) + 1

    @cached_property
    def layout(self) -> str:
        """What panes are made of, in short: panes of the same layout mean the same."""
        operator = self.operator
        content = Block(
            # Over one stream the operator's window is not part of the layout: `reach` bounds what
            # panes keep, and while it and the granule stay, a query with another window joins without panes being built
            # again.
            () if self.has_several_windows else operator.sources,
            operator.where,
            (),
            Group(self.keys, operator.calls, ANYTHING),
            (),
            False,
        )
        description = f"{self.granule} {self.reach} {body_text(content)}"
        return blake2b(description.encode(), digest_size=16).hexdigest()

    # ---- panes

    @cached_property
    def keys(self) -> tuple[Expr, ...]:
        """What panes are grouped by."""
        if not self.panes_can_be_rebuilt:
            return self.operator.keys
        keys = {canonical_text(key): key for signature in self.signatures for key in signature.keys}
        flags: dict[str, dict[str, Expr]] = {}
        for signature in self.signatures:
            for bound in self._residual_bounds(signature):
                of_term = flags.setdefault(canonical_text(bound.term), {})
                if not has_few_values(bound) and len(of_term) <= MAX_FLAGS:
                    flag = bound_condition(bound)
                    of_term[canonical_text(flag)] = flag
                if has_few_values(bound) or len(of_term) > MAX_FLAGS:
                    keys[canonical_text(bound.term)] = bound.term
        for term, of_term in flags.items():
            # A flag follows from its term: where panes are grouped by the term, flags would only
            # split them.
            if term not in keys:
                keys |= of_term
        return tuple(keys[name] for name in sorted(keys))

    def follows_from(self, before: GroupSubscribers) -> bool:
        """Whether panes can be made of those for the operator of other subscribers, which serves these too."""
        ours, theirs = self.operator, before.operator
        return ours.sharing_key == theirs.sharing_key and all(
            relax(theirs, signature) is theirs for signature in self.signatures
        )

    @cached_property
    def _key_positions(self) -> dict[str, int]:
        return {canonical_text(key): at for at, key in enumerate(self.keys)}

    def key_position(self, key: Expr) -> int:
        """Where a key is among those of the panes."""
        return self._key_positions[canonical_text(key)]

    def _residual_bounds(self, signature: QuerySignature) -> list[Bound]:
        """What the operator does not see to already."""
        facts = self.operator.where.index
        return [b for b in signature.bounds if not facts.domain(b.term) <= b.domain]

    def filters_of(self, signature: QuerySignature) -> tuple[Bound, ...]:
        """Which panes a query sees, by their keys."""
        positions = self._key_positions
        return tuple(
            bound
            if canonical_text(bound.term) in positions
            else Bound(bound_condition(bound), domain_of(BOOLEAN, [True]))
            for bound in self._residual_bounds(signature)
        )

    # ---- evaluating

    @property
    def evaluations(self) -> tuple[GroupEvaluation, ...]:
        return self._evaluations_and_types[0]

    @property
    def column_types(self) -> tuple[Type, ...]:
        """The types of the columns in which the rows of all queries are emitted."""
        return self._evaluations_and_types[1]

    @cached_property
    def _evaluations_and_types(self) -> tuple[tuple[GroupEvaluation, ...], tuple[Type, ...]]:
        alike: dict[Hashable, dict[str, tuple[Bound, ...]]] = {}
        blocks: dict[Hashable, tuple[QuerySignature, tuple[Bound, ...]]] = {}
        families: dict[Hashable, Hashable] = {}
        for signature in self.signatures:
            distinguishing, filters = self._split_bounds(signature)
            family = (
                signature.output,
                body_text(replace(signature.content, where=self.operator.where)),
                tuple(canonical_text(b.term) for b in filters),
                tuple(canonical_text(b.term) for b in distinguishing),
            )
            key: Hashable = (family, tuple(b.domain for b in filters))
            families[key] = family
            blocks.setdefault(key, (signature, filters))
            alike.setdefault(key, {})[signature.digest] = distinguishing
        evaluations = []
        column_types: list[Type] = []
        for key, subscribers in alike.items():
            signature, filters = blocks[key]
            terms = tuple(bound.term for bound in next(iter(subscribers.values())))
            block = _add_terms(signature, terms)
            column_positions = assign_columns(signature.content.items, column_types)
            domains = {digest: [b.domain for b in bounds] for digest, bounds in subscribers.items()}
            for table in build_tables([term.type for term in terms], domains):
                evaluations.append(
                    GroupEvaluation(
                        signature.output,
                        block,
                        filters,
                        terms,
                        table,
                        column_positions,
                        families[key],
                    )
                )
        return tuple(evaluations), tuple(column_types)

    def _split_bounds(
        self, signature: QuerySignature
    ) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        """The bounds that distinguish emitted rows, and those that select panes: if there is one of the
        latter, all select panes, as the evaluation then reads panes of its own anyway."""
        distinguishing: list[Bound] = []
        filters: list[Bound] = []
        own_keys = {canonical_text(key) for key in signature.keys}
        emitted_keys = _emitted_keys(signature)
        for bound in self._residual_bounds(signature):
            if canonical_text(bound.term) not in self._key_positions:
                filters.append(Bound(bound_condition(bound), domain_of(BOOLEAN, [True])))
            # A bound may be applied to emitted rows only if it cannot change their values. Without
            # keys there is one row for everything, so it has to select panes.
            elif signature.keys and (
                bound.domain.is_point
                or canonical_text(bound.term) in emitted_keys
                or (signature.output is Output.RSTREAM and canonical_text(bound.term) in own_keys)
            ):
                distinguishing.append(bound)
            else:
                filters.append(bound)
        return ((), (*distinguishing, *filters)) if filters else (tuple(distinguishing), ())

    @cached_property
    def subscribers(self) -> dict[str, Subscriber]:
        """The queries by digest."""
        return {
            digest: Subscriber(at, row_classes, evaluation.column_positions)
            for at, evaluation in enumerate(self.evaluations)
            for digest, row_classes in evaluation.table.row_classes.items()
        }


def _range_windows(signatures: Sequence[QuerySignature]) -> list[Range]:
    windows = (scan.window for signature in signatures for scan in signature.scans)
    return [window for window in windows if isinstance(window, Range)]


def assign_columns(items: Sequence[Expr], columns: list[Type]) -> tuple[int, ...]:
    """Columns for items, shared with other statements where types agree; new ones are added."""
    positions: list[int] = []
    for item in items:
        free = (n for n, type_ in enumerate(columns) if type_ == item.type and n not in positions)
        at = next(free, len(columns))
        if at == len(columns):
            columns.append(item.type)
        positions.append(at)
    return tuple(positions)


def _emitted_keys(signature: QuerySignature) -> set[str]:
    """The keys that are emitted unchanged."""
    block = signature.content
    if block.group is None:
        return {canonical_text(item) for item in block.items}
    key_texts = {
        canonical_text(Column(GROUP, f"k{n}", k.type)): canonical_text(k)
        for n, k in enumerate(signature.keys)
    }
    return {
        key_texts[canonical_text(item)] for item in block.items if canonical_text(item) in key_texts
    }


def _add_terms(signature: QuerySignature, terms: Sequence[Expr]) -> Block:
    """What a signature emits, with terms among its keys and items."""
    block = signature.content
    if block.group is None:
        return replace(block, items=(*block.items, *terms))
    key_texts = {canonical_text(key) for key in signature.keys}
    keys = (*signature.keys, *(term for term in terms if canonical_text(term) not in key_texts))
    at = {canonical_text(key): n for n, key in enumerate(keys)}
    term_columns = [Column(GROUP, f"k{at[canonical_text(term)]}", term.type) for term in terms]
    group = replace(block.group, keys=keys)
    return replace(block, group=group, items=(*block.items, *term_columns))
