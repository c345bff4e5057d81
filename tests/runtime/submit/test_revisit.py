"""Which changes of what units read are proposed, and that a world in which nothing changes has none."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.types import INT, TIMESTAMP, Field, Schema
from headwater.cost.model import CostModel
from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost
from headwater.cql import parse_query
from headwater.errors import CatalogUnavailable
from headwater.network.sites import read_deployment
from headwater.reuse import Operator, minimal_operator, relax, signature_of
from headwater.reuse.load import SharingCosts
from headwater.runtime.catalog import Catalog, partial_join_name, stream_log, unit_log
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import deploy
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.metrics.sharing import CostlyQuery, SharingSummary, store_sharing
from headwater.runtime.submit import scripts
from headwater.runtime.submit.hand_overs import matching_part
from headwater.runtime.submit.revisit import Change, Revisit, RunningJoin, propose_changes

STREAMS = ("bids", "asks", "fees", "taxes")
COLUMNS = (Field("item", INT), Field("v", INT), Field("ts", TIMESTAMP))
NAMES = Namespace.of(Stream(name, Schema(COLUMNS), "ts") for name in STREAMS)


def operator(*names: str, seconds: float = 0.01, bounds: str = "") -> Operator:
    """A join of streams by their items."""
    windows = ", ".join(f"{n} [RANGE {int(seconds * 1_000_000)} MICROSECONDS]" for n in names)
    joined = [f"{names[0]}.item = {other}.item" for other in names[1:]]
    text = f"SELECT {names[0]}.v FROM {windows} WHERE {' AND '.join(joined)}{bounds}"
    return minimal_operator(signature_of(canonicalize(parse_query(text, NAMES))))


def costs(rate: float, step_seconds: float = 0.001) -> SharingCosts:
    free_terms = CostTable({**SECOND_COSTS.costs, "term": OperatorCost()})
    rates = dict.fromkeys(STREAMS, rate)
    return SharingCosts(step_seconds, rates=rates, model=CostModel(costs=free_terms))


BUSY = costs(1_000.0)
"""Rows cost more than steps, and few of them join within windows of a hundredth of a second."""

WIDE = RunningJoin("wide", operator("bids", "asks", "fees"))
NARROW = RunningJoin("narrow", operator("bids", "asks"))
OTHER = RunningJoin("other", operator("bids", "asks", "taxes"))


def test_a_unit_that_came_before_the_one_it_could_read() -> None:
    (change,) = propose_changes([WIDE, NARROW], BUSY)
    assert (change.kind, change.units, change.source) == ("rewire", ("wide",), "narrow")
    assert change.saving > 0 and "joins a part of it already" in change.reason


def test_two_units_that_join_the_same_part() -> None:
    (change,) = propose_changes([WIDE, OTHER], BUSY)
    assert (change.kind, set(change.units)) == ("split", {"wide", "other"})
    assert change.part is not None


def test_a_part_that_one_unit_alone_reads() -> None:
    hidden = replace(NARROW, serves_users=False, read_by=("wide",))
    reader = replace(WIDE, reads="narrow")
    (change,) = propose_changes([reader, hidden], costs(1_000.0, step_seconds=1.0))
    assert (change.kind, change.units) == ("unshare", ("wide",))
    for wanted in (replace(hidden, serves_users=True), replace(hidden, read_by=("wide", "other"))):
        assert propose_changes([reader, wanted], costs(1_000.0, step_seconds=1.0)) == []


def test_rows_that_are_more_than_the_tuples_they_are_made_of() -> None:
    """Of long windows: each tuple meets many others."""
    many = [
        RunningJoin("wide", operator("bids", "asks", "fees", seconds=10)),
        RunningJoin("narrow", operator("bids", "asks", seconds=10)),
    ]
    assert propose_changes(many, BUSY) == []


def test_a_source_that_would_have_to_emit_far_more() -> None:
    narrow = RunningJoin(
        "narrow", operator("bids", "asks", bounds=" AND bids.v = 1 AND asks.v = 1")
    )
    assert [c.kind for c in propose_changes([WIDE, narrow], BUSY)] == []


def test_nothing_is_known_before_data_flows() -> None:
    for units in ([WIDE, NARROW], [WIDE, OTHER]):
        assert propose_changes(units, costs(0.0)) == []


def test_units_that_read_or_are_read_are_left_alone() -> None:
    assert propose_changes([replace(WIDE, read_by=("x",)), NARROW], BUSY) == []
    assert propose_changes([WIDE, replace(NARROW, reads="x")], BUSY) == []


def test_a_part_that_pays_by_fewer_steps_alone() -> None:
    """Few rows come, so that joining them once saves next to nothing; steps with fewer terms do."""
    few = dict.fromkeys(STREAMS, 1.0)
    (change,) = propose_changes([WIDE, OTHER], SharingCosts(rates=few))
    assert (change.kind, set(change.units)) == ("split", {"wide", "other"})
    assert propose_changes([WIDE, OTHER], costs(1.0)) == []
    (change,) = propose_changes([WIDE, NARROW], SharingCosts(rates=few))
    assert change.kind == "rewire"
    assert propose_changes([WIDE], SharingCosts(rates=few)) == []


# ---- a world in which nothing else changes


def carried_out(units: Sequence[RunningJoin], change: Change) -> list[RunningJoin]:
    """The units after a change."""
    by_id = {unit.unit_id: unit for unit in units}
    if change.kind == "unshare":
        (reader,) = change.units
        source = by_id[str(change.source)]
        by_id[reader] = replace(by_id[reader], reads=None)
        left = tuple(name for name in source.read_by if name != reader)
        by_id[source.unit_id] = replace(source, read_by=left)
        if not left and not source.serves_users:
            del by_id[source.unit_id]
        return list(by_id.values())
    if change.kind == "split":
        assert change.part is not None
        made = minimal_operator(signature_of(canonicalize(change.part)))
        source = RunningJoin(f"new {change.units}", made, serves_users=False)
    else:
        source = by_id[str(change.source)]
    for name in change.units:
        found = matching_part(by_id[name].operator, source.operator)
        assert found is not None
        by_id[name] = replace(by_id[name], reads=source.unit_id)
        wider = relax(source.operator, found[1])
        source = replace(source, operator=wider, read_by=(*source.read_by, name))
    by_id[source.unit_id] = source
    return list(by_id.values())


@pytest.mark.parametrize("seed", range(60))
def test_changes_come_to_an_end(seed: int) -> None:
    """Whatever runs, and whatever it costs: no unit goes to and fro."""
    rng = random.Random(seed)
    units = []
    for number in range(rng.randint(2, 6)):
        names = rng.sample(STREAMS, rng.choice([2, 3, 3, 4]))
        seconds = rng.choice([0.001, 0.01, 0.1, 1])
        bounds = rng.choice(["", f" AND {names[0]}.v > 1", f" AND {names[1]}.item = 1"])
        units.append(RunningJoin(f"u{number}", operator(*names, seconds=seconds, bounds=bounds)))
    world = SharingCosts(
        step_seconds=rng.choice([0.0001, 0.001, 0.2]),
        rates={name: rng.choice([1.0, 100.0, 1e3, 1e4, 1e5]) for name in STREAMS},
    )
    made: list[Change] = []
    while changes := propose_changes(units, world):
        made.append(changes[0])
        units = carried_out(units, changes[0])
        assert len(made) <= 20, made
    touched = [(change.units, change.kind == "unshare") for change in made]
    assert len(touched) == len(set(touched)), made


# ---- looking


@dataclass
class Looking:
    """A catalog with a unit of three streams and one of two that came later, and who looks at them."""

    catalog: Catalog
    definitions: Definitions
    revisit: Revisit
    now: float = 1_000_000.0
    proposals: list[Change] = field(default_factory=list)

    def unit_of(self, query: str) -> str:
        found = self.catalog.query(query)
        assert found is not None
        return found.unit_id


Looker = Callable[[], Looking]


def unmoved(unit: str, queries: Sequence[str], why: Mapping[str, Any]) -> bool:
    """For tests in which no query is to be moved."""
    pytest.fail(f"{queries} of {unit}: {why}")


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[Looking]:
    with Catalog.open(tmp_path) as catalog:
        definitions = Definitions(catalog)
        declared = "".join(
            f"CREATE STREAM {name} (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            for name in STREAMS
        )
        queries = (
            "CREATE QUERY wide AS SELECT b.v FROM bids [NOW] b, asks [NOW] a, fees [NOW] f "
            "WHERE b.item = a.item AND b.item = f.item;"
            "CREATE QUERY narrow AS SELECT b.v FROM bids [NOW] b, asks [NOW] a "
            "WHERE b.item = a.item;"
        )
        scripts.execute(catalog, definitions, declared + queries)
        yield Looking(catalog, definitions, Revisit(catalog, definitions, unmoved))


def set_rates(catalog: Catalog, rate: float) -> None:
    logs = [stream_log(name) for name in STREAMS]
    measured = {
        (log, name): value
        for log in logs
        for name, value in (("rows_rate", rate), ("batches", 9.0))
    }
    catalog.commit(None, statistics=measured)


def test_a_change_is_asked_for_by_the_second_look(looking: Looking) -> None:
    set_rates(looking.catalog, 1_000.0)
    assert looking.revisit.look() == []
    (change,) = looking.revisit.look()
    wide, narrow = looking.unit_of("wide"), looking.unit_of("narrow")
    assert (change.kind, change.units, change.source) == ("rewire", (wide,), narrow)
    asked = looking.catalog.query(partial_join_name(wide))
    assert asked is not None and asked.unit_id == narrow
    (event,) = looking.catalog.events(kind="rewiring requested")
    assert event.detail["reason"] == change.reason and event.detail["saves"] == change.saving
    assert unit_log(narrow) not in (looking.catalog.unit(wide) or pytest.fail()).inputs
    assert [looking.revisit.look() for _ in range(4)] == [[]] * 4, "it is under way"


def test_nothing_is_asked_for_while_nothing_is_known(looking: Looking) -> None:
    assert [looking.revisit.look() for _ in range(4)] == [[]] * 4
    set_rates(looking.catalog, 1_000.0)
    looking.revisit.look()
    set_rates(looking.catalog, 0.0)
    looking.revisit.look()
    set_rates(looking.catalog, 1_000.0)
    assert looking.revisit.look() == [], "two looks in a row"


def test_who_wants_no_sharing_gets_none(looking: Looking) -> None:
    scripts.execute(looking.catalog, looking.definitions, "SET sharing = 'none'")
    set_rates(looking.catalog, 1_000.0)
    assert [looking.revisit.look() for _ in range(4)] == [[]] * 4


def test_a_unit_that_was_changed_rests(looking: Looking) -> None:
    set_rates(looking.catalog, 1_000.0)
    looking.revisit.look()
    looking.revisit.look()
    (asked,) = looking.catalog.hand_overs()
    looking.catalog.withdraw_hand_over(asked, "a test")
    assert [looking.revisit.look() for _ in range(4)] == [[]] * 4
    looking.revisit.rest_seconds = 0.0
    assert looking.revisit.look() == [], "what the source is without it is not known yet"
    for row in looking.catalog.units():  # as a step does
        UnitPlanner(looking.definitions).ensure_definition(looking.catalog, row)
    asked_for = [looking.revisit.look() for _ in range(3)]
    assert sum(map(len, asked_for)) == 1


def test_units_of_a_still_world_are_looked_at_once(looking: Looking) -> None:
    """Then nothing is compared until units or rates are others."""
    seen: list[int] = []

    def propose(running: Sequence[RunningJoin], costs: SharingCosts) -> list[Change]:
        seen.append(len(running))
        return []

    revisit = Revisit(looking.catalog, looking.definitions, unmoved, propose)
    for _ in range(3):
        revisit.look()
    assert seen == [2]
    set_rates(looking.catalog, 50.0)
    revisit.look()
    scripts.execute(looking.catalog, looking.definitions, "DROP QUERY narrow")
    revisit.look()
    assert seen == [2, 2, 1]


def test_what_was_refused_is_asked_for_again_when_units_have_changed(
    looking: Looking, caplog: pytest.LogCaptureFixture
) -> None:
    change = Change("unshare", (looking.unit_of("wide"),), 1.0, "it reads the rows of no unit")
    seen: list[int] = []

    def propose(running: Sequence[RunningJoin], costs: SharingCosts) -> list[Change]:
        seen.append(len(running))
        return [change]

    revisit = Revisit(looking.catalog, looking.definitions, unmoved, propose)
    with caplog.at_level(logging.INFO, "headwater"):
        assert [revisit.look() for _ in range(8)] == [[]] * 8
        assert len(caplog.records) == 1 and len(seen) == 3, "then the world is still"
        more = "CREATE QUERY more AS SELECT v FROM taxes [NOW]"
        scripts.execute(looking.catalog, looking.definitions, more)
        assert [revisit.look() for _ in range(8)] == [[]] * 8
    assert len(caplog.records) == 2


# ---- queries that cost more shared than alone


SINGLE = "SELECT item, SUM(v) AS s FROM bids [RANGE 1 MIN SLIDE 1 MIN] GROUP BY item"


@dataclass
class Moves:
    """The moves that were asked for; `possible` says whether they can be made."""

    made: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    possible: bool = True

    def move(self, unit: str, queries: Sequence[str], why: Mapping[str, Any]) -> bool:
        assert set(why) == {"reason", "saves"} and why["saves"] > 0
        self.made += [(unit, tuple(queries))] * self.possible
        return self.possible


@dataclass
class Paying:
    """A unit of groups whose queries are said to cost something, and who looks at it."""

    looking: Looking
    moves: Moves
    unit: str

    def say(self, **costs: tuple[float, float]) -> None:
        """What each query costs, in its unit and alone, as it was measured last."""
        costly = tuple(CostlyQuery(name, self.unit, *both) for name, both in costs.items())
        store_sharing(self.looking.catalog, SharingSummary(costly=costly))


@pytest.fixture
def paying(looking: Looking) -> Paying:
    three = (SINGLE, SINGLE, SINGLE.replace("item,", "v,").replace("BY item", "BY v"))
    for number, text in enumerate(three):
        scripts.execute(
            looking.catalog, looking.definitions, f"CREATE QUERY single{number} AS {text};"
        )
    units = {looking.unit_of(f"single{number}") for number in range(3)}
    moves = Moves()
    looking.revisit = Revisit(
        looking.catalog, looking.definitions, moves.move, lambda running, costs: []
    )
    (unit,) = units
    return Paying(looking, moves, unit)


def test_a_query_that_pays_for_sharing_is_moved_by_the_second_look(paying: Paying) -> None:
    paying.say(single2=(0.3, 0.1))
    assert paying.looking.revisit.look() == [] and not paying.moves.made
    (change,) = paying.looking.revisit.look()
    assert paying.moves.made == [(paying.unit, ("single2",))]
    assert change.saving == pytest.approx(0.2) and "0.3 cores" in change.reason


def test_equal_queries_are_moved_together(paying: Paying) -> None:
    """They have the same rows; of several that pay, first the one that pays most."""
    paying.say(single0=(0.3, 0.1), single1=(0.3, 0.1), single2=(0.2, 0.1))
    paying.looking.revisit.look()
    paying.looking.revisit.look()
    assert paying.moves.made == [(paying.unit, ("single0", "single1"))]


def test_who_pays_little_more_stays(paying: Paying) -> None:
    paying.say(single2=(0.12, 0.1))
    assert [paying.looking.revisit.look() for _ in range(4)] == [[]] * 4
    assert not paying.moves.made


def test_who_pays_for_a_moment_stays(paying: Paying) -> None:
    for _ in range(3):
        paying.say(single2=(0.3, 0.1))
        assert paying.looking.revisit.look() == []
        paying.say()
        assert paying.looking.revisit.look() == []


def test_a_unit_that_has_lost_a_query_rests(paying: Paying) -> None:
    catalog = paying.looking.catalog
    catalog.record_event("query moved", "another", **{"from": paying.unit, "unit": "x"})
    paying.say(single2=(0.3, 0.1))
    assert [paying.looking.revisit.look() for _ in range(4)] == [[]] * 4
    paying.looking.revisit.rest_seconds = 0.0
    assert len(paying.looking.revisit.look()) == 1


def test_who_cannot_be_moved_now_is_moved_later(paying: Paying) -> None:
    paying.moves.possible = False
    paying.say(single2=(0.3, 0.1))
    assert [paying.looking.revisit.look() for _ in range(3)] == [[]] * 3
    paying.moves.possible = True
    assert len(paying.looking.revisit.look()) == 1


def test_a_catalog_that_is_away_refuses_nothing(paying: Paying) -> None:
    def move(unit: str, queries: Sequence[str], why: Mapping[str, Any]) -> bool:
        raise CatalogUnavailable("the catalog is away")

    paying.say(single2=(0.3, 0.1))
    paying.looking.revisit.move = move
    paying.looking.revisit.look()
    with pytest.raises(CatalogUnavailable):
        paying.looking.revisit.look()
    paying.looking.revisit.move = paying.moves.move
    assert len(paying.looking.revisit.look()) == 1


def test_a_query_that_has_left_is_not_moved(paying: Paying) -> None:
    paying.say(single2=(0.3, 0.1))
    paying.looking.revisit.look()
    scripts.execute(paying.looking.catalog, paying.looking.definitions, "DROP QUERY single2")
    assert paying.looking.revisit.look() == [] and not paying.moves.made


def test_queries_of_several_sites_stay(paying: Paying, tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text('[[site]]\nname = "here"\ncpu = 1\n')
    deploy(paying.looking.catalog, read_deployment(path))
    paying.say(single2=(0.3, 0.1))
    assert [paying.looking.revisit.look() for _ in range(3)] == [[]] * 3
