"""Candidates of the compiled simulators, and the choice among them by a policy.

A slot is a queue as the policy sees it: its static priority, and since when its oldest tuple has waited
(infinity if there is none). Slots are numbered in descending priority and compete in a tournament: a
binary tree in which every node stores its winner, and until when that is certain. Ranks grow along
straight lines, so that time is where the line of a loser that grows faster crosses the winner's.
A change costs one path, a choice only the nodes whose time has come; it is the choice that
comparing all slots would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater.jit import cached_njit
from headwater.schedule import Candidate, Policy
from headwater.schedule.policies import Growth
from headwater.sim.metrics import Floats, Ints

NONE, WAIT, TURNS = range(3)
_GROWTH = {Growth.none: NONE, Growth.wait: WAIT, Growth.turns: TURNS}

_ROUNDING = 1e-14
"""More than all that rounding can do to a crossing, relative to it."""


SLOT, STATIC_PRIORITY, SINCE, UNTIL = range(4)


class Slots(NamedTuple):
    """Queues of waiting tuples, the highest static priority first, and the tournament over them.

    A row of `tree` is a node: the slot that wins it, the priority of that slot, since when it waits, and
    until when it is certain to win. The node n has the children 2n and 2n + 1, which lie side by
    side; the last `leaves` nodes are the slots. `initial_wait` is the wait that tuples have in advance,
    `due` scratch space for the nodes to settle.
    """

    growth: int
    leaves: int
    initial_wait: Floats
    tree: Floats
    due: Ints


def build_slots(policy: Policy, candidates: Sequence[Candidate]) -> tuple[Slots, Ints]:
    """Empty slots for the candidates, and the candidate of each slot."""
    priorities = np.array([policy.static_priority(candidate) for candidate in candidates])
    order = np.argsort(-priorities, kind="stable").astype(np.int64)
    # A power of two, so that children are 2n and 2n + 1; leaves beyond the candidates stay empty.
    leaves = 1 << max(1, (len(candidates) - 1).bit_length())
    slots = Slots(
        growth=_GROWTH[policy.growth],
        leaves=leaves,
        initial_wait=np.array([policy.initial_wait(candidates[position]) for position in order]),
        tree=np.full((2 * leaves, 4), np.inf),
        due=np.zeros(leaves, np.int64),
    )
    slots.tree[leaves:, SLOT] = np.arange(leaves)
    slots.tree[leaves:, STATIC_PRIORITY] = 0.0
    slots.tree[leaves : leaves + len(order), STATIC_PRIORITY] = priorities[order]
    settle_all(slots, 0.0)
    return slots, order


def initial_turns(count: int) -> Floats:
    """Turns as if all had been served before, in their order."""
    return np.arange(-count, 0, dtype=np.float64)


@cached_njit
def effective_since(slots: Slots, slot: int, arrived: float, served: float) -> float:
    """What a tuple waits by: since when, or where turns count, when its query last ran."""
    return served if slots.growth == TURNS else arrived - slots.initial_wait[slot]


@cached_njit
def update_slot(slots: Slots, slot: int, since: float, now: float) -> None:
    """Let the oldest tuple of a slot be one that has waited since then; infinity: there is none."""
    growth, tree, node = slots.growth, slots.tree, slots.leaves + slot
    before = tree[node, SINCE]
    tree[node, SINCE] = since
    # The rank does not depend on the wait: only becoming empty or non-empty changes a winner.
    if growth == NONE and before < np.inf and since < np.inf:
        return
    node >>= 1
    while node:
        _settle(growth, tree, node, now)
        node >>= 1


@cached_njit
def set_since(slots: Slots, slot: int, since: float) -> None:
    """The same for one of many slots, before `settle_all`."""
    slots.tree[slots.leaves + slot, SINCE] = since


@cached_njit
def settle_all(slots: Slots, now: float) -> None:
    """Play the whole tournament again."""
    growth, tree = slots.growth, slots.tree
    # Descending numbers: children are settled before their parents.
    for node in range(slots.leaves - 1, 0, -1):
        _settle(growth, tree, node, now)


@cached_njit
def pick_slot(slots: Slots, now: float) -> int:
    """The slot of the highest rank, the first one of equals; -1 if all are empty."""
    tree = slots.tree
    if tree[1, UNTIL] <= now:
        _settle_due(slots.growth, tree, slots.due, now)
    return int(tree[1, SLOT]) if tree[1, SINCE] < np.inf else -1


@cached_njit
def _settle_due(growth: int, tree: Floats, due: Ints, now: float) -> None:
    """Settle the nodes that are no longer certain, the lowest ones first."""
    due[0] = 1
    count, at = 1, 0
    while at < count:
        for child in (2 * due[at], 2 * due[at] + 1):
            if tree[child, UNTIL] <= now:
                due[count] = child
                count += 1
        at += 1
    for position in range(count - 1, -1, -1):
        _settle(growth, tree, due[position], now)


@cached_njit
def _settle(growth: int, tree: Floats, node: int, now: float) -> None:
    """The winner of a node. The left one has the higher priority: it wins a tie, and only it can overtake."""
    left, right = 2 * node, 2 * node + 1
    first, second = tree[left, SINCE], tree[right, SINCE]
    certain = min(tree[left, UNTIL], tree[right, UNTIL])
    best = left
    if first == np.inf:
        best = right
    elif growth == TURNS:
        if second < first:
            best = right
    elif growth == WAIT and second < np.inf:
        fast, slow = tree[left, STATIC_PRIORITY], tree[right, STATIC_PRIORITY]
        if slow * (now - second) > fast * (now - first):
            best = right
            if fast > slow:
                inverse = 1.0 / (fast - slow)
                crossing = (fast * first - slow * second) * inverse
                # A node settled too early is settled again, one settled too late would choose
                # wrongly: so the crossing is moved forward by what rounding can do.
                slack = _ROUNDING * fast * inverse * (abs(crossing) + now)
                certain = min(certain, crossing - slack)
    tree[node, SLOT] = tree[best, SLOT]
    tree[node, STATIC_PRIORITY] = tree[best, STATIC_PRIORITY]
    tree[node, SINCE] = tree[best, SINCE]
    tree[node, UNTIL] = certain
