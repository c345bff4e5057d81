"""Sites without Spark: who is admitted, who does what, and that nobody is ever dropped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InputError, QueryRefused
from headwater.network.sites import deployment_from_data, read_deployment
from headwater.plan.placement.check import find_violations
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Lease, ingest_owner, log_copy, stream_log, unit_log
from headwater.runtime.catalog.deployment import alive_sites, current_deployment, deploy
from headwater.runtime.inspect.sites import link_views, site_views
from headwater.runtime.sites import local_site as here_module
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.sites.planner import SitePlanner
from headwater.runtime.spark.cluster import master_problem

SITES = """\
[[site]]
name = "a"
cpu = {cpu}
store = "stores/a"

[[site]]
name = "b"
cpu = {cpu}
store = "stores/b"

[[site]]
name = "c"
cpu = {cpu}
{store_c}

[[link]]
from = "a"
to = "b"
bandwidth = {bandwidth}

[[link]]
from = "b"
to = "c"
bandwidth = {bandwidth}

[[stream]]
name = "s"
sites = ["a"]
rate = 100

[[stream]]
name = "t"
sites = ["a", "b"]
rate = 100
"""
STREAMS = """
CREATE STREAM s (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM t (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
OF_S = "CREATE QUERY {name} AS SELECT k, v FROM s [NOW] WHERE v < {n} AND k % {n} = 0"
JOIN = """CREATE QUERY {name} AS SELECT s.k, t.v FROM s [RANGE {n} SECONDS], t [RANGE {n} SECONDS]
    WHERE s.k = t.k"""


def write(folder: Path, cpu: float = 0.45, bandwidth: float = 1e6, store_c: str = "") -> Path:
    path = folder / "sites.toml"
    store = store_c or 'store = "stores/c"'
    path.write_text(SITES.format(cpu=cpu, bandwidth=bandwidth, store_c=store))
    return path


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as opened:
        deploy(opened.catalog, read_deployment(write(tmp_path)))
        opened.execute(STREAMS)
        yield opened


def room(headwater: Headwater) -> SitePlanner:
    found = current_deployment(headwater.catalog)
    assert found is not None
    return SitePlanner(headwater.catalog, headwater.definitions, found)


def apart(n: int, name: str | None = None) -> str:
    """A query that shares with no other of these."""
    return (
        f"CREATE QUERY {name or f'q{n}'} AS "
        f"SELECT k, COUNT(*) AS n FROM s [RANGE {n + 1} SECONDS] GROUP BY k HAVING COUNT(*) > {n} "
        f"UNION ALL SELECT k, {n} AS n FROM t [NOW]"
    )


# ---- files of sites


def test_a_deployment_is_the_same_in_the_catalog(headwater: Headwater, tmp_path: Path) -> None:
    read = read_deployment(tmp_path / "sites.toml")
    assert current_deployment(headwater.catalog) == read == deployment_from_data(read.as_data())
    assert read.worker("a").store == "stores/a"
    assert read.streams["t"].sites == ("a", "b")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('name = "b"', 'name = "a"', "sites.toml:7: a second site is called a; rename one"),
        ("cpu = 0.45", "cpu = -1", "sites.toml:3: cpu is -1, it must be at least 0"),
        ('to = "c"', 'to = "d"', "no site d; there is: a, b, c"),
        ('from = "b"\nto = "c"', 'from = "a"\nto = "b"', "no link leads from a to c"),
        ('sites = ["a"]', 'sites = ["z"]', "no site z"),
        ('sites = ["a"]', 'sites = "a"', "sites takes a list of names, not 'a'"),
        ('name = "t"', 'name = "S"', "s is listed twice"),
        ("rate = 100", "rate = -3", "rate is -3"),
        ('store = "stores/a"', "stores = 1", "unknown key stores; did you mean store?"),
    ],
)
def test_mistakes_are_reported_with_their_lines(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(InputError) as refused:
        read_deployment(path)
    assert message in str(refused.value)


def test_an_unreachable_master_is_reported_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("cpu = 0.45", 'master = "spark://127.0.0.1:1"', 1))
    assert read_deployment(path).worker("a").master == "spark://127.0.0.1:1"
    with pytest.raises(InputError, match=r"sites.toml:3: spark://127.0.0.1:1 cannot be reached"):
        read_deployment(path, master_problem)
    assert (
        master_problem("local") is master_problem("local[4]") is master_problem("local[*]") is None
    )
    assert "is not a master" in str(master_problem("lokal[4]"))


