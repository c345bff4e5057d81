"""SQPR's figures: they run, and what must always hold holds."""

from __future__ import annotations

import pytest

from headwater.plan.placement.samples import TIGHT, sample_problem
from headwater.reproduce import FIGURES, FigureSettings
from headwater.reproduce.sqpr import SQPR
from headwater.reproduce.sqpr.runs import scale_setting, submit_queries


def test_submitted_and_admitted_are_counted() -> None:
    problem = sample_problem(scale_setting(TIGHT, 10), 1)
    one = submit_queries("dynamic", problem, 60)
    assert len(one.decisions) == 60
    assert one.admitted_count() == len(one.plan.admitted)
    assert one.first_refusal is None or not one.decisions[one.first_refusal].admitted
    assert sum(of for _, of in one.admitted_by_ways().values()) == 60
    assert sum(yes for yes, _ in one.admitted_by_ways(30).values()) == one.admitted_count(30)


def test_every_figure_of_the_paper_has_a_name() -> None:
    figures = {
        f"sqpr-fig{n}" for n in ("4a", "4b", "4c", "5a", "5b", "5c", "6a", "6b", "7a", "7b", "7c")
    }
    assert figures < set(SQPR)
    assert SQPR.items() <= FIGURES.items()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SQPR))
def test_a_figure_has_tables_and_claims(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.tables
    assert report.claims
