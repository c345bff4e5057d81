"""Power cuts: whatever a commit names is on the disk, so no row is lost and the runs go on.

The state is on a disk of its own, whose power is cut while a worker takes in files, steps, merges and
sends to a sink; what is left is mounted again and run on. Where loop devices are missing these tests
are skipped, and `test_durability` looks at the calls instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from power import Disk, NoDisk, disk
from test_killed_workers import POINTS, Trial, told, until
from workers import Workers

from headwater.runtime.api import open_state

SUNK = """CREATE QUERY sunk TO files(path => '{}', format => 'json')
  AS SELECT item, price FROM bids [NOW] WHERE price > 0.3;"""


@pytest.fixture
def state_disk(tmp_path: Path) -> Iterator[Disk]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(disk(tmp_path / "state", tmp_path / "images"))
        except NoDisk as reason:
            pytest.skip(str(reason))


def test_what_was_pushed_is_there_after_a_power_cut(state_disk: Disk, tmp_path: Path) -> None:
    text = "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
    with open_state(state_disk.mounted) as headwater:
        headwater.execute(text)
        for moment in range(5):
            headwater.push("s", [(moment, moment)], timestamp_unit="us")
        state_disk.cut()
    state_disk.restore()
    with open_state(state_disk.mounted) as headwater:
        assert headwater.verify().is_sound
        assert headwater.verify().segments == 5
        assert headwater.push("s", [(5, 5)], timestamp_unit="us") == 1


@dataclass
class Cuts(Trial):
    """A trial on a disk, with a query that has a sink there."""

    on: Disk | None = None

    def with_sink(self) -> Cuts:
        self.late.append(SUNK.format(self.sink))
        self.most_late += 1
        with open_state(self.state) as headwater:
            headwater.execute(self.late[-1])
        return self

    @property
    def sink(self) -> Path:
        return self.state / "sunk"

    def cut(self, crew: Workers, careless: str = "", point: str = "") -> None:
        """Cut the power at a random moment while a worker runs, or as soon as it has met a point."""
        by_tasks = self.rng.random() < 0.5
        pid = crew.start(self.order(careless=careless, point=point, by_tasks=by_tasks))
        for _ in range(self.rng.randint(1, 3)):
            self.feed()
            until(lambda: crew.poll(pid) is not None or self.taken_in())
        if not point:
            time.sleep(self.rng.uniform(0, 1))
        assert self.on is not None
        self.on.cut()
        crew.kill(pid, or_ended=True)  # as its disk is gone
        self.on.restore()

    def check_sink(self) -> None:
        with open_state(self.state) as headwater:
            query = self.queries()["sunk"]
            wanted = [row[1:] for row in told(headwater, "sunk", query)]
        lines = [line for file in self.sink.iterdir() for line in file.read_text().splitlines()]
        records = map(json.loads, lines)
        found = [(record["item"], record["price"]) for record in records]
        assert sorted(found) == sorted(wanted)


def cut_often(crew: Workers, trial: Cuts, cuts: int) -> None:
    for number in range(cuts):
        trial.feed()
        trial.cut(crew, point="" if number % 2 else POINTS[number // 2 % len(POINTS)])
    crew.run(trial.order(until_idle=True))
    trial.check()
    trial.check_sink()


@pytest.mark.spark
def test_three_power_cuts(crew: Workers, state_disk: Disk, tmp_path: Path) -> None:
    cut_often(crew, Cuts(tmp_path, seed=3, on=state_disk).with_sink(), 3)


@pytest.mark.spark
@pytest.mark.slow
def test_twenty_power_cuts(crew: Workers, state_disk: Disk, tmp_path: Path) -> None:
    cut_often(crew, Cuts(tmp_path, seed=20, on=state_disk).with_sink(), 20)


@pytest.mark.spark
def test_the_cuts_notice_files_that_are_not_synced(
    crew: Workers, state_disk: Disk, tmp_path: Path
) -> None:
    """Then segments that the catalog names are empty or gone: units park with a sentence that names
    the file, and nothing is read as if it had no rows."""
    trial = Cuts(tmp_path, seed=1, most_late=0, on=state_disk)
    trial.cut(crew, careless="unsynced")
    with open_state(trial.state) as headwater:
        damage = headwater.verify().damage
        assert damage and all("joined" in d.queries for d in damage if d.log == "stream:asks")
    crew.run(trial.order(until_idle=True))
    with open_state(trial.state) as headwater:
        parked = [unit for unit in headwater.catalog.units() if unit.state == "parked"]
        damaged = {d.path for d in damage}
        assert parked and all(any(path in u.error for path in damaged) for u in parked)
