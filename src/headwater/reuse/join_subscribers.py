"""Which rows of a join operator are results of which query, and in which columns.

Queries of one lane that bound the same terms and slide alike make one shape. Where a query's window is
shorter than the operator's, that is a bound too: on how long before the result the tuple came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.conditions.domain import Domain, comparison_domain
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Scan
from headwater.algebra.types import BIGINT
from headwater.algebra.windows import Range
from headwater.reuse.lanes import Lane, lanes_of
from headwater.reuse.operator import Operator
from headwater.reuse.row_classes import Subscriber
from headwater.reuse.shapes import ShapeTable, build_tables
from headwater.reuse.signature import Bound, QuerySignature

Slides = tuple[int | None, ...]
"""By what the windows of a query slide, source by source."""

AGE = "$held"
"""The alias of columns that say how long before a result the tuple of a source came."""


@dataclass(frozen=True)
class Shape:
    """The terms that some queries of a lane bound, their windows' slides, and their table of constants."""

    lane: int
    slides: Slides
    terms: tuple[Expr, ...]
    table: ShapeTable[str]


@dataclass(frozen=True)
class JoinSubscribers:
    """Queries of one operator, by digest: their shapes, and all items that any of them emits."""

    operator: Operator
    signatures: tuple[QuerySignature, ...]

    @cached_property
    def items(self) -> tuple[Expr, ...]:
        return tuple(
            {
                canonical_text(item): item for f in self.signatures for item in f.content.items
            }.values()
        )

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        return lanes_of(self.operator, self.signatures)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(
            shape
            for number, lane in enumerate(self.lanes)
            for shape in self._lane_shapes(number, lane)
        )

    def _lane_shapes(self, number: int, lane: Lane) -> Iterator[Shape]:
        alike: dict[tuple[Slides, tuple[str, ...]], dict[str, tuple[Bound, ...]]] = {}
        for signature in lane.signatures:
            bounds = self.residual_bounds(signature)
            key = (_slides(signature.scans), tuple(canonical_text(bound.term) for bound in bounds))
            alike.setdefault(key, {})[signature.digest] = bounds
        for (slides, _), subscribers in alike.items():
            terms = [bound.term for bound in next(iter(subscribers.values()))]
            domains = {digest: [b.domain for b in bounds] for digest, bounds in subscribers.items()}
            for table in build_tables([term.type for term in terms], domains):
                yield Shape(number, slides, tuple(terms), table)

    @cached_property
    def subscribers(self) -> dict[str, Subscriber]:
        """The queries by digest."""
        shape_of = {
            digest: (at, row_classes)
            for at, shape in enumerate(self.shapes)
            for digest, row_classes in shape.table.row_classes.items()
        }
        positions = {canonical_text(item): at for at, item in enumerate(self.items)}
        return {
            signature.digest: Subscriber(
                *shape_of[signature.digest],
                tuple(positions[canonical_text(item)] for item in signature.content.items),
            )
            for signature in self.signatures
        }

    def residual_bounds(self, signature: QuerySignature) -> tuple[Bound, ...]:
        """The bounds of a query that the operator's own condition does not imply."""
        facts = self.operator.where.index
        bounds = [
            b
            for b in signature.bounds
            if b.term not in facts.terms and not facts.domain(b.term) <= b.domain
        ]
        return (*bounds, *self._age_bounds(signature))

    def _age_bounds(self, signature: QuerySignature) -> list[Bound]:
        bounds = []
        same = _slides(signature.scans) == _slides(self.operator.scans)
        for own, theirs in zip(signature.scans, self.operator.scans, strict=True):
            assert isinstance(own.window, Range)
            # With other slides even an equal size is a bound: the operator's windows are then
            # longer by a slide (`unslid_window`).
            if own.window.size is not None and not (same and own.window == theirs.window):
                bounds.append(Bound(age_column(own), at_most_domain(own.window.size)))
        return bounds


def age_column(scan: Scan) -> Column:
    """The time between a tuple of a source and the last change of its window before the result."""
    return Column(AGE, scan.alias, BIGINT, nullable=False)


def at_most_domain(size: int) -> Domain:
    return comparison_domain(BIGINT, "<=", size)


def _slides(scans: Sequence[Scan]) -> Slides:
    return tuple(s.window.slide if isinstance(s.window, Range) else None for s in scans)
