"""Fixtures that run commands, in this process and from a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, STREAM, Done, Run, Write
from typer.testing import CliRunner

from headwater.cli.commands import app


@pytest.fixture
def run() -> Run:
    """Run a command inside this process."""

    def command(*args: str | Path, stdin: str | bytes | None = None) -> Done:
        result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return command


@pytest.fixture
def shell() -> Run:
    """Run a shell command line in which `headwater` is this one."""

    def command(line: str) -> Done:
        program = f"{sys.executable} -c 'from headwater.cli import main; main()'"
        done = subprocess.run(
            ["bash", "-c", line.replace("headwater ", f"{program} ")],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return command


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a text to a file, after the declaration of the stream s."""

    def file(text: str, stream: str = STREAM) -> Path:
        path = tmp_path / "test.cql"
        path.write_text(stream + text)
        return path

    return file
