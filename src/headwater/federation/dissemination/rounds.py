"""Rounds of adaptation: a token goes down the tree, and every holder makes its best move if that pays.

A holder decides from its view alone. One move a token, then a copy of the token to every child that has children. This
is the order of things without the messages; `protocol` has what keeps holders apart.
"""

from __future__ import annotations

from headwater.federation.dissemination.holder_view import HOLDER, HolderView, holder_view
from headwater.federation.dissemination.model import SOURCE
from headwater.federation.dissemination.moves import Move, best_move
from headwater.federation.dissemination.tree import DisseminationTree

WORTHWHILE = 0.01
"""A move has to save this share of what its holder can influence, so that noise moves nothing."""

ROUNDING = 1e-11
"""A smaller share may be an error of rounding."""


def holder_share(view: HolderView) -> float:
    """The part of the loss that a holder can influence: of its links and of its and its children's processing."""
    last = view.last_child
    links = float((view.weight_below[1 : last + 1] * view.delays[HOLDER, 1 : last + 1]).sum())
    return links + float(view.loss[: last + 1].sum())


def chosen_move(view: HolderView, worthwhile: float = 0.0) -> Move | None:
    """The best move of a holder, if it lowers the loss by more than that share of what the holder influences."""
    move = best_move(view)
    if move is None or -move.price <= max(worthwhile, ROUNDING) * holder_share(view):
        return None
    return move


def run_round(
    tree: DisseminationTree, worthwhile: float = 0.0, moves_per_token: int = 1
) -> list[Move]:
    """Send a token down the tree; returns the moves in their order."""
    made, holders = [], [SOURCE]
    # The list grows while it is walked, which sends tokens down level by level.
    for holder in holders:
        for _ in range(moves_per_token):
            move = chosen_move(holder_view(tree.arrays, holder), worthwhile)
            if move is None:
                break
            tree.reparent(move.new_parents())
            made.append(move)
        # After the moves: whoever has become a child gets its token here, and nobody gets two.
        holders += [child for child in tree.children(holder) if tree.arrays.child_count[child]]
    return made
