"""Chapter 4 of the COSMOS thesis, many objects: figures 4.5 to 4.9, and real trades.

Trees that carry all objects are simulated with the safe forwarding rule, and the loss is the time out of tolerance. One tree per
object (DiTA, multi-tree) is priced by the model: such trees do not feed forward.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from headwater.federation.dissemination.annealing import (
    HASTY,
    PRINTED,
    AnnealingSettings,
    annealed_tree,
)
from headwater.federation.dissemination.construction import (
    greedy_tree,
    random_tree,
    source_based_tree,
)
from headwater.federation.dissemination.forest import annealed_forest, best_dita_forest
from headwater.federation.dissemination.model import (
    DisseminationWorld,
    Floats,
    Indices,
    tree_order,
)
from headwater.reproduce.cosmos.dissemination import SLOWED, SLOWER
from headwater.reproduce.cosmos.dissemination_setting import (
    FULL,
    QUICK,
    WORTHWHILE,
    Values,
    claim_that,
    figure_seeds,
    gather,
    make_world,
    mean_of,
    model_loss,
    values_plot,
    values_table,
)
from headwater.reproduce.cosmos.measured import measured_routes, trade_files
from headwater.reproduce.figure import Claim, FigureSettings, Report, format_spread
from headwater.sim.dissemination import (
    DisseminationRun,
    Tolerances,
    Updates,
    simulate_dissemination,
)
from headwater.sim.prices import draw_tolerances, price_walks, trade_updates, wanted_rates

INTEREST = 0.6
MILLION = 1e6
"""Prices change seldom, so losses are small: absolute ones are in millionths."""


@dataclass(frozen=True)
class ObjectScale:
    """How large a figure of many objects is computed."""

    providers: int
    objects: int
    seconds: float
    annealing: AnnealingSettings
    forest_annealing: AnnealingSettings
    loads: tuple[float, ...]
    windows: int


def object_scale(settings: FigureSettings) -> ObjectScale:
    """The scale that the settings ask for; a forest has trials in every tree, so it has fewer in each."""
    if settings.quick:
        few = AnnealingSettings(trials=4, cooling=0.85, frozen=0.0005)
        return ObjectScale(32, 10, 8_000.0, QUICK.annealing, few, (1.0, 5.0), 10)
    few = AnnealingSettings(trials=4, cooling=0.9, frozen=0.0005)
    medium = AnnealingSettings(trials=16, cooling=0.93, greedy_start=0.05)
    return ObjectScale(FULL.providers, 100, 20_000.0, medium, few, FULL.loads, 20)


@dataclass(frozen=True, eq=False)
class ObjectSetting:
    """A world with the updates and tolerances from which its rates were measured."""

    world: DisseminationWorld
    updates: Updates
    tolerances: Tolerances

    def run(
        self,
        parents: Indices,
        seed: int,
        scale: ObjectScale,
        adaptive: bool = False,
        worthwhile: float = WORTHWHILE,
    ) -> DisseminationRun:
        """Send the updates through a tree; a move has to save the share `worthwhile` of what it influences."""
        return simulate_dissemination(
            self.world,
            parents,
            self.updates,
            np.random.default_rng([seed, 7]),
            tolerances=self.tolerances,
            adaptive=adaptive,
            worthwhile=worthwhile,
            window=self.updates.seconds / scale.windows,
        )


def walk_setting(
    seed: int, scale: ObjectScale, load: float, objects: int, interest: float = INTEREST
) -> ObjectSetting:
    """Random walks that providers follow within tolerances."""
    updates = price_walks(objects, scale.seconds, np.random.default_rng([seed, 10]))
    return _setting(seed, scale.providers, load, updates, interest)


def _setting(
    seed: int, providers: int, load: float, updates: Updates, interest: float
) -> ObjectSetting:
    random = np.random.default_rng([seed, 11])
    tolerances = draw_tolerances(providers + 1, len(updates.start), interest, random)
    rates = wanted_rates(updates, tolerances)
    return ObjectSetting(make_world(seed, providers, load, rates), updates, tolerances)


def _compare(
    setting: ObjectSetting, seed: int, scale: ObjectScale, absolute: bool = False
) -> dict[str, float]:
    """The losses of trees with all objects, simulated, and of DiTA's trees by the model; all by those of annealing."""
    world = setting.world
    sa = annealed_tree(world, np.random.default_rng([seed, 4]), scale.annealing)
    greedy = greedy_tree(world)
    trees = {
        "Greedy": (greedy, False),
        "Greedy+Adaptive": (greedy, True),
        "SA+Adaptive": (sa, True),
        "Source-Based": (source_based_tree(world), False),
        "Random": (random_tree(world, np.random.default_rng([seed, 5])), False),
    }
    unit, model_unit = setting.run(sa, seed, scale).average, model_loss(world, sa)
    losses = {
        name: setting.run(tree, seed, scale, adaptive).average / unit
        for name, (tree, adaptive) in trees.items()
    }
    losses["DiTA (model)"] = best_dita_forest(world).average_loss / model_unit
    return losses | ({"SA, millionths": MILLION * unit} if absolute else {})


