"""What a computation has to show: tables, lines to plot, and a paper's claims beside ours.

A report is data, so that the same one is printed for people, written as JSON and drawn. It is
below all layers because simulations of a user's own make reports as well as figures of papers do.
"""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | bool | None


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
    """All that there is to show."""

    tables: tuple[ReportTable, ...]
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()
