"""Whatever happens to sites and units, each unit that can run has a living site and living ways to all
that it reads, also if that is another unit's log; and planning again changes nothing by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import QueryRefused
from headwater.network.sites import Deployment, read_deployment
from headwater.plan.placement.check import find_violations
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Assignment, ingest_owner, stream_log, unit_log
from headwater.runtime.catalog.deployment import current_deployment, deploy
from headwater.runtime.lifecycle import is_stopped_for_good
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.invariants import find_broken_units
from headwater.runtime.sites.planner import SitePlanner

RING = "".join(
    [
        *(
            f'[[site]]\nname = "{name}"\ncpu = {{cpu}}\nstore = "stores/{name}"\n'
            for name in "abcd"
        ),
        *(
            f'[[link]]\nfrom = "{one}"\nto = "{other}"\nbandwidth = {{bandwidth}}\n'
            for one, other in zip("abcd", "bcda", strict=True)
        ),
        *(
            f'[[stream]]\nname = "{name}"\nsites = {sites}\n{{rate}}\n'
            for name, sites in (("s", '["a"]'), ("t", '["a", "c"]'), ("u", '["c"]'))
        ),
    ]
)
"""Four sites in a ring: what goes from one to the one opposite is relayed by either neighbour."""

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    for name in "stu"
)
TWO = """CREATE QUERY {name} AS SELECT s.k, t.v FROM s [RANGE {n} SECONDS], t [RANGE {n} SECONDS]
    WHERE s.k = t.k"""
THREE = """CREATE QUERY {name} AS SELECT s.k, t.v, u.v AS w
    FROM s [RANGE {n} SECONDS], t [RANGE {n} SECONDS], u [RANGE {n} SECONDS]
    WHERE s.k = t.k AND t.k = u.k"""
SOME = "CREATE QUERY {name} AS SELECT k, v FROM u [NOW] WHERE v < {n}"
APART = """CREATE QUERY {name} AS SELECT k, COUNT(*) AS n FROM s [RANGE {n} SECONDS] GROUP BY k
    HAVING COUNT(*) > {n} UNION ALL SELECT k, {n} AS n FROM t [NOW]"""
EVERY = frozenset("abcd")


def ring(folder: Path, cpu: float = 0.45, bandwidth: float = 1e6, rate: float | None = 100) -> Path:
    path = folder / "sites.toml"
    said = "" if rate is None else f"rate = {rate}"
    path.write_text(RING.format(cpu=cpu, bandwidth=bandwidth, rate=said))
    return path


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as opened:
        deploy(opened.catalog, read_deployment(ring(tmp_path)))
        opened.execute(STREAMS)
        for name in EVERY:
            opened.catalog.touch_site(name)
        yield opened


def room(headwater: Headwater) -> SitePlanner:
    return SitePlanner(headwater.catalog, headwater.definitions, deployment(headwater))


def deployment(headwater: Headwater) -> Deployment:
    found = current_deployment(headwater.catalog)
    assert found is not None
    return found


def faults(headwater: Headwater, there: frozenset[str] = EVERY) -> dict[str, str]:
    catalog = headwater.catalog
    running = [unit for unit in catalog.units() if not is_stopped_for_good(catalog, unit)]
    units = {unit_log(unit.id): unit.inputs for unit in running}
    return find_broken_units(deployment(headwater), there, units, catalog.assignment())


def built_on(headwater: Headwater, name: str) -> str | None:
    """The unit whose log the unit of a query reads."""
    unit = headwater.catalog.unit(headwater.query(name).row.unit_id)
    assert unit is not None
    read = [log.partition(":")[2] for log in unit.inputs if log.startswith("unit:")]
    return read[0] if read else None


# ---- what counts as broken


STEPS = Assignment(
    {ingest_owner("s"): "a", "unit:two": "b", "unit:three": "c"},
    {("stream:s", "b"): "a", ("unit:two", "c"): "b"},
)
READS = {"unit:two": ("stream:s", "table:x"), "unit:three": ("unit:two",)}


@pytest.mark.parametrize(
    ("there", "owners", "routes", "wrong"),
    [
        ("abcd", {}, {}, {}),
        ("abcd", {"unit:three": None}, {}, {"unit:three": "no site runs it"}),
        ("abd", {}, {}, {"unit:three": "its site c is away"}),
        (
            "acd",
            {},
            {},
            {"unit:two": "its site b is away"},  # the other waits for it
        ),
        (
            "acd",
            {"unit:two": "c"},
            {("stream:s", "c"): "b"},
            {"unit:two": "stream:s reaches c through b, which is away"},
        ),
        (
            "abcd",
            {"unit:two": "d"},
            {("stream:s", "d"): "a"},
            {"unit:three": "no route brings unit:two to b"},
        ),
        (
            "abcd",
            {"unit:two": "d"},
            {("stream:s", "d"): "a", ("unit:two", "b"): "c"},
            {"unit:three": "the route of unit:two is a cycle: b, c"},
        ),
        ("bcd", {}, {}, {}),  # nobody can read s
    ],
)
def test_what_is_broken_is_said(
    tmp_path: Path,
    there: str,
    owners: dict[str, str | None],
    routes: dict[tuple[str, str], str],
    wrong: dict[str, str],
) -> None:
    known = {**STEPS.owners, **owners}
    assignment = Assignment(
        {owner: site for owner, site in known.items() if site is not None},
        {**STEPS.routes, **routes},
    )
    assert (
        find_broken_units(read_deployment(ring(tmp_path)), set(there), READS, assignment) == wrong
    )


def test_what_the_living_links_do_not_connect_waits(tmp_path: Path) -> None:
    reads = {"unit:x": ("stream:s", "stream:u")}
    apart = Assignment({ingest_owner("s"): "a", ingest_owner("u"): "c"}, {})
    deployment = read_deployment(ring(tmp_path))
    assert find_broken_units(deployment, {"a", "c"}, reads, apart) == {}
    assert find_broken_units(deployment, {"a", "b", "c"}, reads, apart) == {
        "unit:x": "no site runs it"
    }


# ---- units that read units


def test_widening_a_third_unit_leaves_a_unit_that_reads_another_where_it_is(
    headwater: Headwater,
) -> None:
    headwater.execute(SOME.format(name="some", n=1))
    headwater.execute(TWO.format(name="two", n=5))
    headwater.execute(THREE.format(name="three", n=5))
    maker = headwater.query("two").row.unit_id
    assert built_on(headwater, "three") == maker
    assert not faults(headwater)
    moved = Assignment(dict(headwater.catalog.assignment().owners), {})
    reader = unit_log(headwater.query("three").row.unit_id)
    moved.owners[unit_log(maker)] = next(iter(EVERY - {moved.owners[reader]}))
    headwater.catalog.replace_assignment(
        moved
    )  # as if it had been planned without those that read it
    assert faults(headwater)
    headwater.execute(SOME.format(name="more", n=9))
    assert headwater.query("more").row.unit_id == headwater.query("some").row.unit_id
    assert not faults(headwater)


def test_readers_follow_a_unit_that_moves(headwater: Headwater) -> None:
    headwater.execute(TWO.format(name="two", n=5))
    headwater.execute(THREE.format(name="three", n=5))
    headwater.execute(THREE.format(name="wide", n=5) + " AND u.v > 3")
    maker = unit_log(headwater.query("two").row.unit_id)
    for _ in range(4):
        site = headwater.catalog.assignment().owners[maker]
        there = EVERY - {site} if site not in "ac" else EVERY
        room(headwater).replan(there)
        assert not faults(headwater, frozenset(there))
        room(headwater).replan(EVERY)
        assert not faults(headwater)


# ---- relays


@pytest.mark.parametrize("rate", [None, 100])
def test_a_relay_that_died_is_gone_around(tmp_path: Path, rate: float | None) -> None:
    """Also where nothing has come yet, and sending nothing seems to cost nothing."""
    with open_state(tmp_path / "state") as headwater:
        deploy(headwater.catalog, read_deployment(ring(tmp_path, cpu=0.9, rate=rate)))
        headwater.execute(STREAMS + THREE.format(name="three", n=5))
        for name in EVERY:
            headwater.catalog.touch_site(name)
        for dead in "bdbd":
            there = EVERY - {dead}
            room(headwater).replan(there)
            assert not faults(headwater, there)
            assert dead not in headwater.catalog.assignment().routes.values()


def test_the_controller_reports_and_replaces_a_dead_relay(headwater: Headwater) -> None:
    headwater.execute(THREE.format(name="three", n=5))
    controller = Controller(room(headwater))
    controller.tick()
    assert not faults(headwater)
    unit = headwater.query("three").row.unit_id
    now = headwater.catalog.assignment()
    headwater.catalog.replace_assignment(
        Assignment({k: v for k, v in now.owners.items() if unit not in k}, {})
    )
    assert controller.tick() is not None
    assert not faults(headwater)
    (event,) = headwater.catalog.events(kind="unit cut off")
    assert event.subject == unit and event.detail == {"reason": "no site runs it"}
    assert controller.tick() is None


def test_a_unit_that_has_to_wait_is_reported_once(headwater: Headwater) -> None:
    headwater.execute(THREE.format(name="three", n=5))
    controller = Controller(room(headwater))
    controller.tick()
    headwater.catalog.mark_site_gone("a")
    for _ in range(3):
        controller.tick()
    (event,) = headwater.catalog.events(kind="unit waits")
    assert event.subject == headwater.query("three").row.unit_id
    assert not headwater.catalog.events(kind="unit cut off")


# ---- whatever happens


class Model:
    """Queries that come and go on sites that come and go."""

    def __init__(self, headwater: Headwater) -> None:
        self.headwater = headwater
        self.there = EVERY
        self.asked: list[str] = []
        self.count = 0
        self.built = 0

    def do(self, rng: random.Random) -> None:
        for (
            name
        ) in self.there:  # as living sites do every few seconds, however slow this machine is
            self.headwater.catalog.touch_site(name)
        what = rng.choice(["add"] * 5 + ["drop", "lose", "return", "rate"])
        if what == "add":
            self._add(rng)
        elif what == "drop" and self.asked:
            name = self.asked.pop(rng.randrange(len(self.asked)))
            self.headwater.execute(f"DROP QUERY {name}")
        elif what == "lose" and len(self.there) > 1:
            self._now(self.there - {rng.choice(sorted(self.there))})
        elif what == "return":
            self._now(self.there | {rng.choice("abcd")})
        elif what == "rate":
            rate = rng.choice([10.0, 1e4])
            values = {"batches": 50.0, "rows_rate": rate, "bytes_rate": 16 * rate}
            log = stream_log(rng.choice("stu"))
            self.headwater.catalog.set_statistics({(log, k): v for k, v in values.items()})
            room(self.headwater).replan(self.there)

    def _add(self, rng: random.Random) -> None:
        self.count += 1
        name, n = f"q{self.count}", rng.choice([2, 5, 5, 5, 9])
        text = rng.choice([TWO, TWO, THREE, THREE, SOME, APART]).format(name=name, n=n)
        if "u.v AS w" in text and rng.random() < 0.5:
            text += f" AND u.v > {n}"
        try:
            self.headwater.execute(text)
        except QueryRefused:
            return
        self.asked.append(name)
        self.built += built_on(self.headwater, name) is not None

    def _now(self, there: frozenset[str]) -> None:
        self.there = there
        for name in EVERY:
            if name in there:
                self.headwater.catalog.touch_site(name)
            else:
                self.headwater.catalog.mark_site_gone(name)
        room(self.headwater).replan(there)

    def holds(self, settles: bool) -> None:
        catalog = self.headwater.catalog
        assert {row.name for row in catalog.queries()} == set(self.asked)
        assert not faults(self.headwater, self.there)
        if not settles:
            return
        assert not room(self.headwater).replan(self.there).moved
        before = catalog.assignment()  # without what was of dropped queries alone
        room(self.headwater).replan(self.there)
        assert catalog.assignment() == before
        system = room(self.headwater).system(self.there)
        wrong = {one.constraint for one in find_violations(system.problem, system.plan)}
        assert wrong <= {"cpu", "link", "bandwidth in", "bandwidth out"}  # beyond, but not dropped


def happens(folder: Path, seed: int, steps: int) -> int:
    """A random history; returns how many units were built on others."""
    rng = random.Random(seed)
    with open_state(folder / "state") as opened:
        file = ring(folder, cpu=rng.choice([0.25, 0.45, 0.9]), rate=rng.choice([None, 100, 2000]))
        deploy(opened.catalog, read_deployment(file))
        opened.execute(STREAMS)
        for name in EVERY:
            opened.catalog.touch_site(name)
        model = Model(opened)
        for _ in range(rng.randrange(4, steps)):
            model.do(rng)
            model.holds(settles=rng.random() < 0.3)
        return model.built


@pytest.mark.parametrize("seed", [10])
def test_what_cut_off_a_unit_once(tmp_path: Path, seed: int) -> None:
    """Histories in which a unit lost its site, or the way to what it reads."""
    happens(tmp_path, seed, steps=30)


@pytest.mark.long
@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=5)
def test_whatever_happens_every_unit_can_work(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    happens(tmp_path_factory.mktemp("sites"), seed, steps=12)


@pytest.mark.slow
def test_whatever_happens_every_unit_can_work_in_the_long_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    built = [happens(tmp_path_factory.mktemp("sites"), seed, steps=30) for seed in range(100)]
    assert sum(built) > 50
