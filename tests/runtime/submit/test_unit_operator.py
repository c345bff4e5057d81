"""A unit has one operator: what is explained, what new queries are compared with, what is admitted and
what is compiled; and it is the least that its queries need, whoever came and went. Without Spark."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.errors import CatalogError, QueryRefused
from headwater.network.sites import read_deployment
from headwater.reuse import Containment, Operator, classify_containment
from headwater.reuse.describe import describe_operator
from headwater.reuse.operator import serving_operator
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import UnitRow, partial_join_name
from headwater.runtime.catalog.deployment import current_deployment, deploy
from headwater.runtime.compile import SharedJoin, SharedPanes
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.inspect.explain import UnitSummary
from headwater.runtime.sites.planner import SitePlanner
from headwater.runtime.sites.resource_usage import (
    estimate_usage,
    is_current_estimate,
    stream_rates,
)
from headwater.runtime.submit.unit_index import unit_index

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
TEMPLATES = (
    "SELECT b.price FROM bids [RANGE {n} SEC] b, asks [NOW] a WHERE b.item = a.item AND b.price > {m}",
    "SELECT a.cost FROM bids [RANGE {n} SEC] b, asks [NOW] a WHERE b.item = a.item AND b.item = {m}",
    "SELECT b.price FROM bids [RANGE {n} SEC] b, asks [NOW] a WHERE b.item = a.item",
    "SELECT x.price, y.item FROM bids [RANGE {n} SEC] x, bids [RANGE {m} SEC] y WHERE x.item = y.item",
    "SELECT item FROM bids [NOW] WHERE price < {m}",
    "SELECT price FROM bids [RANGE 2 SEC SLIDE {n} SEC] WHERE item IN ({n}, {m})",
    "SELECT item FROM bids [ROWS {n}]",
    "SELECT sum(price) AS s FROM bids [RANGE {n} SEC SLIDE 1 SEC] WHERE item > {m}",
    "SELECT item, max(price) AS s FROM bids [RANGE 6 SEC SLIDE {n} SEC] GROUP BY item",
    """SELECT b.price, f.fee FROM bids [RANGE {n} SEC] b, asks [NOW] a, fees [RANGE {n} SEC] f
       WHERE b.item = a.item AND b.item = f.item AND f.fee > {m}""",
)
SITES = """\
[[site]]
name = "here"
cpu = {cpu}

