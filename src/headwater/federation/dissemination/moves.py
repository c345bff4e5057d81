"""The six moves by which a dissemination tree adapts, each priced from what a holder of the token was sent.

A holder knows its children and grandchildren. Every move keeps the set of nodes below the holder, so that nothing above it
changes, and what it changes is a few links and the loads of the holder and at most two others. A price is the
rise of the sum of losses, exactly as if the whole tree were computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable

from headwater.federation.dissemination.holder_view import HOLDER, HolderView
from headwater.federation.dissemination.model import Floats, Indices
from headwater.federation.dissemination.node_loss import node_loss
from headwater.jit import cached_njit

PROMOTION, DEMOTION, PARENT_SWAP, COUSIN_SWAP, ADOPTION, UNCLE_SWAP = range(6)
MOVE_NAMES = (
    "promotion",
    "demotion",
    "parent-child swap",
    "cousin swap",
    "nephew adoption",
    "uncle-nephew swap",
)


@dataclass(frozen=True)
class Move:
    """A move of a holder by the names of nodes; `price` is the rise of the sum of losses."""

    kind: int
    holder: int
    node: int
    partner: int
    """The sibling, cousin or uncle; the parent where there is no other partner."""
    parent: int
    """The parent of the node before the move."""
    partner_parent: int
    price: float

    @property
    def name(self) -> str:
        """What people call the move."""
        return MOVE_NAMES[self.kind]

    def new_parents(self) -> dict[int, int]:
        """Who gets which parent, in an order in which no node is put below itself."""
        if self.kind == PROMOTION:
            return {self.node: self.holder}
        if self.kind in (DEMOTION, ADOPTION):
            return {self.node: self.partner}
        if self.kind == PARENT_SWAP:
            return {self.node: self.holder, self.parent: self.node}
        return {self.node: self.partner_parent, self.partner: self.parent}


@register_jitable
def changed_loss(
    view: HolderView,
    node: int,
    largest: Any,
    lost: Any,
    lost_too: Any,
    gained: Any,
    gained_too: Any,
    children: int,
    weight_below: float,
) -> float:
    """The rise of what a node adds if it has these effective rates, number of children and weight below, and
    loses and gains children of these effective rates."""
    arrivals, filtered, sent = 0.0, 0.0, view.sent[node]
    for item in range(len(largest)):
        takers = view.takers[node, item]
        takers += int(gained[item] > 0.0) + int(gained_too[item] > 0.0)
        takers -= int(lost[item] > 0.0) + int(lost_too[item] > 0.0)
        arrivals += largest[item]
        filtered += largest[item] * takers
        sent += gained[item] + gained_too[item] - lost[item] - lost_too[item]
    after = node_loss(
        children,
        filtered,
        sent,
        arrivals,
        max(weight_below - view.weights[node], 0.0),
        view.filter_seconds[node],
        view.transmit_seconds[node],
        view.other[node, 0],
        view.other[node, 1],
        view.other[node, 2],
        view.other[node, 3],
        view.general,
    )
    return after - view.loss[node]


@register_jitable
def rates_without(view: HolderView, at: int, node: int) -> Any:
    """The effective rates of a child when one of its children has left."""
    rates = np.empty(view.rates.shape[1])
    for item in range(len(rates)):
        # Two children with the largest rate leave the second equal to the first: then nothing
        # falls.
        is_top = view.largest[node, item] >= view.top[at, item]
        rates[item] = view.second[at, item] if is_top else view.top[at, item]
    return rates


@register_jitable
def rates_with(rates: Any, more: Any) -> Any:
    """The effective rates of a node when a child of these rates has come."""
    result = np.empty(len(rates))
    for item in range(len(rates)):
        result[item] = max(rates[item], more[item])
    return result


@register_jitable
def price_promotion(view: HolderView, node: int, partner: int) -> float:
    """A grandchild becomes a child."""
    at = view.above[node]
    weight, delays, none = view.weight_below[node], view.delays, view.nothing
    rest = rates_without(view, at, node)
    # The weight after the move. The printed formula keeps the old one, and so counts the promoted
    # subtree twice (COSMOS, section 4.2.2).
    left = view.weight_below[at] - weight
    change = weight * (delays[HOLDER, node] - delays[at, node] - delays[HOLDER, at])
    change += changed_loss(
        view, at, rest, view.largest[node], none, none, none, view.child_count[at] - 1, left
    )
    return change + changed_loss(
        view,
        HOLDER,
        view.largest[HOLDER],
        view.largest[at],
        none,
        rest,
        view.largest[node],
        view.child_count[HOLDER] + 1,
        view.weight_below[HOLDER],
    )


@register_jitable
def price_demotion(view: HolderView, node: int, partner: int) -> float:
    """A child becomes the child of a sibling."""
    weight, delays, none = view.weight_below[node], view.delays, view.nothing
    grown = rates_with(view.largest[partner], view.largest[node])
    right = view.weight_below[partner] + weight
    change = weight * (delays[partner, node] + delays[HOLDER, partner] - delays[HOLDER, node])
    change += changed_loss(
        view,
        partner,
        grown,
        none,
        none,
        view.largest[node],
        none,
        view.child_count[partner] + 1,
        right,
    )
    return change + changed_loss(
        view,
        HOLDER,
        view.largest[HOLDER],
        view.largest[node],
        view.largest[partner],
        grown,
        none,
        view.child_count[HOLDER] - 1,
        view.weight_below[HOLDER],
    )


@register_jitable
def price_parent_swap(view: HolderView, node: int, partner: int) -> float:
    """A grandchild and its parent change places; their other children stay with them."""
    at = view.above[node]
    weight, delays, none = view.weight_below[node], view.delays, view.nothing
    rest, both = rates_without(view, at, node), view.weight_below[at]
    # The delay between the two is the same both ways.
    between = delays[at, node]
    change = both * (delays[HOLDER, node] - delays[HOLDER, at])
    change += (both - weight) * between - weight * between
    change += changed_loss(
        view,
        at,
        rest,
        view.largest[node],
        none,
        none,
        none,
        view.child_count[at] - 1,
        both - weight,
    )
    return change + changed_loss(
        view, node, view.largest[at], none, none, rest, none, view.child_count[node] + 1, both
    )


@register_jitable
def price_cousin_swap(view: HolderView, node: int, partner: int) -> float:
    """Two grandchildren with different parents exchange these."""
    one, two = view.above[node], view.above[partner]
    delays, none = view.delays, view.nothing
    ours, theirs = view.weight_below[node], view.weight_below[partner]
    first = rates_with(rates_without(view, one, node), view.largest[partner])
    other = rates_with(rates_without(view, two, partner), view.largest[node])
    change = ours * (delays[two, node] - delays[one, node])
    change += theirs * (delays[one, partner] - delays[two, partner])
    change += (theirs - ours) * (delays[HOLDER, one] - delays[HOLDER, two])
    change += changed_loss(
        view,
        one,
        first,
        view.largest[node],
        none,
        view.largest[partner],
        none,
        view.child_count[one],
        view.weight_below[one] - ours + theirs,
    )
    change += changed_loss(
        view,
        two,
        other,
        view.largest[partner],
        none,
        view.largest[node],
        none,
        view.child_count[two],
        view.weight_below[two] - theirs + ours,
    )
    return change + changed_loss(
        view,
        HOLDER,
        view.largest[HOLDER],
        view.largest[one],
        view.largest[two],
        first,
        other,
        view.child_count[HOLDER],
        view.weight_below[HOLDER],
    )


@register_jitable
def price_adoption(view: HolderView, node: int, partner: int) -> float:
    """A child takes over a child of its sibling."""
    at = view.above[node]
    weight, delays, none = view.weight_below[node], view.delays, view.nothing
    rest = rates_without(view, at, node)
    grown = rates_with(view.largest[partner], view.largest[node])
    change = weight * (delays[partner, node] + delays[HOLDER, partner])
    change -= weight * (delays[at, node] + delays[HOLDER, at])
    change += changed_loss(
        view,
        at,
        rest,
        view.largest[node],
        none,
        none,
        none,
        view.child_count[at] - 1,
        view.weight_below[at] - weight,
    )
    change += changed_loss(
        view,
        partner,
        grown,
        none,
        none,
        view.largest[node],
        none,
        view.child_count[partner] + 1,
        view.weight_below[partner] + weight,
    )
    return change + changed_loss(
        view,
        HOLDER,
        view.largest[HOLDER],
        view.largest[at],
        view.largest[partner],
        rest,
        grown,
        view.child_count[HOLDER],
        view.weight_below[HOLDER],
    )


@register_jitable
def price_uncle_swap(view: HolderView, node: int, partner: int) -> float:
    """A grandchild and a sibling of its parent change places."""
    at = view.above[node]
    delays, none = view.delays, view.nothing
    ours, theirs = view.weight_below[node], view.weight_below[partner]
    mixed = rates_with(rates_without(view, at, node), view.largest[partner])
    change = ours * (delays[HOLDER, node] - delays[at, node])
    change += theirs * (delays[at, partner] - delays[HOLDER, partner])
    change += (theirs - ours) * delays[HOLDER, at]
    change += changed_loss(
        view,
        at,
        mixed,
        view.largest[node],
        none,
        view.largest[partner],
        none,
        view.child_count[at],
        view.weight_below[at] - ours + theirs,
    )
    return change + changed_loss(
        view,
        HOLDER,
        view.largest[HOLDER],
        view.largest[at],
        view.largest[partner],
        mixed,
        view.largest[node],
        view.child_count[HOLDER],
        view.weight_below[HOLDER],
    )


@register_jitable
def price_move(view: HolderView, kind: int, node: int, partner: int) -> float:
    """The rise of the sum of losses by a move, by positions in the view."""
    if kind == PROMOTION:
        price = price_promotion(view, node, partner)
    elif kind == DEMOTION:
        price = price_demotion(view, node, partner)
    elif kind == PARENT_SWAP:
        price = price_parent_swap(view, node, partner)
    elif kind == COUSIN_SWAP:
        price = price_cousin_swap(view, node, partner)
    elif kind == ADOPTION:
        price = price_adoption(view, node, partner)
    else:
        price = price_uncle_swap(view, node, partner)
    return price


@register_jitable
def fill_moves(above: Any, last: int, moves: Any) -> None:
    """All moves of a holder as rows of kind, node and partner."""
    at, count = 0, len(above)
    for node in range(1, last + 1):
        for partner in range(1, last + 1):
            if node != partner:
                moves[at, 0], moves[at, 1], moves[at, 2] = DEMOTION, node, partner
                at += 1
    for node in range(last + 1, count):
        for kind in (PROMOTION, PARENT_SWAP):
            moves[at, 0], moves[at, 1], moves[at, 2] = kind, node, above[node]
            at += 1
        for partner in range(1, last + 1):
            if partner != above[node]:
                for kind in (ADOPTION, UNCLE_SWAP):
                    moves[at, 0], moves[at, 1], moves[at, 2] = kind, node, partner
                    at += 1
        # An exchange is the same seen from either side; equation (4.7) counts it twice.
        for partner in range(node + 1, count):
            if above[partner] != above[node]:
                moves[at, 0], moves[at, 1], moves[at, 2] = COUSIN_SWAP, node, partner
                at += 1


@cached_njit
def _fill_moves(above: Any, last: Any, moves: Any) -> None:
    fill_moves(above, last, moves)


@cached_njit
def _price_moves(view: Any, moves: Any) -> Any:
    prices = np.empty(len(moves))
    for at in range(len(moves)):
        prices[at] = price_move(view, moves[at, 0], moves[at, 1], moves[at, 2])
    return prices


def move_count(children: int, grandchildren: list[int]) -> int:
    """How many moves a holder has, by the number of its children and the numbers of theirs."""
    total = sum(grandchildren)
    cousins = sum(own * (total - own) for own in grandchildren) // 2
    return 2 * total + children * (children - 1) + cousins + 2 * total * max(children - 1, 0)


def list_moves(view: HolderView) -> Indices:
    """All moves of a holder, as rows of kind, node and partner by positions in its view."""
    counts = view.child_count[1 : view.last_child + 1].tolist()
    moves = np.empty((move_count(view.last_child, counts), 3), np.int64)
    _fill_moves(view.above, view.last_child, moves)
    return moves


def price_moves(view: HolderView, moves: Indices) -> Floats:
    """The prices of moves."""
    prices: Floats = _price_moves(view, moves)
    return prices


def best_move(view: HolderView) -> Move | None:
    """The move of the lowest price, the first of equals; None if there is no move at all."""
    moves = list_moves(view)
    if not len(moves):
        return None
    prices = price_moves(view, moves)
    at = int(prices.argmin())
    return name_move(view, moves[at], float(prices[at]))


def name_move(view: HolderView, row: Indices, price: float) -> Move:
    """A row of `list_moves` by the names of the nodes."""
    kind, node, partner = (int(value) for value in row)
    names = view.nodes.tolist()
    above, partner_above = names[view.above[node]], names[view.above[partner]]
    return Move(kind, names[HOLDER], names[node], names[partner], above, partner_above, price)


def adaptation_share(
    children: int,
    grandchildren: list[int],
    decide_seconds: float,
    collect_seconds: float,
    decide_period: float,
    collect_period: float,
) -> float:
    """The share of its time that a holder spends on adaptation: it is capacity that dissemination does not get."""
    known = children + sum(grandchildren)
    # Equation (4.7) adds this to a delay in seconds, though it has no unit.
    collecting = collect_seconds / collect_period * known
    return collecting + decide_seconds / decide_period * move_count(children, grandchildren)
