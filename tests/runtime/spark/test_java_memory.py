"""How much memory Java gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.errors import RuntimeFailure
from headwater.runtime.spark.memory import (
    MAX_DEFAULT,
    MIN_DEFAULT,
    default_memory,
    memory_setting,
    parse_memory,
)


@pytest.mark.parametrize(
    ("given", "setting"),
    [("2g", "2048m"), ("1500m", "1500m"), (" 1G", "1024m"), ("1gb", "1024m"), ("600000k", "585m")],
)
def test_an_amount_of_memory(given: str, setting: str) -> None:
    assert memory_setting(given) == {"spark.driver.memory": setting}


@pytest.mark.parametrize("given", ["", "much", "2 x", "-1g", "1.5g", "100m", "512"])
def test_what_is_no_amount_or_too_little(given: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="memory"):
        parse_memory(given)
    with pytest.raises(RuntimeFailure, match="memory"):
        headwater.open(tmp_path / "state", memory=given)
    assert not (tmp_path / "state").exists()


@given(st.integers(1, 2**50))
def test_the_default_suits_the_machine(machine: int) -> None:
    assert default_memory(machine) == min(max(machine // 4, MIN_DEFAULT), MAX_DEFAULT)
    assert MIN_DEFAULT <= default_memory() <= MAX_DEFAULT
