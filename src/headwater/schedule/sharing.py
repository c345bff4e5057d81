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
class PriorityTree:
    """The priority of a shared operator and the places of the segments that run with it, in order."""

    priority: float
    segment_positions: tuple[int, ...]


SharingRule = Callable[[Sequence[float], Sequence[float], float], PriorityTree]
"""From the gains and the costs of the segments, and the cost that each of them shares."""


def max_tree(gains: Sequence[float], costs: Sequence[float], shared: float) -> PriorityTree:
    """`max`: all, as urgent as the most urgent segment."""
    priorities = _separate_priorities(gains, costs)
    return PriorityTree(max(priorities), tuple(_descending_order(priorities)))


def sum_tree(gains: Sequence[float], costs: Sequence[float], shared: float) -> PriorityTree:
    """`sum`: all, as urgent as the segments added up."""
    priorities = _separate_priorities(gains, costs)
    return PriorityTree(sum(priorities), tuple(_descending_order(priorities)))


def priority_defining_tree(
    gains: Sequence[float], costs: Sequence[float], shared: float
) -> PriorityTree:
    """`pdt`: the most urgent segments, as many as raise the priority."""
    return _best_prefix(gains, costs, shared, _separate_priorities(gains, costs))


def densest_tree(gains: Sequence[float], costs: Sequence[float], shared: float) -> PriorityTree:
    """`densest`: the segments of most gain for what they add, as many as raise the priority."""
    pairs = zip(gains, costs, strict=True)
    # By gain over *added* cost the best set is always a prefix of the order: a segment raises the
    # common ratio exactly if its own ratio is above it. By gain over full cost (`pdt`) that does
    # not hold. The floor keeps a segment that adds nothing first instead of dividing by 0.
    return _best_prefix(gains, costs, shared, [g / max(c - shared, 1e-300) for g, c in pairs])


def _best_prefix(
    gains: Sequence[float], costs: Sequence[float], shared: float, merit: Sequence[float]
) -> PriorityTree:
    """Segments in descending merit while their priority together rises."""
    order = _descending_order(merit)
    gain, cost = gains[order[0]], costs[order[0]]
    positions = [order[0]]
    for position in order[1:]:
        # The cost of every segment includes the shared operator, which the first one has paid
        # already.
        with_it = (gain + gains[position]) / (cost + costs[position] - shared)
        if with_it <= gain / cost:
            break
        gain, cost = gain + gains[position], cost + costs[position] - shared
        positions.append(position)
    return PriorityTree(gain / cost, tuple(positions))


def _separate_priorities(gains: Sequence[float], costs: Sequence[float]) -> list[float]:
    """The priority of each segment if nothing were shared."""
    return [gain / cost for gain, cost in zip(gains, costs, strict=True)]


def _descending_order(merit: Sequence[float]) -> list[int]:
    return sorted(range(len(merit)), key=lambda place: -merit[place])


SHARING_RULES: dict[str, SharingRule] = {
    "max": max_tree,
    "sum": sum_tree,
    "pdt": priority_defining_tree,
    "densest": densest_tree,
}
