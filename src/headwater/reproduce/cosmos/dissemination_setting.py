"""The setting of chapter 4 of the COSMOS thesis, and what its figures have in common.

1,500 nodes in transit and stub domains, 256 providers and a source, 20 ms between them on average. `--quick` has 96 providers and less than half of
the time. Seeds start where nothing was tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from headwater.federation.dissemination.annealing import (
    HASTY,
    THOROUGH,
    AnnealingSettings,
    annealed_tree,
)
from headwater.federation.dissemination.construction import (
    best_dita_tree,
    greedy_tree,
    random_tree,
    source_based_tree,
)
from headwater.federation.dissemination.model import (
    SOURCE,
    DisseminationWorld,
    Floats,
    Indices,
    mean_weights,
)
from headwater.federation.dissemination.tree import DisseminationTree
from headwater.network import COSMOS_DISSEMINATION, shortest_routes, transit_stub_network
from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    PlotLine,
    ReportTable,
    format_spread,
)
from headwater.reproduce.progress import run_in_parallel

FIRST_SEED = 400
MEAN_DELAY = 0.020
FILTER, TRANSMIT = (0.001, 0.005), (0.000125, 0.001)
"""Least and mean seconds of filtering and of transmitting a message for one child."""
RATES = (0.5, 1.5)
WORTHWHILE = 0.01


@dataclass(frozen=True)
class Scale:
    """How large a figure is computed."""

    providers: int
    seconds: float
    annealing: AnnealingSettings
    loads: tuple[float, ...]

    @property
    def windows(self) -> int:
        """How many windows of 1,000 s, or of a tenth of a short time, there are."""
        return 20 if self.seconds >= 20_000 else 10


FULL = Scale(256, 20_000.0, THOROUGH, (1.0, 2.0, 3.0, 4.0, 5.0))
QUICK = Scale(96, 8_000.0, replace(HASTY, greedy_start=0.05), (1.0, 5.0))


def figure_scale(settings: FigureSettings) -> Scale:
    """The scale that the settings ask for."""
    return QUICK if settings.quick else FULL


def figure_seeds(settings: FigureSettings) -> list[int]:
    """The seeds of a figure."""
    return [FIRST_SEED + at for at in range(settings.seeds)]


@cache
def draw_delays(seed: int, providers: int) -> Floats:
    """The delays between a source and providers, scaled to the mean of the thesis."""
    network = transit_stub_network(COSMOS_DISSEMINATION, seed)
    hosts = np.flatnonzero([not site.router for site in network.sites])
    chosen = np.random.default_rng(seed).choice(hosts, providers + 1, replace=False)
    delays = shortest_routes(network).distance[np.ix_(chosen, chosen)]
    mean = delays.sum() / (len(chosen) * (len(chosen) - 1))
    return np.ascontiguousarray(delays * (MEAN_DELAY / mean))


def draw_times(
    seed: int, providers: int, load: float, kind: tuple[float, float], stream: int
) -> Floats:
    """Seconds by node: uniform around the mean times the load; the source has the least."""
    least, mean = kind
    random = np.random.default_rng([seed, stream])
    # The mean of this span is the mean of its kind times the load (COSMOS, section 4.4.1).
    times: Floats = random.uniform(least, 2 * mean * load - least, providers + 1)
    times[SOURCE] = least
    return times


def make_world(seed: int, providers: int, load: float, rates: Floats) -> DisseminationWorld:
    """A world of the thesis's network and times with these rates."""
    return DisseminationWorld(
        rates,
        mean_weights(rates),
        draw_times(seed, providers, load, FILTER, 1),
        draw_times(seed, providers, load, TRANSMIT, 2),
        draw_delays(seed, providers),
    )


def synthetic_world(
    seed: int, providers: int, load: float = 1.0, rate: float = 1.0
) -> DisseminationWorld:
    """One object that every provider wants at a random rate."""
    random = np.random.default_rng([seed, 3])
    rates = random.uniform(*RATES, providers + 1) * rate
    # Nobody can want more messages than the source has updates.
    rates[SOURCE] = rates.max()
    return make_world(seed, providers, load, rates[:, None])


def static_trees(
    world: DisseminationWorld, seed: int, annealing: AnnealingSettings
) -> dict[str, Indices]:
    """The trees that the figures compare, by their names."""
    return {
        "SA": annealed_tree(world, np.random.default_rng([seed, 4]), annealing),
        "Greedy": greedy_tree(world),
        "DiTA": best_dita_tree(world),
        "Source-Based": source_based_tree(world),
        "Random": random_tree(world, np.random.default_rng([seed, 5])),
    }


def model_loss(world: DisseminationWorld, parents: Indices) -> float:
    """The average loss of a tree by the model."""
    return DisseminationTree(world, parents).average_loss


Values = dict[tuple[str, float], list[float]]
"""By curve and x one value for each seed."""


def gather(
    title: str,
    xs: Sequence[float],
    seeds: Sequence[int],
    run: Callable[[int, float], Mapping[str, float]],
) -> Values:
    """Run every x with every seed; `run` returns a value for each curve."""
    jobs: list[Callable[[], Mapping[str, float]]] = [
        partial(run, seed, x) for x in xs for seed in seeds
    ]
    values: Values = {}
    results = iter(run_in_parallel(title, jobs))
    for x in xs:
        for _ in seeds:
            for curve, value in next(results).items():
                values.setdefault((curve, x), []).append(value)
    return values


def curve_names(values: Values) -> list[str]:
    """The curves in the order in which they came."""
    return list(dict.fromkeys(curve for curve, _ in values))


def values_table(title: str, x_name: str, values: Values, digits: int = 2) -> ReportTable:
    """A row for each x, a column for each curve."""
    curves, xs = curve_names(values), list(dict.fromkeys(x for _, x in values))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (x, *(format_spread(values[curve, x], digits) for curve in curves)) for x in xs
    )
    return ReportTable(title, (x_name, *curves), rows)


def values_plot(
    name: str, title: str, x_name: str, y_name: str, values: Values, logarithmic: bool = False
) -> Plot:
    """A line for each curve with the range over the seeds."""
    lines = []
    for curve in curve_names(values):
        points = [(x, values[curve, x]) for one, x in values if one == curve]
        lines.append(
            PlotLine(
                curve,
                tuple(x for x, _ in points),
                tuple(float(np.mean(seen)) for _, seen in points),
                tuple(min(seen) for _, seen in points),
                tuple(max(seen) for _, seen in points),
            )
        )
    return Plot(name, title, x_name, y_name, tuple(lines), logarithmic)


def claim_near(what: str, expected: float, values: Sequence[float], within: float = 0.15) -> Claim:
    """Whether a mean is near an expected value."""
    mean = float(np.mean(values))
    holds = abs(mean - expected) <= within * expected
    paper = f"{expected:g} ± {within:.0%} (prototype)"
    return Claim(what, paper, format_spread(values, 2), holds)


def claim_that(what: str, paper: str, ours: str, holds: Any) -> Claim:
    """A claim whose rule is computed where it is stated."""
    return Claim(what, paper, ours, bool(holds))


def mean_of(values: Values, curve: str, x: float) -> float:
    """The mean over the seeds."""
    return float(np.mean(values[curve, x]))
