"""`show events`, `health` and `status` of states with failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run
from runtime_states import Made, make

from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.deployment import alive_sites
from headwater.runtime.inspect.health import RECENT_EVENTS, RECENT_SECONDS, check_health


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "state")


def parked(made: Made) -> str:
    """Park the unit of the query big; returns its id."""
    unit = made.unit("big")
    with made.open() as headwater:
        headwater.catalog.set_unit_state(unit, "parked", error="no room", retries=6)
        headwater.catalog.record_event("unit parked", unit, error="no room")
    return unit


def running(made: Made) -> None:
    """Claim the state, as an engine on another machine would."""
    with made.open() as headwater:
        assert headwater.catalog.acquire("run", "elsewhere:1", 60.0) is not None


def test_health_of_a_state(run: Run, made: Made) -> None:
    done = run("health", "--state", made.path)
    assert (done.status, done.out.count("\n")) == (2, 1)
    assert "no engine runs this state" in done.out
    running(made)
    done = run("health", "--state", made.path)
    assert (done.status, "healthy: run by" in done.out) == (0, True)
    unit = parked(made)
    done = run("health", "--state", made.path)
    assert done.status == 1
    assert f"unit {unit} (big, large) is parked: no room; headwater resume big" in done.out
    (line,) = run("health", "--state", made.path, "-f", "json").out.splitlines()
    found = json.loads(line)
    assert (found["health"], len(found["failing"])) == ("failing", 1)


def test_health_without_a_state(run: Run, tmp_path: Path) -> None:
    assert run("health", "--state", tmp_path / "none").status == 2


def test_status_fails_and_queries_are_parked_with_their_unit(run: Run, made: Made) -> None:
    assert run("status", "--state", made.path).status == 0
    parked(made)
    done = run("status", "--state", made.path)
    assert done.status == 1
    assert "2 parked, 1 running" in done.out
    shown = run("show", "queries", "--state", made.path, "-f", "json").out.splitlines()
    states = {one["query"]: (one["state"], one["error"]) for one in map(json.loads, shown)}
    assert states == {
        "big": ("parked", "no room"),
        "large": ("parked", "no room"),
        "total": ("running", None),
    }
    assert run("resume", "big", "--state", made.path).status == 0
    assert run("status", "--state", made.path).status == 0


@pytest.mark.parametrize("kind", RECENT_EVENTS)
def test_what_goes_on_is_a_warning_for_a_while(kind: str, made: Made) -> None:
    running(made)
    with Catalog.open(made.path) as catalog:
        event = catalog.record_event(kind, "s", error="why", path="x", share=0.25)
        found = check_health(catalog)
        assert (len(found.warnings), found.status) == (1, 1)
        assert "stream s" in found.warnings[0]
        assert not check_health(catalog, now=event.at + RECENT_SECONDS + 1).warnings


def test_a_site_that_is_away_is_a_reason(made: Made, tmp_path: Path) -> None:
    sites = '[[site]]\nname = "edge"\n'
    (tmp_path / "sites.toml").write_text(sites)
    from headwater.network.sites import read_deployment
    from headwater.runtime.catalog.deployment import deploy

    with Catalog.open(made.path) as catalog:
        deploy(catalog, read_deployment(tmp_path / "sites.toml"))
        assert not alive_sites(catalog)
        assert "site edge is away" in check_health(catalog).failing
        catalog.touch_site("edge")
        assert "site edge is away" not in check_health(catalog).failing


# ---- events


def events(run: Run, made: Made, *words: str) -> list[tuple[str, str]]:
    out = run("show", "events", *words, "--state", made.path, "-f", "json").out
    return [(one["kind"], one["subject"]) for one in map(json.loads, out.splitlines())]


def test_what_happened_is_listed(run: Run, made: Made) -> None:
    unit = parked(made)
    for command in ("pause", "resume", "drop"):
        assert run(command, "total", "--state", made.path).status == 0
    assert run("submit", "-e", "END STREAM s", "--state", made.path).status == 0
    total = [("query placed", "total"), ("query paused", "total")]
    total += [("query resumed", "total"), ("query dropped", "total")]
    assert events(run, made, "total") == total
    assert events(run, made, "big") == [("query placed", "big"), ("unit parked", unit)]
    assert events(run, made, "--kind", "unit parked") == [("unit parked", unit)]
    assert events(run, made, "s") == [("stream ended", "s")]
    assert events(run, made, "--limit", "1") == [("stream ended", "s")]
    assert events(run, made, "--since", "0") == []
    assert "unit parked" in run("show", "events", "--state", made.path).out


def test_events_can_be_followed(made: Made) -> None:
    command = [sys.executable, "-m", "headwater", "show", "events", "--follow", "-f", "json"]
    command += ["--kind", "rain", "--state", str(made.path)]
    with made.open() as headwater:
        headwater.catalog.record_event("rain", "before")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            try:
                assert following.stdout is not None
                assert json.loads(following.stdout.readline())["subject"] == "before"
                headwater.catalog.record_event("sun", "between")
                headwater.catalog.record_event("rain", "after")
                assert json.loads(following.stdout.readline())["subject"] == "after"
            finally:
                following.terminate()


def test_options_of_events_are_for_events(run: Run, made: Made) -> None:
    done = run("show", "queries", "--follow", "--state", made.path)
    assert (done.status, "headwater show events" in done.err) == (2, True)
