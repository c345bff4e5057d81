"""The priority of an operator that several queries share.

A segment gains something (results, or results by their ideal time) at a cost; together, segments
gain the sum and pay the shared operator once. A way of sharing says which segments run with the
shared operator, the priority-defining tree, and with what priority.

- `max`: all run, with the highest priority that one of them has alone.
- `sum`: all run, with the priorities that they have alone added up.
- `pdt`: segments join in descending priority while the priority of them together rises.
- `densest`: the same in descending gain by the cost that a segment adds. No other choice of
  segments has a higher priority, which does not hold for `pdt`.

Segments outside the tree wait on their own for what the shared operator lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree:
    """The priority of a shared operator and the places of the segments that run with it, in order."""

    priority: float
    members: tuple[int, ...]


Sharing = Callable[[Sequence[float], Sequence[float], float], Tree]
"""From the gains and the costs of the segments, and the cost that each of them shares."""


def highest(gains: Sequence[float], costs: Sequence[float], shared: float) -> Tree:
    """`max`: all, as urgent as the most urgent segment."""
    alone = _alone(gains, costs)
    return Tree(max(alone), tuple(_descending(alone)))


def added(gains: Sequence[float], costs: Sequence[float], shared: float) -> Tree:
    """`sum`: all, as urgent as the segments added up."""
    alone = _alone(gains, costs)
    return Tree(sum(alone), tuple(_descending(alone)))


def defining_tree(gains: Sequence[float], costs: Sequence[float], shared: float) -> Tree:
    """`pdt`: the most urgent segments, as many as raise the priority."""
    return _prefix(gains, costs, shared, _alone(gains, costs))


def densest(gains: Sequence[float], costs: Sequence[float], shared: float) -> Tree:
    """`densest`: the segments of most gain for what they add, as many as raise the priority."""
    pairs = zip(gains, costs, strict=True)
    return _prefix(gains, costs, shared, [g / max(c - shared, 1e-300) for g, c in pairs])


def _prefix(
    gains: Sequence[float], costs: Sequence[float], shared: float, merit: Sequence[float]
) -> Tree:
    """Segments in descending merit while their priority together rises."""
    order = _descending(merit)
    gain, cost = gains[order[0]], costs[order[0]]
    members = [order[0]]
    for place in order[1:]:
        with_it = (gain + gains[place]) / (cost + costs[place] - shared)
        if with_it <= gain / cost:
            break
        gain, cost = gain + gains[place], cost + costs[place] - shared
        members.append(place)
    return Tree(gain / cost, tuple(members))


def _alone(gains: Sequence[float], costs: Sequence[float]) -> list[float]:
    """The priority of each segment if nothing were shared."""
    return [gain / cost for gain, cost in zip(gains, costs, strict=True)]


def _descending(merit: Sequence[float]) -> list[int]:
    return sorted(range(len(merit)), key=lambda place: -merit[place])


SHARING: dict[str, Sharing] = {
    "max": highest,
    "sum": added,
    "pdt": defining_tree,
    "densest": densest,
}