def by_load(settings: FigureSettings) -> Report:
    """Figure 4.5(a)."""
    scale = object_scale(settings)
    values = gather(
        "objects by load",
        scale.loads,
        figure_seeds(settings),
        lambda seed, load: _compare(walk_setting(seed, scale, load, scale.objects), seed, scale),
    )
    low, high = scale.loads[0], scale.loads[-1]
    return Report(
        (values_table("loss / annealing's, by load", "load", values),),
        _load_claims(values, scale.loads, low, high),
        (values_plot("cosmos-fig4-5a", "objects by load", "load", "loss / SA", values, True),),
    )


def _load_claims(
    values: Values, loads: tuple[float, ...], low: float, high: float
) -> tuple[Claim, ...]:
    ours = ("Greedy", "Greedy+Adaptive", "SA+Adaptive")
    worst = max(mean_of(values, curve, load) for curve in ours for load in loads)
    return (
        claim_that("our trees", "as SA (within 20 %)", f"at most {worst:.2f}", worst <= 1.2),
        *(
            claim_that(
                f"{curve} / SA from load {low:g} to {high:g}",
                "gets worse",
                f"{mean_of(values, curve, low):.2f} to {mean_of(values, curve, high):.2f}",
                mean_of(values, curve, high) > mean_of(values, curve, low),
            )
            for curve in ("DiTA (model)", "Random")
        ),
    )


def by_time(settings: FigureSettings) -> Report:
    """Figure 4.5(b): a random tree of many objects adapts, by every move that pays or only by those that pay one percent."""
    scale = object_scale(settings)
    values: Values = {}
    for load in (1.0, 5.0):
        for seed in figure_seeds(settings):
            setting = walk_setting(seed, scale, load, scale.objects)
            sa = annealed_tree(setting.world, np.random.default_rng([seed, 4]), scale.annealing)
            start = random_tree(setting.world, np.random.default_rng([seed, 5]))
            unit = setting.run(sa, seed, scale).losses
            runs = {
                "Random+Adaptive": setting.run(start, seed, scale, True, 0.0),
                "Random+Adaptive (1 %)": setting.run(start, seed, scale, True),
                "Random": setting.run(start, seed, scale),
            }
            for name, one in runs.items():
                _add_line(values, f"{name}, load {load:g}", scale, one.losses / unit)
    claims = []
    for load in (1.0, 5.0):
        static = mean_of(values, f"Random, load {load:g}", scale.seconds)
        for name in ("Random+Adaptive", "Random+Adaptive (1 %)"):
            end = mean_of(values, f"{name}, load {load:g}", scale.seconds)
            claims.append(
                claim_that(
                    f"{name} at load {load:g}, in the end",
                    "as SA (at most 1.2)",
                    f"{end:.2f}, without adaptation {static:.2f}",
                    end <= 1.2,
                )
            )
    return Report(
        (values_table("simulated loss / annealing's", "seconds", values),),
        tuple(claims),
        (values_plot("cosmos-fig4-5b", "adaptation", "seconds", "loss / SA", values),),
    )


def _add_line(values: Values, curve: str, scale: ObjectScale, line: Floats) -> None:
    for at, value in enumerate(line.tolist()):
        end = (at + 1) * scale.seconds / scale.windows
        values.setdefault((curve, end), []).append(value)


