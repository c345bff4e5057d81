"""Which rows a query emits, from the relation that it is."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Output
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name
from headwater.runtime.compile.shared_join import search_sql
from headwater.runtime.compile.windows import FOREVER, last_multiple_sql

INSTANTS = "instants"
"""The view of the step's instants, those before them first, as the array `ts` in one row."""


def reads_instants(timeline: Timeline, output: Output) -> bool:
    """Whether the instants of the step do not follow from the slides."""
    return not timeline.slides or (output is Output.RSTREAM and len(timeline.slides) > 1)


def output_sql(
    timeline: Timeline,
    output: Output,
    columns: Sequence[Column],
    text: str,
    number: int,
    are_rows_distinct: bool,
) -> str:
    """`_tau` and c0, c1, .. of what is emitted at the instants after the last one evaluated; `number` is how
    many instants there are about.

    RSTREAM: each row at each instant of its lifetime. ISTREAM: at the first of them, DSTREAM: at the first
    one after them. A row whose equal is there just before does not enter, which cannot be if pieces of the
    same row never touch (`are_rows_distinct`).
    """
    writer = _Writer(timeline, output, columns, text, number)
    if output is Output.RSTREAM:
        return writer.copies()
    return writer.ends() if are_rows_distinct and not timeline.keys else writer.changes()


class _Writer:
    def __init__(
        self,
        timeline: Timeline,
        output: Output,
        columns: Sequence[Column],
        text: str,
        number: int,
    ) -> None:
        self.timeline = timeline
        self.output = output
        self.names = [flat_name(c) for c in columns]
        self.number = number
        reads = reads_instants(timeline, output)
        self.rows = f"{text} CROSS JOIN {INSTANTS}" if reads else text

    def copies(self) -> str:
        """Each row at each instant at which it is there."""
        timeline = self.timeline
        first, last = f"greatest({FROM}, {timeline.first}L)", f"least({TO} - 1L, {timeline.last}L)"
        if len(timeline.slides) == 1:
            (slide,) = timeline.slides
            begin = timeline.slide_up_sql(first)
            end = last_multiple_sql(f"({last})", slide)
            rows = f"SELECT *, {begin} AS _begin, {end} AS _end FROM {self.rows}"
            seen = f"explode(sequence(_begin, _end, {slide}L))"
            return f"SELECT {seen} AS _tau, {self._shown()} FROM ({rows}) WHERE _begin <= _end"
        begin = f"{self._search(f'{first} - 1L')} + 1"
        size = f"{self._search(last)} - _begin + 1"
        rows = f"SELECT *, {begin} AS _begin FROM {self.rows}"
        rows = f"SELECT *, {size} AS _size FROM ({rows})"
        return f"SELECT explode(slice(ts, _begin, _size)) AS _tau, {self._shown()} FROM ({rows}) WHERE _size > 0"

    def ends(self) -> str:
        """Each row at the instant at which it enters (leaves)."""
        entry, leaving = self._instant(FROM), self._instant(TO)
        if self.output is Output.ISTREAM:
            tau, due = entry, f"{FROM} >= {self._since}L"
        else:
            tau, due = leaving, f"{TO} <= {self.timeline.last}L"
        rows = f"SELECT {entry} AS _enters, {leaving} AS _leaves, {tau} AS _tau, {self._shown()} FROM {self.rows}"
        return (
            f"SELECT * EXCEPT (_enters, _leaves) FROM ({rows} WHERE {due}) WHERE _enters < _leaves"
        )

    def changes(self) -> str:
        """What enters more often than an equal row leaves at the same instant (or the reverse)."""
        sign = 1 if self.output is Output.ISTREAM else -1
        entry = f"struct({self._instant(FROM)} AS tau, {sign} AS w)"
        leaving = f"struct({self._instant(TO)} AS tau, {-sign} AS w)"
        listed = ", ".join([ID, *self.names])
        rows = f"SELECT {listed}, explode(array({entry}, {leaving})) AS _move FROM {self.rows}"
        due = f"_move.tau >= {self._since}L AND _move.tau <= {self.timeline.last}L"
        sums = (
            f"SELECT _move.tau AS _tau, {listed}, sum(_move.w) AS _n FROM ({rows}) WHERE {due} "
            f"GROUP BY _move.tau, {listed} HAVING sum(_move.w) > 0"
        )
        copies = f"SELECT *, explode(sequence(1L, _n)) AS _copy FROM ({sums})"
        return f"SELECT _tau, {self._shown()} FROM ({copies})"

    @property
    def _since(self) -> int:
        """The first time that is emitted; what was there before is no change."""
        timeline = self.timeline
        return timeline.first if timeline.before is None else timeline.before + 1

    def _instant(self, time: str) -> str:
        """SQL of the first instant at or after a time; FOREVER after the last."""
        if self.timeline.slides:
            return self.timeline.slide_up_sql(time)
        return f"IF({time} > {self.timeline.last}L, {FOREVER}L, get(ts, {self._search(f'{time} - 1L')}))"

    def _search(self, time: str) -> str:
        """SQL of how many instants there are up to a time."""
        return search_sql("ts", f"({time})", self.number)

    def _shown(self) -> str:
        return ", ".join(f"{name} AS c{i}" for i, name in enumerate(self.names))
