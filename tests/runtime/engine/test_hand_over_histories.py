"""Units change what they read while all else goes on, and no query loses or doubles a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from join_histories import check_join_history

from headwater.runtime.maintenance import stream_logs

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_hand_overs(spark: Any, tmp_path: Path, seed: int) -> None:
    """Seeds in which some are made: not all that is asked for is possible."""
    made = check_join_history(spark, tmp_path, seed, actions=50)
    assert made["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3300))
def test_random_hand_overs_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check_join_history(spark, tmp_path, seed, actions=80)