def by_objects(settings: FigureSettings) -> Report:
    """Figure 4.5(c): up to five times as many objects."""
    scale = object_scale(settings)
    # Five times the objects are five times the messages: a quarter of the time is enough.
    short = ObjectScale(
        scale.providers,
        scale.objects,
        scale.seconds / 4,
        AnnealingSettings(trials=8, cooling=0.9, greedy_start=0.05),
        scale.forest_annealing,
        scale.loads,
        1,
    )
    steps = (1, 5) if settings.quick else (1, 3, 5)
    counts = [float(scale.objects * step) for step in steps]
    values = gather(
        "objects",
        counts,
        figure_seeds(settings),
        lambda seed, count: _compare(
            walk_setting(seed, short, 1.0, int(count)), seed, short, absolute=True
        ),
    )
    few, many = counts[0], counts[-1]
    unit = {x: mean_of(values, "SA, millionths", x) for x in counts}
    # The values are relative to annealing's with as many objects, so they are made absolute first.
    growth = {
        curve: mean_of(values, curve, many) * unit[many] / (mean_of(values, curve, few) * unit[few])
        for curve in ("Greedy", "Greedy+Adaptive", "SA+Adaptive", "Source-Based")
    }
    trees = max(growth[curve] for curve in growth if curve != "Source-Based")
    return Report(
        (values_table("loss / annealing's, and annealing's loss", "objects", values, 3),),
        (
            claim_that(
                f"loss of trees from {few:g} to {many:g} objects",
                "+15 % (at most +30 %)",
                f"at most {trees - 1:+.0%}",
                trees <= 1.3,
            ),
            claim_that(
                f"loss of Source-Based from {few:g} to {many:g} objects",
                "+200 % (at least +100 %)",
                f"{growth['Source-Based'] - 1:+.0%}",
                growth["Source-Based"] >= 2.0,
            ),
        ),
        (values_plot("cosmos-fig4-5c", "objects", "objects", "loss / SA", values, True),),
    )


def _single_and_multi(setting: ObjectSetting, seed: int, scale: ObjectScale) -> dict[str, float]:
    """The losses of annealing by the model: one tree for all objects, and one each."""
    world = setting.world
    one = annealed_tree(world, np.random.default_rng([seed, 4]), scale.annealing)
    many = annealed_forest(world, np.random.default_rng([seed, 4]), scale.forest_annealing)
    losses = {"single tree": model_loss(world, one), "multi-tree": many.average_loss}
    return {name: MILLION * loss for name, loss in losses.items()}


def multi_by_load(settings: FigureSettings) -> Report:
    """Figure 4.6."""
    scale = object_scale(settings)
    objects = scale.objects if settings.quick else 40
    values = gather(
        "single and multi-tree",
        scale.loads,
        figure_seeds(settings),
        lambda seed, load: _single_and_multi(walk_setting(seed, scale, load, objects), seed, scale),
    )
    gaps = [
        mean_of(values, "single tree", load) - mean_of(values, "multi-tree", load)
        for load in scale.loads
    ]
    return Report(
        (values_table("annealing's loss by the model, in millionths", "load", values, 1),),
        (
            claim_that(
                "multi-tree better at every load",
                "yes",
                ", ".join(f"{gap:+.1f}" for gap in gaps),
                min(gaps) > 0,
            ),
            claim_that(
                "the difference grows with load",
                "yes",
                f"{gaps[0]:.1f} to {gaps[-1]:.1f}",
                gaps[-1] > gaps[0],
            ),
        ),
        (values_plot("cosmos-fig4-6", "single and multi-tree", "load", "loss", values),),
    )