# ---- admission


def test_queries_are_admitted_while_there_is_room(headwater: Headwater) -> None:
    admitted = []
    for n in range(20):
        try:
            headwater.execute(apart(n))
            admitted.append(f"q{n}")
        except QueryRefused as refusal:
            text = str(refusal)
            break
    assert {row.name for row in headwater.catalog.queries()} == set(admitted)
    assert len(admitted) == 6  # a step a second takes 0.17 of a core, and each site has 0.45
    assert "query q6 is refused: cpu of" in text
    assert "estimated usage: 0.17" in text and "would help: " in text and "more cpu of" in text
    assert "it would not fit even" not in text
    owners = headwater.catalog.assignment().owners
    assert sorted(owners[unit_log(u.id)] for u in headwater.catalog.units()) == [*"aabbcc"]
    assert owners[ingest_owner("s")] == owners[ingest_owner("t")] == "a"


def test_a_query_that_shares_needs_no_room(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    headwater.execute(apart(3, "again"))
    assert headwater.query("again").row.unit_id == headwater.query("q3").row.unit_id


def test_what_was_dropped_makes_room(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    headwater.execute("DROP QUERY q2")
    headwater.execute(apart(7))
    with pytest.raises(QueryRefused):
        headwater.execute(apart(8))


def test_one_that_can_never_fit_says_so(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as opened:
        deploy(opened.catalog, read_deployment(write(tmp_path, cpu=0.1)))
        opened.execute(STREAMS)
        with pytest.raises(QueryRefused, match="it would not fit even if nothing else ran"):
            opened.execute(apart(1))
        assert not opened.catalog.queries() and not opened.catalog.units()


def test_a_refused_query_keeps_no_other_from_being_admitted(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    with pytest.raises(QueryRefused, match="query q6 is refused"):
        headwater.execute(f"{apart(6)}; {apart(5, 'like_q5')}")
    assert headwater.query("like_q5").row.state == "running"


def test_relaxing_a_unit_beyond_its_site_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, cpu=0.21)
    path.write_text(path.read_text().replace("rate = 100", "rate = 1000000"))
    with open_state(tmp_path / "state") as opened:
        deploy(opened.catalog, read_deployment(path))
        opened.execute(STREAMS)
        opened.execute("CREATE QUERY few AS SELECT k, v FROM s [NOW] WHERE v = 1")
        before = opened.catalog.units()
        with pytest.raises(QueryRefused, match="query all_of_s is refused: cpu of"):
            opened.execute("CREATE QUERY all_of_s AS SELECT k, v, ts FROM s [NOW]")
        assert opened.catalog.units() == before
        opened.execute("CREATE QUERY fewer AS SELECT k FROM s [NOW] WHERE v = 1 AND k = 2")


def test_a_narrow_link_refuses_what_a_wide_one_takes(tmp_path: Path) -> None:
    for bandwidth, fits in ((1e6, True), (10.0, False)):
        with open_state(tmp_path / f"state-{fits}") as opened:
            deploy(opened.catalog, read_deployment(write(tmp_path, 0.25, bandwidth)))
            opened.execute(STREAMS)
            opened.execute(apart(1))
            if fits:
                opened.execute(apart(2))
                assert ("stream:s", "b") in opened.catalog.assignment().routes
            else:
                with pytest.raises(QueryRefused, match="link of a -> b"):
                    opened.execute(apart(2))


# ---- what sites do


def test_a_log_is_relayed_where_no_link_leads(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    routes = headwater.catalog.assignment().routes
    assert routes["stream:s", "b"] == "a" and routes["stream:s", "c"] == "b"
    assert log_copy("stream:s", "c") in headwater.catalog.log_ends()
    views = {(v.origin, v.target): v for v in link_views(headwater.catalog)}
    assert set(views) == {("a", "b"), ("b", "c")}
    assert set(views["a", "b"].logs) == {"stream:s", "stream:t"}
    assert [len(view.units) for view in site_views(headwater.catalog)] == [2, 2, 2]


def test_nothing_is_copied_within_a_store(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as opened:
        path = write(tmp_path, store_c='store = "stores/b"')
        deploy(opened.catalog, read_deployment(path))
        opened.execute(STREAMS)
        for n in range(6):
            opened.execute(apart(n))
        copies = [log for log in opened.catalog.log_ends() if log.startswith("copy:")]
        assert copies == ["copy:b:stream:s", "copy:b:stream:t"]
        assert site(opened, "c").local_log("stream:s") == "copy:b:stream:s"
        assert not site(opened, "c").incoming_logs
        deploy(opened.catalog, read_deployment(write(tmp_path, store_c='store = "stores/a"')))
        change = room(opened).replan({"a", "b", "c"})
        assert not change.moved and not change.waiting
        assert (
            site(opened, "c").local_log("stream:s") == "copy:c:stream:s"
        )  # by b, which has its own store


def test_units_leave_a_site_that_is_away_and_nobody_is_dropped(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    change = room(headwater).replan({"a", "b"})
    owners = headwater.catalog.assignment().owners
    assert len(change.moved) == 2 and not change.waiting
    assert {owners[unit_log(u.id)] for u in headwater.catalog.units()} == {"a", "b"}
    alone = room(headwater).replan({"b", "c"})  # s comes in at a alone
    assert set(alone.waiting) == {u.id for u in headwater.catalog.units()}
    assert len(headwater.catalog.queries()) == 6
    back = room(headwater).replan({"a", "b", "c"})
    assert not back.waiting and len(back.moved) == 6


def test_the_controller_sees_who_comes_and_goes(headwater: Headwater) -> None:
    controller = Controller(room(headwater))
    assert controller.tick() is None
    for name in "abc":
        headwater.catalog.touch_site(name)
    assert controller.tick() is not None and controller.alive == {"a", "b", "c"}
    for n in range(6):
        headwater.execute(apart(n))
    assert controller.tick() is None
    headwater.catalog.mark_site_gone("c")
    assert alive_sites(headwater.catalog) == {"a", "b"}
    change = controller.tick()
    assert change is not None and len(change.moved) == 2
    kinds = [event.kind for event in headwater.catalog.events()]
    assert kinds.count("site came") == 3 and kinds.count("site went") == 1
    assert kinds.count("unit moved") == 2


def test_a_unit_that_strays_is_planned_again(headwater: Headwater) -> None:
    for n in range(4):
        headwater.execute(apart(n))
    at: dict[str, list[str]] = {}
    for unit in headwater.catalog.units():
        site = headwater.catalog.assignment().owners[unit_log(unit.id)]
        at.setdefault(site, []).append(unit.id)
    stray = max(at.values(), key=len)[0]
    assert not room(headwater).drifted_units()
    measured = {
        "steps": 10.0,
        "cpu_fixed": 0.4,
        "cpu_per_row": 0.0,
        "step_rows_in": 100.0,
        "step_rows_out": 10.0,
        "step_bytes_out": 1000.0,
    }
    headwater.catalog.set_statistics({(stray, name): v for name, v in measured.items()})
    strays = room(headwater).drifted_units()
    assert list(strays) == [stray] and strays[stray].cpu == pytest.approx(0.4)
    there = {"a", "b", "c"}
    full = room(headwater).system(there)
    assert {one.constraint for one in find_violations(full.problem, full.plan)} == {"cpu"}
    assert room(headwater).replan(there, strays).moved
    after = room(headwater).system(there)
    assert not find_violations(after.problem, after.plan)
    assert len(after.plan.admitted) == 4
    assert not room(headwater).drifted_units()


class Model:
    """What has to hold after whatever happened."""

    def __init__(self, headwater: Headwater) -> None:
        self.headwater = headwater
        self.there = {"a", "b", "c"}
        self.asked: set[str] = set()
        self.count = 0

    def do(self, rng: random.Random) -> None:
        what = rng.choice(["add", "add", "add", "drop", "lose", "return", "rate"])
        if what == "add":
            self.count += 1
            n = rng.randrange(1, 9)
            text = rng.choice([apart(n, "{name}"), OF_S, JOIN]).format(name=f"q{self.count}", n=n)
            try:
                self.headwater.execute(text)
                self.asked.add(f"q{self.count}")
            except QueryRefused:
                pass
        elif what == "drop" and self.asked:
            name = rng.choice(sorted(self.asked))
            self.asked.discard(name)
            self.headwater.execute(f"DROP QUERY {name}")
        elif what == "lose" and len(self.there) > 1:
            self._now(self.there - {rng.choice(sorted(self.there))})
        elif what == "return":
            self._now(self.there | {rng.choice("abc")})
        elif what == "rate":
            values = {(stream_log("s"), "batches"): 50.0}
            values |= {(stream_log("s"), "rows_rate"): rng.choice([10.0, 1e4])}
            values |= {(stream_log("s"), "bytes_rate"): 16.0 * rng.choice([10.0, 1e4])}
            self.headwater.catalog.set_statistics(values)
            room(self.headwater).replan(self.there)

    def _now(self, there: set[str]) -> None:
        self.there = there
        for name in "abc":
            if name in there:
                self.headwater.catalog.touch_site(name)
            else:
                self.headwater.catalog.mark_site_gone(name)
        room(self.headwater).replan(there)

    def holds(self) -> None:
        catalog = self.headwater.catalog
        assert {row.name for row in catalog.queries() if not row.is_hidden} == self.asked
        assignment, system = catalog.assignment(), room(self.headwater).system(self.there)
        for number, unit in enumerate(system.units):
            site = assignment.owners.get(unit_log(unit.id))
            reads_s = "stream:s" in unit.inputs
            can_run = "a" in self.there or (not reads_s and "b" in self.there)
            assert (site is not None) == can_run, (unit, self.there)
            if site is None:
                continue
            assert site in self.there
            assert number in system.plan.admitted
            for log in unit.inputs:
                at = log
                while assignment.owners[ingest_owner(log.partition(":")[2])] != site:
                    origin = assignment.routes[at, site]
                    assert origin in self.there
                    site = origin
        broken = {one.constraint for one in find_violations(system.problem, system.plan)}
        assert broken <= {"cpu", "link", "bandwidth in", "bandwidth out"}  # beyond, but not dropped


@pytest.mark.long
@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=15)
def test_whatever_happens_nobody_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("sites")
    rng = random.Random(seed)
    with open_state(folder / "state") as opened:
        store = rng.choice(["", 'store = "stores/a"', 'store = "stores/b"', "# that of the state"])
        file = write(folder, cpu=rng.choice([0.45, 0.9]), store_c=store)
        deploy(opened.catalog, read_deployment(file))
        opened.execute(STREAMS)
        for name in "abc":
            opened.catalog.touch_site(name)
        model = Model(opened)
        for _ in range(rng.randrange(4, 14)):
            model.do(rng)
            model.holds()


# ---- copies


def written(headwater: Headwater, count: int, first: int = 0) -> list[int]:
    """Push rows in so many segments; the numbers of all."""
    for n in range(first, first + count):
        headwater.push("s", [(n, n, n * 1_000_000)], timestamp_unit="us")
    return [segment.seq for segment in headwater.catalog.segments("stream:s")]


def site(headwater: Headwater, name: str) -> LocalSite:
    found = current_deployment(headwater.catalog)
    assert found is not None
    here = LocalSite(headwater.catalog, name, headwater.state, found)
    here.refresh()
    return here


def nowhere(point: str) -> None:
    pass


def lease(headwater: Headwater, name: str) -> Lease:
    found = headwater.catalog.acquire(name, "test", 60)
    assert found is not None
    return found


def test_copies_have_the_numbers_of_the_original(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    assert written(headwater, 3) == [1, 2, 3]
    b, c = site(headwater, "b"), site(headwater, "c")
    assert not c.ship_log(
        "stream:s", lease(headwater, "c"), nowhere
    )  # b has nothing to pass on yet
    mine = lease(headwater, "b")
    assert b.ship_log("stream:s", mine, nowhere)
    assert not b.ship_log("stream:s", mine, nowhere)
    copies = headwater.catalog.segments(log_copy("stream:s", "b"))
    assert [copy.seq for copy in copies] == [1, 2, 3]
    assert all(Path(copy.path).is_relative_to(b.store) for copy in copies)
    assert c.ship_log("stream:s", lease(headwater, "c"), nowhere)
    relayed = headwater.catalog.segments(log_copy("stream:s", "c"))
    assert [copy.seq for copy in relayed] == [1, 2, 3]
    size = sum(segment.bytes for segment in copies)
    carried = {(v.origin, v.target): v.bytes for v in link_views(headwater.catalog)}
    assert carried == {("a", "b"): size, ("b", "c"): size}


def test_a_link_carries_no_more_than_it_may(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    written(headwater, 10)
    size = headwater.catalog.segments("stream:s")[0].bytes
    deploy(headwater.catalog, read_deployment(write(tmp_path, bandwidth=2.5 * size)))
    now = [1000.0]
    monkeypatch.setattr(here_module.time, "monotonic", lambda: now[0])
    here, mine, carried = site(headwater, "b"), lease(headwater, "b"), []
    for _ in range(60):
        here.ship_log("stream:s", mine, nowhere)
        ends = headwater.catalog.log_ends()
        carried.append(ends[log_copy("stream:s", "b")].seq)
        now[0] += 0.1
    for tenths, segments in enumerate(carried):
        assert segments * size <= 2.5 * size * (tenths / 10 + 1) + size
    assert carried[-1] == 10 and carried[0] == 2


def test_a_copy_is_complete_though_old_segments_are_gone(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    written(headwater, 3)
    headwater.catalog.remove_segments([s.id for s in headwater.catalog.segments("stream:s")])
    here = site(headwater, "b")
    unit = next(u for u in headwater.catalog.units() if here.owns(unit_log(u.id)))
    cursors = {(unit.id, "stream:s"): {"seq": 3, "watermark": 0}}
    headwater.catalog.commit(None, cursors=cursors)
    assert not here.has_inputs(unit)
    assert here.ship_log("stream:s", lease(headwater, "b"), nowhere)
    assert here.has_inputs(unit)


def test_what_another_site_wrote_is_adopted(headwater: Headwater) -> None:
    headwater.execute(apart(0))
    written(headwater, 2)
    here = site(headwater, "a")
    before = headwater.catalog.segments("stream:s")
    here.adopt_segments(ingest_owner("s"), "stream:s", lease(headwater, "a"))
    after = headwater.catalog.segments("stream:s")
    assert [s.id for s in before] == [s.id for s in after]
    assert all(Path(s.path).is_relative_to(here.store) for s in after)
    assert [Path(s.path).read_bytes() for s in before] == [Path(s.path).read_bytes() for s in after]
    written(headwater, 1, first=5)
    here.adopt_segments(ingest_owner("s"), "stream:s", lease(headwater, "a"))
    (new,) = (s for s in headwater.catalog.segments("stream:s") if s.seq == 3)
    assert not Path(new.path).is_relative_to(here.store)  # looked for once
    here.adopt_segments(ingest_owner("s"), "stream:s", lease(headwater, "a"), again=True)
    (new,) = (s for s in headwater.catalog.segments("stream:s") if s.seq == 3)
    assert Path(new.path).is_relative_to(here.store)


def test_copies_that_nobody_asks_for_are_forgotten(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    written(headwater, 2)
    assert site(headwater, "b").ship_log("stream:s", lease(headwater, "b"), nowhere)
    for n in range(6):
        headwater.execute(f"DROP QUERY q{n}")
    room(headwater).replan({"a", "b", "c"})
    assert not headwater.catalog.assignment().routes
    assert not [log for log in headwater.catalog.log_ends() if log.startswith("copy:")]


def test_a_copy_cannot_be_registered_twice(headwater: Headwater) -> None:
    for n in range(6):
        headwater.execute(apart(n))
    written(headwater, 1)
    (segment,) = headwater.catalog.segments("stream:s")
    log, claim = log_copy("stream:s", "b"), lease(headwater, "b")
    headwater.catalog.register_copies(claim, log, [(segment, segment.path)], 1)
    with pytest.raises(Exception, match="has 1 already"):
        headwater.catalog.register_copies(claim, log, [(segment, segment.path)], 1)
