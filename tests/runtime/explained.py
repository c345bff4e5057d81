"""What `explain`, `show units` and `status` say of sharing, compared with what runs.

What runs are the plans that the engine compiles (`RunningUnits`), the rows of the catalog and the logs
for which units have cursors; what is said is read from the views alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.reuse import Operator, minimal_operator
from headwater.reuse.describe import count_noun, describe_bounds, describe_lanes, describe_operator
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.load import operator_load, reading_load
from headwater.reuse.planning.single_site import SitePlan
from headwater.reuse.signature import SharingKind
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, is_log, unit_log
from headwater.runtime.compile import SharedJoin, SharedLifetimes
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.engine.planned_units import RunningUnits
from headwater.runtime.engine.unit import Unit
from headwater.runtime.inspect.explain import MAX_NAMED, Placement, UnitSummary
from headwater.runtime.lifecycle import input_streams, is_final
from headwater.runtime.metrics.cost_model import measured_load
from headwater.runtime.metrics.sharing_loads import summarize_sharing, unit_model
from headwater.runtime.submit.unit_index import UnitIndex


def fresh_units(headwater: Headwater) -> RunningUnits:
    """The units as a process would run them that has never seen them."""
    definitions = headwater.definitions
    return RunningUnits(headwater.catalog, definitions, UnitPlanner(definitions))


@dataclass
class Decisions:
    """What was decided for each query when it was submitted."""

    plans: dict[tuple[str, str], SitePlan] = field(default_factory=dict)
    """By query and unit."""
    _last: Any = None

    def record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note each decision, and for which query and unit it was accepted."""
        choose, accept = UnitIndex.choose, Catalog.accept_query

        def noted_choice(index: UnitIndex, *args: Any, **named: Any) -> Any:
            self._last = choose(index, *args, **named)
            return self._last

        def noted_query(catalog: Catalog, *args: Any, **named: Any) -> QueryRow:
            row = accept(catalog, *args, **named)
            self.plans.pop((row.name, row.unit_id), None)
            if isinstance(self._last, SitePlan):
                self.plans[row.name, row.unit_id] = self._last
            return row

        monkeypatch.setattr(UnitIndex, "choose", noted_choice)
        monkeypatch.setattr(Catalog, "accept_query", noted_query)


def check_views(
    headwater: Headwater,
    decisions: Decisions,
    running: Callable[[UnitRow], Unit] | None = None,
) -> int:
    """Compare all that is said of sharing with what runs; returns how many queries were compared."""
    catalog = headwater.catalog
    current = running or fresh_units(headwater).current
    for row in catalog.units():
        current(row)  # one may begin to read what it has waited for
    units = {row.id: row for row in catalog.units()}
    queries = catalog.queries()
    said = {query.name: headwater.query(query.name).placement() for query in queries}
    runs = {row.id: current(row) for row in units.values()}
    assert {row.id: row.version for row in catalog.units()} == {
        row.id: row.version for row in units.values()
    }, "looking changes nothing"
    for query in queries:
        placement = said[query.name]
        assert (placement.unit, placement.state) == (query.unit_id, query.state)
        _check_members(catalog, query, placement, units[query.unit_id])
        _check_links(query, placement, units, runs)
        _check_operator(headwater, query, placement, runs[query.unit_id])
        _check_decision(catalog, query, placement, decisions)
    _check_listing(headwater, units)
    return len(queries)


def served(catalog: Catalog, unit: UnitRow) -> list[str]:
    """The queries of users of a unit that may still get rows; all, if none may."""
    streams = input_streams(catalog, unit)
    own = [query for query in catalog.queries() if query.unit_id == unit.id]
    everybody = catalog.subscribers(unit.id)
    if all(is_final(query, streams) for query in everybody):
        return sorted(query.spelled for query in own)
    return sorted(query.spelled for query in own if not is_final(query, streams))


def _check_members(catalog: Catalog, query: QueryRow, placement: Placement, unit: UnitRow) -> None:
    others = [name for name in served(catalog, unit) if name != query.spelled]
    assert placement.others == len(others)
    assert set(placement.shared_with) <= set(others)
    assert len(placement.shared_with) == min(MAX_NAMED, len(others))


def _check_links(
    query: QueryRow, placement: Placement, units: dict[str, UnitRow], runs: dict[str, Unit]
) -> None:
    unit = runs[query.unit_id]
    read = [name.partition(":")[2] for name in unit.inputs if name.startswith("unit:")]
    assert [_id(one) for one in placement.reads] == read
    assert set(unit.inputs) == {name for name in units[query.unit_id].inputs if is_log(name)}
    readers = {id for id, one in runs.items() if unit_log(query.unit_id) in one.inputs}
    assert {_id(one) for one in placement.read_by} == readers


def _id(summary: UnitSummary) -> str:
    return summary.unit


