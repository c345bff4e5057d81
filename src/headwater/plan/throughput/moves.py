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

from headwater.plan.throughput.model import Configuration, Kind, Problem, columns

LEFT_ONLY = frozenset({Kind.SEMIJOIN, Kind.OUTERJOIN})
"""Operators through which others may move on their first input alone."""


@dataclass(frozen=True)
class Swap:
    """`top` goes below `bottom`, above its input number `slot`."""

    top: int
    bottom: int
    slot: int


@dataclass(frozen=True)
class Place:
    """An operator goes to these sites."""

    operator: int
    hosts: tuple[int, ...]


Move = Swap | Place


def neighbours(
    problem: Problem, configuration: Configuration
) -> Iterator[tuple[Move, Configuration]]:
    """Every configuration that is one move away."""
    moves: list[Move] = [*swaps(problem, configuration), *places(problem, configuration)]
    for move in moves:
        yield move, apply(configuration, move)


def swaps(problem: Problem, configuration: Configuration) -> list[Swap]:
    """The logical moves that are allowed."""
    named = columns(problem, configuration)
    return [
        swap
        for top, below in enumerate(configuration.inputs)
        for bottom in dict.fromkeys(below)
        for slot in range(len(configuration.inputs[bottom]))
        if _allowed(problem, configuration, named, swap := Swap(top, bottom, slot))
    ]


def places(problem: Problem, configuration: Configuration) -> list[Place]:
    """The physical moves."""
    return [
        Place(operator, hosts)
        for operator, options in enumerate(problem.options)
        for hosts in options
        if hosts != configuration.hosts[operator]
    ]


def allowed(problem: Problem, configuration: Configuration, swap: Swap) -> bool:
    """Whether a swap is among the problem's rules and keeps what the queries mean."""
    return _allowed(problem, configuration, columns(problem, configuration), swap)


def _allowed(
    problem: Problem, configuration: Configuration, named: list[frozenset[str]], swap: Swap
) -> bool:
    top, bottom = problem.operators[swap.top], problem.operators[swap.bottom]
    if (top.kind, bottom.kind) not in problem.rules or configuration.uses(swap.bottom) != 1:
        return False
    if bottom.kind in LEFT_ONLY and swap.slot != 0:
        return False
    if top.kind is bottom.kind is Kind.JOIN and top.window != bottom.window:
        return False
    others = frozenset[str]().union(
        *(named[x] for i, x in enumerate(configuration.inputs[swap.bottom]) if i != swap.slot)
    )
    needed = top.reads | top.drops
    if needed & (bottom.adds | others):
        return False
    if bottom.kind is Kind.AGGREGATE:
        return bool(bottom.keys) and top.reads <= bottom.keys
    if top.kind is Kind.AGGREGATE:
        return bool(top.keys) and bottom.reads <= top.keys
    return not top.drops & bottom.reads


def apply(configuration: Configuration, move: Move) -> Configuration:
    """The configuration after a move."""
    if isinstance(move, Place):
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


def reverse(configuration: Configuration, move: Move) -> Move:
    """The move that undoes a move, seen from the configuration before it."""
    if isinstance(move, Place):
        return Place(move.operator, configuration.hosts[move.operator])
    return Swap(move.bottom, move.top, configuration.inputs[move.top].index(move.bottom))