def multi_by_interest(settings: FigureSettings) -> Report:
    """Figure 4.7: load 8, and how many of the objects a provider wants."""
    scale = object_scale(settings)
    counts = (5, 10) if settings.quick else (20, 40)
    degrees = (0.1, 0.9) if settings.quick else (0.1, 0.3, 0.5, 0.7, 0.9)

    def run(seed: int, interest: float) -> dict[str, float]:
        losses = {}
        for count in counts:
            setting = walk_setting(seed, scale, 8.0, count, interest)
            for name, loss in _single_and_multi(setting, seed, scale).items():
                losses[f"{name}, {count} objects"] = loss
        return losses

    values = gather("degree of interest", degrees, figure_seeds(settings), run)
    gain = {
        (count, degree): 1
        - mean_of(values, f"multi-tree, {count} objects", degree)
        / mean_of(values, f"single tree, {count} objects", degree)
        for count in counts
        for degree in degrees
    }
    few, many = counts
    return Report(
        (
            values_table(
                "annealing's loss by the model in millionths, load 8", "interest", values, 1
            ),
        ),
        (
            claim_that(
                "multi-tree better at every degree",
                "yes",
                f"by {min(gain.values()):.0%} to {max(gain.values()):.0%}",
                min(gain.values()) > 0,
            ),
            claim_that(
                "most at small interest",
                "yes",
                f"{gain[many, degrees[0]]:.0%} at {degrees[0]}, {gain[many, degrees[-1]]:.0%} at {degrees[-1]}",
                gain[many, degrees[0]] > gain[many, degrees[-1]],
            ),
            claim_that(
                "more with more objects",
                "yes",
                f"{gain[few, degrees[0]]:.0%} and {gain[many, degrees[0]]:.0%} at {degrees[0]}",
                # A gain that is none does not grow.
                gain[many, degrees[0]] > max(gain[few, degrees[0]], 0.0),
            ),
        ),
        (values_plot("cosmos-fig4-7", "degree of interest", "interest", "loss", values),),
    )


def running_time(settings: FigureSettings) -> Report:
    """Figure 4.8: how long building a tree takes, and what it costs by the model."""
    scale = object_scale(settings)
    counts = (1.0, 10.0) if settings.quick else (1.0, 20.0, 50.0)
    seconds: Values = {}
    losses: Values = {}
    for count in counts:
        for seed in figure_seeds(settings):
            world = walk_setting(seed, scale, 1.0, int(count)).world
            found = {}
            for curve, annealing in (("Greedy", None), ("SA (1)", PRINTED), ("SA (2)", HASTY)):
                start = time.thread_time()
                random = np.random.default_rng([seed, 4])
                tree = annealed_tree(world, random, annealing) if annealing else greedy_tree(world)
                seconds.setdefault((curve, count), []).append(time.thread_time() - start)
                found[curve] = model_loss(world, tree)
            for curve, loss in found.items():
                losses.setdefault((curve, count), []).append(loss / found["Greedy"])
    slowest = max(counts)
    hasty = max(mean_of(losses, "SA (2)", count) for count in counts)
    worst = max(value for (curve, _), v in losses.items() if curve == "SA (1)" for value in v)
    times = [mean_of(seconds, curve, slowest) for curve in ("Greedy", "SA (2)", "SA (1)")]
    return Report(
        (
            values_table("CPU seconds", "objects", seconds, 2),
            values_table("model's loss / Greedy's", "objects", losses, 3),
        ),
        (
            claim_that(
                "Greedy fastest, SA (1) slowest",
                "yes",
                " < ".join(f"{value:.2f} s" for value in times),
                times == sorted(times),
            ),
            claim_that("SA (2) costs", "> 2 times Greedy", f"at most {hasty:.3f}", hasty > 2),
            claim_that("SA (1) best", "never above Greedy", f"at most {worst:.3f}", worst <= 1),
        ),
        (values_plot("cosmos-fig4-8", "building a tree", "objects", "seconds", seconds, True),),
    )


