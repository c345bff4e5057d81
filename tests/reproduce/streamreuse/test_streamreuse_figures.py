"""The figures of StreamReuse: what they show, and that their claims hold.

The guide, docs/streamreuse.md, shows a brief run that is tested with the fast tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.reproduce import FIGURES, FigureSettings


def reproduced(name: str, out: Path) -> list[dict[str, object]]:
    command = ["reproduce", name, "--quick", "--out", str(out), "--format", "json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def check(name: str, out: Path) -> None:
    lines = reproduced(name, out)
    rows = {line["strategy"]: line for line in lines if "strategy" in line}
    assert list(rows) == ["NO REUSE", "NO REWRITING", "Headwater"]
    assert float(str(rows["Headwater"]["usage"])) < float(str(rows["NO REUSE"]["usage"]))
    assert float(str(rows["Headwater"]["joins"])) < float(str(rows["NO REUSE"]["joins"]))
    assert {line["claim"] for line in lines if "claim" in line} >= {
        "network usage below NO REUSE",
        "joins below NO REUSE",
        "latency added",
    }
    plots = [Path(str(line["plot"])) for line in lines if "plot" in line]
    assert [path.stem for path in plots] == [
        f"{name}-{what}" for what in ("usage", "operators", "latency", "planning")
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in plots)


@pytest.mark.slow
def test_the_airline_briefly(tmp_path: Path) -> None:
    check("streamreuse-ew", tmp_path)


@pytest.mark.slow
def test_tracking_briefly(tmp_path: Path) -> None:
    check("streamreuse-rw", tmp_path)


@pytest.mark.slow
def test_sensitivity_briefly() -> None:
    (table,) = FIGURES["streamreuse-sensitivity"].run(FigureSettings(seeds=1, quick=True)).tables
    assert {row[0] for row in table.rows} == {"EW", "RW"}
    assert len({row[:3] for row in table.rows}) == len(table.rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streamreuse-ew", "streamreuse-rw"])
def test_the_claims_on_usage_and_latency_hold(name: str) -> None:
    claims = {claim.what: claim for claim in FIGURES[name].run(FigureSettings(seeds=1)).claims}
    assert claims["network usage below NO REUSE"].holds
    assert claims["latency added"].holds
