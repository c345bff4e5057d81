"""The segments that the next step of a unit reads, without Spark: each once, in order, not too many."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from catalog_helpers import accept, segment

from headwater.runtime.catalog import Catalog, stream_log
from headwater.runtime.engine.steps.inputs import StepContext
from headwater.runtime.settings import Settings

LOGS = (stream_log("s"), stream_log("t"))


def context(catalog: Catalog, rows: int, until: dict[str, int] | None = None) -> StepContext:
    unused: Any = None
    return StepContext(
        catalog,
        store=Path(),
        spark=unused,
        definitions=unused,
        settings=Settings(rows_per_step=rows),
        at_point=unused,
        meter=unused,
        until=until or {},
    )


@pytest.mark.parametrize("seed", range(6))
def test_each_segment_is_read_once_in_order_and_few_at_a_time(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    most = rng.randint(1, 6)
    with Catalog.open(str(tmp_path / "catalog.sqlite")) as catalog:
        unit: Any = SimpleNamespace(row=SimpleNamespace(id="u"), inputs=LOGS)
        for name in ("s", "t"):
            catalog.declare_stream(name, "")
        accept(catalog, "q", "u", *LOGS)
        written: dict[str, list[tuple[int, int]]] = {log: [] for log in LOGS}
        read: dict[str, list[tuple[int, int]]] = {log: [] for log in LOGS}
        left = 30
        while left or read != written:
            for _ in range(min(left, rng.randrange(4))):
                left -= 1
                log = rng.choice(LOGS)
                (one,) = catalog.commit(None, segments=[segment(rng.randrange(8), of=log)])
                written[log].append((one.seq, one.rows))
            progress = context(catalog, most).progress(unit)
            assert progress.has_new_segments == (read != written)
            for log, segments in progress.new_segments.items():
                # One that is larger than a step may be is read alone, or nothing would ever be read.
                assert len(segments) <= 1 or sum(s.rows for s in segments) <= most
                read[log] += [(s.seq, s.rows) for s in segments]
            cursors = {("u", log): at.to_json() for log, at in progress.next_positions.items()}
            catalog.commit(None, cursors=cursors)
        assert context(catalog, most).progress(unit).new_rows == 0


def test_a_step_stops_at_its_bound(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path / "catalog.sqlite")) as catalog:
        unit: Any = SimpleNamespace(row=SimpleNamespace(id="u"), inputs=LOGS)
        for name in ("s", "t"):
            catalog.declare_stream(name, "")
        accept(catalog, "q", "u", *LOGS)
        for _ in range(4):
            catalog.commit(None, segments=[segment(of=log) for log in LOGS])
        first, second = (
            [s.seq for s in segments]
            for segments in context(catalog, 100, {LOGS[0]: 2}).progress(unit).new_segments.values()
        )
        assert first == [1, 2]
        assert second == [1, 2, 3, 4]
