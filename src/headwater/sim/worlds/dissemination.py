"""Dissemination in a world: trees of several policies, followed through failures and rounds of adaptation.

All objects are in one tree. The loss of fidelity is reported by the model, and as it is measured when messages are sent through
the tree; adaptation knows rates and times as they are. The tree survives failures under every policy: children of a dead provider go to its parent, and one that
returns joins where it costs least on its way down from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headwater.errors import SimulationError
from headwater.federation.dissemination.annealing import annealed_tree
from headwater.federation.dissemination.construction import (
    best_dita_tree,
    greedy_tree,
    random_tree,
    source_based_tree,
)
from headwater.federation.dissemination.model import (
    ABSENT,
    SOURCE,
    DisseminationWorld,
    Floats,
    Indices,
    mean_weights,
    node_losses,
    tree_order,
)
from headwater.federation.dissemination.rounds import run_round
from headwater.federation.dissemination.tree import DisseminationTree
from headwater.sim.dissemination import (
    Tolerances,
    Updates,
    poisson_updates,
    simulate_dissemination,
)
from headwater.sim.prices import price_walks, wanted_rates
from headwater.sim.worlds.draw import DrawnSites, Happening, draw_span, generator
from headwater.sim.worlds.model import DisseminationSettings, FailureKind, PriceTrace
from headwater.sim.worlds.timeline import MomentKind

ADAPTIVE = "+adaptive"


@dataclass(frozen=True, eq=False)
class DrawnObjects:
    """The source and the other nodes of a run; node n is provider `providers[n - 1]`."""

    world: DisseminationWorld
    source: str
    providers: tuple[int, ...]
    updates: Updates | None
    """What the source emits; None for several objects without tolerances, which are not measured."""
    tolerances: Tolerances | None


@dataclass(frozen=True)
class DisseminationRow:
    """What a tree is like after a moment; losses are means over the nodes that live and want something.

    `measured` is from this moment to the next; None at the end, and where nothing can be measured.
    """

    policy: str
    time: float
    kind: MomentKind
    nodes: int
    loss: float
    measured: float | None
    overloaded: int
    depth: int
    fanout: int
    moved: int
    parents: tuple[int, ...]


# ---- what is emitted


def traced_updates(traces: Sequence[PriceTrace], seconds: float) -> Updates:
    """The changes of all traces in the order of time."""
    inside = [
        (trace.times < seconds) & (np.diff(trace.values, prepend=trace.values[0]) != 0)
        for trace in traces
    ]
    time = np.concatenate([t.times[i] for t, i in zip(traces, inside, strict=True)])
    value = np.concatenate([t.values[i] for t, i in zip(traces, inside, strict=True)])
    item = np.repeat(np.arange(len(traces)), [int(i.sum()) for i in inside])
    order = np.argsort(time, kind="stable")
    start = np.array([trace.values[0] for trace in traces])
    return Updates(time[order], item[order], value[order], seconds, start)


def cut_updates(updates: Updates, begin: float, end: float) -> Updates:
    """The updates of an interval; every copy begins with the value that the source has then."""
    first, last = np.searchsorted(updates.time, (begin, end))
    start = updates.start.copy()
    for item in range(len(start)):
        before = np.flatnonzero(updates.item[:first] == item)
        start[item] = updates.value[before[-1]] if len(before) else start[item]
    inside = slice(first, last)
    return Updates(
        updates.time[inside] - begin,
        updates.item[inside],
        updates.value[inside],
        end - begin,
        start,
    )


# ---- what is drawn


def draw_objects(settings: DisseminationSettings, sites: DrawnSites, seed: int) -> DrawnObjects:
    """Who wants how much of which object, and how fast each node is."""
    random = generator(seed, "dissemination")
    source = _source(settings, sites, random)
    providers = tuple(at for at, site in enumerate(sites.providers) if site != source)
    if not providers:
        raise SimulationError("a dissemination needs a provider beside the source")
    nodes = [source, *(int(sites.providers[at]) for at in providers)]
    updates = _updates(settings, seed)
    tolerances = _tolerances(settings, len(nodes), random)
    if tolerances is None or updates is None:
        rates = _drawn_rates(settings, len(nodes), random)
    else:
        rates = wanted_rates(updates, tolerances)
    world = DisseminationWorld(
        rates,
        mean_weights(rates),
        draw_span(settings.filter_time, len(nodes), random),
        draw_span(settings.transmit_time, len(nodes), random),
        sites.routes.distance[np.ix_(nodes, nodes)],
    )
    # COSMOS, section 4.4.1: the source is as fast as the fastest node.
    world.filter_seconds[SOURCE] = settings.filter_time[0]
    world.transmit_seconds[SOURCE] = settings.transmit_time[0]
    name = sites.routes.network.sites[source].name
    return DrawnObjects(world, name, providers, updates, tolerances)


def _updates(settings: DisseminationSettings, seed: int) -> Updates | None:
    random = generator(seed, "updates")
    if settings.traces:
        return traced_updates(settings.traces, settings.duration)
    if settings.tolerance is not None:
        return price_walks(settings.objects, settings.duration, random)
    if settings.objects > 1:
        return None
    return poisson_updates(settings.rate[1], settings.duration, random)


def _source(settings: DisseminationSettings, sites: DrawnSites, random: np.random.Generator) -> int:
    """By name, or drawn: a host that is no provider if there is one."""
    network = sites.routes.network
    if settings.source is not None:
        return network.position_of(settings.source)
    taken = set(sites.providers.tolist())
    free = [host for host in network.hosts if host not in taken]
    return int(random.choice(free or list(network.hosts)))


def _wanted(settings: DisseminationSettings, nodes: int, random: np.random.Generator) -> Floats:
    """1 where a node wants an object."""
    return (random.random((nodes, settings.objects)) < settings.interest).astype(np.float64)


def _drawn_rates(
    settings: DisseminationSettings, nodes: int, random: np.random.Generator
) -> Floats:
    wanted = _wanted(settings, nodes, random)
    rates = draw_span(settings.rate, wanted.size, random).reshape(wanted.shape) * wanted
    # Nobody can want more than the source emits.
    rates[SOURCE] = settings.rate[1]
    return rates


def _tolerances(
    settings: DisseminationSettings, nodes: int, random: np.random.Generator
) -> Tolerances | None:
    if settings.tolerance is None:
        return None
    wanted = _wanted(settings, nodes, random)
    tolerances = draw_span(settings.tolerance, wanted.size, random).reshape(wanted.shape)
    tolerances[wanted == 0] = np.nan
    tolerances[SOURCE] = np.nan
    return Tolerances(tolerances)


# ---- trees


def first_tree(policy: str, world: DisseminationWorld, seed: int) -> Indices:
    """The tree with which a policy begins."""
    kind = policy.removesuffix(ADAPTIVE)
    # The same for a policy with and without adaptation.
    random = generator(seed, f"{kind} tree")
    if kind == "greedy":
        return greedy_tree(world)
    if kind == "annealing":
        return annealed_tree(world, random)
    if kind == "dita":
        return best_dita_tree(world)
    return source_based_tree(world) if kind == "source" else random_tree(world, random)


class FollowedTree:
    """A tree through a run: failures change the world it is in, rounds change the tree."""

    def __init__(self, policy: str, objects: DrawnObjects, seed: int) -> None:
        self.objects = objects
        self.tree = DisseminationTree(objects.world, first_tree(policy, objects.world, seed))
        self.adapts = policy.endswith(ADAPTIVE)

    def apply(self, happening: Happening) -> None:
        """Let a failure happen; rates of substreams are not those of objects."""
        if happening.kind is FailureKind.rates:
            return
        for provider in happening.targets.tolist():
            if provider not in self.objects.providers:
                if happening.kind is not FailureKind.slows:
                    raise SimulationError(
                        f"the source of the dissemination, {self.objects.source}, cannot die or "
                        "return; name a source that is no provider, or providers that die"
                    )
                node = SOURCE
            else:
                node = 1 + self.objects.providers.index(provider)
            if happening.kind is FailureKind.slows:
                world = self.tree.world.slowed([node], happening.factor)
                self.tree = DisseminationTree(world, self.tree.parents)
            elif happening.kind is FailureKind.dies:
                self._remove(node)
            else:
                self._join(node)

    def _remove(self, node: int) -> None:
        parents = self.tree.parents
        parents[parents == node] = parents[node]
        parents[node] = ABSENT
        # Without wishes the dead take no part in what the losses and the moves are computed from.
        self.tree = DisseminationTree(self._with_rates(node, 0.0), parents)

    def _join(self, node: int) -> None:
        """From the source down, as long as below a child is cheaper than here."""
        world = self._with_rates(node, 1.0)
        if not world.rates[node].any():
            return
        at, best = SOURCE, self._attached(world, node, SOURCE)
        while True:
            below = [
                (self._attached(world, node, child), child) for child in self.tree.children(at)
            ]
            cheapest = min(below, key=lambda one: one[0].total, default=None)
            if cheapest is None or cheapest[0].total >= best.total:
                self.tree = best
                return
            best, at = cheapest

    def _attached(self, world: DisseminationWorld, node: int, at: int) -> DisseminationTree:
        parents = self.tree.parents
        parents[node] = at
        return DisseminationTree(world, parents)

    def _with_rates(self, node: int, factor: float) -> DisseminationWorld:
        """The world in which a node wants what it wanted at the start, times a factor."""
        rates, weights = self.tree.world.rates.copy(), self.tree.world.weights.copy()
        rates[node] = factor * self.objects.world.rates[node]
        weights[node] = factor * self.objects.world.weights[node]
        return replace(self.tree.world, rates=rates, weights=weights)

    def adapt(self) -> int:
        """One round, if the policy adapts; returns the number of moves."""
        return len(run_round(self.tree)) if self.adapts else 0

    def measure(self, begin: float, end: float, random: np.random.Generator) -> float | None:
        """The loss when the updates of an interval are sent through the tree; queues are empty at its begin."""
        updates = self.objects.updates
        if updates is None or end <= begin:
            return None
        world, parents, tolerances = self.tree.world, self.tree.parents, None
        if self.objects.tolerances is not None:
            values = self.objects.tolerances.values.copy()
            values[parents == ABSENT] = np.nan
            tolerances = Tolerances(values)
        run = simulate_dissemination(
            world,
            parents,
            cut_updates(updates, begin, end),
            random,
            tolerances=tolerances,
            window=end - begin,
        )
        # The simulation counts the absent as well, who lose nothing.
        return run.average * (world.count - 1) / max(len(self.tree.order()) - 1, 1)

    def row(
        self, policy: str, time: float, kind: MomentKind, moved: int, measured: float | None
    ) -> DisseminationRow:
        """What the tree is like now."""
        parents = self.tree.parents
        nodes = len(self.tree.order()) - 1
        found = node_losses(self.tree.world, parents)
        return DisseminationRow(
            policy,
            time,
            kind,
            nodes,
            # The model of an overloaded queue knows no limit, but a share of time has one.
            float(np.minimum(found.loss, 1.0).sum()) / max(nodes, 1),
            measured,
            len(found.overloaded),
            _depth(parents),
            int(self.tree.arrays.child_count.max()),
            moved,
            tuple(parents.tolist()),
        )


def _depth(parents: Indices) -> int:
    depth = {SOURCE: 0}
    for node in tree_order(parents)[1:]:
        depth[node] = depth[int(parents[node])] + 1
    return max(depth.values())


# ---- runs


def run_tree(
    policy: str,
    settings: DisseminationSettings,
    objects: DrawnObjects,
    happenings: Sequence[Happening],
    seed: int,
    report: Callable[[], None] = lambda: None,
) -> list[DisseminationRow]:
    """A row for the start, each failure and each round; `report` is called after each."""
    followed = FollowedTree(policy, objects, seed)
    # From the seed alone: every policy meets the same draws.
    random = generator(seed, "messages")
    rows = []
    moments = list(_moments(settings, happenings))
    ends = [time for time, _, _ in moments[1:]] + [settings.duration]
    for (time, kind, happening), end in zip(moments, ends, strict=True):
        moved = 0
        if happening is not None:
            followed.apply(happening)
        elif kind is MomentKind.round:
            moved = followed.adapt()
        measured = followed.measure(time, end, random)
        rows.append(followed.row(policy, time, kind, moved, measured))
        report()
    return rows


def _moments(
    settings: DisseminationSettings, happenings: Sequence[Happening]
) -> Iterator[tuple[float, MomentKind, Happening | None]]:
    """In the order of time; at equal times failures come before rounds."""
    yield 0.0, MomentKind.start, None
    rounds = [(number * settings.period, None) for number in range(1, settings.rounds + 1)]
    failures = [(one.at, one) for one in happenings if one.at < settings.duration]
    for time, happening in sorted([*failures, *rounds], key=lambda one: (one[0], one[1] is None)):
        yield time, MomentKind.failure if happening else MomentKind.round, happening
