"""Dissemination in a world: trees of several policies, followed through failures and rounds of adaptation.

The loss of fidelity is that of the model of `federation.dissemination`, for all objects in one tree. The
tree itself survives failures under every policy: children of a dead provider go to its parent, and one that
returns joins where it costs least on its way down from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headwater.errors import SimulationError
from headwater.federation.dissemination.annealing import annealed_tree
from headwater.federation.dissemination.coherency import forwarded_updates
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
from headwater.sim.worlds.draw import DrawnSites, Happening, draw_span, generator
from headwater.sim.worlds.model import DisseminationSettings, FailureKind
from headwater.sim.worlds.timeline import MomentKind

ADAPTIVE = "+adaptive"


@dataclass(frozen=True, eq=False)
class DrawnObjects:
    """The source and the other nodes of a run; node n is provider `providers[n - 1]`."""

    world: DisseminationWorld
    source: str
    providers: tuple[int, ...]


@dataclass(frozen=True)
class DisseminationRow:
    """What a tree is like after a moment; `loss` is the mean over the nodes that live and want something."""

    policy: str
    time: float
    kind: MomentKind
    nodes: int
    loss: float
    overloaded: int
    depth: int
    fanout: int
    moved: int
    parents: tuple[int, ...]


# ---- what is drawn


def draw_objects(settings: DisseminationSettings, sites: DrawnSites, seed: int) -> DrawnObjects:
    """Who wants how much of which object, and how fast each node is."""
    random = generator(seed, "dissemination")
    source = _source(settings, sites, random)
    providers = tuple(at for at, site in enumerate(sites.providers) if site != source)
    if not providers:
        raise SimulationError("a dissemination needs a provider beside the source")
    nodes = [source, *(int(sites.providers[at]) for at in providers)]
    draw = _traced_rates if settings.traces else _drawn_rates
    rates = draw(settings, len(nodes), random)
    world = DisseminationWorld(
        rates,
        mean_weights(rates),
        draw_span(settings.filter_time, len(nodes), random),
        draw_span(settings.transmit_time, len(nodes), random),
        sites.routes.distance[np.ix_(nodes, nodes)],
    )
    world.filter_seconds[SOURCE] = settings.filter_time[0]
    world.transmit_seconds[SOURCE] = settings.transmit_time[0]
    return DrawnObjects(world, sites.routes.network.sites[source].name, providers)


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
    rates[SOURCE] = settings.rate[1]
    return rates


def _traced_rates(
    settings: DisseminationSettings, nodes: int, random: np.random.Generator
) -> Floats:
    """Updates a second that a node must get of each trace to stay in its tolerance."""
    rates = _wanted(settings, nodes, random)
    tolerances = draw_span(settings.tolerance, rates.size, random).reshape(rates.shape)
    # The source has every change of the value.
    tolerances[SOURCE], rates[SOURCE] = 0.0, 1.0
    for item, trace in enumerate(settings.traces):
        values = trace.values[trace.times < settings.duration]
        for node in np.flatnonzero(rates[:, item]):
            sent = forwarded_updates(values, tolerances[node, item])
            rates[node, item] = sent.sum() / settings.duration
    return rates


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
        """One round, if the policy adapts; returns how many moves were made."""
        return len(run_round(self.tree)) if self.adapts else 0

    def row(self, policy: str, time: float, kind: MomentKind, moved: int) -> DisseminationRow:
        """What the tree is like now."""
        parents = self.tree.parents
        nodes = len(self.tree.order()) - 1
        return DisseminationRow(
            policy,
            time,
            kind,
            nodes,
            self.tree.total / max(nodes, 1),
            len(node_losses(self.tree.world, parents).overloaded),
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
    rows = []
    for time, kind, happening in _moments(settings, happenings):
        moved = 0
        if happening is not None:
            followed.apply(happening)
        elif kind is MomentKind.round:
            moved = followed.adapt()
        rows.append(followed.row(policy, time, kind, moved))
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
