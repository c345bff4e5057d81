"""`headwater tune`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ROOT, Run

QUERIES = ROOT / "examples" / "papers" / "whitewater" / "queries.cql"
SITES = ROOT / "examples" / "tune" / "sites.toml"
PROFILE = ROOT / "examples" / "tune" / "profile.toml"
FILES = ("--sites", SITES, "--profile", PROFILE)


def test_an_unknown_search_is_refused(run: Run) -> None:
    done = run("tune", QUERIES, *FILES, "--search", "anealing")
    assert done.status == 2
    assert "did you mean annealing?" in done.err


def test_a_mistake_in_a_file_is_reported_with_its_line(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "sites.toml"
    wrong.write_text('[[site]]\nname = "a"\ncpu = "much"\n')
    done = run("tune", QUERIES, "--sites", wrong, "--profile", PROFILE)
    assert done.status == 2
    assert f"{wrong}:3: cpu takes a number, not 'much'" in done.err


def test_a_stream_without_rate_is_refused(run: Run, tmp_path: Path) -> None:
    few = tmp_path / "profile.toml"
    few.write_text("[streams.ab]\nrate = 1\n")
    done = run("tune", QUERIES, "--sites", SITES, "--profile", few, "-q", "first_plan")
    assert done.status == 2
    assert "no rate for the stream" in done.err


@pytest.mark.slow
def test_the_tuned_plan_is_printed_with_its_gain(run: Run) -> None:
    done = run("tune", QUERIES, *FILES, "-q", "first_plan", "--seconds", "30")
    assert done.status == 0
    assert "bottleneck  cpu of right" in done.out
    assert "proven optimal" in done.out
    table = done.out.split("\n\n")[0].splitlines()
    joins = [line for line in table if "join on" in line]
    selections = [line for line in table if " = 0" in line]
    assert len(joins) == len(selections) == 2
    assert table.index(selections[0]) > table.index(joins[0])


@pytest.mark.slow
def test_json_has_the_configuration(run: Run) -> None:
    done = run("tune", QUERIES, *FILES, "--copies", "2", "--seconds", "1", "--format", "json")
    found = json.loads(done.out)
    assert {o["kind"] for o in found["operators"]} == {"emit", "select", "project", "join"}
    assert found["quality"] >= found["as_written_placed"] >= found["as_written"] > 0
    assert set(found["rates"]) == {"ab", "bc", "cd"}
    assert len(found["outputs"]) == 3


@pytest.mark.slow
def test_costs_change_what_is_best(run: Run, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text("[join]\ntuple = 8000\n")
    one = ("tune", QUERIES, *FILES, "-q", "first_plan", "--search", "annealing", "-f", "json")
    cheap, dear = (json.loads(run(*one, *more).out) for more in ((), ("--costs", costs)))
    assert dear["quality"] < cheap["quality"]


@pytest.mark.slow
def test_nothing_that_fits_is_refused(run: Run, tmp_path: Path) -> None:
    tiny = tmp_path / "sites.toml"
    tiny.write_text('[[site]]\nname = "left"\nmemory = 1\n[[site]]\nname = "right"\nmemory = 1\n')
    done = run("tune", QUERIES, "--sites", tiny, "--profile", PROFILE, "--search", "annealing")
    assert done.status == 1
    assert "no configuration fits" in done.err