def _check_operator(
    headwater: Headwater, query: QueryRow, placement: Placement, unit: Unit
) -> None:
    planner = UnitPlanner(headwater.definitions)
    signature = planner.signature(query)
    operator = running_operator(planner, unit)
    if operator is None:
        assert placement.part is None
        if isinstance(unit.plan, SharedLifetimes):
            check_statements(placement, query, unit.plan)
        return
    assert placement.operator == tuple(describe_operator(operator))
    assert (placement.waits_for is not None) == unit.waits
    if signature.kind is not SharingKind.JOIN:
        assert placement.lanes is None and placement.part is None
        return
    if query.name in {other.name for other in unit.queries}:
        bounds = JoinSubscribers(operator, (signature,)).residual_bounds(signature)
        assert placement.part == describe_bounds(bounds, operator.sources)
    else:  # it is over, or waits for rows of another unit
        assert placement.part is None
    if isinstance(unit.plan, SharedJoin):
        lanes = unit.plan.subscribers.lanes
        # What is compiled is a join for each lane.
        assert [lane.operator for lane in unit.plan.lanes] == [lane.operator for lane in lanes]
        assert placement.lanes == tuple(describe_lanes(lanes, operator))
        if placement.lanes:
            assert f"computed in {count_noun(len(lanes), 'lane', 'lanes')}" in placement.lanes[0]
        assert placement.shapes is not None
        assert len(placement.shapes) == len(unit.plan.subscribers.shapes)
    else:
        assert placement.lanes == ()


def check_statements(placement: Placement, query: QueryRow, plan: SharedLifetimes) -> None:
    """What is said of queries that are computed beside each other."""
    assert placement.operator is not None
    first, *others = placement.operator
    streams = sorted({scan.stream for _, scan in plan.scans})
    assert first.startswith(f"reads {', '.join(streams)} once for ")
    assert first.endswith(f" in {count_noun(len(plan.statements), 'statement', 'statements')}")
    own = next((s for s in plan.statements if query.result_key in s.statement.digests), None)
    if own is None:  # it is over
        assert not others
    elif len(own.statement.digests) == 1:
        assert others == ["the statement of this query serves no other one"]
    else:
        number = count_noun(len(own.statement.digests) - 1, "other query", "other queries")
        assert others[0].startswith(f"its statement serves {number}; they ")


def running_operator(planner: UnitPlanner, unit: Unit) -> Operator | None:
    """What the plan of a unit computes, if it is a join or groups."""
    if isinstance(unit.plan.subscribers, JoinSubscribers | GroupSubscribers):
        return unit.plan.subscribers.operator
    signature = planner.signature(unit.queries[0])
    return None if signature.block is None else minimal_operator(signature)


def _check_decision(
    catalog: Catalog, query: QueryRow, placement: Placement, decisions: Decisions
) -> None:
    plan = decisions.plans.get((query.name, query.unit_id))
    moved = catalog.events(kind="query moved", subject=query.name, limit=1)
    if plan is None:
        assert placement.added is None and placement.alternatives == ()
        beside = ("apart", "beside", "equal", "new with sharing none", "new with sharing equal")
        relations = ("moved",) if moved else ("exact", *beside)
        assert placement.relation in relations
        return
    choice = plan.choice
    assert (placement.added, placement.alone) == (choice.added_load, choice.standalone_load)
    kept = tuple((other.plan, other.load) for other in choice.alternatives)
    assert placement.alternatives == kept
    assert placement.relaxed == choice.changes and placement.revisit == choice.revisit
    relation = "new" if choice.containment is None else choice.containment.value
    assert placement.relation == relation


def _check_listing(headwater: Headwater, units: dict[str, UnitRow]) -> None:
    """`show units`: a unit has the queries whose results are in its log."""
    listed = {view.as_json()["unit"]: view.as_json() for view in headwater.show("units")}
    assert set(listed) == set(units)
    for id, row in units.items():
        mine = [q.spelled for q in headwater.catalog.queries() if q.unit_id == id]
        assert sorted(listed[id]["queries"]) == sorted(mine)
        assert listed[id]["inputs"] == list(row.inputs)


def check_savings(headwater: Headwater) -> None:
    """What sharing is said to save is what follows from the units that run and were measured."""
    catalog, planner = headwater.catalog, UnitPlanner(headwater.definitions)
    said = summarize_sharing(catalog, planner)
    runs = fresh_units(headwater)
    number = units = 0
    cores = alone = 0.0
    for row in catalog.units():
        values = {name: s.value for name, s in catalog.statistics(row.id).items()}
        load = measured_load(values)
        if load is None:
            continue
        unit = runs.current(row)
        mine = served(catalog, row)
        number, units, cores = number + len(mine), units + 1, cores + load.value
        operator = running_operator(planner, unit)
        if unit.waits:  # priced as it will be in a moment
            operator = planner.operator(row)
        if operator is None:
            alone += len(mine) * load.value
            continue
        model = unit_model(catalog, planner, row)
        own = [
            operator_load(minimal_operator(planner.signature(query)), model).cpu
            for query in catalog.queries()
            if query.unit_id == row.id and query.spelled in mine
        ]
        together = operator_load(operator, model)
        if unit.plan.partial_join is not None:
            read = catalog.query(unit.plan.partial_join.query)
            assert read is not None
            together = reading_load(operator, minimal_operator(planner.signature(read)), model)
        alone += load.value / together.cpu * sum(own)
    assert (said.queries, said.units) == (number, units)
    assert said.cores == pytest.approx(cores) and said.cores_alone == pytest.approx(alone)
    for costly in said.costly:
        query = headwater.query(costly.query).row
        assert query.unit_id == costly.unit and costly.shared > costly.alone
