"""Which rows of an operator each of its queries wants, and what it tells of them.

Queries that bound the same terms and slide alike make one shape. What a window leaves out of an
operator's longer one is a bound too: on how long before the result its tuple came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.domain import Domain, compare
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Scan
from headwater.algebra.simplify import text
from headwater.algebra.types import BIGINT
from headwater.algebra.windows import Range
from headwater.reuse.form import Bound, Form
from headwater.reuse.member import Member
from headwater.reuse.operator import Operator
from headwater.reuse.shapes import Table, tables

Slides = tuple[int | None, ...]
"""By what the windows of a query slide, source by source."""

HELD = "$held"
"""The alias of columns that say how long before a result the tuple of a source came."""


@dataclass(frozen=True)
class Shape:
    """The terms that some queries bound, their windows' slides, and their table of constants."""

    slides: Slides
    terms: tuple[Expr, ...]
    table: Table[str]


@dataclass(frozen=True)
class Members:
    """Queries of one operator, by digest: their shapes, and all items that any of them tells."""

    operator: Operator
    forms: tuple[Form, ...]

    @cached_property
    def items(self) -> tuple[Expr, ...]:
        return tuple({text(item): item for f in self.forms for item in f.content.items}.values())

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        alike: dict[tuple[Slides, tuple[str, ...]], dict[str, tuple[Bound, ...]]] = {}
        for form in self.forms:
            bounds = self.bounds(form)
            key = (_slides(form.scans), tuple(text(bound.term) for bound in bounds))
            alike.setdefault(key, {})[form.digest] = bounds
        found = []
        for (slides, _), members in alike.items():
            terms = [bound.term for bound in next(iter(members.values()))]
            wanted = {digest: [b.domain for b in bounds] for digest, bounds in members.items()}
            for table in tables([term.type for term in terms], wanted):
                found.append(Shape(slides, tuple(terms), table))
        return tuple(found)

    @cached_property
    def members(self) -> dict[str, Member]:
        """The queries by digest."""
        shape_of = {
            digest: (at, classes)
            for at, shape in enumerate(self.shapes)
            for digest, classes in shape.table.classes.items()
        }
        place = {text(item): at for at, item in enumerate(self.items)}
        return {
            form.digest: Member(
                *shape_of[form.digest], tuple(place[text(item)] for item in form.content.items)
            )
            for form in self.forms
        }

    def bounds(self, form: Form) -> tuple[Bound, ...]:
        """What a query wants of rows that the operator does not see to already."""
        known = self.operator.where.known
        bounds = [
            b
            for b in form.bounds
            if b.term not in known.terms and not known.domain(b.term) <= b.domain
        ]
        return (*bounds, *self._held(form))

    def _held(self, form: Form) -> list[Bound]:
        found = []
        same = _slides(form.scans) == _slides(self.operator.scans)
        for own, theirs in zip(form.scans, self.operator.scans, strict=True):
            assert isinstance(own.window, Range)
            if own.window.size is not None and not (same and own.window == theirs.window):
                found.append(Bound(held(own), at_most(own.window.size)))
        return found


def held(scan: Scan) -> Column:
    """How long before a result the window's last change and the tuple of a source lie apart."""
    return Column(HELD, scan.alias, BIGINT, nullable=False)


def at_most(size: int) -> Domain:
    return compare(BIGINT, "<=", size)


def _slides(scans: Sequence[Scan]) -> Slides:
    return tuple(s.window.slide if isinstance(s.window, Range) else None for s in scans)
