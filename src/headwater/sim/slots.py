"""Candidates of the compiled simulators, and the choice among them by a policy.

A slot is a place where tuples wait: its standing under the policy, and since when its oldest tuple has
waited (infinity if there is none). Slots are numbered in descending standing and meet in a tournament:
a binary tree whose every node knows its winner, and until when that is certain. Ranks grow along
straight lines, so that time is where the line of a loser that grows faster crosses the winner's.
A change costs one path, a choice only the nodes whose time has come; it is the choice that
comparing all slots would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater.schedule import Policy, Waiting
from headwater.schedule.policies import Growth
from headwater.sim.compiled import compiled
from headwater.sim.metrics import Floats, Ints

NONE, WAIT, TURNS = range(3)
_GROWTH = {Growth.none: NONE, Growth.wait: WAIT, Growth.turns: TURNS}

_ROUNDING = 1e-14
"""More than all that rounding can do to a crossing, relative to it."""


class Slots(NamedTuple):
    """Places where tuples wait, the best standing first, and the tournament over them.

    The node n has the children 2n and 2n + 1; the last `leaves` nodes are the slots. `early` is the wait that
    tuples have in advance, `due` room for the nodes to settle.
    """

    growth: int
    leaves: int
    standing: Floats
    early: Floats
    since: Floats
    winner: Ints
    until: Floats
    due: Ints


def slots_of(policy: Policy, candidates: Sequence[Waiting]) -> tuple[Slots, Ints]:
    """Empty slots for the candidates, and the candidate of each slot."""
    standing = np.array([policy.standing(candidate) for candidate in candidates])
    order = np.argsort(-standing, kind="stable").astype(np.int64)
    early = np.array([policy.early(candidate) for candidate in candidates])
    leaves = 1 << max(1, (len(candidates) - 1).bit_length())
    rest = np.zeros(leaves - len(candidates))
    slots = Slots(
        growth=_GROWTH[policy.growth],
        leaves=leaves,
        standing=np.concatenate([standing[order], rest]),
        early=np.concatenate([early[order], rest]),
        since=np.full(leaves, np.inf),
        winner=np.zeros(2 * leaves, np.int64),
        until=np.full(2 * leaves, np.inf),
        due=np.zeros(leaves, np.int64),
    )
    slots.winner[leaves:] = np.arange(leaves)
    settle_all(slots, 0.0)
    return slots, order


@compiled
def waits_by(slots: Slots, slot: int, arrived: float, served: float) -> float:
    """What a tuple waits by: since when, or where turns count, when its query last ran."""
    return served if slots.growth == TURNS else arrived - slots.early[slot]


@compiled
def put(slots: Slots, slot: int, since: float, now: float) -> None:
    """Let the oldest tuple of a slot be one that has waited since then; infinity: there is none."""
    growth, leaves, standing, _, waits, winner, until, _ = slots
    waits[slot] = since
    node = (leaves + slot) >> 1
    while node:
        _settle(growth, standing, waits, winner, until, node, now)
        node >>= 1


@compiled
def settle_all(slots: Slots, now: float) -> None:
    """Play the tournament anew, after changes of `since`."""
    growth, leaves, standing, _, waits, winner, until, _ = slots
    for node in range(leaves - 1, 0, -1):
        _settle(growth, standing, waits, winner, until, node, now)


@compiled
def pick(slots: Slots, now: float) -> int:
    """The slot of the highest rank, the first one of equals; -1 if all are empty."""
    if slots.until[1] <= now:
        _refresh(slots, now)
    slot = slots.winner[1]
    return slot if slots.since[slot] < np.inf else -1


@compiled
def _refresh(slots: Slots, now: float) -> None:
    """Settle the nodes that are no longer certain, the lowest ones first."""
    growth, _, standing, _, waits, winner, until, due = slots
    due[0] = 1
    found, at = 1, 0
    while at < found:
        for child in (2 * due[at], 2 * due[at] + 1):
            if until[child] <= now:
                due[found] = child
                found += 1
        at += 1
    for place in range(found - 1, -1, -1):
        _settle(growth, standing, waits, winner, until, due[place], now)


@compiled
def _settle(
    growth: int,
    standing: Floats,
    waits: Floats,
    winner: Ints,
    until: Floats,
    node: int,
    now: float,
) -> None:
    """The winner of a node. The left one stands higher: it wins a tie, and it alone can overtake.

    Arrays come one by one: to take them out of a tuple at every node costs more than all the rest.
    """
    left, right = winner[2 * node], winner[2 * node + 1]
    first, second = waits[left], waits[right]
    certain = min(until[2 * node], until[2 * node + 1])
    best = left
    if first == np.inf:
        best = right
    elif growth == TURNS:
        if second < first:
            best = right
    elif growth == WAIT and second < np.inf:
        fast, slow = standing[left], standing[right]
        if slow * (now - second) > fast * (now - first):
            best = right
            if fast > slow:
                crossing = (fast * first - slow * second) / (fast - slow)
                certain = min(certain, crossing - _ROUNDING * crossing * fast / (fast - slow))
    winner[node] = best
    until[node] = certain
