"""The figures of chapter 4 of the COSMOS thesis: which there are, and that they are computed."""

from __future__ import annotations

import pytest

from headwater.errors import SimulationError
from headwater.reproduce import FIGURES, FigureSettings

NAMES = ["2", "3a", "3b", "3c", "4", "5a", "5b", "5c", "6", "7", "8", "9"]


def test_every_figure_has_a_name() -> None:
    assert {f"cosmos-fig4-{name}" for name in NAMES} | {"cosmos-model"} <= set(FIGURES)


def test_the_period_of_adaptation_is_arithmetic() -> None:
    report = FIGURES["cosmos-fig4-2"].run(FigureSettings(1, quick=True))
    assert report.tables[0].rows[-1][:2] == (10_000, pytest.approx(12.0))
    assert report.claims[0].holds


def test_real_trades_are_asked_for_where_they_are_missing() -> None:
    with pytest.raises(SimulationError, match="--data"):
        FIGURES["cosmos-ticks"].run(FigureSettings(1, quick=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"cosmos-fig4-{name}" for name in NAMES), "cosmos-model"])
def test_figures_are_computed_briefly(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.claims
    assert all(table.rows for table in report.tables)
