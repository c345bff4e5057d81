"""Flow rates: the rate of every operator's result, and how many of its rows are held in memory.

Both are polynomials of x, the multiple of the profile that comes in. The rules of the paper's Table 3
for selection, projection and join hold; a join of n inputs follows the product rule, of which the
rule for two is a case, so that the order of joins does not change what comes out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headwater.plan.throughput.model import (
    Configuration,
    OperatorKind,
    ThroughputOperator,
    ThroughputProblem,
    output_columns,
)
from headwater.plan.throughput.polynomial import ZERO, Polynomial, add, multiply, scale


@dataclass(frozen=True)
class OperatorFlow:
    """The output of an operator: tuples per second, rows held at an instant, and bytes of a tuple."""

    rate: Polynomial
    held: Polynomial
    width: float


def operator_flows(
    problem: ThroughputProblem, configuration: Configuration, point: int = 0
) -> list[OperatorFlow]:
    """The flow of every operator at one point of the profile."""
    rates = problem.points[point]
    named = output_columns(problem, configuration)
    result: list[OperatorFlow] = [OperatorFlow(ZERO, ZERO, 0.0)] * len(problem.operators)
    for position in configuration.order:
        operator = problem.operators[position]
        below = [result[i] for i in configuration.inputs[position]]
        if operator.kind is OperatorKind.EMIT:
            rate, held = _emit_flow(operator, rates.get(operator.stream, 0.0))
        elif operator.kind is OperatorKind.AGGREGATE:
            rate, held = _aggregate_flow(
                operator, below[0], group_count(problem, configuration, position)
            )
        else:
            rate, held = _operator_flow(operator, below)
        result[position] = OperatorFlow(rate, held, problem.width(named[position]))
    return result


def held_inputs(operator: ThroughputOperator, below: Sequence[OperatorFlow]) -> list[Polynomial]:
    """What a join holds of each of its inputs."""
    if operator.window is None:
        return [flow.held for flow in below]
    return [scale(operator.window, flow.rate) for flow in below]


def group_count(problem: ThroughputProblem, configuration: Configuration, position: int) -> float:
    """The groups of an aggregate; a selection that was moved below it leaves its fraction of them."""
    return (
        problem.operators[position].rows
        * prod(
            problem.operators[i].selectivity
            for i in _selections_below(problem, configuration.inputs, position)
            - _selections_below(problem, problem.initial_inputs, position)
        )
        # Those below from the start are in the number of groups that was given.
        / prod(
            problem.operators[i].selectivity
            for i in _selections_below(problem, problem.initial_inputs, position)
            - _selections_below(problem, configuration.inputs, position)
        )
    )


def _selections_below(
    problem: ThroughputProblem, inputs: Sequence[Sequence[int]], position: int
) -> set[int]:
    """The selections below an operator."""
    selections: set[int] = set()
    pending = list(inputs[position])
    while pending:
        below = pending.pop()
        if problem.operators[below].kind is OperatorKind.SELECT:
            selections.add(below)
        pending += inputs[below]
    return selections


def _emit_flow(operator: ThroughputOperator, rate: float) -> tuple[Polynomial, Polynomial]:
    window = operator.window or 0.0
    # Coefficients of x^0 and x^1: a ROWS window holds as many rows at any rate, a time window a
    # multiple of the rate.
    return (0.0, rate), (operator.rows, window * rate)


def _aggregate_flow(
    operator: ThroughputOperator, below: OperatorFlow, rows: float
) -> tuple[Polynomial, Polynomial]:
    per_tuple = scale(operator.selectivity, below.rate) if operator.period is None else ZERO
    regular = ZERO if operator.period is None else (rows / operator.period,)
    return add(per_tuple, regular), (rows,)


def _operator_flow(
    operator: ThroughputOperator, below: Sequence[OperatorFlow]
) -> tuple[Polynomial, Polynomial]:
    first, s = below[0], operator.selectivity
    match operator.kind:
        case OperatorKind.PROJECT:
            return first.rate, first.held
        case OperatorKind.SELECT | OperatorKind.DISTINCT | OperatorKind.SEMIJOIN:
            return scale(s, first.rate), scale(s, first.held)
        case OperatorKind.UNION:
            return add(*(flow.rate for flow in below)), add(*(flow.held for flow in below))
        case OperatorKind.JOIN:
            return _join_flow(operator, below)
        case OperatorKind.OUTERJOIN:
            rate, held = _join_flow(operator, below)
            return add(rate, first.rate), add(held, first.held)
        case _:
            rate, held = _join_flow(operator, below)
            return (
                add(rate, *(flow.rate for flow in below)),
                add(held, *(flow.held for flow in below)),
            )


def _join_flow(
    operator: ThroughputOperator, below: Sequence[OperatorFlow]
) -> tuple[Polynomial, Polynomial]:
    """Each tuple that comes in on one side meets what is held of the others."""
    held = held_inputs(operator, below)
    rate = add(
        *(
            multiply(flow.rate, *(h for j, h in enumerate(held) if j != i))
            for i, flow in enumerate(below)
        )
    )
    rate = scale(operator.selectivity, rate)
    # A join with a window of its own holds what came within it; otherwise results live as long as
    # all of their tuples are held below.
    if operator.window is not None:
        return rate, scale(operator.window, rate)
    return rate, scale(operator.selectivity, multiply(*held))
