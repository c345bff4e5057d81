"""The guides to running queries show what happens: their blocks are run one after the other.

Blocks whose opening fence says `spark` are run, in the order of the page, in a folder of their own
that has the project's examples. How output is compared is said in test_readme.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ROOT, Block, blocks, commands, shown_in

import headwater

GUIDE = [b for b in blocks() if b.place.startswith("docs/runtime.md")]
BLOCKS = [b for b in GUIDE if "spark" in b.words]


def test_the_statements_of_the_guide_are_accepted(tmp_path: Path) -> None:
    statements = [block.body for block in GUIDE if block.language == "sql"]
    with headwater.open(tmp_path / "state") as opened:
        for text in statements:
            assert all("is there already" not in said for said in opened.execute(text))
        assert {q.sink["kind"] for q in opened.catalog.queries()} == {"files", "kafka"}


@pytest.mark.spark
def test_the_guide(tmp_path: Path) -> None:
    assert {block.language for block in BLOCKS} == {"console", "python"}
    check(tmp_path, BLOCKS)


@pytest.mark.spark
def test_the_guide_to_sites(tmp_path: Path) -> None:
    of_sites = [b for b in blocks() if b.place.startswith("docs/sites.md") and "spark" in b.words]
    assert of_sites
    check(tmp_path, of_sites)


def check(tmp_path: Path, shown: list[Block]) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in shown:
        if block.language == "python":
            assert run(tmp_path, sys.executable, "-c", block.body) == ""
        else:
            for command, output in commands(block.body):
                printed = run(tmp_path, "bash", "-c", command, status=block.status)
                assert shown_in(output, printed), f"{block.place}: {command} printed:\n{printed}"


def run(folder: Path, *command: str, status: int = 0) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
