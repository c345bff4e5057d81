"""Three sites, three Spark processes, sixty overlapping queries; one site is killed in the middle.

Results are compared with the reference evaluator, row by row. Printed are the time until all that the
dead site did is done by others, and the bytes that went over links, beside those that would have gone
if every query had its streams sent to the site it runs at. It refuses to report if a row is missing or
doubled, or if a link carried more than it may.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from _common import Differ, compare_with_reference
from headwater.algebra.times import format_timestamp
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import unit_log
from headwater.runtime.inspect.sites import LinkView, link_views

SITES = "abc"
LINK = 60_000.0
"""Bytes a second that a link carries."""

STATEMENTS = """
CREATE STREAM bids (item INT NOT NULL, price DOUBLE, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts
  KEEP 60 SECONDS FROM files(path => '{folder}/bids', format => 'json', files_per_step => 2);
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts
  KEEP 60 SECONDS FROM files(path => '{folder}/asks', format => 'json', files_per_step => 2);
"""
SHAPES = (
    "SELECT item, price FROM bids [NOW] WHERE price < {n}",
    "SELECT item, cost FROM asks [NOW] WHERE cost > {n}",
    "SELECT item, COUNT(*) AS n, SUM(price) AS total FROM bids [RANGE {r} SECONDS SLIDE 4 SECONDS]"
    " GROUP BY item",
    "SELECT b.item, b.price, a.cost FROM bids [RANGE {r} SECONDS] b, asks [RANGE 4 SECONDS] a"
    " WHERE b.item = a.item AND a.cost > {n}",
    "SELECT item, MAX(cost) AS top FROM asks [RANGE {r} SECONDS SLIDE 2 SECONDS] GROUP BY item",
    "SELECT DISTINCT item FROM bids [RANGE {r} SECONDS SLIDE 2 SECONDS]",
)


@dataclass
class Events:
    """Tuples as they arrive in files; `rows` are those so far."""

    folder: Path
    seed: int = 1
    at: int = 1_700_000_000_000_000
    rows: dict[str, list[tuple[object, ...]]] = field(
        default_factory=lambda: {"bids": [], "asks": []}
    )

    def arrive(self, files: int, size: int) -> None:
        """More of both streams, in so many files of so many tuples."""
        rng = random.Random(f"{self.seed} {self.at}")
        for _ in range(files):
            for name in self.rows:
                new = []
                for n in range(size):
                    time_ = self.at + n * 4_000_000 // size
                    value: object = rng.choice([0.25, 1.5, 3.0, 8.0])
                    new.append(
                        (rng.randrange(6), value if name == "bids" else rng.randrange(20), time_)
                    )
                self._write(name, new)
                self.rows[name] += new
            self.at += 4_000_000

    def _write(self, name: str, rows: list[tuple[object, ...]]) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        columns = ("item", "price" if name == "bids" else "cost", "ts")
        lines = [
            json.dumps(dict(zip(columns, (*row[:2], format_timestamp(row[2])), strict=True)))
            for row in rows
        ]
        hidden = folder / f".{self.at}.json"
        hidden.write_text("\n".join(lines))
        hidden.rename(folder / f"{self.at}.json")


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    queries: int
    units: int
    rows: int
    moved: int
    recovered: float
    links: tuple[LinkView, ...]
    alone: int
    """Bytes that would have gone over links if every query had had its streams sent to it."""

    @property
    def sent(self) -> int:
        return sum(link.bytes for link in self.links)


def queries(count: int) -> dict[str, str]:
    """So many overlapping queries."""
    return {
        f"q{n}": SHAPES[n % len(SHAPES)].format(n=n // len(SHAPES), r=4 * (1 + n % 3))
        for n in range(count)
    }


def sites(folder: Path, cpu: float) -> Path:
    """The file of three sites; bids come in at the first, asks at the second, or else at others."""
    text = "".join(
        f'[[site]]\nname = "{name}"\nmaster = "local[1]"\ncpu = {cpu}\nstore = "stores/{name}"\n'
        for name in SITES
    )
    for one, other in ("ab", "bc", "ac"):
        text += f'[[link]]\nfrom = "{one}"\nto = "{other}"\nbandwidth = {LINK}\n'
    text += '[[stream]]\nname = "bids"\nsites = ["a", "c"]\nrate = 50\n'
    text += '[[stream]]\nname = "asks"\nsites = ["b", "c"]\nrate = 50\n'
    path = folder / "sites.toml"
    path.write_text(text)
    return path


def deployed(folder: Path, count: int, size: int, killed: str = "b") -> Report:
    """Run queries on three sites, kill one of them in the middle, and compare in the end."""
    events = Events(folder)
    events.arrive(4, size)
    asked = queries(count)
    texts = [f"CREATE QUERY {name} STARTING AT EARLIEST AS {text};" for name, text in asked.items()]
    (folder / "q.cql").write_text(STATEMENTS.format(folder=folder) + "\n".join(texts))
    state = folder / "state"
    with up(folder, state), open_state(state) as headwater:
        wait(lambda: is_at_work(headwater), 300, "the sites to begin")
        events.arrive(4, size)
        wait(lambda: told_any(headwater, killed), 120, f"site {killed} to tell something")
        moved = [u.id for u in headwater.catalog.units() if site_of(headwater, u.id) == killed]
        begun = time.time()
        os.killpg(pid_of(headwater, killed), signal.SIGKILL)
        events.arrive(4, size)
        wait(lambda: has_stepped(headwater, moved, killed, begun), 180, "others to take over")
        recovered = time.time() - begun
        for name in events.rows:
            wait(lambda name=name: is_read(headwater, events, name), 180, f"{name} to be taken in")
            headwater.execute(f"END STREAM {name}")
        wait(lambda: is_finished(headwater), 300, "all queries to finish")
        links = tuple(link_views(headwater.catalog))
        elapsed = time.time() - headwater.catalog.streams()[0].created_at
        check_links(headwater, links, elapsed)
        rows = compare_with_reference(headwater, asked, events.rows)
        return Report(
            len(asked),
            len(headwater.catalog.units()),
            rows,
            len(moved),
            recovered,
            links,
            alone(headwater),
        )


@contextmanager
def up(folder: Path, state: Path) -> Iterator[None]:
    """`headwater up` in a process of its own, stopped when the block ends."""
    command = [sys.executable, "-m", "headwater", "up", "sites.toml", "q.cql", "--state", state]
    with (folder / "up.log").open("wb") as output:
        process = subprocess.Popen([*command, "--quiet"], cwd=folder, stdout=output, stderr=output)
    try:
        begun = lambda: (state / "site-a.log").exists() or process.poll() is not None  # noqa: E731
        wait(begun, 60, "headwater up")
        if process.poll() is not None:
            raise Differ((folder / "up.log").read_text())
        yield
    finally:
        process.terminate()
        process.wait(120)


def wait(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def site_of(headwater: Headwater, unit: str) -> str | None:
    return headwater.catalog.assignment().owners.get(unit_log(unit))


def pid_of(headwater: Headwater, site: str) -> int:
    (lease,) = (one for one in headwater.catalog.leases() if one.name == f"site:{site}")
    return int(lease.holder.rpartition(":")[2])


def steps(headwater: Headwater, unit: str) -> float:
    found = headwater.catalog.statistic(unit, "steps")
    return 0.0 if found is None else found.value


def is_at_work(headwater: Headwater) -> bool:
    units = headwater.catalog.units()
    return bool(units) and all(steps(headwater, unit.id) for unit in units)


def told_any(headwater: Headwater, site: str) -> bool:
    own = [u.id for u in headwater.catalog.units() if site_of(headwater, u.id) == site]
    return bool(own) and all(steps(headwater, unit) > 1 for unit in own)


def has_stepped(headwater: Headwater, units: list[str], away: str, since: float) -> bool:
    """Whether each of some units has stepped at another site since then."""
    for unit in units:
        found = headwater.catalog.statistic(unit, "steps")
        if site_of(headwater, unit) in (None, away) or found is None or found.updated_at < since:
            return False
    return True


def is_read(headwater: Headwater, events: Events, name: str) -> bool:
    return headwater.catalog.log_stats(f"stream:{name}").total_rows == len(events.rows[name])


def is_finished(headwater: Headwater) -> bool:
    for unit in headwater.catalog.units():
        if unit.state == "parked":
            raise Differ(f"unit {unit.id} is parked: {unit.error}")
    return all(row.state == "finished" for row in headwater.catalog.queries())


def check_links(headwater: Headwater, links: tuple[LinkView, ...], seconds: float) -> None:
    """A link carries in any time what it may, and one segment more."""
    largest = max(
        s.bytes for name in ("bids", "asks") for s in headwater.catalog.segments(f"stream:{name}")
    )
    for link in links:
        if link.bytes > LINK * (seconds + 1) + largest:
            raise Differ(f"{link.origin} -> {link.target} carried {link.bytes} in {seconds:.0f} s")
        if link.planned.used > LINK:
            raise Differ(f"{link.origin} -> {link.target} is planned beyond its limit")


def alone(headwater: Headwater) -> int:
    """Bytes that every query would have had sent to its site."""
    assignment, total = headwater.catalog.assignment(), 0
    for unit in headwater.catalog.units():
        site = assignment.owners.get(unit_log(unit.id))
        for log in unit.inputs:
            if assignment.owners.get(log.replace("stream:", "ingest:")) != site:
                size = headwater.catalog.log_stats(log).total_bytes
                total += size * len(headwater.catalog.subscribers(unit.id))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--size", type=int, default=40, help="tuples of a file")
    parser.add_argument("--cpu", type=float, default=0.7, help="cores of a site")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites(folder, asked.cpu)
        report = deployed(folder, asked.queries, asked.size)
    print(
        f"{report.queries} queries in {report.units} units on three sites: {report.rows:,} rows, all as "
        "the reference evaluator has them"
    )
    print(
        f"killed site b with {report.moved} units; after {report.recovered:.1f} s all of them had "
        "stepped elsewhere"
    )
    for link in report.links:
        print(f"{link.origin} -> {link.target}: {link.bytes:,} bytes")
    print(
        f"ratio: {report.alone / max(report.sent, 1):.1f}x fewer bytes over links than if every "
        "query had its streams sent to it"
    )


if __name__ == "__main__":
    main()
