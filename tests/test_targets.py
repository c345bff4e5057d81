"""Every test runs in some target of the Makefile, whatever marks it has."""

from __future__ import annotations

import os
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
MARKS = [line.split(":")[0] for line in SETTINGS["markers"]]


def expressions(target: str) -> Iterator[str]:
    """What a target has pytest select."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", target], capture_output=True, text=True, cwd=ROOT, env=outside, check=True
    )
    for line in done.stdout.splitlines():
        if " -m pytest " in line:
            words = shlex.split(line.partition(" -m pytest ")[2])
            yield words[words.index("-m") + 1]


def selected(found: list[str], marks: dict[str, bool]) -> int:
    """How many of the expressions select a test with these marks."""
    return sum(bool(eval(expression, {}, dict(marks))) for expression in found)


def test_every_test_runs_once_in_test_or_soak() -> None:
    check, test, soak = ([*expressions(target)] for target in ("check", "test", "soak"))
    assert len(check) == 1
    for values in product((False, True), repeat=len(MARKS)):
        marks = dict(zip(MARKS, values, strict=True))
        assert selected([*test, *soak], marks) == 1, marks
        assert selected(check, marks) == (not any(values)), marks
