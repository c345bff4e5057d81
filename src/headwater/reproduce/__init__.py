"""The evaluations of the papers, computed anew: one module for each, one name for each figure."""

from __future__ import annotations

from headwater.reproduce.figure import Claim, Figure, Line, Plot, Report, Settings, Table, spread
from headwater.reproduce.scheduling import SCHEDULING

FIGURES: dict[str, Figure] = {**SCHEDULING}

__all__ = [
    "FIGURES",
    "Claim",
    "Figure",
    "Line",
    "Plot",
    "Report",
    "Settings",
    "Table",
    "spread",
]
