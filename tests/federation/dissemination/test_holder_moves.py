"""The six moves: what a holder may read, what it pays, and that all of them are found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dissemination_worlds import recursive_tree, small_world
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.federation.dissemination import moves as moves_module
from headwater.federation.dissemination.holder_view import HolderView, holder_view
from headwater.federation.dissemination.model import node_losses
from headwater.federation.dissemination.moves import (
    MOVE_NAMES,
    Move,
    adaptation_share,
    list_moves,
    move_count,
    name_move,
    price_move,
    price_moves,
)
from headwater.federation.dissemination.tree import DisseminationTree

SENT = {"nodes", "above", "last_child", "rates", "weights", "largest", "weight_below"}
SENT |= {"filter_seconds", "transmit_seconds", "child_count", "takers", "sent", "delays", "other"}
DERIVED = {"general", "filtered", "loss", "top", "second", "nothing"}


def random_tree(seed: int, nodes: int, objects: int) -> DisseminationTree:
    queue = "M/G/1" if seed % 2 else "M/M/1"
    world = small_world(seed, nodes, objects, queue, slowness=0.002 + (seed % 7) * 0.02)
    return DisseminationTree(world, recursive_tree(seed, nodes))


def wander(seed: int, nodes: int, objects: int, steps: int) -> list[tuple[Move, float, float]]:
    """Random moves with the sum of losses by the definition before and after each."""
    tree, random, made = random_tree(seed, nodes, objects), np.random.default_rng(seed), []
    while len(made) < steps:
        view = holder_view(tree.arrays, int(random.integers(nodes)))
        moves = list_moves(view)
        if not len(moves):
            continue
        row = moves[int(random.integers(len(moves)))]
        move = name_move(view, row, float(price_moves(view, row[None])[0]))
        before = float(node_losses(tree.world, tree.parents).loss.sum())
        tree.reparent(move.new_parents())
        after = float(node_losses(tree.world, tree.parents).loss.sum())
        assert tree.total == pytest.approx(after, rel=1e-12)
        made.append((move, before, after))
    return made


def check_prices(made: list[tuple[Move, float, float]]) -> None:
    for move, before, after in made:
        assert abs(after - before - move.price) <= 1e-12 * max(1.0, before, after), move.name


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(4, 24), st.integers(1, 4))
def test_a_price_is_what_computing_the_whole_tree_again_gives(
    seed: int, nodes: int, objects: int
) -> None:
    check_prices(wander(seed, nodes, objects, 5))


@pytest.mark.long
def test_thousands_of_moves_of_all_six_kinds() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(70):
        made = wander(seed, 12 + seed % 20, 1 + seed % 3, 30)
        check_prices(made)
        kinds.update(move.name for move, _, _ in made)
    assert set(kinds) == set(MOVE_NAMES)
    assert min(kinds.values()) >= 30


class GuardedDelays:
    """Delays that may only be asked from the holder and its children."""

    def __init__(self, view: HolderView) -> None:
        self.delays, self.last = view.delays, view.last_child

    def __getitem__(self, pair: tuple[int, int]) -> float:
        start, end = pair
        if start > self.last or start == end:
            raise AssertionError(f"the delay from {start} to {end} was not sent")
        value = float(self.delays[start, end])
        assert not np.isnan(value)
        return value


class GuardedView:
    """A view that raises on everything that a holder was not sent."""

    def __init__(self, view: HolderView) -> None:
        self.view, self.read = view, set[str]()

    def __getattr__(self, name: str) -> Any:
        if name not in SENT | DERIVED:
            raise AssertionError(f"{name} was not sent")
        self.read.add(name)
        return GuardedDelays(self.view) if name == "delays" else getattr(self.view, name)


def test_a_price_needs_only_what_was_sent() -> None:
    assert set(HolderView._fields) == SENT | DERIVED
    tree = random_tree(3, 20, 2)
    for holder in (0, 1, 2):
        view = holder_view(tree.arrays, holder)
        known = {holder, *tree.children(holder)}
        known |= {node for child in tree.children(holder) for node in tree.children(child)}
        assert set(view.nodes.tolist()) == known
        moves = list_moves(view)
        guarded: Any = GuardedView(view)
        plain = np.array([price_move(guarded, *row) for row in moves.tolist()])
        assert plain.tobytes() == price_moves(view, moves).tobytes()
        with pytest.raises(AssertionError, match="not sent"):
            guarded.delays[view.last_child + 1, 1]
        with pytest.raises(AssertionError, match="not sent"):
            _ = guarded.parent


def test_grandchildren_send_no_delays() -> None:
    view = holder_view(random_tree(3, 20, 1).arrays, 0)
    assert np.isnan(view.delays[view.last_child + 1 :]).all()
    assert not np.isnan(view.delays[: view.last_child + 1]).any()


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 20))
def test_all_moves_are_listed_once(seed: int, nodes: int) -> None:
    tree = random_tree(seed, nodes, 1)
    for holder in range(nodes):
        view = holder_view(tree.arrays, holder)
        children = range(1, view.last_child + 1)
        inner = range(view.last_child + 1, len(view.nodes))
        above = view.above.tolist()
        expected = {(moves_module.DEMOTION, i, j) for i in children for j in children if i != j}
        expected |= {(moves_module.PROMOTION, i, above[i]) for i in inner}
        expected |= {(moves_module.PARENT_SWAP, i, above[i]) for i in inner}
        for kind in (moves_module.ADOPTION, moves_module.UNCLE_SWAP):
            expected |= {(kind, i, h) for i in inner for h in children if h != above[i]}
        expected |= {
            (moves_module.COUSIN_SWAP, i, j)
            for i in inner
            for j in inner
            if i < j and above[i] != above[j]
        }
        listed = [tuple(row) for row in list_moves(view).tolist()]
        assert len(listed) == len(set(listed))
        assert set(listed) == expected


def test_four_children_with_three_each_have_162_moves() -> None:
    assert move_count(4, [3, 3, 3, 3]) == 162
    # One decision a second of 1 ms and 16 nodes to hear of, 1 ms each every 2 s.
    assert adaptation_share(4, [3] * 4, 1e-3, 1e-3, 1.0, 2.0) == pytest.approx(0.162 + 0.008)


def test_a_node_gets_no_place_below_itself() -> None:
    tree = random_tree(5, 10, 1)
    inner = next(node for node in range(1, 10) if tree.arrays.child_count[node])
    with pytest.raises(PlanError, match="below"):
        tree.reparent({inner: next(tree.children(inner))})
    with pytest.raises(PlanError, match="other than the source"):
        tree.reparent({0: 1})
