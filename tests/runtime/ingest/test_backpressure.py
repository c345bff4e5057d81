"""Back-pressure: when a stream waits and for whom, and how many files a step takes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_helpers import opened, settle

from headwater.runtime.api import open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.connectors.file_rows import limit_by_rows
from headwater.runtime.ingest.backpressure import ReaderBacklog, slowest_reader
from headwater.runtime.metrics.rates import WAITS
from headwater.runtime.settings import Settings


def write(folder: Path, name: str, rows: int, first: int = 0) -> str:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"v": n, "ts": f"2026-01-01T00:00:{first + n:02}Z"}) for n in range(rows))
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return str(folder / name)


def test_the_slowest_running_unit_counts(tmp_path: Path) -> None:
    with open_state(tmp_path) as headwater:
        headwater.execute("""
            CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE STREAM t (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE QUERY fast AS SELECT v FROM s;
            CREATE QUERY slow AS SELECT v FROM s [ROWS 1];
        """)
        units = {name: headwater.query(name).row.unit_id for name in ("fast", "slow")}
        catalog, log = headwater.catalog, stream_log("s")
        assert slowest_reader(catalog, "t") is None
        for n in range(3):
            headwater.push("s", [(n, n), (n, n)], timestamp_unit="us")
        catalog.commit(
            None,
            cursors={
                (units["fast"], log): {"seq": 2, "watermark": 1},
                (units["slow"], log): {"seq": 1, "watermark": 0},
            },
        )
        assert slowest_reader(catalog, "s") == ReaderBacklog(units["slow"], 4)
        catalog.set_unit_state(units["slow"], "parked", error="broken")
        assert slowest_reader(catalog, "s") == ReaderBacklog(units["fast"], 2)
        headwater.execute("PAUSE QUERY fast")
        assert slowest_reader(catalog, "s") is None


def test_files_are_ingested_up_to_the_limit(tmp_path: Path) -> None:
    names = [write(tmp_path, f"{n}.json", 10) for n in range(4)]
    assert limit_by_rows(names, None) == names
    assert limit_by_rows(names, 1_000_000) == names
    assert limit_by_rows(names, 40) == names
    assert limit_by_rows(names, 39) == names[:3]
    assert limit_by_rows(names, 10) == names[:1]
    assert limit_by_rows(names, 1) == names[:1], "a file is one batch at least"
    assert limit_by_rows([], 1) == []


def test_rows_of_parquet_files_are_known_from_their_footers(tmp_path: Path) -> None:
    names = []
    for n in range(3):
        names.append(str(tmp_path / f"{n}.parquet"))
        pq.write_table(pa.table({"v": [7] * 1000}), names[-1])
    assert limit_by_rows(names, 3000) == names
    assert limit_by_rows(names, 2999) == names[:2]


def test_a_file_that_cannot_be_read_is_left_to_the_reader(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    gone = str(tmp_path / "gone.json")
    assert limit_by_rows([str(broken), gone], 1) == [str(broken), gone]


STREAM = """
    CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM files(path => '{}', format => 'json');
    CREATE QUERY q AS SELECT v FROM s;
    CREATE QUERY r AS SELECT v FROM s [ROWS 1];
"""


@pytest.mark.spark
def test_a_stream_waits_for_its_slowest_unit(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    for n in range(3):
        write(inbox, f"{n}.json", 5, 5 * n)
    limits = Settings(max_backlog_rows=4, rows_per_step=5, max_concurrency=1)
    with opened(tmp_path / "state", spark, settings=limits) as headwater:
        headwater.execute(STREAM.format(inbox))
        engine, catalog = headwater.engine, headwater.catalog
        units = [engine.units.current(row) for row in catalog.units()]

        def waits() -> float | None:
            found = catalog.statistic(stream_log("s"), WAITS)
            return None if found is None else found.value

        assert engine.ingestion.ingest("s")
        assert not engine.ingestion.ingest("s")
        assert waits() == 1
        assert not engine.ingestion.end_finite_streams(), "there is more to take in"
        assert engine.step(units[0])
        assert not engine.ingestion.ingest("s"), "the other unit is still behind"
        assert engine.step(units[1])
        assert engine.ingestion.ingest("s")
        assert waits() == 0
        assert not engine.ingestion.ingest("s")
        headwater.execute("PAUSE QUERY q; PAUSE QUERY r")
        assert engine.ingestion.ingest("s"), "units that rest hold up nobody"
        headwater.execute("RESUME QUERY q; RESUME QUERY r")
        settle(headwater)
        assert sorted(row["v"] for row in headwater.query("q").results()) == sorted([*range(5)] * 3)


@pytest.mark.spark
def test_a_set_limit_is_taken_up_by_the_next_round(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    for n in range(4):
        write(inbox, f"{n}.json", 5, 5 * n)
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(STREAM.format(inbox))
        headwater.execute("SET rows_per_step = 10")
        settle(headwater)
        assert [s.rows for s in headwater.catalog.segments(stream_log("s"))] == [10, 10]
        assert headwater.engine.settings.rows_per_step == 10
