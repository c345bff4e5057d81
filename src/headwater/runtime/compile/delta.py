"""Select-project-join by deltas: each new combination of tuples is made once.

For inputs 1..k the sum over i of N1 .. N(i-1) |x| delta_i |x| O(i+1) .. Ok, where N is all, O what
was there before and delta the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.canonical import Block
from headwater.algebra.expressions import Call, Column, columns_of, conjuncts
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.predicate import to_expr
from headwater.algebra.windows import Range, Rows
from headwater.runtime.compile.windows import (
    TIME,
    entry_instant,
    exit_time,
    greatest,
    holds,
    least,
    slides_of,
)
from headwater.runtime.sparksql import quoted, sql

PART = "part"
"""The alias of rows that another unit has joined already; each source of them is a struct."""


BAND = "_band"
"""A column that tuples of a source have in common with those of the delta that they can meet."""


@dataclass(frozen=True)
class Views:
    """What a term reads: a view for each source, which of them are sent whole to every task, and which
    have a band in common with the first one."""

    names: Mapping[str, str]
    broadcast: Sequence[str] = ()
    banded: frozenset[str] = frozenset()


def band_of(alias: str) -> str:
    """The column of the first source that is equal to the band of another."""
    return f"{BAND}_{alias}"


@dataclass(frozen=True)
class Delta:
    """A select-project-join of windows and tables; a window by rows has been opened before."""

    block: Block
    part: frozenset[str] = frozenset()
    """The sources that come together, as the rows of another unit."""

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """The streams of the query by their place: (s0, scan), .."""
        return tuple((s.alias, s) for s in self.block.sources if isinstance(s, Scan))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        """The tables by their place, but for those that were joined already."""
        found = [s for s in self.block.sources if isinstance(s, TableScan)]
        return tuple((s.alias, s) for s in found if s.alias not in self.part)

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        """What its steps read."""
        return tuple(alias for alias, _ in self.scans)

    @cached_property
    def slides(self) -> frozenset[int]:
        return slides_of(scan.window for _, scan in self.scans)

    @cached_property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        """Columns of two sources that have to be equal, each pair both ways."""
        pairs = []
        for part in conjuncts(to_expr(self.block.where)):
            if isinstance(part, Call) and part.name == "=":
                a, b = part.args
                if isinstance(a, Column) and isinstance(b, Column) and a.relation != b.relation:
                    pairs += [(a, b), (b, a)]
        return tuple(pairs)

    @cached_property
    def entry(self) -> str:
        """SQL of the first instant at which all windows hold their tuple of a combination."""
        return greatest(
            [entry_instant(f"{a}.{TIME}", scan.window, self.slides) for a, scan in self.scans]
        )

    @cached_property
    def exit(self) -> str:
        """SQL of the time from which one of the windows no longer holds its tuple."""
        return least([exit_time(alias, scan.window) for alias, scan in self.scans])

    def reach(self, alias: str) -> tuple[int | None, int]:
        """How far before (None: for ever) and after a tuple of another input one of `alias` may be
        to meet it in a result."""
        mine = self.part if alias == PART else {alias}
        others = [scan.window for a, scan in self.scans if a not in mine]
        slack = max(self.slides, default=0)
        sizes = [w.size for w in others if isinstance(w, Range)]
        after = 2**62 if None in sizes else max((s for s in sizes if s is not None), default=0)
        windows = [scan.window for a, scan in self.scans if a in mine]
        own = [w.size if isinstance(w, Range) else None for w in windows]
        before = None if None in own else max((s for s in own if s is not None), default=0)
        return (None if before is None else before + slack, after + slack)

    def term(self, order: Sequence[str], views: Views) -> str:
        """SQL of one term: `_tau` and the items of sources joined in that order."""
        return self.select([f"{self.entry} AS _tau", *self._items()], order, views)

    def whole(self, terms: Sequence[str]) -> str:
        """SQL of all that a delta brings, from its terms."""
        return "\nUNION ALL\n".join(terms)

    def _items(self) -> list[str]:
        return [f"{sql(e, dotted)} AS c{i}" for i, e in enumerate(self.block.items)]

    def select(
        self,
        items: Iterable[str],
        order: Sequence[str],
        views: Views,
    ) -> str:
        """SQL of items over the combinations that the windows hold at once."""
        pending = [
            (columns_of(part), sql(part, dotted)) for part in conjuncts(to_expr(self.block.where))
        ]
        bound: set[str] = set()
        lines: list[str] = []
        first: list[str] = []
        for alias in order:
            bound |= self.part if alias == PART else {alias}
            is_first = not lines
            ready = [text for read, text in pending if {c.relation for c in read} <= bound]
            pending = [(r, t) for r, t in pending if not {c.relation for c in r} <= bound]
            if alias in views.banded:
                ready.append(f"{order[0]}.{band_of(alias)} = {alias}.{BAND}")
            if is_first:
                first = ready
                lines.append(f"FROM {views.names[alias]} {alias}")
            else:
                lines.append(
                    f"JOIN {views.names[alias]} {alias} ON {' AND '.join(ready) or 'TRUE'}"
                )
        conditions = [*first, *self._held()]
        sent = ", ".join(views.broadcast)
        hint = f"/*+ BROADCAST({sent}) */ " if sent else ""
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {hint}{', '.join(items)}\n" + "\n".join([*lines, where])

    def _held(self) -> list[str]:
        if any(isinstance(scan.window, Rows) for _, scan in self.scans):
            return [f"{self.entry} < {self.exit}"]
        return [
            held
            for a, scan in self.scans
            if isinstance(scan.window, Range)
            and (held := holds(f"{a}.{TIME}", self.entry, scan.window)) is not None
            and not self._always_holds(scan.window)
        ]

    def _always_holds(self, window: Range) -> bool:
        """A lone stream's window holds its newest tuple, unless slides pass tuples by."""
        return len(self.scans) == 1 and window.slide is None and not self.slides


def dotted(column: Column) -> str:
    """A column of a source as SQL."""
    return f"{column.relation}.{quoted(column.name)}"
