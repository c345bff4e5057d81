"""Reports of simulated worlds: tables of means over the seeds, and plots with the range of the seeds around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Protocol, TypeVar

from headwater.report import Cell, Plot, PlotLine, Report, ReportTable
from headwater.sim.worlds.dissemination import DisseminationRow
from headwater.sim.worlds.distribution import DistributionRow
from headwater.sim.worlds.draw import DrawnSites, Happening
from headwater.sim.worlds.model import FailureKind
from headwater.sim.worlds.timeline import MomentKind


class TimedRow(Protocol):
    """A row of a run over time."""

    @property
    def time(self) -> float: ...


Row = TypeVar("Row", bound=TimedRow)
Runs = Mapping[str, Sequence[Sequence[Row]]]
"""By policy, for each seed the rows of its run; the rows of all seeds are of the same times."""

MOST_PROVIDERS = 40
"""How many providers are listed; of more, the most loaded ones."""


def failure_table(happenings: Sequence[Happening], names: Sequence[str], seed: int) -> ReportTable:
    """What happened to whom in the run of a seed."""
    rows: list[tuple[Cell, ...]] = []
    for happening in happenings:
        factor = (
            happening.factor if happening.kind in (FailureKind.slows, FailureKind.rates) else None
        )
        if happening.kind is FailureKind.rates:
            whom = f"{len(happening.targets)} substreams"
        else:
            whom = ", ".join(names[target] for target in happening.targets)
        rows.append((happening.at, str(happening.kind), whom, factor))
    return ReportTable(f"Failures (seed {seed})", ("time", "event", "of", "factor"), tuple(rows))


# ---- distribution


def distribution_report(runs: Runs[DistributionRow], sites: DrawnSites) -> Report:
    """What each policy costs at the end and over time; providers are those of the first seed."""
    shown = {
        policy: [[row for row in rows if row.kind is not MomentKind.arrivals] for rows in seeds]
        for policy, seeds in runs.items()
    }
    return Report(
        (_distribution_summary(runs), _distribution_over_time(shown), _provider_table(runs, sites)),
        plots=(
            _plot(
                shown, "distribution-traffic", "Traffic", "bytes in transit", lambda r: r.traffic
            ),
            _plot(
                shown,
                "distribution-load",
                "Largest load",
                "load by share",
                lambda row: row.largest_load,
            ),
        ),
    )


def _distribution_summary(runs: Runs[DistributionRow]) -> ReportTable:
    columns = (
        "policy",
        "queries",
        "traffic",
        "WEC",
        "largest load",
        "deviation",
        "in bounds",
        "moved",
    )
    rows = []
    for policy, seeds in runs.items():
        last = [rows[-1] for rows in seeds]
        moved = fmean(sum(row.moved for row in rows) for rows in seeds)
        rows.append((policy, *_distribution_means(last), moved))
    return ReportTable("Query distribution at the end", columns, tuple(rows))


def _distribution_over_time(runs: Runs[DistributionRow]) -> ReportTable:
    columns = (
        "time",
        "after",
        "policy",
        "queries",
        "traffic",
        "WEC",
        "largest load",
        "deviation",
        "in bounds",
        "moved",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            at_once[0].time,
            str(at_once[0].kind),
            policy,
            *_distribution_means(at_once),
            fmean(row.moved for row in at_once),
        )
        for policy, seeds in runs.items()
        for at_once in zip(*seeds, strict=True)
    ]
    rows.sort(key=_row_time)
    return ReportTable("Query distribution over time", columns, tuple(rows))


def _row_time(row: Sequence[Cell]) -> float:
    assert isinstance(row[0], float)
    return row[0]


def _distribution_means(rows: Sequence[DistributionRow]) -> tuple[Cell, ...]:
    """Means; of the bounds, the share of seeds in which they are kept."""
    return (
        fmean(row.queries for row in rows),
        fmean(row.traffic for row in rows),
        fmean(row.wec for row in rows),
        fmean(row.largest_load for row in rows),
        fmean(row.deviation for row in rows),
        fmean(row.is_feasible for row in rows),
    )


def _provider_table(runs: Runs[DistributionRow], sites: DrawnSites) -> ReportTable:
    """The load of each provider at the end of the run of the first seed, by its share."""
    last = {policy: seeds[0][-1] for policy, seeds in runs.items()}
    order = sorted(
        range(len(sites.names)), key=lambda p: -max(float(row.loads[p]) for row in last.values())
    )
    kept = sorted(order[:MOST_PROVIDERS])
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            sites.names[provider],
            float(sites.capability[provider]),
            *(float(row.loads[provider]) for row in last.values()),
        )
        for provider in kept
    )
    title = "Loads of providers at the end, by share"
    if any(len(seeds) > 1 for seeds in runs.values()):
        title += ", in the run of the first seed"
    if len(kept) < len(order):
        title += f" (the {len(kept)} most loaded of {len(order)})"
    return ReportTable(title, ("provider", "capability", *last), rows)


# ---- dissemination


def dissemination_report(runs: Runs[DisseminationRow]) -> Report:
    """The loss of fidelity of each policy's tree, at the end and over time."""
    plot = _plot(
        runs, "dissemination-loss", "Loss of fidelity", "mean share of time", lambda row: row.loss
    )
    return Report((_dissemination_summary(runs), _dissemination_over_time(runs)), plots=(plot,))


