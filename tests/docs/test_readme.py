"""The documentation shows what happens: its commands run, and print what it says they print.

A `console` or `python` block is run if its opening fence says `run`. In a console block a line that
starts with `$ ` is a command, run from the project root; the lines below it are its output, where
`...` stands for any text. The exit status is 0 unless the fence says `status=N`. A fence that says
`spark` starts a JVM, and is tested with the others that do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words behind it, and what it holds."""

    place: str
    language: str
    words: tuple[str, ...]
    body: str

    @property
    def status(self) -> int:
        return next((int(w[7:]) for w in self.words if w.startswith("status=")), 0)


def blocks() -> list[Block]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            place = f"{document.relative_to(ROOT)}:{line}"
            found.append(Block(place, fence[1], tuple(fence[2].split()), fence[3]))
    return found


def commands(body: str) -> list[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    parts = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    joined = (part.replace("\\\n", "") for part in parts)
    return [(command, output) for command, _, output in (part.partition("\n") for part in joined)]


def shown_in(pattern: str, text: str) -> bool:
    """Whether the text is what the pattern shows, blanks at the ends of lines aside."""
    tidy = "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))
    wanted = ".*".join(map(re.escape, pattern.strip("\n").split("...")))
    return re.fullmatch(wanted, tidy, re.DOTALL) is not None


RUN = [block for block in blocks() if "run" in block.words]


def of_language(language: str) -> list[object]:
    return [
        pytest.param(b, marks=[pytest.mark.spark] if "spark" in b.words else [], id=b.place)
        for b in RUN
        if b.language == language
    ]


@pytest.mark.long
@pytest.mark.parametrize("block", of_language("console"))
def test_console(block: Block) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, output in commands(block.body):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == block.status, f"{command}\n{done.stdout}{done.stderr}"
        if output.strip():
            assert shown_in(output, done.stdout), f"{command} printed:\n{done.stdout}"


@pytest.mark.long
@pytest.mark.parametrize("block", of_language("python"))
def test_python(block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.body], cwd=ROOT, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_shows_something_that_runs() -> None:
    assert [b for b in RUN if b.place.startswith("README.md") and b.language == "console"]


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:`|^|\$ )make ([a-z]+)", document.read_text(), re.MULTILINE))
        assert named <= targets, f"{document.name} names make {named - targets}"


def test_every_link_to_a_file_leads_to_one() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...d", "a\nd\n", True),
        ("a", "a  \n", True),
        ("a", "b", False),
        ("a.c", "abc", False),
    ],
)
def test_output_is_compared_as_shown(pattern: str, text: str, fits: bool) -> None:
    assert shown_in(pattern, text) is fits
