"""A world simulated: every policy of every chapter for every seed, and a report of it."""

from __future__ import annotations

from collections.abc import Callable

from headwater.report import Plot, Report, ReportTable
from headwater.sim.worlds.dissemination import DisseminationRow, draw_objects, run_tree
from headwater.sim.worlds.distribution import DistributionRow, run_policy
from headwater.sim.worlds.draw import draw_demand, draw_failures, draw_sites
from headwater.sim.worlds.model import SimulatedWorld
from headwater.sim.worlds.policies import make_policy
from headwater.sim.worlds.reports import dissemination_report, distribution_report, failure_table
from headwater.sim.worlds.timeline import FederationState, moments

Progress = Callable[[int, int, str], None]
"""Called with how many steps are done, how many there are, and what is being simulated."""


class _Steps:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress
        self.what = "simulating"

    def advance(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, self.what)


def simulate_world(world: SimulatedWorld, progress: Progress | None = None) -> Report:
    """Simulate every policy for every seed; the same world gives the same report."""
    steps = _Steps(_count_steps(world), progress)
    tables: list[ReportTable] = []
    plots: list[Plot] = []
    for chapter in (_distribute, _disseminate):
        report = chapter(world, steps)
        tables += report.tables
        plots += report.plots
    if world.failures:
        tables.append(_failures(world))
    return Report(tuple(tables), plots=tuple(plots))


def _count_steps(world: SimulatedWorld) -> int:
    steps = 0
    if world.distribution is not None:
        each = 1 + world.distribution.rounds + _failures_before(world, world.distribution.duration)
        steps += len(world.distribution.policies) * each
    if world.dissemination is not None:
        each = (
            1 + world.dissemination.rounds + _failures_before(world, world.dissemination.duration)
        )
        steps += len(world.dissemination.policies) * each
    return steps * len(world.seeds)


def _failures_before(world: SimulatedWorld, end: float) -> int:
    return sum(failure.at < end for failure in world.failures)


def _failures(world: SimulatedWorld) -> ReportTable:
    seed = world.seeds[0]
    sites = draw_sites(world, seed)
    return failure_table(draw_failures(world, sites, seed), sites.names, seed)


def _distribute(world: SimulatedWorld, steps: _Steps) -> Report:
    if world.distribution is None or world.queries is None:
        return Report(())
    runs: dict[str, list[list[DistributionRow]]] = {p: [] for p in world.distribution.policies}
    for seed in world.seeds:
        sites = draw_sites(world, seed)
        demand = draw_demand(world, sites, seed)
        state = FederationState(sites, demand, world.queries, world.distribution)
        timeline = list(moments(state, draw_failures(world, sites, seed)))
        for policy in world.distribution.policies:
            steps.what = f"distribution, {policy}"
            decide = make_policy(policy, world.distribution, demand.places.latency, seed)
            rows = run_policy(
                policy, decide, timeline, len(sites.names), len(demand.queries), steps.advance
            )
            runs[policy].append(rows)
    return distribution_report(runs, draw_sites(world, world.seeds[0]))


def _disseminate(world: SimulatedWorld, steps: _Steps) -> Report:
    settings = world.dissemination
    if settings is None:
        return Report(())
    runs: dict[str, list[list[DisseminationRow]]] = {policy: [] for policy in settings.policies}
    for seed in world.seeds:
        sites = draw_sites(world, seed)
        objects = draw_objects(settings, sites, seed)
        happenings = draw_failures(world, sites, seed)
        for policy in settings.policies:
            steps.what = f"dissemination, {policy}"
            rows = run_tree(policy, settings, objects, happenings, seed, steps.advance)
            runs[policy].append(rows)
    return dissemination_report(runs)