def _dissemination_summary(runs: Runs[DisseminationRow]) -> ReportTable:
    columns = (
        "policy",
        "nodes",
        "loss",
        "measured in all",
        "overloaded",
        "depth",
        "fan-out",
        "moves",
    )
    rows: list[tuple[Cell, ...]] = []
    for policy, seeds in runs.items():
        last = [rows[-1] for rows in seeds]
        rows.append(
            (
                policy,
                fmean(row.nodes for row in last),
                fmean(row.loss for row in last),
                _mean([_measured_in_all(rows) for rows in seeds]),
                fmean(row.overloaded for row in last),
                fmean(row.depth for row in last),
                fmean(row.fanout for row in last),
                fmean(sum(row.moved for row in rows) for rows in seeds),
            )
        )
    return ReportTable("Dissemination at the end", columns, tuple(rows))


def _measured_in_all(rows: Sequence[DisseminationRow]) -> float | None:
    """The measured loss of a whole run: what is measured from each row to the next, by its time."""
    total = 0.0
    for row, following in pairwise(rows):
        if row.measured is not None:
            total += row.measured * (following.time - row.time)
        # Two moments at the same time have nothing between them that could be measured.
        elif following.time > row.time:
            return None
    return total / rows[-1].time


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _dissemination_over_time(runs: Runs[DisseminationRow]) -> ReportTable:
    columns = ("time", "after", "policy", "nodes", "loss", "measured", "overloaded", "moves")
    rows: list[tuple[Cell, ...]] = [
        (
            at_once[0].time,
            str(at_once[0].kind),
            policy,
            fmean(row.nodes for row in at_once),
            fmean(row.loss for row in at_once),
            _mean([row.measured for row in at_once]),
            fmean(row.overloaded for row in at_once),
            fmean(row.moved for row in at_once),
        )
        for policy, seeds in runs.items()
        for at_once in zip(*seeds, strict=True)
    ]
    rows.sort(key=_row_time)
    return ReportTable("Dissemination over time", columns, tuple(rows))


# ---- plots


def _plot(runs: Runs[Row], name: str, title: str, y: str, value: Callable[[Row], float]) -> Plot:
    """A line for each policy, with the range of the seeds around it if there are several."""
    lines = []
    for policy, seeds in runs.items():
        columns = list(zip(*([value(row) for row in rows] for rows in seeds), strict=True))
        band = len(seeds) > 1
        lines.append(
            PlotLine(
                policy,
                tuple(row.time for row in seeds[0]),
                tuple(fmean(column) for column in columns),
                tuple(min(column) for column in columns) if band else (),
                tuple(max(column) for column in columns) if band else (),
            )
        )
    return Plot(name, title, "time (s)", y, tuple(lines))
