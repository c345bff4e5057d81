"""WhiteWater's figures: the examples hold exactly, the others run and hold what must always hold."""

from __future__ import annotations

import pytest

from headwater.reproduce import FIGURES, FigureSettings

pytestmark = pytest.mark.slow


def test_the_examples_hold() -> None:
    report = FIGURES["whitewater-example"].run(FigureSettings(1))
    assert all(claim.holds for claim in report.claims), report.claims


@pytest.mark.parametrize("name", ["whitewater-fig6", "whitewater-fig7", "whitewater-fig8"])
def test_a_figure_has_tables_claims_and_a_plot(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.tables
    assert report.claims
    assert [plot.name for plot in report.plots] == [name]
    ours = [claim for claim in report.claims if claim.what.startswith("our portfolio is ")]
    never_worse = [c for c in ours if "better than all others" not in c.what]
    assert all(claim.holds for claim in never_worse)