def after_a_change(settings: FigureSettings) -> Report:
    """Figure 4.9: the first ten nodes become slower at a quarter of the time."""
    scale = object_scale(settings)
    moment = scale.seconds / 4
    values: Values = {}
    for seed in figure_seeds(settings):
        setting = walk_setting(seed, scale, 1.0, scale.objects)
        sa = annealed_tree(setting.world, np.random.default_rng([seed, 4]), scale.annealing)
        slow = setting.world.slowed(tree_order(sa)[1 : SLOWED + 1], SLOWER)
        for adaptive in (False, True):
            run = simulate_dissemination(
                setting.world,
                sa,
                setting.updates,
                np.random.default_rng([seed, 7]),
                tolerances=setting.tolerances,
                adaptive=adaptive,
                worthwhile=WORTHWHILE,
                change=partial(_slow_after, moment, slow),
                window=scale.seconds / scale.windows,
            )
            _add_line(values, "SA+Adaptive" if adaptive else "SA", scale, MILLION * run.losses)
    # The time from the change to the middle is left out: there the tree is still adapting.
    late = [x for curve, x in values if curve == "SA" and x > scale.seconds / 2]
    early = [x for curve, x in values if curve == "SA" and x <= moment]
    means = {
        (curve, part): float(np.mean([mean_of(values, curve, x) for x in xs]))
        for curve in ("SA", "SA+Adaptive")
        for part, xs in (("before", early), ("after", late))
    }
    rise = {c: means[c, "after"] / means[c, "before"] for c in ("SA", "SA+Adaptive")}
    return Report(
        (values_table("simulated loss in millionths", "seconds", values, 1),),
        (
            claim_that(
                "SA stays high after the change",
                "yes (at least half as much again)",
                f"times {rise['SA']:.2f}",
                rise["SA"] >= 1.5,
            ),
            claim_that(
                "SA+Adaptive returns",
                "to what it was (at most 1.2 of it)",
                f"times {rise['SA+Adaptive']:.2f}",
                rise["SA+Adaptive"] <= 1.2,
            ),
            claim_that(
                "before the change SA is slightly worse than SA+Adaptive",
                "yes",
                f"{means['SA', 'before']:.1f} and {means['SA+Adaptive', 'before']:.1f}",
                means["SA", "before"] >= means["SA+Adaptive", "before"],
            ),
        ),
        (values_plot("cosmos-fig4-9", "after a change", "seconds", "loss", values),),
    )


def _slow_after(
    moment: float, slow: DisseminationWorld, now: float, world: DisseminationWorld, parents: Indices
) -> DisseminationWorld:
    return slow if now >= moment else world


def real_trades(settings: FigureSettings) -> Report:
    """The trees on a day of real trades, on a generated network and on measured latencies: time out of tolerance."""
    files = trade_files(settings.data)
    # `trade_files` has refused a run without data.
    assert settings.data is not None
    hosts = measured_routes(settings.data).distance
    scale = object_scale(settings)
    load = scale.loads[0]
    tables, claims = [], []
    for network, distances in (("generated network", None), ("measured latencies", hosts)):
        run = partial(_trade_losses, files, distances, scale)
        values = gather(network, [load], figure_seeds(settings), run)
        title = f"{len(files)} stocks, {network}: loss / annealing's"
        tables.append(values_table(title, "load", values, 3))
        losses = {curve: mean_of(values, curve, load) for curve, _ in values}
        claims += _trade_claims(network, losses)
    return Report(tuple(tables), tuple(claims))


def _trade_losses(
    files: Sequence[Path], distances: Floats | None, scale: ObjectScale, seed: int, load: float
) -> dict[str, float]:
    """The losses of the trees; with `distances` the nodes are random hosts of these."""
    updates = trade_updates(files, scale.seconds, np.random.default_rng([seed, 10]))
    setting = _setting(seed, scale.providers, load, updates, INTEREST)
    if distances is not None:
        drawn = np.random.default_rng([seed, 12])
        chosen = drawn.choice(len(distances), scale.providers + 1, replace=False)
        delays = np.ascontiguousarray(distances[np.ix_(chosen, chosen)])
        # All else stays the same, so that only the network makes a difference.
        setting = replace(setting, world=replace(setting.world, delays=delays))
    return _compare(setting, seed, scale, absolute=True)


def _trade_claims(network: str, losses: dict[str, float]) -> list[Claim]:
    greedy, adaptive = losses["Greedy"], losses["Greedy+Adaptive"]
    others = [losses[curve] for curve in ("DiTA (model)", "Random", "Source-Based")]
    return [
        claim_that(
            f"Greedy and Greedy+Adaptive, {network}",
            "as SA (within 20 %)",
            f"{greedy:.2f}, {adaptive:.2f}",
            max(greedy, adaptive) <= 1.2,
        ),
        claim_that(
            f"DiTA, Random, Source-Based, {network}",
            "worse than Greedy",
            format_spread(others, 2),
            min(others) > greedy,
        ),
    ]
