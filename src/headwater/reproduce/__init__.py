"""The evaluations of the papers, computed anew: one module for each, one name for each figure."""

from __future__ import annotations

from headwater.reproduce.figure import Claim, Figure, Line, Plot, Report, Settings, Table, spread
from headwater.reproduce.scheduling import SCHEDULING
from headwater.reproduce.sqpr import SQPR
from headwater.reproduce.streamreuse.figures import enterprise, sensitivity, tracking
from headwater.reproduce.whitewater import WHITEWATER

FIGURES: dict[str, Figure] = {
    "streamreuse-ew": Figure(
        "StreamReuse, figures 3, 5, 7 and 8: an airline's queries", enterprise
    ),
    "streamreuse-rw": Figure("StreamReuse, figures 4 and 6: RFID tracking", tracking),
    "streamreuse-sensitivity": Figure(
        "StreamReuse: what the savings depend on", sensitivity, seeds=1
    ),
    **SCHEDULING,
    **WHITEWATER,
    **SQPR,
}

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
