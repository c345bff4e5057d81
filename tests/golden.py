"""Golden files: titled cases of an input and what comes of it.

    === the title of a case
    the input
    ---
    the outcome

`--update-golden` writes the outcomes again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Case:
    title: str
    input: str
    outcome: str


def cases(name: str) -> list[Case]:
    """The cases of a file, in order."""
    found = []
    for block in ("\n" + (FIXTURES / name).read_text()).split("\n=== ")[1:]:
        title, _, body = block.partition("\n")
        given, _, outcome = body.partition("\n---\n")
        found.append(Case(title, given.strip("\n"), outcome.strip("\n")))
    return found


def rewrite(name: str, outcome_of: Callable[[Case], str]) -> None:
    """Write the file with the outcomes as they are now."""
    parts = [f"=== {case.title}\n{case.input}\n---\n{outcome_of(case)}\n" for case in cases(name)]
    (FIXTURES / name).write_text("\n".join(parts))
