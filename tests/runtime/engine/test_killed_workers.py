"""Processes that are killed, stopped and raced: no row is lost, none doubled, no file left over.

Files of JSON arrive while a worker runs; it is killed at a random moment or at a named point, and
started again. What the queries have given in the end is compared with the reference evaluator.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import postgres
import pytest
from engine_helpers import expected, told
from workers import Order, Workers

from headwater.algebra.nodes import Query
from headwater.algebra.times import format_timestamp
from headwater.cql import CreateQuery, parse
from headwater.runtime.api import open_state
from headwater.runtime.maintenance.stream_logs import sweep_orphans

pytestmark = pytest.mark.spark

TEXT = """
CREATE STREAM bids (item INT NOT NULL, price DOUBLE, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts
  KEEP 20 SECONDS FROM files(path => '{folder}/bids', format => 'json', files_per_step => 2);
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts
  KEEP 20 SECONDS FROM files(path => '{folder}/asks', format => 'json', files_per_step => 2);
CREATE QUERY joined AS SELECT b.item, b.price, a.cost
  FROM bids [RANGE 3 SECONDS] b, asks [RANGE 2 SECONDS] a WHERE b.item = a.item;
CREATE QUERY counted AS SELECT item, COUNT(*) AS n, SUM(price) AS total
  FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item;
CREATE QUERY cheap AS SELECT item, price FROM bids [NOW] WHERE price < 1;
CREATE QUERY alone AS SELECT b.item, b.price FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] b WHERE b.price < 2
  AND NOT EXISTS (SELECT * FROM asks [RANGE 2 SECONDS SLIDE 2 SECONDS] a WHERE a.item = b.item);
"""
LATE = (
    """CREATE QUERY late_{n} AS SELECT b.price, a.cost
  FROM bids [RANGE 5 SECONDS] b, asks [RANGE 1 SECONDS] a WHERE b.item = a.item AND a.cost > {n};""",
    """CREATE QUERY late_{n} AS SELECT COUNT(*) AS n, MAX(price) AS top
  FROM bids [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE item <> {n} GROUP BY item;""",
    "CREATE QUERY late_{n} AS SELECT price, item + 1 AS next FROM bids [NOW] WHERE price > {n} / 4;",
    """CREATE QUERY late_{n} AS SELECT b.price FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] b WHERE b.price > {n} / 4
  AND NOT EXISTS (SELECT * FROM asks [RANGE 2 SECONDS SLIDE 2 SECONDS] a WHERE a.item = b.item);""",
)
"""Queries that come while others run, to share with them."""
KEEP = dict.fromkeys(("bids", "asks", "fees"), 20_000_000)
POINTS = (
    "ingest: written",
    "ingest: committed",
    "unit: absorbed",
    "unit: written",
    "unit: committed",
    "compact: written",
    "compact: replaced",
    "compact: forgotten",
    "retain: forgotten",
    "results: merged",
    "results: replaced",
    "results: pieces removed",
)


@dataclass
class Trial:
    """A state with some queries, the folders that feed it, and all that was put into them."""

    folder: Path
    seed: int
    catalog: str | None = None
    rows: dict[str, list[Any]] = field(default_factory=lambda: {"bids": [], "asks": []})
    files: int = 0
    second: float = 0.0
    late: list[str] = field(default_factory=list)
    most_late: int = 2 * len(LATE)
    text: str = TEXT
    restless: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.state = self.folder / "state"
        for name in self.rows:
            (self.folder / name).mkdir(parents=True)
        with open_state(self.state, catalog=self.catalog) as headwater:
            headwater.execute(self.text.format(folder=self.folder))

    def order(self, **options: Any) -> Order:
        # One that is restless is never idle.
        restless = self.restless and not options.get("until_idle")
        return Order(str(self.state), self.catalog, restless=restless, **options)

    def feed(self) -> None:
        """One more file for each stream, later than those before."""
        for name in self.rows:
            last = self.second
            new = []
            for _ in range(self.rng.randint(1, 6)):
                last += self.rng.choice([0, 0.25, 0.5])
                number = self.rng.choice([0.25, 0.5, 1.0, 2.5])
                value = number if name == "bids" else int(number * 4)
                new.append((self.rng.randrange(3), value, round(last * 1_000_000)))
            self._put(name, new)
        self.second += 3
        self.files += 1
        if self.files % 5 == 2 and len(self.late) < self.most_late:
            number = len(self.late)
            self.late.append(LATE[number % len(LATE)].format(n=number))
            with open_state(self.state, catalog=self.catalog) as headwater:
                headwater.execute(self.late[-1])

    def _put(self, name: str, new: list[Any]) -> None:
        columns = ("item", "price" if name == "bids" else "cost", "ts")
        hidden = self.folder / name / ".new"
        with hidden.open("w") as file:
            for row in new:
                record = dict(zip(columns, (*row[:2], format_timestamp(row[2])), strict=True))
                print(json.dumps(record), file=file)
        os.utime(hidden, ns=(self.files, self.files))
        hidden.rename(self.folder / name / f"{self.files:05}.json")
        self.rows[name] += new

    def taken_in(self) -> bool:
        """Whether a worker has taken in all files."""
        with open_state(self.state, catalog=self.catalog) as headwater:
            marks = [
                headwater.catalog.cursor(f"ingest:{name}", "source") or {} for name in self.rows
            ]
        return all(mark.get("next") == self.files for mark in marks)

    # ---- what came of it

    def check(self) -> None:
        """Raises AssertionError unless all results are as the reference evaluator has them, and
        files and segments are the same."""
        with open_state(self.state, catalog=self.catalog) as headwater:
            for unit in headwater.catalog.units():
                assert unit.error == "", unit.error
            for stream in headwater.catalog.streams():
                assert stream.ended and stream.malformed == stream.late == 0
                assert headwater.catalog.compacted_pieces(f"stream:{stream.name}") == []
            for name, query in self.queries().items():
                start = headwater.query(name).row.start_at
                wanted = expected(query, self.rows, {}, start=start, keep=KEEP)
                assert wanted or name.startswith("late"), "nothing was compared"
                assert told(headwater, name, query) == wanted, name
            sweep_orphans(headwater.catalog, headwater.state, grace=-1)
            there = {str(path) for path in (self.state.resolve() / "log").glob("*/*/*")}
            assert there == headwater.catalog.all_paths()

    def stepped(self, lease: str) -> int:
        """How many files of bids a unit has taken in all in all, and the stream with it."""
        with open_state(self.state, catalog=self.catalog) as headwater:
            position = headwater.catalog.cursor(lease.removeprefix("unit:"), "stream:bids")
            source = headwater.catalog.cursor("ingest:bids", "source")
            ends = headwater.catalog.log_ends()
            if not position or position["seq"] < ends["stream:bids"].seq:
                return 0
            return int(source["next"])

    def segments(self) -> set[str]:
        with open_state(self.state, catalog=self.catalog) as headwater:
            return headwater.catalog.all_paths()

    def files_of_units(self) -> set[str]:
        return {str(path) for path in (self.state.resolve() / "log" / "units").glob("*/*")}

    def queries(self) -> dict[str, Query]:
        statements = parse("\n".join([self.text.format(folder=self.folder), *self.late]))
        return {s.name: s.query for s in statements if isinstance(s, CreateQuery)}


def until(
    true: Callable[[], bool],
    log: Callable[[], str] = lambda: "it did not happen",
    seconds: float = 900.0,
) -> None:
    """Wait for something that has to come about; `log` says why it may not."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, log()
        time.sleep(0.1)


