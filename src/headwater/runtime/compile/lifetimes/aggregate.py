"""GROUP BY, and aggregates without keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headwater.algebra.expressions import Column
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Aggregate
from headwater.algebra.types import BOOLEAN
from headwater.runtime.compile.lifetimes.endless import is_endless
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name
from headwater.runtime.compile.windows import FOREVER
from headwater.runtime.spark.aggregates import PartialAggregate, aggregate_sql, partial_aggregate
from headwater.runtime.spark.sql import expression_sql, quote_identifier

COUNT = "_n"


def aggregate_sql_of(timeline: Timeline, node: Aggregate, text: str) -> str:
    """A row for each group, from each of its changes until the next: it changes where a row of it enters or
    leaves, and is there while it has rows (without keys: all the time)."""
    writer = _Groups(timeline, node, f"({_arguments(timeline, node, text)})")
    rows = writer.by_running_values() if follows_from_before(node) else writer.by_join()
    columns = [
        f"{name} AS {flat_name(column)}"
        for name, column in zip([*writer.keys, *writer.values], node.columns, strict=True)
    ]
    end = f"IF({TO} > {timeline.last}L, {FOREVER}L, {TO}) AS {TO}"
    no_id = f"CAST(NULL AS STRING) AS {ID}"
    return f"(SELECT {timeline.select([FROM, end, no_id, *columns])} FROM ({rows}))"


def follows_from_before(node: Aggregate) -> bool:
    """Whether the value of a group follows, exactly, from the one before and what entered and left."""
    partials = [partial_aggregate(call, i) for i, call in enumerate(node.calls)]
    usable = [partial for partial in partials if partial is not None]
    if len(usable) < len(partials):
        return False
    if all(partial.can_subtract for partial in usable):
        return True
    # Where nothing leaves, nothing has to be subtracted. A merge that is no plain function would
    # read all rows again for each change.
    merges = [part.merge for partial in usable for part in partial.columns]
    return is_endless(node.input) and all(merge.isidentifier() for merge in merges)


def _arguments(timeline: Timeline, node: Aggregate, text: str) -> str:
    """The keys k0, .. of each row, and what aggregates read of it: x0, .. and, of a FILTER, f0, .."""
    columns = [f"{expression_sql(key, flat_name)} AS k{i}" for i, key in enumerate(node.keys)]
    for i, call in enumerate(node.calls):
        if call.arg is not None:
            columns.append(f"{expression_sql(call.arg, flat_name)} AS x{i}")
        if call.filter is not None:
            columns.append(f"{expression_sql(call.filter, flat_name)} AS f{i}")
    return f"SELECT {timeline.select([FROM, TO, *columns])} FROM {text}"


@dataclass(frozen=True)
class _Groups:
    """The groups of rows that have keys and arguments."""

    timeline: Timeline
    node: Aggregate
    rows: str

    @cached_property
    def keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.node.keys))]

    @cached_property
    def values(self) -> list[str]:
        return [f"a{i}" for i in range(len(self.node.calls))]

    @cached_property
    def _group(self) -> list[str]:
        return [*self.timeline.keys, *self.keys]

    @property
    def _by(self) -> str:
        return f"PARTITION BY {', '.join(self._group) or '1'}"

    # ---- where a group changes

    def _events(self) -> str:
        """Each row twice: where it enters (`_w` 1), and where it leaves (-1), if it does."""
        if is_endless(self.node.input):
            return f"(SELECT *, {FROM} AS _t, 1 AS _w FROM {self.rows})"
        enters, leaves = f"struct({FROM} AS _t, 1 AS _w)", f"struct({TO} AS _t, -1 AS _w)"
        both = f"IF({TO} = {FOREVER}L, array({enters}), array({enters}, {leaves}))"
        rows = f"(SELECT *, explode({both}) AS _event FROM {self.rows})"
        return f"(SELECT *, _event._t AS _t, _event._w AS _w FROM {rows})"

    def _always(self, columns: Sequence[str]) -> str:
        """The begin of a group that is there also without rows."""
        return self.timeline.whole_sql(", ".join(columns)) if not self.keys else ""

    def _end(self) -> str:
        """SQL of when the last piece of a group ends."""
        bands = self.timeline.bands
        if bands is None:
            return f"{FOREVER}L"
        end = f"{self.timeline.start}L + (_band + 1L) * {bands.length}L"
        return f"IF(_band = {bands.count - 1}L, {FOREVER}L, {end})"

    # ---- values

    def by_running_values(self) -> str:
        """What entered, merged along time, and without what left."""
        partials = [partial_aggregate(call, i) for i, call in enumerate(self.node.calls)]
        usable = [p for p in partials if p is not None]
        parts = [part for p in usable for part in p.columns]
        merges = {COUNT: "sum", **{part.name: part.merge for part in parts}}
        builds = [f"count(*) AS {COUNT}", *(f"{part.build} AS {part.name}" for part in parts)]
        group = ", ".join([*self._group, "_t", "_w"])
        sums = f"SELECT {', '.join([group, *builds])} FROM {self._events()} GROUP BY {group}"
        if not self.keys:
            head = [*self.timeline.keys, f"{FROM} AS _t", "1 AS _w", f"0L AS {COUNT}"]
            nothing = ", ".join([*head, *(f"NULL AS {part.name}" for part in parts)])
            sums += f" UNION ALL SELECT {nothing} FROM {self._always(['1 AS _one'])}"
        totals = ", ".join(
            f"{self._running_sql(name, merge)} OVER ({self._by} ORDER BY _t) AS {name}"
            for name, merge in merges.items()
        )
        # Of two rows at one time, both have the same totals, and the first lasts no time.
        following = f"lead(_t) OVER ({self._by} ORDER BY _t, _w) AS _next"
        listed = ", ".join([*self._group, "_t"])
        running = f"SELECT {listed}, {totals}, {following} FROM ({sums})"
        conditions = ["(_next IS NULL OR _t < _next)", *([f"{COUNT} > 0"] if self.keys else [])]
        return f"{self._pieces(self._finished(usable))} FROM ({running}) WHERE {' AND '.join(conditions)}"

    def _running_sql(self, name: str, merge: str) -> str:
        """The aggregate that merges a part along time."""
        if is_endless(self.node.input):
            return f"{merge}({name})"
        return f"sum(IF(_w = 1, {name}, -{name}))"

    def by_join(self) -> str:
        """For each change the aggregates over the rows that are there then."""
        points = f"SELECT DISTINCT {', '.join([*self._group, '_t'])} FROM {self._events()}"
        if not self.keys:
            head = ", ".join([*self.timeline.keys, f"{FROM} AS _t"])
            points += f" UNION SELECT {head} FROM {self._always(['1 AS _one'])}"
        spans = f"SELECT *, lead(_t) OVER ({self._by} ORDER BY _t) AS _next FROM ({points})"
        # Null-safe equality: NULL is a group of its own, which `=` would never find.
        same = [f"s.{name} <=> x.{name}" for name in self._group]
        same += [f"x.{FROM} <= s._t", f"s._t < x.{TO}"]
        by = ", ".join([*(f"s.{name}" for name in self._group), "s._t", "s._next"])
        calls = [
            f"{aggregate_sql(_over_arguments(call, i), _plain_name, f'x.{FROM} IS NOT NULL')} AS a{i}"
            for i, call in enumerate(self.node.calls)
        ]
        kind = "JOIN" if self.keys else "LEFT JOIN"
        values = (
            f"SELECT {', '.join([by, *calls])} FROM ({spans}) s {kind} {self.rows} x "
            f"ON {' AND '.join(same)} GROUP BY {by}"
        )
        return f"{self._pieces(self.values)} FROM ({values})"

    def _pieces(self, values: Sequence[str]) -> str:
        lifetime = [f"_t AS {FROM}", f"coalesce(_next, {self._end()}) AS {TO}"]
        return f"SELECT {', '.join([*self._group, *lifetime, *values])}"

    def _finished(self, partials: Sequence[PartialAggregate]) -> list[str]:
        return [f"{p.finish_sql(lambda name: name)} AS a{i}" for i, p in enumerate(partials)]


def _plain_name(column: Column) -> str:
    return quote_identifier(column.name)


def _over_arguments(call: AggregateCall, i: int) -> AggregateCall:
    """The call over the columns x and f."""
    arg = None if call.arg is None else Column("", f"x{i}", call.arg.type)
    condition = None if call.filter is None else Column("", f"f{i}", BOOLEAN)
    return replace(call, arg=arg, filter=condition)
