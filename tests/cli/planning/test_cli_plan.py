"""`headwater plan`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import ROOT, Run

QUERIES = ROOT / "examples" / "papers" / "sqpr" / "queries.cql"
SITES = ROOT / "examples" / "plan" / "sites.toml"
PROFILE = ROOT / "examples" / "plan" / "profile.toml"
FILES = ("--sites", SITES, "--profile", PROFILE)


def test_answers_loads_bound_and_picture(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = run("plan", QUERIES, *FILES, "--svg", picture)
    assert done.status == 0
    assert "two_way     admitted at west" in done.out
    assert "cpu of east" in done.out
    assert "too much (proven)" in done.out
    assert "admitted  2 of 3 queries" in done.out
    texts = [
        one.text or "" for one in ElementTree.parse(picture).iter() if one.tag.endswith("text")
    ]
    assert any("makes b1 * b2" in text for text in texts)


def test_json_has_everything(run: Run) -> None:
    done = run("plan", QUERIES, *FILES, "--format", "json")
    found = json.loads(done.out)
    assert [q["admitted"] for q in found["queries"]] == [True, True, False]
    assert found["queries"][2]["short"][0]["constraint"] == "cpu"
    assert {s["site"] for s in found["sites"]} == {"west", "core", "east"}
    assert found["admitted"] == 2 <= found["bound"]
    made = [o["makes"] for o in found["operators"]]
    assert made.count("b1 * b2") == 1, "both queries use it"


@pytest.mark.parametrize("planner", ["regions", "exact", "heuristic", "soda", "sqpr"])
def test_other_planners_answer_too(run: Run, planner: str) -> None:
    done = run("plan", QUERIES, *FILES, "-q", "two_way", "--planner", planner, "--seconds", "2")
    assert done.status == 0
    assert "admitted  1 of 1 query" in done.out


def test_an_unknown_planner_is_refused(run: Run) -> None:
    done = run("plan", QUERIES, *FILES, "--planner", "heuristik")
    assert done.status == 2
    assert "did you mean heuristic?" in done.err


def test_without_a_profile_defaults_are_assumed_and_reported(run: Run) -> None:
    done = run("plan", QUERIES, "--sites", SITES, "-q", "two_way", "--format", "json")
    assert json.loads(done.out)["operators"] == []
    assert json.loads(done.out)["queries"][0]["short"]


WRONG = {
    "negative capacity": (
        '[[site]]\nname = "a"\ncpu = -1\n',
        3,
        "cpu is -1, it must be at least 0",
    ),
    "two of one name": (
        '[[site]]\nname = "a"\n[[site]]\nname = "a"\n',
        4,
        "second site is called a",
    ),
    "missing link": (
        '[[site]]\nname = "a"\n[[site]]\nname = "b"\n[[site]]\nname = "c"\n'
        '[[link]]\nfrom = "a"\nto = "b"\n',
        6,
        "no link leads from a to c",
    ),
    "link to nowhere": ('[[site]]\nname = "a"\n[[link]]\nfrom = "a"\nto = "b"\n', 5, "no site b"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_bad_file_of_sites_is_refused_with_the_line(run: Run, tmp_path: Path, what: str) -> None:
    text, line, reason = WRONG[what]
    sites = tmp_path / "sites.toml"
    sites.write_text(text)
    done = run("plan", QUERIES, "--sites", sites)
    assert done.status == 2
    assert f"{sites}:{line}: " in done.err
    assert reason in done.err


def test_a_stream_at_an_unknown_site_is_refused(run: Run, tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(PROFILE.read_text().replace('"east"', '"est"'))
    done = run("plan", QUERIES, "--sites", SITES, "--profile", profile)
    assert done.status != 0
    assert "there is no site est" in done.err


def test_a_picture_that_cannot_be_written_is_reported(run: Run, tmp_path: Path) -> None:
    done = run("plan", QUERIES, *FILES, "-q", "two_way", "--svg", tmp_path / "no" / "plan.svg")
    assert done.status == 2
    assert "cannot be written" in done.err
