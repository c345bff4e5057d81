"""Shared by the tests of the command line: the airline example, and the outcome of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
AIRLINE = ROOT / "examples" / "airline" / "airline.cql"
DATA = AIRLINE.parent / "data"
MISTAKES = AIRLINE.parent / "mistakes.cql"

STREAM = """\
CREATE STREAM s (a INT NOT NULL, b STRING, c DECIMAL(6,2), ts TIMESTAMP NOT NULL)
  TIMESTAMP BY ts FROM CLIENT;
"""


@dataclass(frozen=True)
class Done:
    """The exit status and output of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Done]
Write = Callable[..., Path]
