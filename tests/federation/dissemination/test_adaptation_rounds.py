"""Rounds of adaptation: the loss never rises, it comes to rest, and trees of several objects count each other."""

from __future__ import annotations

import numpy as np
import pytest
from dissemination_worlds import recursive_tree, small_world
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.dissemination.annealing import AnnealingSettings
from headwater.federation.dissemination.construction import random_tree
from headwater.federation.dissemination.forest import (
    Forest,
    annealed_forest,
    object_worlds,
    run_forest_round,
)
from headwater.federation.dissemination.holder_view import holder_view
from headwater.federation.dissemination.model import ABSENT, node_losses, tree_order
from headwater.federation.dissemination.moves import list_moves, price_moves
from headwater.federation.dissemination.reports import ReportedTree
from headwater.federation.dissemination.rounds import run_round
from headwater.federation.dissemination.tree import DisseminationTree


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(3, 25), st.integers(1, 3))
def test_every_move_lowers_the_loss_by_its_price(seed: int, nodes: int, objects: int) -> None:
    tree = DisseminationTree(small_world(seed, nodes, objects), recursive_tree(seed, nodes))
    for _ in range(3):
        before = node_losses(tree.world, tree.parents).loss.sum()
        made = run_round(tree)
        after = node_losses(tree.world, tree.parents).loss.sum()
        assert all(move.price < 0 for move in made)
        assert after - before == pytest.approx(sum(move.price for move in made), abs=1e-12)


def test_a_stationary_world_comes_to_rest_where_no_move_pays() -> None:
    tree = DisseminationTree(small_world(7, 30), recursive_tree(7, 30))
    first = tree.total
    rounds = 0
    while run_round(tree):
        rounds += 1
        assert rounds < 200
    assert tree.total < first
    for holder in tree.order():
        view = holder_view(tree.arrays, holder)
        prices = price_moves(view, list_moves(view))
        assert not len(prices) or prices.min() >= -1e-12
    assert run_round(tree) == []


def test_one_move_a_token_and_tokens_only_for_parents() -> None:
    tree = DisseminationTree(small_world(7, 30), recursive_tree(7, 30))
    holders = [move.holder for move in run_round(tree)]
    assert len(holders) == len(set(holders)) > 1
    tree = DisseminationTree(small_world(7, 30), recursive_tree(7, 30))
    many = [move.holder for move in run_round(tree, moves_per_token=5)]
    assert len(many) > len(set(many))


def test_a_small_benefit_is_not_worth_a_move() -> None:
    tree = DisseminationTree(small_world(7, 30), recursive_tree(7, 30))
    assert run_round(tree, worthwhile=1.0) == []


def forest_loss(forest: Forest) -> float:
    """The sum of losses of a forest by the definition: queues of nodes over all trees, delays of each."""
    world, items = forest.world, range(len(forest.trees))
    largest, children = [], []
    for tree in forest.trees:
        rates, parents = tree.world.rates[:, 0].copy(), tree.parents
        for node in reversed(tree_order(parents)[1:]):
            rates[parents[node]] = max(rates[parents[node]], rates[node])
        largest.append(rates)
        children.append({k: np.flatnonzero(parents == k) for k in range(world.count)})
    tp, tc = world.filter_seconds, world.transmit_seconds
    total = 0.0

    def service(item: int, node: int) -> float:
        below = children[item][node]
        return len(below) * tp[node] + tc[node] * largest[item][below].sum() / largest[item][node]

    def queue(node: int) -> float:
        used = [item for item in items if len(children[item][node])]
        load = sum(largest[item][node] * service(item, node) for item in used)
        arrivals = sum(largest[item][node] for item in used)
        assert load < 0.99
        return load * load / arrivals / (1 - load)

    for item, tree in enumerate(forest.trees):
        parents, delay = tree.parents, np.zeros(world.count)
        for node in tree_order(parents)[1:]:
            up = parents[node]
            count = len(children[item][up])
            inside = queue(up) + service(item, up) / 2 * (1 - 1 / count) + tp[up] + tc[up]
            delay[node] = delay[up] + inside + world.delays[up, node]
        total += float((tree.world.weights * delay).sum())
    return total


def drawn_forest(seed: int, nodes: int = 12, objects: int = 4, slowness: float = 0.01) -> Forest:
    random = np.random.default_rng(seed)
    world = small_world(seed, nodes, objects, slowness=slowness)
    return Forest(world, lambda one: random_tree(one, random))


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_trees_that_count_each_other_never_raise_the_loss_of_all(seed: int) -> None:
    forest = drawn_forest(seed)
    for tree, one in zip(forest.trees, object_worlds(forest.world), strict=True):
        assert ((tree.parents == ABSENT) == (one.rates[:, 0] == 0)).all()
    total = forest.average_loss * (forest.world.count - 1)
    assert total == pytest.approx(forest_loss(forest), rel=1e-12)
    for item in range(len(forest.trees)):
        made = run_round(forest.focus(item))
        forest.absorb(item)
        after = forest.average_loss * (forest.world.count - 1)
        assert after - total == pytest.approx(sum(move.price for move in made), abs=1e-11)
        total = after


def test_trees_that_do_not_count_each_other_can_raise_the_loss_of_all() -> None:
    """Where trees that do are at rest, trees that do not move on."""
    rises = 0
    for seed in range(10):
        forest = drawn_forest(seed, slowness=0.04)
        while run_forest_round(forest):
            pass
        before = forest.average_loss
        for item, tree in enumerate(forest.trees):
            tree.arrays.other[:] = 0.0
            tree.rebuild()
            run_round(tree)
            forest.absorb(item)
        rises += forest.average_loss > before
    assert rises > 0


@pytest.mark.long
def test_annealing_a_forest_beats_rounds_of_its_start() -> None:
    few = AnnealingSettings(trials=8, cooling=0.7)
    forest = drawn_forest(3, nodes=8, objects=2)
    while run_forest_round(forest):
        pass
    annealed = annealed_forest(forest.world, np.random.default_rng(1), few)
    assert annealed.average_loss <= forest.average_loss * (1 + 1e-9)
    assert annealed.average_loss == pytest.approx(
        forest_loss(annealed) / (forest.world.count - 1), rel=1e-12
    )


def test_reports_send_what_has_left_the_band_and_nothing_else() -> None:
    world, parents = small_world(1, 20), recursive_tree(1, 20)
    reported = ReportedTree(world, parents)
    assert reported.report(world) == 0
    slightly = world.slowed([3], 1.19)
    assert reported.report(slightly) == 0
    assert reported.tree.arrays.filter_seconds[3] == world.filter_seconds[3]
    clearly = world.slowed([3], 1.21)
    assert reported.report(clearly) == 2
    assert reported.tree.arrays.filter_seconds[3] == clearly.filter_seconds[3]
    assert world.filter_seconds[3] != clearly.filter_seconds[3]


def test_reports_of_everything_give_the_exact_tree() -> None:
    old, new, parents = small_world(1, 20, 2), small_world(2, 20, 2), recursive_tree(1, 20)
    reported = ReportedTree(old, parents)
    assert reported.report(new, tolerance=0.0) > 0
    exact = DisseminationTree(new, parents).arrays
    for name in ("rates", "largest", "weight_below", "takers", "sent", "filtered", "arrivals"):
        assert getattr(reported.tree.arrays, name) == pytest.approx(getattr(exact, name)), name
