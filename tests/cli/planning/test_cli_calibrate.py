"""`headwater calibrate`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run

from headwater.cost.operators import DEFAULT_COSTS, read_costs


def test_a_state_that_cannot_be_made_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("calibrate", "--state", tmp_path / "file")
    assert done.status != 0
    assert "cannot be created: File exists; name another one" in done.err


def test_an_order_that_there_is_not_is_refused(run: Run, tmp_path: Path) -> None:
    done = run("run", "--state", tmp_path, "--optimise", "fast")
    assert done.status == 1
    assert "optimise is throughput, greedy or written, not fast" in done.err


@pytest.mark.slow
def test_costs_are_measured_written_and_printed(run: Run, tmp_path: Path) -> None:
    done = run("calibrate", "--state", tmp_path, "--rows", "20000", "--format", "json")
    assert done.status == 0, done.err
    found = read_costs(tmp_path / "costs.toml").costs
    assert set(found) == set(DEFAULT_COSTS)
    printed = json.loads(done.out)
    assert {kind: vars(cost) for kind, cost in found.items()} == printed
    assert "13 of 13" in done.err
