"""`up`, `site`, `show sites` and `submit` where sites run the state, as far as no Spark is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import typer
from command_line import STREAM, Run

from headwater.cli.running import up
from headwater.cli.running.up import UpOptions, Workers
from headwater.errors import CatalogUnavailable
from headwater.network.sites import read_deployment
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.deployment import deploy
from headwater.runtime.engine.engine import Engine
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.planner import SitePlanner

SITES = '[[site]]\nname = "one"\ncpu = 0.5\n[[site]]\nname = "two"\ncpu = 0.5\nstore = "two"\n'
QUERY = "SELECT a, COUNT(*) AS n FROM s [RANGE {n} SECONDS] GROUP BY a UNION ALL SELECT {n} AS a, 1 AS n FROM s [NOW]"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state that two sites run, with two queries at each."""
    (tmp_path / "sites.toml").write_text(SITES)
    with open_state(tmp_path / "state") as opened:
        deploy(opened.catalog, read_deployment(tmp_path / "sites.toml"))
        opened.execute(STREAM)
        for n in range(1, 5):
            opened.execute(f"CREATE QUERY q{n} AS {QUERY.format(n=n)}")
    return tmp_path / "state"


def test_show_sites_and_links(run: Run, state: Path) -> None:
    done = run("show", "sites", "--state", state, "--format", "json")
    one, two = map(json.loads, done.out.splitlines())
    assert (one["site"], one["state"], one["queries"], two["queries"]) == ("one", "away", 2, 2)
    assert one["streams"] == ["s"] and two["store"] == "two"
    assert one["cpu"]["limit"] == 0.5 and 0.3 <= one["cpu"]["used"] <= 0.5
    assert one["memory"]["limit"] is None
    (link,) = map(json.loads, run("show", "links", "--state", state, "-f", "json").out.splitlines())
    assert (link["link"], link["carries"], link["bytes"]) == ("one -> two", ["stream:s"], 0)
    table = run("show", "sites", "--state", state).out
    assert "0.34 of 0.5" in table and "down" in table
    assert run("show", "sites", "three", "--state", state).err.endswith(
        "there is no site three; there is: one, two\n"
    )


def test_a_state_without_sites_has_none_to_show(run: Run, tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as opened:
        opened.execute(STREAM)
    assert run("show", "sites", "--state", tmp_path / "state").out == "there are no sites\n"
    done = run("site", "one", "--state", tmp_path / "state")
    assert done.status == 2 and "has no sites: start it with headwater up" in done.err


def test_a_refusal_is_reported_and_other_statements_are_executed(run: Run, state: Path) -> None:
    text = f"CREATE QUERY q5 AS {QUERY.format(n=5)}; CREATE QUERY like_q1 AS {QUERY.format(n=1)}"
    done = run("submit", "--state", state, "--execute", text)
    assert done.status == 1
    assert "query q5 is refused: cpu of" in done.err and "would help:" in done.err
    assert "query like_q1 runs in unit" in done.out
    assert "at site one, estimated load 0.17 cores, shared with q1" in done.out
    names = [
        json.loads(x)["query"]
        for x in run("show", "queries", "--state", state, "-f", "json").out.splitlines()
    ]
    assert names == ["like_q1", "q1", "q2", "q3", "q4"]


def test_explain_says_where(run: Run, state: Path) -> None:
    said = run("explain", "q1", "--state", state).out
    assert "site      one" in said and "reads stream:s, written there" in said
    assert "estimated: 0.17" in said and "measured" not in said
    place = json.loads(run("explain", "q1", "--state", state, "--format", "json").out)["place"]
    assert place["site"] == "one" and place["measured"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[site]]\nname = "a"\n[[site]]\nname = "a"\n', "sites.toml:4: a second site is called a"),
        ('[[site]]\nname = "a"\ncpu = -2\n', "sites.toml:3: cpu is -2"),
        ('[[site]]\nname = "a"\nmaster = "nowhere"\n', "sites.toml:3: nowhere is not a master"),
        ("", "there is no [[site]]"),
    ],
)
def test_up_refuses_a_bad_file(run: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "sites.toml").write_text(text)
    done = run("up", tmp_path / "sites.toml", "--state", tmp_path / "state")
    assert done.status != 0 and message in done.err
    assert not (tmp_path / "state").exists()


