"""Results are merged and expire, while nobody who reads them sees a row twice or misses one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.reuse.row_classes import ROW_CLASS_COLUMN, SHAPE_COLUMN
from headwater.runtime.catalog import (
    Catalog,
    NewQuery,
    NewUnit,
    QueryRow,
    subscribers_log,
    unit_log,
)
from headwater.runtime.maintenance.result_logs import (
    SEGMENTS_PER_KEEP,
    compact_results,
    expire_results,
    retention_seconds,
    size_tier,
)
from headwater.runtime.maintenance.stream_logs import MIN_COMPACTED_SEGMENTS
from headwater.runtime.results import reader
from headwater.runtime.results.sink_progress import read_delivery
from headwater.runtime.results.subscribers import SUBSCRIBERS, expired_position
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment

SECOND = 1_000_000
POINTS = ("results: merged", "results: replaced", "results: pieces removed", "results: expired")
SINK = {"kind": "files", "options": {"path": "out"}}


class Killed(Exception):
    pass


@dataclass
class World:
    """A unit with a lone query, one with a sink, and what its steps have put out."""

    catalog: Catalog
    folder: Path
    query: QueryRow
    sink: QueryRow
    now: list[float]
    emitted: list[int] = field(default_factory=list)

    @property
    def unit(self) -> Any:
        unit = self.catalog.unit(self.query.unit_id)
        assert unit is not None
        return unit

    def step(self, rows: int, version: int | None = None) -> None:
        """Put out so many rows, numbered on, in one segment."""
        numbers = list(range(len(self.emitted), len(self.emitted) + rows))
        columns = {"c0": pa.array(numbers, pa.int64()), "_tau": pa.array(numbers, pa.int64())}
        if version is not None:
            columns |= {
                n: pa.array([0] * rows, pa.int32()) for n in (SHAPE_COLUMN, ROW_CLASS_COLUMN)
            }
        written = segment_files.write_arrow(pa.table(columns), self.folder, ("_tau", "_tau"))
        assert written is not None
        new = build_segment(unit_log(self.unit.id), written, None)
        keys = None if version is None else {SUBSCRIBERS: version}
        self.catalog.commit(None, segments=[_with(new, keys)])
        self.emitted += numbers

    def merge(self, keep: float | None = None, kill: str | None = None) -> int:
        def at_point(point: str) -> None:
            if point == kill:
                raise Killed

        with suppress(Killed):
            done = compact_results(self.catalog, self.unit, self.folder, None, keep, at_point)
            if keep is not None:
                expire_results(self.catalog, self.unit, None, keep, self.now[0], at_point)
            return done
        return -1

    def live(self) -> list[Any]:
        return self.catalog.segments(unit_log(self.unit.id))


def _with(new: Any, keys: Any) -> Any:
    return replace(new, keys=keys)


@contextmanager
def world(path: Path) -> Iterator[World]:
    now = [1_000.0]
    with Catalog.open(path / "catalog.sqlite", clock=lambda: now[0]) as catalog:
        unit = NewUnit("d", "SELECT 1")
        columns = [["c", 0]]
        query = catalog.accept_query(NewQuery("q", "SELECT 1", "d", columns), unit)
        sink = catalog.accept_query(
            NewQuery("s", "SELECT 1", "d", columns, SINK, equal_to="q"), query.unit_id
        )
        yield World(catalog, path / "log" / "units" / query.unit_id, query, sink, now)


@dataclass
class Follower:
    """Somebody who reads now and then, and remembers how far he came."""

    at: int = 0
    seen: list[int] = field(default_factory=list)

    def read(self, world: World) -> None:
        table, self.at = reader.read(world.catalog, world.query, self.at)
        self.seen += table["c"].to_pylist() if table.num_rows else []


@pytest.mark.parametrize("seed", range(3))
def test_every_reader_sees_every_row_once(tmp_path: Path, seed: int) -> None:
    _read_while_merging(tmp_path, seed)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_reader_sees_every_row_once_at_length(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    _read_while_merging(tmp_path_factory.mktemp("world"), seed)


def _read_while_merging(folder: Path, seed: int) -> None:
    """Steps, merges (killed at any point), followers who come at random, and a sink that falls behind."""
    random = Random(seed)
    with world(folder) as here:
        followers = [Follower() for _ in range(4)]
        sent: list[int] = []
        for _ in range(random.randrange(20, 100)):
            match random.randrange(8):
                case 0 | 1 | 2 | 3:
                    here.step(random.randrange(1, 4))
                case 4:
                    here.merge(kill=random.choice([None, None, *POINTS]))
                case 5 | 6:
                    random.choice(followers).read(here)
                case _:
                    sent += _deliver(here, random.randrange(1, 30))
        here.merge()
        for one in (*followers, Follower()):
            one.read(here)
            assert one.seen == here.emitted
        sent += _deliver(here, 10**6)
        assert sent == here.emitted
        here.merge()
        assert not here.catalog.compacted_pieces(unit_log(here.unit.id))
        names = {Path(s.path).name for s in here.live()}
        assert {p.name for p in here.folder.iterdir()} >= names
        sizes = [size_tier(s) for s in here.live()]
        assert all(sizes.count(size) < 2 * MIN_COMPACTED_SEGMENTS for size in sizes), sizes


def _deliver(here: World, most: int) -> list[int]:
    """What a sink sends of the next segments."""
    at = read_delivery(here.catalog, here.sink)
    chosen = here.catalog.segments(unit_log(here.unit.id), at.seq)[:most]
    rows: list[int] = []
    for one in chosen:
        rows += reader.read_segment(here.catalog, here.sink, one)["c"].to_pylist()
    if chosen:
        here.catalog.commit(None, cursors=at.cursors_after_sending(chosen[-1].seq))
    return rows


@pytest.mark.long
def test_few_segments_are_left_of_many_steps(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        for n in range(1, 301):
            here.step(1)
            if n % 50 == 0:
                _deliver(here, 10**6)
                while here.merge():
                    pass
        assert len(here.live()) < 4 * MIN_COMPACTED_SEGMENTS
        assert len(list(here.folder.iterdir())) == len(here.live())
        reader = Follower()
        reader.read(here)
        assert reader.seen == here.emitted


def test_what_a_sink_has_not_sent_is_not_touched(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        for _ in range(30):
            here.step(1)
        before = here.live()
        here.now[0] += 10_000
        assert here.merge(keep=1.0) == 0
        assert here.live() == before, "neither merged nor expired"
        _deliver(here, 10)
        here.merge(keep=1.0)
        assert [s.first_seq for s in here.live()] == list(range(11, 31))


def test_versions_of_members_are_not_mixed(tmp_path: Path) -> None:
    """The version that its segment names says whose a row is."""
    with world(tmp_path) as here:
        _deliver(here, 1)
        for version in (1, 2):
            here.catalog.commit(None, segments=[_members(here, version)])
        for version in (1, 2, 1):
            for _ in range(10):
                here.step(1, version)
        _deliver(here, 10**6)
        here.merge()
        assert [(s.keys, s.rows) for s in here.live()] == [
            ({SUBSCRIBERS: version}, 10) for version in (1, 2, 1)
        ]


def _members(here: World, version: int) -> Any:
    table = pa.table(
        {
            "digest": ["d"],
            "shape": pa.array([0], pa.int32()),
            "first": pa.array([[0]], pa.list_(pa.int64())),
            "last": pa.array([[0]], pa.list_(pa.int64())),
            "items": pa.array([[0]], pa.list_(pa.int64())),
        }
    )
    written = segment_files.write_arrow(
        table, here.folder.parent / f"members{version}", ("shape", "shape")
    )
    assert written is not None
    return build_segment(subscribers_log(here.unit.id), written, None)


# ---- expiry


@pytest.mark.long
def test_results_expire_after_their_time(tmp_path: Path) -> None:
    keep = 100.0
    with world(tmp_path) as here:
        for _ in range(300):
            here.step(1)
            here.now[0] += 1
            if len(here.emitted) % 15 == 0:
                _deliver(here, 10**6)
                here.merge(keep)
        reader = Follower()
        position = expired_position(here.catalog, here.query)
        assert position is not None
        reader.read(here)
        assert reader.seen == here.emitted[position["seq"] :], "all that is left, and nothing else"
        assert here.emitted[position["seq"] - 1] == position["tau"]
        kept = len(here.emitted) - position["seq"]
        assert keep <= kept <= keep * (1 + 2 / SEGMENTS_PER_KEEP) + 15, (
            "and it is not kept much longer"
        )
        assert len(list(here.folder.iterdir())) == len(here.live())


@pytest.mark.parametrize(
    "keeps, usual, longest",
    [
        ([], 5.0, 0.0),
        ([2 * SECOND, 3 * SECOND], None, 3.0),
        ([2 * SECOND, None], None, None),
        ([2 * SECOND, None], 7.0, 7.0),
    ],
)
def test_the_longest_wish_of_a_unit_counts(
    keeps: list[int | None], usual: float | None, longest: float | None, tmp_path: Path
) -> None:
    with world(tmp_path) as here:
        queries = [replace(here.query, keep=keep) for keep in keeps]
        assert retention_seconds(queries, usual) == longest


def test_results_of_a_unit_that_another_reads_stay(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        above = NewUnit("e", "SELECT 2", (unit_log(here.unit.id),))
        here.catalog.accept_query(NewQuery("r", "SELECT 2", "e"), above)
        for _ in range(10):
            here.step(1)
        _deliver(here, 10**6)
        here.now[0] += 10_000
        assert here.merge(keep=1.0) == 0, "the reader has seen nothing yet"
        assert len(here.live()) == 10
        reader = next(u for u in here.catalog.units() if u.digest == "e")
        here.catalog.commit(None, cursors={(reader.id, unit_log(here.unit.id)): {"seq": 10}})
        here.merge(keep=1.0)
        assert [(s.first_seq, s.seq) for s in here.live()] == [(1, 10)], "merged, not expired"
