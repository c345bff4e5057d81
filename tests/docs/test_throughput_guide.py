"""The guide to throughput shows what happens: its blocks that say `tune` are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ROOT, Block, blocks, commands, shown_in

BLOCKS = [b for b in blocks() if b.place.startswith("docs/throughput.md") and "tune" in b.words]


@pytest.mark.slow
@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in BLOCKS])
def test_the_guide_to_throughput(block: Block) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    if block.language == "python":
        subprocess.run([sys.executable, "-c", block.body], cwd=ROOT, env=environment, check=True)
        return
    for command, output in commands(block.body):
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert shown_in(output, done.stdout), done.stdout


def test_the_guide_has_something_to_run() -> None:
    assert {b.language for b in BLOCKS} == {"console", "python"}
