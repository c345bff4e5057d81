"""A state directory that is copied or moved: both go on, and neither touches the other's files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import declare, expected, opened, pieces, result_rows, settle, submit
from sample_queries import KINDS, TABLES, sample

from headwater.cql import parse_query
from headwater.runtime.maintenance.stream_logs import sweep_orphans
from strategies import SOURCES

pytestmark = pytest.mark.spark


def test_a_copy_and_its_original_go_their_own_ways(spark: Any, tmp_path: Path) -> None:
    """Both get the second half of the input; the original is moved before that."""
    data = sample(13)
    found = {name: parse_query(KINDS[name], SOURCES) for name in ("join", "aggregate", "rows")}
    rng = random.Random(3)
    first, copy, moved = (tmp_path / name for name in ("first", "copy", "moved"))
    parts = pieces(rng, data)
    half = len(parts) // 2
    with opened(first, spark) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in found.items():
            submit(headwater, name, query)
        for name, rows in parts[:half]:
            headwater.push(name, rows, timestamp_unit="us")
        settle(headwater)
    shutil.copytree(first, copy)
    first.rename(moved)
    for state in (copy, moved):
        with opened(state, spark) as headwater:
            for name, rows in parts[half:]:
                headwater.push(name, rows, timestamp_unit="us")
                headwater.engine.tick()
                headwater.engine.tidy()
            headwater.execute("END STREAM bids; END STREAM asks")
            settle(headwater)
            sweep_orphans(headwater.catalog, headwater.state, grace=-1)
    assert not first.exists(), "nothing was written to where the state was"
    for state in (copy, moved):
        with opened(state, spark) as headwater:
            for name, query in found.items():
                wanted = expected(query, data, TABLES)
                assert wanted and result_rows(headwater, name, query) == wanted, name
            there = {str(path) for path in (state / "log").glob("*/*/*")}
            assert there == headwater.catalog.all_paths()
