"""The command `headwater reproduce`: what it lists, prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.reproduce import (
    FIGURES,
    Claim,
    Figure,
    FigureSettings,
    Plot,
    PlotLine,
    Report,
    ReportTable,
    format_spread,
)


def squares(settings: FigureSettings) -> Report:
    numbers = tuple(float(n) for n in range(settings.seeds + 1))
    line = PlotLine("n²", numbers, tuple(n * n for n in numbers), low=numbers, high=numbers)
    return Report(
        (ReportTable("squares", ("n", "square"), tuple((n, n * n) for n in numbers)),),
        (Claim("four is a square", "yes", "2 x 2", True),),
        (Plot("squares", "squares", "n", "square", (line,)),),
    )


@pytest.fixture(autouse=True)
def figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "squares", Figure("Squares of numbers", squares, seeds=2))


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["reproduce", *args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_without_a_name_it_lists_the_figures() -> None:
    status, out, _ = run()
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == sorted(FIGURES)
    names = [json.loads(line)["figure"] for line in run("--format", "json")[1].splitlines()]
    assert names == sorted(FIGURES)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    status, _, err = run("square")
    assert status == 2
    assert "did you mean squares?" in err


def test_tables_claims_and_plots_are_shown(tmp_path: Path) -> None:
    status, out, _ = run("squares", "--out", str(tmp_path / "a" / "b"))
    assert status == 0
    assert out.startswith("Squares of numbers\n")
    assert "four is a square" in out
    assert (tmp_path / "a" / "b" / "squares.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_a_line_for_everything(tmp_path: Path) -> None:
    _, out, _ = run("squares", "--seeds", "3", "--out", str(tmp_path), "--format", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["square"] for line in lines if "table" in line] == [0, 1, 4, 9]
    assert [line["holds"] for line in lines if "claim" in line] == [True]
    assert [Path(line["plot"]).name for line in lines if "plot" in line] == ["squares.png"]


def test_quick_is_one_seed_unless_more_are_asked_for(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path), "--format", "json")
    assert run("squares", "--quick", *out)[1].count('"table"') == 2
    assert run("squares", "--quick", "--seeds", "4", *out)[1].count('"table"') == 5


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, _, err = run("squares", "--out", str(tmp_path / "file"))
    assert status == 2
    assert "name a folder with --out" in err


def test_rows_have_to_fit_their_columns() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        ReportTable("t", ("a", "b"), ((1,),))


def test_a_mean_is_printed_with_its_range() -> None:
    assert format_spread([1.0, 3.0], unit=" %") == "2.0 % (1.0 .. 3.0)"
    assert format_spread([1.25], digits=2) == "1.25"
