"""Queries to simulate: chains of operators, window joins, and sets of queries that share an operator.

The workloads of the scheduling paper are drawn from a seed and scaled so that all queries together
load the processor as much as asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import SimulationError
from headwater.schedule import WorkEstimate, estimate_chain, estimate_join

QUERIES = 500
COST_CLASSES = 5
SET_SIZE = 10
WINDOWS = (1.0, 10.0)


@dataclass(frozen=True)
class SimulatedOperator:
    """What a tuple costs, and the share that passes; for a join, the share of pairs that match."""

    cost: float
    selectivity: float = 1.0

    def __post_init__(self) -> None:
        if not self.cost > 0:
            raise SimulationError(f"an operator has a cost above 0, not {self.cost}")
        if not 0 <= self.selectivity <= 1:
            raise SimulationError(f"a selectivity is between 0 and 1, not {self.selectivity}")

    @property
    def cost_and_selectivity(self) -> tuple[float, float]:
        return self.cost, self.selectivity


@dataclass(frozen=True)
class Chain:
    """A query over one stream: its operators, the first one first."""

    operators: tuple[SimulatedOperator, ...]

    @property
    def ideal(self) -> float:
        return sum(operator.cost for operator in self.operators)

    def segment(self, stage: int = 0) -> WorkEstimate:
        """What is before a tuple that waits for the operator at that stage."""
        return estimate_chain([o.cost_and_selectivity for o in self.operators[stage:]], self.ideal)


@dataclass(frozen=True)
class WindowJoin:
    """A query over two streams: an operator for each, a window join, and one for its results.

    `gaps` are the mean times between the tuples of the two streams.
    """

    sides: tuple[SimulatedOperator, SimulatedOperator]
    join: SimulatedOperator
    common: SimulatedOperator
    window: float
    gaps: tuple[float, float]

    @property
    def ideal(self) -> float:
        return self.segment(0).ideal

    def segment(self, side: int) -> WorkEstimate:
        """What is before a tuple of the left (0) or the right (1) stream."""
        near, far = (estimate_chain([self.sides[s].cost_and_selectivity]) for s in (side, 1 - side))
        after = estimate_chain([self.common.cost_and_selectivity])
        return estimate_join(
            near, far, self.join.cost_and_selectivity, after, self.window, self.gaps[1 - side]
        )


@dataclass(frozen=True)
class SharedSet:
    """Queries over one stream that share their first operator; each continues with its own branch."""

    first: SimulatedOperator
    branches: tuple[tuple[SimulatedOperator, ...], ...]

    def ideal(self, branch: int) -> float:
        return self.first.cost + sum(operator.cost for operator in self.branches[branch])

    def segments(self) -> tuple[WorkEstimate, ...]:
        """What is before a tuple that waits for the shared operator, for each of the queries."""
        return tuple(
            estimate_chain([o.cost_and_selectivity for o in (self.first, *b)])
            for b in self.branches
        )

    def branch_segment(self, branch: int) -> WorkEstimate:
        """What is before a tuple that has passed the shared operator."""
        return estimate_chain(
            [o.cost_and_selectivity for o in self.branches[branch]], self.ideal(branch)
        )

    def cost(self) -> float:
        """The expected cost of a tuple for the whole set."""
        segments = self.segments()
        # Each segment includes the shared operator, which runs once.
        return sum(s.cost for s in segments) - (len(segments) - 1) * self.first.cost


# ---- the workloads of the paper


def _draw_queries(seed: int, queries: int) -> list[tuple[int, float]]:
    """A cost class and a selectivity for each query, in whole hundredths as the paper's predicates."""
    rng = np.random.default_rng((seed, 0))
    classes = rng.integers(0, COST_CLASSES, queries)
    hundredths = rng.integers(10, 101, queries)
    return [(int(c), int(h) / 100) for c, h in zip(classes, hundredths, strict=True)]


def _unscaled_operators(
    cost_class: int, selectivity: float
) -> tuple[SimulatedOperator, SimulatedOperator, SimulatedOperator]:
    # The scheduling paper's cost classes: powers of two, uniformly drawn.
    cost = float(2**cost_class)
    return (
        SimulatedOperator(cost, selectivity),
        SimulatedOperator(cost, selectivity),
        SimulatedOperator(cost),
    )


def _scale_operator(operator: SimulatedOperator, factor: float) -> SimulatedOperator:
    return SimulatedOperator(operator.cost * factor, operator.selectivity)


def paper_chains(seed: int, load: float, gap: float, queries: int = QUERIES) -> tuple[Chain, ...]:
    """Select, join with a stored relation, project: operators of a query cost and pass alike."""
    plain = [Chain(_unscaled_operators(*drawn)) for drawn in _draw_queries(seed, queries)]
    # Every query processes every tuple, so the load is the sum of expected costs over the mean gap.
    factor = load * gap / sum(chain.segment().cost for chain in plain)
    return tuple(Chain(tuple(_scale_operator(o, factor) for o in c.operators)) for c in plain)


def paper_joins(
    seed: int, load: float, gaps: tuple[float, float], queries: int = QUERIES
) -> tuple[WindowJoin, ...]:
    """A select on each of two streams, a window join, a project."""
    # Apart from (seed, 0) for queries, and 1 and 2 for arrivals.
    rng = np.random.default_rng((seed, 3))
    windows = rng.uniform(*WINDOWS, queries)
    plain = []
    for drawn, window in zip(_draw_queries(seed, queries), windows, strict=True):
        select, join, project = _unscaled_operators(*drawn)
        plain.append(WindowJoin((select, select), join, project, float(window), gaps))
    # Tuples of both streams are work for every query, each at the rate of its own stream.
    per_second = sum(q.segment(side).cost / gaps[side] for q in plain for side in (0, 1))
    factor = load / per_second
    return tuple(
        WindowJoin(
            (_scale_operator(q.sides[0], factor), _scale_operator(q.sides[1], factor)),
            _scale_operator(q.join, factor),
            _scale_operator(q.common, factor),
            q.window,
            gaps,
        )
        for q in plain
    )


def paper_sets(seed: int, load: float, gap: float, queries: int = QUERIES) -> tuple[SharedSet, ...]:
    """Sets of ten queries that have the select of the first one in common.

    Operators of a query cost alike, so queries that share an operator are all of one cost class.
    """
    drawn = _draw_queries(seed, queries)
    plain = []
    for begin in range(0, queries, SET_SIZE):
        cost, _ = drawn[begin]
        chains = [_unscaled_operators(cost, share) for _, share in drawn[begin : begin + SET_SIZE]]
        plain.append(SharedSet(chains[0][0], tuple(operators[1:] for operators in chains)))
    factor = load * gap / sum(shared_set.cost() for shared_set in plain)
    return tuple(
        SharedSet(
            _scale_operator(shared_set.first, factor),
            tuple(
                tuple(_scale_operator(o, factor) for o in branch) for branch in shared_set.branches
            ),
        )
        for shared_set in plain
    )


def cost_class(chains: Sequence[Chain], query: int) -> int:
    """The cost class of a query of the paper: 0 for the cheapest, each twice the one before."""
    cheapest = min(chain.operators[0].cost for chain in chains)
    return round(math.log2(chains[query].operators[0].cost / cheapest))
