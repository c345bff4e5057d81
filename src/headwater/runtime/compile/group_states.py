"""The values of groups while they last: each from the instant of a change until the next one.

A group changes only where one of its panes begins or ends, so nothing is computed in between, and no
pane is looked at once for each instant. Three rules cover the aggregates. What can be subtracted exactly is
a running sum of what came and went. The distinct values of a group are the stretches of time in which it has
each value; how many there are is a running sum again. All else that merges (least, largest, sums of
doubles) is divided at fixed times: the panes that are there at an instant are those that began before it,
of some that last until a later fixed time, and those that end after it, of some that were there at an
earlier one. Both are running aggregates to which panes are only added, in order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.runtime.compile.windows import FOREVER, least_sql, next_multiple_sql
from headwater.runtime.spark.aggregates import (
    FinishSql,
    PaneColumn,
    PartialAggregate,
    ValueSums,
)

FROM, TO, COUNT = "_from", "_to", "_n"
"""The columns of all panes: from when until when they are visible, and how many rows they stand for."""

_FRAME = ("_grid", "_fixed", "_side")
"""What panes are divided by: the distance of the fixed times, one of them, and the side of it: 0 before, 1
after."""


@dataclass(frozen=True)
class GroupStates:
    """The SQL of the states of groups within a step: `_t`, `_next`, keys and aggregates a0, a1, ..

    It reads the views `panes` and, without slides, `instants(t, next)`. `before` is the instant before the
    first one, whose states are wanted as well, of the groups that change later. If `totals_at` is given, the
    view `totals` has the sums of all groups at that instant, which is not later than `before`, and only panes that
    begin or end after it are read; that serves aggregates that can be subtracted, of groups that change.
    """

    keys: Sequence[str]
    aggregates: Sequence[PartialAggregate]
    slides: frozenset[int]
    before: int | None
    first: int
    last: int
    only_changing: bool
    """Whether groups that do not change in the step are left out."""
    totals_at: int | None = None

    @property
    def views(self) -> Mapping[str, str]:
        """The views that `states_sql` reads, each by its SQL, in the order in which they need each other."""
        named = {"visible": self._visible_sql()}
        if self.keys and self.only_changing and self.before is not None:
            named = {"changing": self._changing_sql(), **named}
        if not self.slides:
            named["ends"] = self._ends_sql()
        named["points"] = self._points_sql()
        if self._running:
            named["parts"] = self._parts_sql()
        return named

    @property
    def states_sql(self) -> str:
        """SQL of the states."""
        rows = self._merged_sql() if self._running else "points"
        values = ", ".join(self._values()) or "1 AS _one"
        listed = ", ".join(["_t", "_next", *self.keys])
        return f"SELECT {listed}, {values} FROM ({_table(rows)})"

    # ---- the parts of aggregates, by rule

    @cached_property
    def _summed(self) -> list[PaneColumn]:
        """What is subtracted when a pane ends."""
        subtracted = [p for a in self.aggregates if a.can_subtract for p in a.columns]
        return [PaneColumn(COUNT, "", "sum"), *subtracted]

    @cached_property
    def _sets(self) -> list[tuple[int, PartialAggregate, ValueSums]]:
        """The aggregates of distinct values, with their numbers."""
        numbered = enumerate(self.aggregates)
        return [(n, a, a.of_values) for n, a in numbered if a.of_values is not None]

    @property
    def _value_types(self) -> list[str]:
        return list(dict.fromkeys(values.value_type for _, _, values in self._sets))

    @cached_property
    def _running(self) -> list[PaneColumn]:
        """What is merged in order of time."""
        merged = (a for a in self.aggregates if not a.can_subtract and a.of_values is None)
        return [p for a in merged for p in a.columns]

    @cached_property
    def _sums(self) -> list[str]:
        """The names of all running sums."""
        of_values = [p.name for _, _, values in self._sets for p in values.columns]
        return [*(p.name for p in self._summed), *of_values]

    def _values(self) -> list[str]:
        return [
            f"{_finish(aggregate)(lambda name: name)} AS a{n}"
            for n, aggregate in enumerate(self.aggregates)
        ]

    # ---- panes

    def _changing_sql(self) -> str:
        """The groups in which a pane begins or ends."""
        assert self.before is not None
        changed = changed_sql(self.before, self.last)
        return f"SELECT DISTINCT {', '.join(self.keys)} FROM panes WHERE {changed}"

    def _visible_sql(self) -> str:
        """The panes of the step, as if those that are there already began at the instant before."""
        changing = ""
        if self.keys and self.only_changing and self.before is not None:
            same = " AND ".join(f"p.{k} <=> c.{k}" for k in self.keys)
            changing = f" LEFT SEMI JOIN changing c ON {same}"
        names = [p.name for a in self.aggregates for p in a.columns]
        listed = ", ".join([TO, COUNT, *self.keys, *names])
        if self.totals_at is not None:
            # What had begun by then is in the totals, which never end.
            begins = f"IF({FROM} > {self.totals_at}L, {FROM}, NULL) AS {FROM}"
            changed = changed_sql(self.totals_at, self.last)
            return (
                f"SELECT {begins}, {listed} FROM panes p{changing} WHERE {changed} "
                f"UNION ALL SELECT {FROM}, {listed} FROM totals p{changing}"
            )
        starts, condition = FROM, f"{FROM} <= {self.last}L"
        if self.before is not None:
            starts = f"greatest({FROM}, {self.before}L) AS {FROM}"
            condition += f" AND {TO} > {self.before}L"
        return f"SELECT {starts}, {listed} FROM panes p{changing} WHERE {condition}"

    def _stays_sql(self, value_type: str) -> str:
        """From when until when a group has each of the values of that type that the column of aggregate
        `_of` has: `_x`, and `_w`, which is 1 where such a stay begins and -1 where it ends."""
        sets = [
            f"named_struct('n', {n}, 's', {aggregate.columns[0].name})"
            for n, aggregate, values in self._sets
            if values.value_type == value_type
        ]
        listed = self._with_keys(f"{FROM}, {TO}")
        values = (
            f"SELECT {listed}, _e.n AS _of, explode(_e.s) AS v "
            f"FROM (SELECT {listed}, explode(array({', '.join(sets)})) AS _e FROM visible)"
        )
        order = f"PARTITION BY {self._with_keys('_of, v')} ORDER BY {FROM}, {TO}"
        reach = f"max({TO}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND"
        rows = (
            f"SELECT *, {reach} CURRENT ROW) AS _reach, {reach} 1 PRECEDING) AS _reached, "
            f"lead({FROM}) OVER ({order}) AS _following FROM ({values})"
        )
        begins = (
            f"IF(_reached IS NULL OR _reached < {FROM}, named_struct('x', {FROM}, 'w', 1), NULL)"
        )
        ends = "IF(_following IS NULL OR _following > _reach, named_struct('x', _reach, 'w', -1), NULL)"
        moves = f"explode(array_compact(array({begins}, {ends})))"
        listed = self._with_keys("_of, v")
        return f"SELECT {listed}, _m.x AS _x, _m.w AS _w FROM (SELECT {listed}, {moves} AS _m FROM ({rows}))"

    # ---- changes

    def _ends_sql(self) -> str:
        """The times `x` at which panes end, each with the instant `_t` that sees it."""
        times = f"SELECT DISTINCT {TO} AS x, CAST(NULL AS BIGINT) AS t FROM visible WHERE {TO} <= {self.last}L"
        ahead = "min(t) OVER (ORDER BY x DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        return (
            f"SELECT x, max(_t) AS _t FROM (SELECT x, {ahead} AS _t "
            f"FROM ({times} UNION ALL SELECT t, t FROM instants WHERE t >= {self.first}L)) GROUP BY x"
        )

    def _points_sql(self) -> str:
        """Each group at each of its changes, with its running sums and the time of the next change."""
        added = ", ".join(f"sum({name}) AS {name}" for name in self._sums)
        by = self._with_keys("_t")
        sums = f"SELECT {by}, {added} FROM ({self._changes_sql()}) GROUP BY {by}"
        order = f"PARTITION BY {', '.join(self.keys) or '1'} ORDER BY _t"
        totals = ", ".join(f"sum({name}) OVER ({order}) AS {name}" for name in self._sums)
        running = f"SELECT {by}, lead(_t) OVER ({order}) AS _next, {totals} FROM ({sums})"
        # A running sum of 0 rows is a group that has left; without keys the group is always there.
        return f"SELECT * FROM ({running})" + (f" WHERE {COUNT} > 0" if self.keys else "")

    def _changes_sql(self) -> str:
        """What is added to the sums of groups at each instant."""
        parts = [self._pane_changes_sql(), *map(self._value_changes_sql, self._value_types)]
        changes = self._at_instants_sql(" UNION ALL ".join(parts))
        if self.keys:
            return changes
        # One group, which has a value also where no pane is visible.
        start = self.first if self.before is None else self.before
        return f"{changes} UNION ALL SELECT {start}L AS _t, {self._nulls(self._sums)}"

    def _pane_changes_sql(self) -> str:
        """What panes add where they begin, at `_x` with `_w` 1, and take away where they end, with -1."""
        summed = [p.name for p in self._summed]
        begins = ", ".join([f"'x', {FROM}, 'w', 1", *(f"'{name}', {name}" for name in summed)])
        ends = ", ".join([f"'x', {TO}, 'w', -1", *(f"'{name}', -{name}" for name in summed)])
        moves = f"explode(array(named_struct({begins}), named_struct({ends})))"
        shown = ", ".join(f"_m.{name} AS {name}" for name in summed)
        others = [name for name in self._sums if name not in summed]
        return (
            f"SELECT {self._with_keys('_m.x AS _x')}, _m.w AS _w, "
            f"{', '.join(filter(None, [shown, self._nulls(others)]))} "
            f"FROM (SELECT {self._with_keys(f'{moves} AS _m')} FROM visible) WHERE _m.x IS NOT NULL"
        )

    def _value_changes_sql(self, value_type: str) -> str:
        """The same of the stays of values of one type."""
        added = {
            p.name: f"IF(_of = {n}, _w * {p.build}, NULL)"
            for n, _, values in self._sets
            if values.value_type == value_type
            for p in values.columns
        }
        shown = ", ".join(f"{added.get(name, 'NULL')} AS {name}" for name in self._sums)
        return f"SELECT {self._with_keys('_x')}, _w, {shown} FROM ({self._stays_sql(value_type)})"

    def _at_instants_sql(self, changes: str) -> str:
        """Changes at the instants that see them, without those that come after the step."""
        listed = ", ".join([*self.keys, *self._sums])
        if self.slides:
            seen = least_sql([next_multiple_sql("_x", slide) for slide in sorted(self.slides)])
            source = f"({changes})"
        else:
            seen, source = "e._t", f"({changes}) LEFT JOIN ends e ON _x = e.x"
        at = f"IF(_w > 0, _x, {seen})"
        if self.before is not None:
            at = f"IF(_x <= {self.before}L, {self.before}L, {at})"
        return f"SELECT {at} AS _t, {listed} FROM {source} WHERE {at} <= {self.last}L"

    def _nulls(self, names: Sequence[str]) -> str:
        return ", ".join(f"NULL AS {name}" for name in names)

    # ---- merging in order of time

    def _parts_sql(self) -> str:
        """Panes on the sides of a fixed time: one within their stay, of a grid as coarse as they are long.

        Those that were there before the step need only their ends, and those that outlast it their
        begins.
        """
        names = [p.name for p in self._running]
        listed = ", ".join([*self.keys, *names])
        # The least power of two that is not below the length: at most one multiple of it is within the
        # stay, and if none is, one of its half.
        grid = f"SELECT *, shiftleft(1L, length(bin({TO} - {FROM} - 1L))) AS _g FROM visible"
        finer = f"SELECT *, IF({TO} - pmod({TO}, _g) > {FROM}, _g, _g div 2) AS _grid FROM ({grid})"
        fixed = f"{TO} - pmod({TO}, _grid)"
        begins, ends = (
            _frame_sql("_grid", fixed, 0, FROM, 0),
            _frame_sql("_grid", fixed, 1, f"-{TO}", 2),
        )
        cases = [f"WHEN {TO} > {self.last}L THEN array({_frame_sql('0L', '0L', 0, FROM, 0)})"]
        if self.before is not None:
            old = _frame_sql("0L", "0L", 1, f"-{TO}", 2)
            cases.insert(0, f"WHEN {FROM} = {self.before}L THEN array({old})")
        frames = f"explode(CASE {' '.join(cases)} ELSE array({begins}, {ends}) END)"
        return f"SELECT {listed}, f.* FROM (SELECT *, {frames} AS f FROM ({finer}))"

    def _merged_sql(self) -> str:
        """The points with the merged columns of the panes that are there at each."""
        names = [p.name for p in self._running]
        carried = ["_t", "_next", *self._sums]
        grids = "SELECT coalesce(collect_set(_grid), array()) AS grids FROM parts WHERE _grid > 0"
        at_end = "_t - pmod(_t, g)"
        looked_up = [
            f"array({_frame_sql('0L', '0L', 0, '_t', 1)}, {_frame_sql('0L', '0L', 1, '-_t', 1)})",
            f"flatten(transform(grids, g -> array({_frame_sql('g', f'{at_end} + g', 0, '_t', 1)}, "
            f"{_frame_sql('g', at_end, 1, '-_t', 1)})))",
        ]
        # A pane that begins at an instant comes before it, one that ends there after it.
        order = ", ".join([*self.keys, *_FRAME])
        window = f"PARTITION BY {order} ORDER BY _order, _turn ROWS UNBOUNDED PRECEDING"
        merged = ", ".join(
            f"{p.merge}({p.name}) OVER ({window}) AS {p.name}" for p in self._running
        )
        frame = "_grid, _fixed, _side, _order, _turn"
        by_key = "".join(f"{k}, " for k in self.keys)
        parts = f"SELECT {by_key}{self._nulls(carried)}, {', '.join(names)}, {frame} FROM parts"
        points = (
            f"SELECT {by_key}{', '.join(carried)}, {self._nulls(names)}, f.* "
            f"FROM (SELECT *, explode(concat({', '.join(looked_up)})) AS f FROM points CROSS JOIN ({grids}))"
        )
        rows = f"SELECT {by_key}{', '.join(carried)}, _turn, {merged} FROM ({parts} UNION ALL {points})"
        kept = ", ".join(f"first({name}) AS {name}" for name in carried if name != "_t")
        last = ", ".join(f"{p.merge_sql(p.name)} AS {p.name}" for p in self._running)
        by = self._with_keys("_t")
        return f"SELECT {by}, {kept}, {last} FROM ({rows}) WHERE _turn = 1 GROUP BY {by}"

    def _with_keys(self, first: str) -> str:
        return ", ".join([first, *self.keys])


@dataclass(frozen=True)
class GroupTotals:
    """The SQL of the sums of all groups at an instant, in the columns of panes: each begins at that instant,
    and never ends.

    It reads the view `panes` and, if there are totals of an earlier instant, the view `totals`.
    """

    keys: Sequence[str]
    aggregates: Sequence[PartialAggregate]

    def sql(self, at: int, before: int | None) -> str:
        """SQL of the totals at an instant, from those at `before` and what has changed since."""
        columns = [COUNT, *(p.name for a in self.aggregates for p in a.columns)]
        if before is None:
            there = f"{FROM} <= {at}L AND {TO} > {at}L"
            rows = f"SELECT {', '.join([*self.keys, *columns])} FROM panes WHERE {there}"
        else:
            rows = self._changed_rows(columns, before, at)
        sums = [
            *(f"sum({name}) AS {name}" for name in columns),
            f"{at}L AS {FROM}",
            f"{FOREVER}L AS {TO}",
        ]
        by = ", ".join(self.keys)
        grouped = f" GROUP BY {by} HAVING sum({COUNT}) > 0" if self.keys else ""
        return f"SELECT {', '.join([*self.keys, *sums])} FROM ({rows}){grouped}"

    def _changed_rows(self, columns: Sequence[str], before: int, at: int) -> str:
        by_key = "".join(f"{key}, " for key in self.keys)
        listed = by_key + ", ".join(columns)
        negative = by_key + ", ".join(f"-{name} AS {name}" for name in columns)
        return (
            f"SELECT {listed} FROM totals "
            f"UNION ALL SELECT {listed} FROM panes WHERE {FROM} > {before}L AND {FROM} <= {at}L "
            f"UNION ALL SELECT {negative} FROM panes WHERE {TO} > {before}L AND {TO} <= {at}L"
        )


def changed_sql(after: int, until: int, entry: int = 0, least: int = 0, most: int = 0) -> str:
    """SQL of the condition that a pane begins or ends after an instant and until another. The condition is
    wider where a query sees a pane begin up to `entry` later, and end between `least` and `most` earlier."""
    begins = f"{FROM} > {after - entry}L AND {FROM} <= {until}L"
    ends = f"{TO} > {after + least}L AND {TO} <= {until + most}L"
    return f"({begins} OR {ends})"


def can_follow_changes(aggregates: Sequence[PartialAggregate]) -> bool:
    """Whether the states of groups with these aggregates follow from the changes of their panes."""
    return all(
        a.can_subtract
        or a.of_values is not None
        # Other SQL than a function's name cannot be evaluated over a window.
        or all("{}" not in p.merge for p in a.columns)
        for a in aggregates
    )


def _finish(aggregate: PartialAggregate) -> FinishSql:
    return aggregate.finish_sql if aggregate.of_values is None else aggregate.of_values.finish_sql


def _frame_sql(grid: str, fixed: str, side: int, order: str, turn: int) -> str:
    values = [grid, fixed, str(side), order, str(turn)]
    names = [*_FRAME, "_order", "_turn"]
    named = ", ".join(f"'{name}', {value}" for name, value in zip(names, values, strict=True))
    return f"named_struct({named})"


def _table(rows: str) -> str:
    return rows if rows.startswith("SELECT") else f"SELECT * FROM {rows}"
