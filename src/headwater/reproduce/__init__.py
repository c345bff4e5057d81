"""The evaluations of the papers, reproduced: one module for each, one name for each figure."""

from __future__ import annotations

from headwater.reproduce.cosmos import COSMOS
from headwater.reproduce.figure import (
    Claim,
    Figure,
    FigureSettings,
    Plot,
    PlotLine,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.scheduling import SCHEDULING
from headwater.reproduce.sqpr import SQPR
from headwater.reproduce.streamreuse.figures import enterprise, sensitivity, tracking
from headwater.reproduce.whitewater import WHITEWATER


def _three_streams_on_spark(settings: FigureSettings) -> Report:
    from headwater.reproduce.on_spark import three_streams_report

    return three_streams_report(settings)


def _prediction_accuracy(settings: FigureSettings) -> Report:
    from headwater.reproduce.on_spark import prediction_report

    return prediction_report(settings)


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
    "whitewater-run": Figure("WhiteWater, section 6.4, on Spark", _three_streams_on_spark, seeds=1),
    "whitewater-prediction": Figure(
        "WhiteWater: predicted rates, on Spark", _prediction_accuracy, seeds=1
    ),
    **SQPR,
    **COSMOS,
}

__all__ = [
    "FIGURES",
    "Claim",
    "Figure",
    "FigureSettings",
    "Plot",
    "PlotLine",
    "Report",
    "ReportTable",
    "format_spread",
]
