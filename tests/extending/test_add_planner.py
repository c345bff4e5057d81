"""Recipe: a planner from outside of the package plans for `headwater plan` and for running sites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors import HeadwaterError, PlanError, QueryRefused
from headwater.network.sites import read_deployment
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners.registry import (
    PLANNERS,
    PlannerSpec,
    make_planner,
    register_planner,
    unregister_planner,
)
from headwater.runtime.api import open_state
from headwater.runtime.catalog.deployment import deploy

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAN = [
    "plan",
    str(EXAMPLES / "papers" / "sqpr" / "queries.cql"),
    *("--sites", str(EXAMPLES / "plan" / "sites.toml")),
    *("--profile", str(EXAMPLES / "plan" / "profile.toml"), "--format", "json"),
]
SITES = """
[[site]]
name = "a"
cpu = 4
"""
QUERIES = """
CREATE STREAM s (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY q AS SELECT k FROM s [NOW] WHERE k > 3;
"""


def refuse_all(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """A planner that admits nobody."""
    for query in queries:
        yield Decision(query, False, "closed")


@pytest.fixture
def registered() -> Iterator[None]:
    register_planner(PlannerSpec("closed", "admits nobody", lambda: refuse_all))
    yield
    unregister_planner("closed")


def test_headwater_plan_uses_it(registered: None) -> None:
    done = CliRunner().invoke(app, [*PLAN, "--planner", "closed"])
    assert done.exit_code == 0, done.output
    assert {(q["admitted"], q["by"]) for q in json.loads(done.stdout)["queries"]} == {
        (False, "closed")
    }


def test_running_sites_use_it(registered: None, tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(SITES)
    with open_state(tmp_path / "state") as headwater:
        deploy(headwater.catalog, read_deployment(tmp_path / "sites.toml"))
        assert headwater.execute("SET PLANNER = 'closed'") == ["planner = closed"]
        with pytest.raises(QueryRefused, match="query q is refused: no site was found"):
            headwater.execute(QUERIES)
        headwater.execute("SET PLANNER = NULL")
        headwater.execute(QUERIES)
        assert headwater.query("q").row.state == "running"


def test_without_it_the_others_are_listed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*PLAN, "--planner", "closed"])
    assert done.exit_code == 2
    assert "there is no planner closed; there is: dynamic, exact, headwater" in done.stderr
    done = CliRunner().invoke(
        app, ["up", "sites.toml", "--state", str(tmp_path / "s"), "--planner", "closed"]
    )
    assert done.exit_code != 0
    assert "there is no planner closed" in done.stderr
    with (
        open_state(tmp_path / "state") as headwater,
        pytest.raises(HeadwaterError, match="there is no planner closed; there is: dynamic"),
    ):
        headwater.execute("SET PLANNER = 'closed'")
    with pytest.raises(PlanError, match="there is a planner soda already"):
        register_planner(PLANNERS["soda"])


def test_each_planner_starts_empty() -> None:
    assert make_planner() is not make_planner()