def kill_at(crew: Workers, trial: Trial, point: str) -> None:
    """A worker that kills itself at the point; files come until it meets it."""
    nth = trial.rng.randint(1, 2) if point.startswith(("ingest", "unit")) else 1
    pid = crew.start(trial.order(point=point, nth=nth))

    def dead() -> bool:
        if crew.poll(pid) is None and trial.taken_in():
            trial.feed()
        return crew.poll(pid) is not None

    until(dead, lambda: crew.log(pid))
    crew.expect(pid, -signal.SIGKILL)


def kill_somewhere(crew: Workers, trial: Trial) -> None:
    """A worker that is killed at a random moment, while files come."""
    pid = crew.start(trial.order())
    for _ in range(trial.rng.randint(1, 3)):
        trial.feed()
        time.sleep(trial.rng.uniform(0, 1))
    crew.kill(pid)


def kill_often(crew: Workers, trial: Trial, kills: int) -> None:
    """As many kills, at every named point in turn and at random moments between; then to the end."""
    for number in range(kills):
        trial.feed()
        if number % 3 == 2:
            kill_somewhere(crew, trial)
        else:
            kill_at(crew, trial, POINTS[(number - number // 3) % len(POINTS)])
    crew.run(trial.order(until_idle=True))
    trial.check()


def test_twenty_kills(crew: Workers, tmp_path: Path) -> None:
    kill_often(crew, Trial(tmp_path, seed=20), 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills(crew: Workers, tmp_path: Path, seed: int) -> None:
    kill_often(crew, Trial(tmp_path, seed), 20)


JOINS = (
    TEXT.partition("CREATE QUERY")[0]
    + """
CREATE STREAM fees (item INT, cost INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts
  KEEP 20 SECONDS FROM files(path => '{folder}/fees', format => 'json', files_per_step => 2);
CREATE QUERY wide AS SELECT b.price, a.cost, f.cost AS fee
  FROM bids [RANGE 2 SECONDS] b, asks [RANGE 2 SECONDS] a, fees [RANGE 1 SECONDS] f
  WHERE b.item = a.item AND b.item = f.item AND b.price < 1;
CREATE QUERY narrow AS SELECT b.price, a.cost
  FROM bids [RANGE 3 SECONDS] b, asks [RANGE 1 SECONDS] a WHERE b.item = a.item AND a.cost > 1;
"""
)
HAND_OVER_POINTS = (
    "hand-over: requested",
    "rewire: aligned",
    "rewire: switched",
    "unshare: aligned",
    "unshare: switched",
)


def restless(folder: Path, seed: int) -> Trial:
    """A state whose units change what they read all the time."""
    rows: dict[str, list[Any]] = {"bids": [], "asks": [], "fees": []}
    return Trial(folder, seed, rows=rows, most_late=0, text=JOINS, restless=True)


def test_kills_while_units_change_what_they_read(crew: Workers, tmp_path: Path) -> None:
    trial = restless(tmp_path, 6)
    for point in HAND_OVER_POINTS:
        trial.feed()
        kill_at(crew, trial, point)
    kill_somewhere(crew, trial)
    crew.run(trial.order(until_idle=True))
    trial.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills_while_units_change_what_they_read(
    crew: Workers, tmp_path: Path, seed: int
) -> None:
    trial = restless(tmp_path, seed)
    for _ in range(4):
        for point in trial.rng.sample(HAND_OVER_POINTS, len(HAND_OVER_POINTS)):
            trial.feed()
            kill_at(crew, trial, point)
    crew.run(trial.order(until_idle=True))
    trial.check()


@pytest.mark.postgresql
def test_kills_with_a_catalog_on_postgresql(
    crew: Workers, tmp_path: Path, postgresql: postgres.Server
) -> None:
    kill_often(crew, Trial(tmp_path, seed=5, catalog=postgresql.url()), 5)


@pytest.mark.parametrize("first", ["cursors", "segments"])
def test_the_kill_test_notices_a_careless_commit(crew: Workers, tmp_path: Path, first: str) -> None:
    """With a kill between its two halves rows are lost, or the reverse, doubled."""
    trial = Trial(tmp_path, seed=1, most_late=0)
    for _ in range(4):
        trial.feed()
    crew.run(trial.order(point="careless", careless=first), -signal.SIGKILL)
    crew.run(trial.order(until_idle=True))
    with pytest.raises(AssertionError, match=r"^(joined|counted|cheap)\n"):
        trial.check()


# ---- several workers


def test_a_worker_that_stood_still_is_fenced(crew: Workers, tmp_path: Path) -> None:
    """It stops between the write and the commit of a step until its lease is over; another takes
    the step and commits it; then the first goes on, and must not commit. It does one thing at a time,
    as one that stops within another commit would hold the catalog."""
    trial = Trial(tmp_path, seed=2)
    trial.feed()
    stopped = crew.start(
        trial.order(point="unit: written", signal=signal.SIGSTOP, lease_seconds=1.0, at_once=1)
    )
    until(lambda: state_of(stopped) == "T")
    written = trial.files_of_units() - trial.segments()
    assert written, "it stands between its write and its commit"
    held = leases(trial)
    unit = next(name for name, (holder, _) in held.items() if name.startswith("unit:"))
    other = crew.start(trial.order(lease_seconds=1.0))
    until(lambda: all(leases(trial)[name][0].endswith(f":{other}") for name in held))
    until(lambda: trial.files == trial.stepped(unit))
    os.kill(stopped, signal.SIGCONT)
    trial.feed()
    until(lambda: trial.files == trial.stepped(unit))
    assert crew.poll(stopped) is None and crew.poll(other) is None
    assert written <= trial.files_of_units() - trial.segments(), "it was fenced"
    crew.kill(other)
    trial.feed()
    until(lambda: trial.files == trial.stepped(unit))
    assert leases(trial)[unit][0].endswith(f":{stopped}"), "it takes over again when it may"
    crew.kill(stopped)
    crew.run(trial.order(until_idle=True))
    trial.check()


def test_two_workers_until_idle(crew: Workers, tmp_path: Path) -> None:
    """Neither declares a stream ended that the other still reads, and both come to an end."""
    trial = Trial(tmp_path, seed=3)
    for _ in range(8):
        trial.feed()
    both = [crew.start(trial.order(until_idle=True)) for _ in range(2)]
    for pid in both:
        crew.expect(pid, 0)
    trial.check()


def state_of(pid: int) -> str:
    """The letter by which Linux tells the state of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def leases(trial: Trial) -> dict[str, tuple[str, int]]:
    with open_state(trial.state, catalog=trial.catalog) as headwater:
        return {held.name: (held.holder, held.token) for held in headwater.catalog.leases()}
