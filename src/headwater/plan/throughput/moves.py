"""The steps from a configuration to its neighbours, and which of them keep the queries' meaning.

A logical move lets an operator change places with one it reads. Every one of them is the same
rotation: top(.. bottom(.. x ..) ..) becomes bottom(.. top(.. x ..) ..), which covers selections
and projections that go down or up, and the associativity of joins; that joins commute is in it, since
x may be any input of the bottom. A physical move takes an operator to other sites; to more of
them, and it is cloned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headwater.plan.throughput.model import (
    Configuration,
    OperatorKind,
    ThroughputProblem,
    output_columns,
)

LEFT_ONLY = frozenset({OperatorKind.SEMIJOIN, OperatorKind.OUTERJOIN})
"""Operators through which others may move on their first input alone."""


@dataclass(frozen=True)
class Swap:
    """`top` goes below `bottom`, above its input number `slot`."""

    top: int
    bottom: int
    slot: int


@dataclass(frozen=True)
class Relocation:
    """An operator goes to these sites."""

    operator: int
    hosts: tuple[int, ...]


Move = Swap | Relocation


def neighbours(
    problem: ThroughputProblem, configuration: Configuration
) -> Iterator[tuple[Move, Configuration]]:
    """Every configuration that is one move away."""
    moves: list[Move] = [*swaps(problem, configuration), *relocations(problem, configuration)]
    for move in moves:
        yield move, apply_move(configuration, move)


def swaps(problem: ThroughputProblem, configuration: Configuration) -> list[Swap]:
    """The logical moves that are allowed."""
    named = output_columns(problem, configuration)
    return [
        swap
        for top, below in enumerate(configuration.inputs)
        for bottom in dict.fromkeys(below)
        for slot in range(len(configuration.inputs[bottom]))
        if _is_swap_allowed(problem, configuration, named, swap := Swap(top, bottom, slot))
    ]


def relocations(problem: ThroughputProblem, configuration: Configuration) -> list[Relocation]:
    """The physical moves."""
    return [
        Relocation(operator, hosts)
        for operator, options in enumerate(problem.options)
        for hosts in options
        if hosts != configuration.hosts[operator]
    ]


def is_swap_allowed(problem: ThroughputProblem, configuration: Configuration, swap: Swap) -> bool:
    """Whether a swap is among the problem's rules and keeps what the queries mean."""
    return _is_swap_allowed(problem, configuration, output_columns(problem, configuration), swap)


def _is_swap_allowed(
    problem: ThroughputProblem,
    configuration: Configuration,
    named: list[frozenset[str]],
    swap: Swap,
) -> bool:
    top, bottom = problem.operators[swap.top], problem.operators[swap.bottom]
    if (top.kind, bottom.kind) not in problem.rules or configuration.use_count(swap.bottom) != 1:
        return False
    if bottom.kind in LEFT_ONLY and swap.slot != 0:
        return False
    # Held for other times, the rows that meet would depend on the order.
    if top.kind is bottom.kind is OperatorKind.JOIN and top.window != bottom.window:
        return False
    others = frozenset[str]().union(
        *(named[x] for i, x in enumerate(configuration.inputs[swap.bottom]) if i != swap.slot)
    )
    needed = top.reads | top.drops
    # Below, nothing but x is left for it to read.
    if needed & (bottom.adds | others):
        return False
    # By keys a group passes or fails as a whole. Without keys there is a row even of nothing, which
    # no selection below could drop.
    if bottom.kind is OperatorKind.AGGREGATE:
        return bool(bottom.keys) and top.reads <= bottom.keys
    if top.kind is OperatorKind.AGGREGATE:
        return bool(top.keys) and bottom.reads <= top.keys
    return not top.drops & bottom.reads


def apply_move(configuration: Configuration, move: Move) -> Configuration:
    """The configuration after a move."""
    if isinstance(move, Relocation):
        hosts = list(configuration.hosts)
        hosts[move.operator] = move.hosts
        return replace(configuration, hosts=tuple(hosts))
    top, bottom, slot = move.top, move.bottom, move.slot
    x = configuration.inputs[bottom][slot]
    inputs = [tuple(bottom if i == top else i for i in below) for below in configuration.inputs]
    inputs[top] = tuple(x if i == bottom else i for i in configuration.inputs[top])
    inputs[bottom] = tuple(
        top if i == slot else reads for i, reads in enumerate(configuration.inputs[bottom])
    )
    outputs = tuple(bottom if i == top else i for i in configuration.outputs)
    return replace(configuration, inputs=tuple(inputs), outputs=outputs)


def reverse_move(configuration: Configuration, move: Move) -> Move:
    """The move that undoes a move, seen from the configuration before it."""
    if isinstance(move, Relocation):
        return Relocation(move.operator, configuration.hosts[move.operator])
    return Swap(move.bottom, move.top, configuration.inputs[move.top].index(move.bottom))
