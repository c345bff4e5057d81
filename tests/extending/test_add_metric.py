"""Recipe: a metric from outside of the package has its column and its key in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors import HeadwaterError
from headwater.runtime.api import open_state
from headwater.runtime.metrics.registry import (
    Metric,
    MetricSubject,
    MetricUnit,
    metrics_of,
    register_metric,
    unregister_metric,
)

REJECTED = Metric(
    MetricSubject.STREAM,
    "rejected",
    MetricUnit.COUNT,
    "records rejected for whatever reason",
    lambda stream: stream.row.late + stream.row.malformed,
)


@pytest.fixture
def registered() -> Iterator[None]:
    register_metric(REJECTED)
    yield
    unregister_metric(MetricSubject.STREAM, "rejected")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute("CREATE STREAM s (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
    return tmp_path / "state"


def show(state: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["show", "streams", "--state", str(state), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_is_shown(registered: None, state: Path) -> None:
    heading, _, values = (line.split() for line in show(state).splitlines()[:3])
    assert heading[-1] == "rejected" and heading[:2] == ["stream", "rows"]
    assert values[-1] == "0"
    assert json.loads(show(state, "--format", "json"))["rejected"] == 0


def test_without_it_nothing_is_shown(state: Path) -> None:
    assert "rejected" not in show(state)
    with pytest.raises(HeadwaterError, match="there is no metric rejected of a stream"):
        unregister_metric(MetricSubject.STREAM, "rejected")
    with pytest.raises(HeadwaterError, match="there is a metric rows of a stream already"):
        register_metric(metrics_of(MetricSubject.STREAM)[0])


def test_the_table_of_the_guide_is_that_of_the_registry() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    table = re.search(r"^\| of a \| metric .*\n\|.*\n((?:\|.*\n)+)", guide, re.MULTILINE)
    assert table is not None
    assert table[1].splitlines() == [
        f"| {subject.value} | {f'`{metric.name}`' if metric.shown else f'(`{metric.name}`)'} "
        f"| {metric.unit.value} | {metric.sentence} |"
        for subject in MetricSubject
        for metric in metrics_of(subject)
    ]