[[stream]]
name = "bids"
rate = 2000
"""


def site(folder: Path, cpu: float = 1e6) -> Path:
    path = folder / "sites.toml"
    path.write_text(SITES.format(cpu=cpu))
    return path


def text(rng: random.Random) -> str:
    return rng.choice(TEMPLATES).format(n=rng.randint(1, 3), m=rng.randint(1, 9))


def defined(headwater: Headwater, unit: UnitRow) -> tuple[UnitRow, Operator | None]:
    sharing = UnitPlanner(headwater.definitions)
    unit = sharing.ensure_definition(headwater.catalog, unit)
    return unit, sharing.operator(unit)


def compiled(headwater: Headwater, unit: UnitRow) -> Operator:
    """The operator that a process would run that has never seen the unit."""
    sharing, catalog = UnitPlanner(headwater.definitions), headwater.catalog
    asked = catalog.query(partial_join_name(unit.id))
    plan = sharing.plan(unit, catalog.subscribers(unit.id), True, None, asked)
    assert isinstance(plan, SharedJoin | SharedPanes)
    return plan.subscribers.operator


def agrees(headwater: Headwater) -> None:
    """All who ask for the operator of a unit get the same, and it is the least."""
    catalog, definitions = headwater.catalog, headwater.definitions
    known = unit_index(catalog, definitions)
    known.refresh()
    found = current_deployment(catalog)
    assert found is not None
    room, rates = (
        SitePlanner(catalog, definitions, found),
        stream_rates(catalog, definitions, found),
    )
    needs = {unit.id: unit.usage for unit in room.system({"here"}).units}
    for row in catalog.units():
        unit, operator = defined(headwater, row)
        forms = UnitPlanner(definitions).signatures(catalog.subscribers(unit.id))
        assert needs[unit.id] == estimate_usage(rates, definitions.query(unit.definition))
        if operator is None:
            assert all(form.block is None for form in forms)
            continue
        assert known.lattice.operator(unit.id) == operator == compiled(headwater, unit)
        least = serving_operator(sorted(forms, key=lambda form: form.digest))
        assert (operator.where, operator.keys, operator.calls) == (
            least.where,
            least.keys,
            least.calls,
        )
        assert (operator.sources, operator.columns) == (least.sources, least.columns)
        for query in catalog.subscribers(unit.id):
            if not query.is_hidden:
                placement = headwater.query(query.name).placement()
                assert placement.operator == tuple(describe_operator(operator))


def come_and_go(tmp_path: Path, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    names: list[str] = []
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        deploy(one.catalog, read_deployment(site(tmp_path)))
        one.execute(STREAMS)
        for number in range(steps):
            headwater = rng.choice((one, other))
            if names and rng.random() < 0.45:
                headwater.execute(f"DROP QUERY {names.pop(rng.randrange(len(names)))}")
            else:
                headwater.execute(f"CREATE QUERY q{number} AS {text(rng)}")
                names.append(f"q{number}")
            if rng.random() < 0.4:
                agrees(rng.choice((one, other)))
        agrees(one)
        agrees(other)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_who_comes_and_goes_leaves_one_operator(tmp_path: Path, seed: int) -> None:
    come_and_go(tmp_path, seed, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 40))
def test_who_comes_and_goes_leaves_one_operator_in_the_long_run(tmp_path: Path, seed: int) -> None:
    come_and_go(tmp_path, seed, 60)


@pytest.mark.long
def test_several_who_submit_and_drop_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with open_state(path) as first:
        deploy(first.catalog, read_deployment(site(tmp_path)))
        first.execute(STREAMS)

    def work(who: int) -> None:
        rng = random.Random(who)
        with open_state(path) as headwater:
            for number in range(10):
                headwater.execute(f"CREATE QUERY q{who}_{number} AS {text(rng)}")
                if rng.random() < 0.5:
                    headwater.execute(f"DROP QUERY q{who}_{number}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    with open_state(path) as headwater:
        agrees(headwater)


WIDE = "CREATE QUERY wide AS SELECT item, price, ts FROM bids [NOW]"
NARROW = "CREATE QUERY narrow AS SELECT item FROM bids [NOW] WHERE price = 1"
SOME = "CREATE QUERY some AS SELECT item FROM bids [NOW] WHERE price < 9"


def test_what_was_wide_is_narrow_when_the_wide_query_has_left(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS + NARROW)
        (alone,) = headwater.catalog.units()
        before = headwater.query("narrow").placement().operator
        headwater.execute(WIDE)
        assert headwater.query("narrow").placement().operator != before
        headwater.execute("DROP QUERY wide")
        assert headwater.query("narrow").placement().operator == before
        (after,) = headwater.catalog.units()
        assert after.definition == alone.definition
        headwater.execute(SOME)
        some = headwater.query("some").placement()
        assert some.relation == "overlapping"
        assert some.relaxed


def test_an_equal_query_that_stays_keeps_the_operator(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(f"{STREAMS}; {NARROW}; {WIDE}; {WIDE.replace('wide', 'same')}")
        (before,) = headwater.catalog.units()
        headwater.execute("DROP QUERY wide")
        (after,) = headwater.catalog.units()
        assert after.definition == before.definition != ""


def test_room_is_given_back(tmp_path: Path) -> None:
    """What a query took goes with it, and the next one that asks for as much is not taken as covered."""
    with open_state(tmp_path / "state") as headwater:
        deploy(headwater.catalog, read_deployment(site(tmp_path)))
        headwater.execute(STREAMS + NARROW)
        (before,) = room(headwater).system({"here"}).units
        headwater.execute(WIDE)
        (widened,) = room(headwater).system({"here"}).units
        assert widened.usage.cpu > before.usage.cpu
        headwater.execute("DROP QUERY wide")
        (after,) = room(headwater).system({"here"}).units
        assert after.usage == before.usage
        enough = (before.usage.cpu + widened.usage.cpu) / 2
        deploy(headwater.catalog, read_deployment(site(tmp_path, enough)))
        with pytest.raises(QueryRefused, match="query wide is refused: cpu of here"):
            headwater.execute(WIDE)
        assert [query.name for query in headwater.catalog.queries()] == ["narrow"]
        (after,) = room(headwater).system({"here"}).units
        assert after.usage == before.usage
        room(headwater).replan({"here"})
        (unit,) = headwater.catalog.units()
        assert is_current_estimate(headwater.catalog.statistics(unit.id), unit.definition)


def room(headwater: Headwater) -> SitePlanner:
    found = current_deployment(headwater.catalog)
    assert found is not None
    return SitePlanner(headwater.catalog, headwater.definitions, found)


def test_a_covered_query_chooses_again_if_the_wide_one_leaves_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(f"{STREAMS}; {NARROW}; {WIDE}")
        accept = one.catalog.accept_query

        def overtaken(*args: object, **named: object) -> object:
            monkeypatch.setattr(one.catalog, "accept_query", accept)
            other.execute("DROP QUERY wide")
            return accept(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(one.catalog, "accept_query", overtaken)
        one.execute(SOME)
        assert one.query("some").placement().relation == "overlapping"
        (unit,) = one.catalog.units()
        _, operator = defined(one, unit)
        assert operator is not None
        for form in UnitPlanner(one.definitions).signatures(one.catalog.subscribers(unit.id)):
            assert classify_containment(form, operator) in (
                Containment.EQUAL,
                Containment.CONTAINED,
            )


# ---- units that read units

TWO, THREE = TEMPLATES[2].format(n=5, m=0), TEMPLATES[9].format(n=3, m=1)


def test_a_join_that_is_built_on_another_says_so_and_so_does_the_other(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(f"{STREAMS}; CREATE QUERY two AS {TWO}; CREATE QUERY three AS {THREE}")
        two, three = headwater.query("two"), headwater.query("three")
        assert three.placement().reads == (UnitSummary(two.row.unit_id, ("two",), 0),)
        assert two.placement().read_by == (UnitSummary(three.row.unit_id, ("three",), 0),)
        assert f"reads     the rows of unit {two.row.unit_id}, which serves two" in three.explain()
        assert f"read by   unit {three.row.unit_id}, which serves three" in two.explain()
        assert two.placement().shared_with == ()
        headwater.execute("DROP QUERY two")
        assert three.placement().reads == (UnitSummary(two.row.unit_id, (), 0),)
        headwater.execute("DROP QUERY three")
        assert not headwater.catalog.units()


def test_nothing_is_asked_of_another_unit_for_a_query_that_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(f"{STREAMS}; CREATE QUERY two AS {TWO}")
        (before,) = one.catalog.units()
        accept = one.catalog.accept_query

        def overtaken(*args: object, **named: object) -> object:
            monkeypatch.setattr(one.catalog, "accept_query", accept)
            other.execute("CREATE QUERY three AS SELECT item FROM fees [NOW]")
            return accept(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(one.catalog, "accept_query", overtaken)
        with pytest.raises(CatalogError, match="there is a query three already"):
            one.execute(f"CREATE QUERY three AS {THREE}")
        assert one.catalog.unit(before.id) == before
        assert [query.name for query in one.catalog.subscribers(before.id)] == ["two"]
