"""`headwater simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ROOT, Run

WORLD = """\
seeds = [1, 2]
[network]
generator = "transit-stub"
transit = 2
stubs = 2
hosts = 3
[providers]
count = 4
[streams]
substreams = 20
[queries]
count = 8
substreams = [2, 4]
[distribution]
policies = ["naive", "random"]
rounds = 2
[dissemination]
policies = ["random+adaptive", "source"]
duration = 400
[[failures]]
at = 250
event = "dies"
providers = 1
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "world.toml"
    path.write_text(WORLD)
    return path


def test_tables_are_printed_and_no_plots_are_drawn(run: Run, world: Path) -> None:
    done = run("simulate", world)
    assert done.status == 0 and done.err == ""
    for title in (
        f"The world of {world}",
        "Query distribution at the end",
        "Query distribution over time",
        "Loads of providers at the end, by share",
        "Dissemination at the end",
        "Dissemination over time",
        "Failures (seed 1)",
    ):
        assert f"\n{title}" in f"\n{done.out}"
    assert [path.name for path in world.parent.iterdir()] == ["world.toml"]


@pytest.mark.long  # Matplotlib is loaded
def test_json_has_a_line_for_each_row_and_plot(run: Run, world: Path, tmp_path: Path) -> None:
    done = run(
        "simulate", world, "--format", "json", "--plots", tmp_path / "a" / "plots", "--quiet"
    )
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert all(line["world"] == str(world) for line in lines)
    ends = {line["policy"]: line for line in lines if line.get("table", "").endswith("at the end")}
    assert list(ends) == ["naive", "random", "random+adaptive", "source"]
    assert ends["naive"]["traffic"] > 0 and ends["source"]["loss"] > 0
    over_time = [line for line in lines if line.get("table") == "Query distribution over time"]
    assert [line["time"] for line in over_time if line["policy"] == "naive"] == [0, 200, 250, 400]
    plots = [Path(line["plot"]) for line in lines if "plot" in line]
    assert {path.stem for path in plots} == {
        "distribution-traffic",
        "distribution-load",
        "dissemination-loss",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in plots)


def test_a_seed_takes_the_place_of_those_of_the_file(run: Run, world: Path) -> None:
    seventh = run("simulate", world, "--seed", "7")
    assert seventh.out == run("simulate", world, "--seed", "7").out != run("simulate", world).out
    assert "Failures (seed 7)" in seventh.out


def test_all_mistakes_are_reported_with_their_lines(run: Run, world: Path) -> None:
    world.write_text(WORLD.replace("count = 8", "cuont = 8").replace('"naive"', '"naïve"'))
    done = run("simulate", world)
    assert done.status == 2 and done.out == ""
    assert f"{world}:11: [queries] needs count = a number" in done.err
    assert f"{world}:12: unknown key cuont; did you mean count?" in done.err
    assert f"{world}:15: no policy naïve; did you mean naive?" in done.err


def test_a_file_that_is_not_there_is_refused(run: Run, tmp_path: Path) -> None:
    done = run("simulate", tmp_path / "none.toml")
    assert done.status == 2
    assert "none.toml: no such file" in done.err


def test_a_folder_that_cannot_be_made_is_named(run: Run, world: Path) -> None:
    done = run("simulate", world, "--plots", world)
    assert done.status == 2
    assert "name a folder with --plots" in done.err


def test_the_example_is_a_world_that_can_be_read() -> None:
    from headwater.sim.worlds.read import read_world

    example = read_world(ROOT / "examples" / "federation" / "world.toml")
    assert example.distribution is not None and example.dissemination is not None
