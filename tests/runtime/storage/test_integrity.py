"""Damaged files: a changed bit, a shortened or missing file is reported, and never gives other rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_helpers import expected, opened, result_rows, settle
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DamagedFile, MissingFile
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import NewSegment, Segment, panes_log, stream_log, unit_log
from headwater.runtime.compile import frames
from headwater.runtime.results import reader
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.integrity import make_cached_verifier, verify_file, verify_paths

STREAM = "CREATE STREAM s (k INT, v INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts FROM CLIENT;"
QUERIES = {
    "rows": "SELECT k, v FROM s [NOW] WHERE v > 1",
    "sums": "SELECT k, SUM(v) AS total FROM s [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY k",
}


def written(folder: Path, rows: list[tuple[int, str]]) -> NewSegment:
    table = pa.table({"_tau": [tau for tau, _ in rows], "word": [word for _, word in rows]})
    found = segment_files.write_arrow(table, folder, ("_tau", "_tau"))
    assert found is not None
    return build_segment("unit:u", found, None)


def flip(path: Path, bit: int) -> Callable[[], None]:
    """Change one bit of a file; returns what undoes it."""
    whole = path.read_bytes()
    at = bit % (len(whole) * 8)
    changed = bytearray(whole)
    changed[at // 8] ^= 1 << at % 8
    path.write_bytes(changed)
    return lambda: path.write_bytes(whole) and None


@given(
    rows=st.lists(st.tuples(st.integers(0, 2**40), st.text(max_size=5)), min_size=1),
    bits=st.lists(st.integers(0, 2**20), min_size=1, max_size=8),
    cut=st.integers(0, 2**20),
)
def test_any_damage_to_a_file_is_reported(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]], bits: list[int], cut: int
) -> None:
    file = written(tmp_path_factory.mktemp("log"), rows)
    path = Path(file.path)
    assert verify_file(file) == file.path
    assert segment_files.read_arrow(file).to_pylist() == [{"_tau": t, "word": w} for t, w in rows]
    for bit in bits:
        undo = flip(path, bit)
        for read in (verify_file, segment_files.read_arrow):
            with pytest.raises(DamagedFile, match=r"is damaged: its checksum is .* restore it"):
                read(file)
        undo()
    assert verify_file(file) == file.path
    path.write_bytes(path.read_bytes()[: cut % file.bytes])
    for read in (verify_file, segment_files.read_arrow):
        with pytest.raises(DamagedFile, match=f"and was written with {file.bytes:,}; restore"):
            read(file)
    path.unlink()
    for read in (verify_file, segment_files.read_arrow):
        with pytest.raises(MissingFile, match="is missing; restore it"):
            read(file)


def test_a_file_of_an_earlier_release_is_known_by_its_size(tmp_path: Path) -> None:
    """It has no checksum; what Arrow cannot read is reported all the same."""
    file = replace(written(tmp_path, [(1, "a")]), digest=None)
    assert segment_files.read_arrow(file).num_rows == 1
    Path(file.path).write_bytes(b"x" * file.bytes)
    with pytest.raises(DamagedFile, match="cannot be read"):
        segment_files.read_arrow(file)
    Path(file.path).write_bytes(b"")
    with pytest.raises(DamagedFile, match=f"has 0 bytes, and was written with {file.bytes:,}"):
        verify_file(file)


def test_damage_is_not_copied_to_another_site(tmp_path: Path) -> None:
    file = written(tmp_path / "one", [(1, "a")])
    flip(Path(file.path), 99)
    with pytest.raises(DamagedFile):
        segment_files.copy_file(file, tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


# ---- on Spark


@dataclass
class Filled:
    """A state with a stream, panes and results, and what its queries must give."""

    headwater: Headwater
    rows: list[tuple[int, int, int]]

    def push(self, count: int) -> None:
        first = len(self.rows)
        new = [(n % 3, n, n * 1_000_000) for n in range(first, first + count)]
        self.rows += new
        self.headwater.push("s", new, timestamp_unit="us")

    def unit(self, name: str) -> str:
        return self.headwater.query(name).row.unit_id

    def last(self, log: str) -> Segment:
        return self.headwater.catalog.segments(log)[-1]

    def check(self) -> None:
        for name, text in QUERIES.items():
            query = self.headwater.definitions.query(text)
            assert result_rows(self.headwater, name, query) == expected(query, {"s": self.rows}, {})


@pytest.fixture
def filled(spark: Any, tmp_path: Path) -> Iterator[Filled]:
    with opened(tmp_path / "state [1]*{x}", spark) as headwater:  # no pattern, for Spark either
        texts = [f"CREATE QUERY {name} AS {text};" for name, text in QUERIES.items()]
        headwater.execute("\n".join([STREAM, *texts]))
        state = Filled(headwater, [])
        for _ in range(2):
            state.push(6)
            settle(headwater)
        yield state


def readers(filled: Filled, spark: Any) -> dict[str, tuple[Segment, Callable[[], Any]]]:
    """Of each kind of segment one, and its rows as the engine or a client would read them."""
    headwater = filled.headwater
    stream = filled.last(stream_log("s"))
    panes = filled.last(panes_log(filled.unit("sums")))
    told_rows = filled.last(unit_log(filled.unit("rows")))
    schema = headwater.definitions.streams["s"].stream.schema
    kept = spark.read.parquet(frames.escape_path(panes.path)).schema
    row = headwater.query("rows").row

    def of_stream() -> Any:
        return (
            frames.TermInput((stream,)).read_frame(spark, schema, make_cached_verifier()).collect()
        )

    def of_panes() -> Any:
        return frames.read_panes(spark, kept, verify_paths([panes])).collect()

    def of_results() -> Any:
        return reader.read_segment(headwater.catalog, row, told_rows).to_pylist()

    return {
        "stream": (stream, of_stream),
        "panes": (panes, of_panes),
        "results": (told_rows, of_results),
    }


def silent_after_flips(filled: Filled, spark: Any, flips: int, seed: int) -> int:
    """How many flips gave rows, and other rows than before, without a word."""
    rng = random.Random(seed)
    silent = 0
    for stored, read in readers(filled, spark).values():
        before = read()
        assert before
        for _ in range(flips // 3 + 1):
            undo = flip(Path(stored.path), rng.randrange(stored.bytes * 8))
            try:
                silent += read() != before
            except DamagedFile as error:
                assert stored.path in str(error)
            undo()
        assert read() == before
    return silent


@pytest.mark.spark
def test_flipped_bits_are_never_silent(filled: Filled, spark: Any) -> None:
    assert silent_after_flips(filled, spark, flips=60, seed=1) == 0


@pytest.mark.spark
@pytest.mark.slow
def test_a_thousand_flipped_bits(filled: Filled, spark: Any) -> None:
    assert silent_after_flips(filled, spark, flips=1_000, seed=2) == 0


@pytest.mark.spark
def test_spark_compares_the_checksums_of_pages(filled: Filled, spark: Any) -> None:
    """Behind the comparison with the catalog, for what changes between that and Spark's own read."""
    stream = filled.last(stream_log("s"))
    read = spark.read.parquet
    before = read(frames.escape_path(stream.path)).collect()
    path = Path(stream.path)
    word = path.read_bytes().index((len(filled.rows) - 1).to_bytes(4, "little"))
    undo = flip(path, word * 8)
    with pytest.raises(Exception, match=r"(?i)crc|checksum"):
        read(frames.escape_path(stream.path)).collect()
    undo()
    assert read(frames.escape_path(stream.path)).collect() == before


@pytest.mark.spark
@pytest.mark.parametrize("damage", ["flipped", "empty"])
def test_a_damaged_stream_parks_what_reads_it_until_it_is_restored(
    filled: Filled, damage: str
) -> None:
    headwater = filled.headwater
    filled.push(6)
    stream = filled.last(stream_log("s"))
    path, whole = Path(stream.path), Path(stream.path).read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    else:
        flip(path, 1000)
    while headwater.engine.tick():
        pass
    units = headwater.catalog.units()
    assert {unit.state for unit in units} == {"parked"}
    assert all(f"the file {stream.path} is damaged" in unit.error for unit in units)
    (found,) = headwater.verify().damage
    assert found.path == stream.path and set(found.queries) == set(QUERIES)
    path.write_bytes(whole)
    for name in QUERIES:
        headwater.execute(f"RESUME QUERY {name}")
    filled.push(6)
    headwater.execute("END STREAM s")
    settle(headwater)
    filled.check()
    assert headwater.verify().is_sound