def test_up_and_site_know_the_names(run: Run, state: Path) -> None:
    sites = state.parent / "sites.toml"
    done = run("up", sites, "--only", "on", "--state", state)
    assert done.status == 2 and "has no site on; did you mean one?" in done.err
    done = run("site", "tow", "--state", state)
    assert done.status == 2 and "there is no site tow; did you mean two?" in done.err


def test_up_makes_nothing_of_a_text_that_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(SITES)
    (tmp_path / "bad.cql").write_text("CREATE QUERY x AS SELEC 1;")
    done = run("up", tmp_path / "sites.toml", tmp_path / "bad.cql", "--state", tmp_path / "state")
    assert done.status == 1 and "did you mean SELECT?" in done.err
    assert not (tmp_path / "state").exists()


# ---- a catalog that is away for a moment


def away_once(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[str]:
    """The catalog cannot be reached at the first call of a function; the messages that were raised."""
    works, raised = getattr(where, name), list[str]()

    def call(*args: Any) -> Any:
        if raised:
            return works(*args)
        raised.append("the catalog is away")
        raise CatalogUnavailable(raised[0])

    monkeypatch.setattr(where, name, call)
    return raised


def controlled(headwater: Headwater, folder: Path, until_idle: bool) -> tuple[Controller, Workers]:
    """The controller of a site that is alive, and as its worker a process that exits at once."""
    (folder / "sites.toml").write_text('[[site]]\nname = "one"\n')
    deployment = read_deployment(folder / "sites.toml")
    deploy(headwater.catalog, deployment)
    headwater.catalog.touch_site("one")
    options = UpOptions(folder / "sites.toml", None, folder, None, until_idle, None, quiet=True)
    workers = Workers(options, ["one"])
    workers._processes["one"] = subprocess.Popen([sys.executable, "-c", ""])
    workers._processes["one"].wait()
    return Controller(SitePlanner(headwater.catalog, headwater.definitions, deployment)), workers


def test_up_notes_that_a_site_is_gone_when_the_catalog_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "CHECK_SECONDS", 0.01)
    with open_state(tmp_path / "state") as headwater:
        controller, workers = controlled(headwater, tmp_path, until_idle=False)
        raised = away_once(monkeypatch, headwater.catalog, "mark_site_gone")
        with pytest.raises(typer.Exit):
            up._run_controller(controller, workers, workers.options, Event())
        assert raised and [site.seen_at for site in headwater.catalog.sites()] == [0.0]
    said = capsys.readouterr().err
    assert said.count("site one exited") == 1 and "all sites have exited" in said


def test_what_ended_a_site_is_not_hidden_by_a_catalog_that_is_away(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_engine(engine: Engine) -> None:
        raise KeyError

    monkeypatch.setattr("headwater.cli.running.spark.start_spark", lambda *_: None)
    monkeypatch.setattr(Engine, "run", run_engine)
    raised = away_once(monkeypatch, Catalog, "mark_site_gone")
    with pytest.raises(KeyError):
        up.run_site("one", state, None, drain=False)
    assert raised


def test_up_waits_for_the_catalog_when_it_looks_whether_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(up, "CHECK_SECONDS", 0.01)
    with open_state(tmp_path / "state") as headwater:
        controller, workers = controlled(headwater, tmp_path, until_idle=True)
        workers._processes.clear()
        away_once(monkeypatch, up, "has_deliveries_to_await")
        up._run_controller(controller, workers, workers.options, Event())
    assert [record.message for record in caplog.records] == ["the catalog is away; waiting"]
