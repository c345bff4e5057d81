"""What a reproduced figure is: a function from settings to a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.report import Cell, Claim, Plot, PlotLine, Report, ReportTable

__all__ = [
    "Cell",
    "Claim",
    "Figure",
    "FigureSettings",
    "Plot",
    "PlotLine",
    "Report",
    "ReportTable",
    "format_spread",
]


@dataclass(frozen=True)
class FigureSettings:
    """How a figure is to be computed: over how many seeds, briefly or in full, from which data."""

    seeds: int
    quick: bool = False
    data: Path | None = None


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
