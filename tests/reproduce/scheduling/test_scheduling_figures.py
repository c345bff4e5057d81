"""The figures of the scheduling paper: which there are, and that its claims hold here."""

from __future__ import annotations

import pytest

from headwater.errors import SimulationError
from headwater.reproduce import FIGURES, FigureSettings
from headwater.reproduce.scheduling import PARTS

NAMES = (
    "average response maximum tradeoff l2 classes multistream clusters implementation table1 table2"
)
KNOWN_NOT_TO_HOLD = "12 logarithmic clusters against ideal BSD"
"""docs/scheduling.md says why."""


def test_every_figure_has_a_name() -> None:
    assert {f"scheduling-{name}" for name in NAMES.split()} | {"scheduling"} <= set(FIGURES)


def test_table_1_is_exact() -> None:
    report = FIGURES["scheduling-table1"].run(FigureSettings(1))
    assert report.tables[0].rows == (
        ("hr", 12.25, 3.875),
        ("hnr", 13.0, pytest.approx(2.9, rel=1e-15)),
    )
    assert all(claim.holds for claim in report.claims)


def test_the_trace_is_asked_for_where_it_is_missing() -> None:
    with pytest.raises(SimulationError, match="--data"):
        FIGURES["scheduling-trace"].run(FigureSettings(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PARTS) - {"scheduling-trace"}))
def test_claims_hold_on_short_runs(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(2, quick=True))
    assert report.tables
    for claim in report.claims:
        if KNOWN_NOT_TO_HOLD not in claim.what:
            assert claim.holds, f"{claim.what}: {claim.ours}"
