"""Queries submitted one by one, or in batches, to a planner: what its figures are made of."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import track

from headwater.plan.placement.check import prove
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import Plan, Problem
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners import PLANNERS
from headwater.plan.placement.samples import Setting, sample
from headwater.reproduce.figure import Line, Settings

OURS = "headwater"
SECONDS = 2.0
"""For each query, where a planner can use them; SQPR's own limits are said in its figures."""


@dataclass(frozen=True)
class Outcome:
    """The decisions on all queries in their order, the plan in the end, and its problem."""

    problem: Problem
    decisions: tuple[Decision, ...]
    plan: Plan

    def admitted(self, of: int | None = None) -> int:
        """How many of the first queries were admitted."""
        return sum(decision.admitted for decision in self.decisions[:of])

    @property
    def first_refusal(self) -> int | None:
        refused = (d.query for d in self.decisions if not d.admitted)
        return next(refused, None)

    def seconds(self, share: float) -> float:
        """The time per query that so large a share of queries does not exceed."""
        return float(np.quantile([d.seconds for d in self.decisions], share))

    @property
    def mean_seconds(self) -> float:
        return mean(d.seconds for d in self.decisions)

    def by_ways(self, of: int | None = None) -> dict[int, tuple[int, int]]:
        """For joins of so many streams: how many were admitted, and submitted."""
        found: dict[int, tuple[int, int]] = {}
        for d in self.decisions[:of]:
            stream = self.problem.streams[self.problem.queries[d.query].stream]
            yes, all_of = found.get(len(stream.parts), (0, 0))
            found[len(stream.parts)] = yes + d.admitted, all_of + 1
        return dict(sorted(found.items()))


def submit(
    planner: str,
    problem: Problem,
    queries: int | None = None,
    seconds: float = SECONDS,
    batch: int = 1,
    seed: int = 0,
) -> Outcome:
    """Submit the first queries to a planner; the plan in the end is checked."""
    count = queries or len(problem.queries)
    ledger, plan = Ledger(problem), PLANNERS[planner]()
    decisions: list[Decision] = []
    shown = Console(file=sys.stderr)
    starts: Iterable[int] = track(
        range(0, count, batch),
        f"{planner}, {len(problem.sites)} hosts",
        console=shown,
        transient=True,
        disable=not shown.is_terminal,
    )
    for start in starts:
        together = range(start, min(start + batch, count))
        decisions += plan(ledger, together, Budget(seconds, seed))
    found = ledger.plan()
    prove(problem, found)
    return Outcome(problem, tuple(decisions), found)


def seeds_of(settings: Settings) -> range:
    return range(1, settings.seeds + 1)


def shrunk(setting: Setting, settings: Settings, part: int = 5) -> Setting:
    """A setting, or in a quick run a part of it that is as dense."""
    return scaled(setting, part) if settings.quick else setting


def halved(setting: Setting, settings: Settings) -> Setting:
    """Half of a setting, for figures that are to take minutes, or in a quick run a smaller part."""
    return shrunk(setting, settings) if settings.quick else scaled(setting, 2)


def scaled(setting: Setting, part: int) -> Setting:
    """As many base streams and queries for each host, but fewer hosts."""
    return replace(
        setting,
        hosts=max(2, setting.hosts // part),
        base_streams=max(8, setting.base_streams // part),
        queries=max(10, setting.queries // part),
    )


def samples(setting: Setting, settings: Settings) -> list[Problem]:
    return [sample(setting, seed) for seed in seeds_of(settings)]


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def curve(name: str, flags: Sequence[Sequence[bool]], steps: Sequence[int]) -> Line:
    """How many were admitted after so many submissions; the mean of several runs."""
    y = tuple(mean(sum(one[:step]) for one in flags) for step in steps)
    return Line(name, tuple(map(float, steps)), y)


def steps_of(count: int, parts: int = 10) -> list[int]:
    return sorted({max(1, count * part // parts) for part in range(1, parts + 1)})


def flags(outcome: Outcome) -> list[bool]:
    return [decision.admitted for decision in outcome.decisions]
