"""What a reproduced figure is made of: tables, lines to plot, and the paper's claims beside ours.

A figure is a function from settings to a report. A report is data, so that the same one is printed
for people, written as JSON and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class FigureSettings:
    """How a figure is to be computed: over how many seeds, briefly or in full, from which data."""

    seeds: int
    quick: bool = False
    data: Path | None = None


@dataclass(frozen=True)
class ReportTable:
    """Rows of cells under their columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: {len(self.columns)} columns, but a row of {row}")


@dataclass(frozen=True)
class PlotLine:
    """The points of one line of a plot; `low` and `high` are drawn as a band around it."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plot:
    """Lines in one frame, drawn into the file `name`.png."""

    name: str
    title: str
    x: str
    y: str
    lines: tuple[PlotLine, ...]
    logarithmic: bool = False


@dataclass(frozen=True)
class Claim:
    """What a paper says, what was computed here, and whether it holds; None if that cannot be decided."""

    what: str
    paper: str
    ours: str
    holds: bool | None


@dataclass(frozen=True)
class Report:
    """All that a figure has to show."""

    tables: tuple[ReportTable, ...]
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper that `run` recomputes; `seeds` is how many runs it takes."""

    title: str
    run: Callable[[FigureSettings], Report]
    seeds: int = 5


def format_spread(values: Sequence[float], digits: int = 1, unit: str = "") -> str:
    """The mean with the range behind it: `96.2 % (95.8 .. 96.9)`."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}{unit}"
    return f"{mean:.{digits}f}{unit} ({min(values):.{digits}f} .. {max(values):.{digits}f})"
