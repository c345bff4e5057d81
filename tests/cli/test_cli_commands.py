"""The command line as a whole: version, help, pipes, and what it costs to start."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main
from command_line import AIRLINE, DATA, Run

import headwater
from headwater.cli.commands import app


def test_version(run: Run) -> None:
    assert run("--version").out == f"headwater {headwater.__version__}\n"


def test_help_names_the_commands(run: Run) -> None:
    done = run("--help")
    assert done.status == 0
    for command in ("check", "format", "explain", "eval"):
        assert command in done.out


def test_the_list_of_commands_is_not_cut_off(run: Run) -> None:
    commands = run("--help").out.partition("Commands:\n")[2].splitlines()
    assert len(commands) == len(typer.main.get_command(app).commands)
    assert [line for line in commands if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--at-once", "--max-concurrency"),
        ("--rows-ahead", "--max-backlog-rows"),
        ("--longest-wait", "--max-wait-seconds"),
    ],
)
def test_the_old_name_of_an_option_is_refused_with_the_new_one(
    run: Run, old: str, new: str
) -> None:
    for arguments in ((old, "3"), (f"{old}=3",)):
        done = run("run", AIRLINE, *arguments)
        assert (done.status, done.out) == (2, "")
        assert f"Error: {old} is now called {new}\n" in done.err
    help_text = run("run", "--help").out
    assert new in help_text and old not in help_text


def test_no_command_shows_the_help(run: Run) -> None:
    assert "Usage: " in run().out + run().err


def test_unknown_command(run: Run) -> None:
    done = run("chekc")
    assert done.status == 2
    assert "chekc" in done.err


@pytest.mark.long
def test_a_reader_that_goes_away_is_no_error(shell: Run) -> None:
    done = shell(f"headwater eval {AIRLINE} --input {DATA} --format json | head -1")
    assert done.err == ""
    assert len(done.out.splitlines()) == 1


@pytest.mark.long
def test_a_reader_that_is_not_there_is_no_error(shell: Run) -> None:
    assert shell(f"headwater explain {AIRLINE} | true").err == ""


@pytest.mark.long
def test_a_terminal_without_unicode_gets_something_to_read(shell: Run) -> None:
    done = shell(f"PYTHONIOENCODING=ascii headwater explain {AIRLINE}")
    assert (done.status, done.err) == (0, "")


def test_starting_does_not_load_what_a_command_may_never_need() -> None:
    code = "import sys, headwater.cli; print(*(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyarrow", "sqlglot", "numpy"}.isdisjoint(done.stdout.split())


def test_python_interface() -> None:
    assert set(headwater.__all__) <= set(dir(headwater))
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None
