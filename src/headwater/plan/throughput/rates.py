"""How much flows: the rate of every operator's result, and the rows that are held of it.

Both are polynomials of x, the multiple of the profile that comes in. The rules of the paper's Table 3
for selection, projection and join are kept; a join of n inputs follows the product rule, of which the
rule for two is a case, so that the order of joins does not change what comes out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headwater.plan.throughput.model import Configuration, Kind, Operator, Problem, columns
from headwater.plan.throughput.polynomial import NONE, Polynomial, add, multiply, scale


@dataclass(frozen=True)
class Flow:
    """What an operator gives: tuples a second, rows held at an instant, and bytes of a tuple."""

    rate: Polynomial
    held: Polynomial
    width: float


def flows(problem: Problem, configuration: Configuration, point: int = 0) -> list[Flow]:
    """The flow of every operator at one point of the profile."""
    rates = problem.points[point]
    named = columns(problem, configuration)
    found: list[Flow] = [Flow(NONE, NONE, 0.0)] * len(problem.operators)
    for place in configuration.order:
        operator = problem.operators[place]
        below = [found[i] for i in configuration.inputs[place]]
        if operator.kind is Kind.EMIT:
            rate, held = _emitted(operator, rates.get(operator.stream, 0.0))
        elif operator.kind is Kind.AGGREGATE:
            rate, held = _aggregated(operator, below[0], groups(problem, configuration, place))
        else:
            rate, held = _flow(operator, below)
        found[place] = Flow(rate, held, problem.width(named[place]))
    return found


def inputs_held(operator: Operator, below: Sequence[Flow]) -> list[Polynomial]:
    """What a join holds of each of its inputs."""
    if operator.window is None:
        return [flow.held for flow in below]
    return [scale(operator.window, flow.rate) for flow in below]


def groups(problem: Problem, configuration: Configuration, place: int) -> float:
    """The groups of an aggregate: a selection that moved below it takes its share of them."""
    return (
        problem.operators[place].rows
        * prod(
            problem.operators[i].selectivity
            for i in _selections(problem, configuration.inputs, place)
            - _selections(problem, problem.written, place)
        )
        / prod(
            problem.operators[i].selectivity
            for i in _selections(problem, problem.written, place)
            - _selections(problem, configuration.inputs, place)
        )
    )


def _selections(problem: Problem, inputs: Sequence[Sequence[int]], place: int) -> set[int]:
    """The selections below an operator."""
    found: set[int] = set()
    ahead = list(inputs[place])
    while ahead:
        below = ahead.pop()
        if problem.operators[below].kind is Kind.SELECT:
            found.add(below)
        ahead += inputs[below]
    return found


def _emitted(operator: Operator, rate: float) -> tuple[Polynomial, Polynomial]:
    window = operator.window or 0.0
    return (0.0, rate), (operator.rows, window * rate)


def _aggregated(operator: Operator, below: Flow, rows: float) -> tuple[Polynomial, Polynomial]:
    told = scale(operator.selectivity, below.rate) if operator.period is None else NONE
    regular = NONE if operator.period is None else (rows / operator.period,)
    return add(told, regular), (rows,)


def _flow(operator: Operator, below: Sequence[Flow]) -> tuple[Polynomial, Polynomial]:
    first, s = below[0], operator.selectivity
    match operator.kind:
        case Kind.PROJECT:
            return first.rate, first.held
        case Kind.SELECT | Kind.DISTINCT | Kind.SEMIJOIN:
            return scale(s, first.rate), scale(s, first.held)
        case Kind.UNION:
            return add(*(flow.rate for flow in below)), add(*(flow.held for flow in below))
        case Kind.JOIN:
            return _joined(operator, below)
        case Kind.OUTERJOIN:
            rate, held = _joined(operator, below)
            return add(rate, first.rate), add(held, first.held)
        case _:
            rate, held = _joined(operator, below)
            return (
                add(rate, *(flow.rate for flow in below)),
                add(held, *(flow.held for flow in below)),
            )


def _joined(operator: Operator, below: Sequence[Flow]) -> tuple[Polynomial, Polynomial]:
    """Each tuple that comes in on one side meets what is held of the others."""
    held = inputs_held(operator, below)
    rate = add(
        *(
            multiply(flow.rate, *(h for j, h in enumerate(held) if j != i))
            for i, flow in enumerate(below)
        )
    )
    rate = scale(operator.selectivity, rate)
    if operator.window is not None:
        return rate, scale(operator.window, rate)
    return rate, scale(operator.selectivity, multiply(*held))
