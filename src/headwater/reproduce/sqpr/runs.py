"""Queries submitted one by one, or in batches, to a planner: the basis of all its figures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import track

from headwater.plan.placement.check import ensure_valid
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementPlan, PlacementProblem
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners.registry import make_planner
from headwater.plan.placement.samples import SampleSetting, sample_problem
from headwater.reproduce.figure import FigureSettings, PlotLine

OURS = "headwater"
SECONDS = 2.0
"""For each query, where a planner can use them; SQPR's own limits are said in its figures."""


@dataclass(frozen=True)
class SubmissionOutcome:
    """The decisions on all queries in their order, the plan in the end, and its problem."""

    problem: PlacementProblem
    decisions: tuple[Decision, ...]
    plan: PlacementPlan

    def admitted_count(self, of: int | None = None) -> int:
        """How many of the first queries were admitted."""
        return sum(decision.admitted for decision in self.decisions[:of])

    @property
    def first_refusal(self) -> int | None:
        refused = (d.query for d in self.decisions if not d.admitted)
        return next(refused, None)

    def seconds_quantile(self, share: float) -> float:
        """The time per query that so large a share of queries does not exceed."""
        return float(np.quantile([d.seconds for d in self.decisions], share))

    @property
    def mean_seconds(self) -> float:
        return mean(d.seconds for d in self.decisions)

    def admitted_by_ways(self, of: int | None = None) -> dict[int, tuple[int, int]]:
        """For each number of joined streams: how many queries were admitted, and submitted."""
        counts: dict[int, tuple[int, int]] = {}
        for d in self.decisions[:of]:
            stream = self.problem.streams[self.problem.queries[d.query].stream]
            admitted, submitted = counts.get(len(stream.parts), (0, 0))
            counts[len(stream.parts)] = admitted + d.admitted, submitted + 1
        return dict(sorted(counts.items()))


def submit_queries(
    planner: str,
    problem: PlacementProblem,
    queries: int | None = None,
    seconds: float = SECONDS,
    batch: int = 1,
    seed: int = 0,
) -> SubmissionOutcome:
    """Submit the first queries to a planner; the plan in the end is checked."""
    count = queries or len(problem.queries)
    ledger, plan = Ledger(problem), make_planner(planner)
    decisions: list[Decision] = []
    console = Console(file=sys.stderr)
    starts: Iterable[int] = track(
        range(0, count, batch),
        f"{planner}, {len(problem.sites)} hosts",
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for start in starts:
        batch_queries = range(start, min(start + batch, count))
        decisions += plan(ledger, batch_queries, Budget(seconds, seed))
    final_plan = ledger.plan()
    # A planner that breaks a constraint would only look better for it.
    ensure_valid(problem, final_plan)
    return SubmissionOutcome(problem, tuple(decisions), final_plan)


def seed_range(settings: FigureSettings) -> range:
    return range(1, settings.seeds + 1)


def shrink_if_quick(
    setting: SampleSetting, settings: FigureSettings, part: int = 5
) -> SampleSetting:
    """A setting, or in a quick run a part of it that is as dense."""
    return scale_setting(setting, part) if settings.quick else setting


def halve_setting(setting: SampleSetting, settings: FigureSettings) -> SampleSetting:
    """Half of a setting, for figures that are to take minutes, or in a quick run a smaller part."""
    return shrink_if_quick(setting, settings) if settings.quick else scale_setting(setting, 2)


def scale_setting(setting: SampleSetting, part: int) -> SampleSetting:
    """As many base streams and queries for each host, but fewer hosts."""
    return replace(
        setting,
        hosts=max(2, setting.hosts // part),
        base_streams=max(8, setting.base_streams // part),
        queries=max(10, setting.queries // part),
    )


def sample_problems(setting: SampleSetting, settings: FigureSettings) -> list[PlacementProblem]:
    return [sample_problem(setting, seed) for seed in seed_range(settings)]


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def admission_curve(name: str, flags: Sequence[Sequence[bool]], steps: Sequence[int]) -> PlotLine:
    """How many were admitted after each number of submissions; the mean of several runs."""
    y = tuple(mean(sum(run_flags[:step]) for run_flags in flags) for step in steps)
    return PlotLine(name, tuple(map(float, steps)), y)


def curve_steps(count: int, parts: int = 10) -> list[int]:
    return sorted({max(1, count * part // parts) for part in range(1, parts + 1)})


def admission_flags(outcome: SubmissionOutcome) -> list[bool]:
    return [decision.admitted for decision in outcome.decisions]
