"""The searches that walk from neighbour to neighbour, compiled.

Each function takes a number of steps and can be called again to go on, so whoever calls it may stop at
any time, and has the best configuration met so far. Random numbers come from a state of its own, so
a seed gives the same walk everywhere. The steps of annealing are random moves; greedy and tabu search
look at all neighbours.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from headwater.plan.throughput.kernel import (
    TOLERANCE,
    WORSE,
    can_swap,
    evaluate,
    jit_entry,
    jit_inner,
    move_to,
    set_base_multiple,
    swap,
)

LOGICAL, PHYSICAL = 0.0, 1.0
"""Fractions of physical moves at which a walk has moves of one kind only."""

TRIES = 40
"""How often a random logical move is drawn before there seems to be none."""


class BestConfiguration(NamedTuple):
    """The best configuration met, its quality, and how many were looked at."""

    child: Any
    outputs: Any
    pick: Any
    quality: Any
    seen: Any


class WalkParameters(NamedTuple):
    """The kind of a walk and its parameters; `alpha` is the share of physical moves."""

    kind: int
    alpha: float = 0.5
    heat: float = 0.0
    grow: float = 1.0
    shrink: float = 1.0
    longest: int = 0
    chaos: int = 1 << 30


ANNEAL, CLIMB, TABU = range(3)


class WalkMemory(NamedTuple):
    """What a walk remembers: configurations by hash, when each was met last and how often; and
    numbers: the current quality, the step, the length of the list of forbidden
    configurations, when that changed, the mean cycle, repetitions, and whether it is at its end."""

    mark: Any
    when: Any
    times: Any
    numbers: Any


CURRENT_QUALITY, STEP, LENGTH, CHANGED, CYCLE, REPEATED, ENDED = range(7)


def new_best(state: Any) -> BestConfiguration:
    """Nothing met yet."""
    return BestConfiguration(
        state.child.copy(),
        state.outputs.copy(),
        state.op["pick"].copy(),
        np.full(1, -1.0),
        np.zeros(1, np.int64),
    )


def new_memory(steps: int, length: float = 0.0) -> WalkMemory:
    """Room for the configurations of that many steps, and a list of that length."""
    # At most a quarter full, so that a free place is near.
    size = 1 << max(4, math.ceil(math.log2(4 * steps + 1)))
    numbers = np.zeros(7)
    numbers[CURRENT_QUALITY], numbers[LENGTH] = -1.0, length
    return WalkMemory(
        np.zeros(size, np.uint64), np.zeros(size, np.int64), np.zeros(size, np.int64), numbers
    )


def rng_state(seed: int) -> Any:
    """A state of the random numbers."""
    return np.array([(seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64], np.uint64)


@jit_inner
def random_float(rng: Any) -> float:
    """A number in [0, 1)."""
    # SplitMix64 (Steele, Lea and Flood 2014).
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return float(z >> np.uint64(11)) / 9007199254740992.0


@jit_inner
def random_below(rng: Any, count: int) -> int:
    """A whole number from 0 to count - 1."""
    return int(random_float(rng) * count)


@jit_inner
def record_best(s: Any, best: Any, quality: float) -> None:
    """Remember the configuration if it is the best so far."""
    if quality > best.quality[0]:
        best.quality[0] = quality
        for q in range(len(s.outputs)):
            best.outputs[q] = s.outputs[q]
        for o in range(len(s.op)):
            best.pick[o] = s.op[o].pick
            for i in range(s.child.shape[1]):
                best.child[o, i] = s.child[o, i]


@jit_inner
def _make_current(s: Any, best: Any, memory: Any, quality: float) -> None:
    """Start from a configuration."""
    memory.numbers[CURRENT_QUALITY] = quality
    record_best(s, best, quality)
    set_base_multiple(s, quality)


@jit_inner
def _evaluate_counted(f: Any, s: Any, best: Any, enough: float) -> float:
    """The quality of the configuration, counted; WORSE where it is not worth knowing."""
    best.seen[0] += 1
    quality: float = evaluate(f, s, enough)[0]
    return quality


@jit_inner
def _draw_swap(f: Any, s: Any, rng: Any) -> tuple[int, int, int]:
    """A random logical move that is allowed; top is -1 if none was found."""
    for _ in range(TRIES):
        top = random_below(rng, len(s.op))
        if f.op[top].arity == 0:
            continue
        slot = random_below(rng, f.op[top].arity)
        bottom = s.child[top, slot]
        if f.op[bottom].arity == 0:
            continue
        deep = random_below(rng, f.op[bottom].arity)
        if can_swap(f, s, top, slot, deep):
            return top, slot, deep
    return -1, 0, 0


@jit_inner
def _draw_relocation(f: Any, s: Any, rng: Any) -> tuple[int, int]:
    """A random physical move; the operator is -1 if none was found."""
    for _ in range(TRIES):
        o = random_below(rng, len(s.op))
        if f.op[o].options > 1:
            other = random_below(rng, f.op[o].options - 1)
            option = f.op[o].first + other
            return o, option + 1 if option >= s.op[o].pick else option
    return -1, 0


@jit_inner
def _make_random_moves(f: Any, s: Any, rng: Any, alpha: float, steps: int) -> None:
    """Random moves, whatever they lead to."""
    for _ in range(steps):
        if random_float(rng) < alpha:
            o, option = _draw_relocation(f, s, rng)
            if o >= 0:
                move_to(f, s, o, option)
        else:
            top, slot, deep = _draw_swap(f, s, rng)
            if top >= 0:
                swap(f, s, top, slot, deep)


@jit_inner
def _anneal(f: Any, s: Any, best: Any, rng: Any, memory: Any, parameters: Any, steps: int) -> None:
    """Random moves at one temperature; a loss is taken with probability (new / old) ^ (1 / heat)."""
    for _ in range(steps):
        top, slot, deep, bottom, o, before = -1, 0, 0, 0, -1, 0
        if random_float(rng) < parameters.alpha:
            o, option = _draw_relocation(f, s, rng)
            if o >= 0:
                before = s.op[o].pick
                move_to(f, s, o, option)
        else:
            top, slot, deep = _draw_swap(f, s, rng)
            if top >= 0:
                bottom = s.child[top, slot]
                swap(f, s, top, slot, deep)
        if o < 0 and top < 0:
            continue
        quality, here = _evaluate_counted(f, s, best, -1.0), memory.numbers[CURRENT_QUALITY]
        if quality >= here or random_float(rng) < (quality / here) ** (1.0 / parameters.heat):
            _make_current(s, best, memory, quality)
        elif o >= 0:
            move_to(f, s, o, before)
        else:
            swap(f, s, bottom, deep, slot)


@jit_inner
def _find_slot(memory: Any, mark: Any) -> int:
    """The place of a configuration in the memory, or the free one where it would be."""
    size = np.uint64(len(memory.mark) - 1)
    slot = mark & size
    while memory.mark[slot] != 0 and memory.mark[slot] != mark:
        slot = (slot + np.uint64(1)) & size
    return slot


@jit_inner
def _is_recent(memory: Any, mark: Any, step: int, length: float) -> bool:
    slot = _find_slot(memory, mark)
    return memory.mark[slot] == mark and step - memory.when[slot] <= length


@jit_inner
def _choose_neighbour(
    f: Any, s: Any, best: Any, rng: Any, memory: Any, alpha: float
) -> tuple[float, int, int, int]:
    """The best neighbour that is not forbidden, by lot where several are: its quality and move,
    (operator, option, -1) or (top, slot, deep); WORSE if all are forbidden."""
    step, length = int(memory.numbers[STEP]), memory.numbers[LENGTH]
    best_quality, ties, a, b, c = WORSE, 0, -1, 0, -1
    n = len(s.op)
    for o in range(n if alpha != LOGICAL else 0):
        before = s.op[o].pick
        for option in range(f.op[o].first, f.op[o].first + f.op[o].options):
            if option == before:
                continue
            move_to(f, s, o, option)
            if length == 0 or not _is_recent(memory, s.mark[0], step, length):
                quality = _evaluate_counted(f, s, best, best_quality)
                ties = (
                    ties + 1 if quality == best_quality else 1 if quality > best_quality else ties
                )
                # The n-th of equals takes the place with chance 1 / n: each ends with the same
                # chance.
                if quality > best_quality or (
                    quality == best_quality and random_float(rng) * ties < 1
                ):
                    best_quality, a, b, c = quality, o, option, -1
            move_to(f, s, o, before)
    for top in range(n if alpha != PHYSICAL else 0):
        for slot in range(f.op[top].arity):
            bottom = s.child[top, slot]
            for deep in range(f.op[bottom].arity):
                if not can_swap(f, s, top, slot, deep):
                    continue
                swap(f, s, top, slot, deep)
                if length == 0 or not _is_recent(memory, s.mark[0], step, length):
                    quality = _evaluate_counted(f, s, best, best_quality)
                    ties = (
                        ties + 1
                        if quality == best_quality
                        else 1
                        if quality > best_quality
                        else ties
                    )
                    if quality > best_quality or (
                        quality == best_quality and random_float(rng) * ties < 1
                    ):
                        best_quality, a, b, c = quality, top, slot, deep
                swap(f, s, bottom, deep, slot)
    return best_quality, a, b, c


@jit_inner
def _apply_move(f: Any, s: Any, a: int, b: int, c: int) -> None:
    if c < 0:
        move_to(f, s, a, b)
    else:
        swap(f, s, a, b, c)


@jit_inner
def _remember(memory: Any, mark: Any) -> int:
    """Enter a configuration; returns how many steps ago it was met, 0 if never."""
    memory.numbers[STEP] += 1
    step = int(memory.numbers[STEP])
    slot = _find_slot(memory, mark)
    ago = step - memory.when[slot] if memory.mark[slot] == mark else 0
    memory.mark[slot], memory.when[slot] = mark, step
    memory.times[slot] += 1
    return ago


@jit_inner
def _adapt_tabu_length(memory: Any, parameters: Any, mark: Any, ago: int) -> None:
    """The list grows when configurations come again, and shrinks when they have not for a while."""
    numbers = memory.numbers
    if ago > 0:
        if memory.times[_find_slot(memory, mark)] > parameters.chaos:
            numbers[REPEATED] += 1
        if ago < parameters.longest:
            # Moving average and lengths as in reactive tabu search (Battiti and Tecchiolli 1994).
            numbers[CYCLE] = 0.1 * ago + 0.9 * numbers[CYCLE]
            numbers[LENGTH] = numbers[LENGTH] * parameters.grow + 1
            numbers[CHANGED] = numbers[STEP]
    if numbers[STEP] - numbers[CHANGED] > max(numbers[CYCLE], 1.0):
        numbers[LENGTH] = max(1.0, numbers[LENGTH] * parameters.shrink)
        numbers[CHANGED] = numbers[STEP]


@jit_inner
def _follow_best_neighbour(
    f: Any, s: Any, best: Any, rng: Any, memory: Any, parameters: Any, steps: int
) -> None:
    """To the best neighbour: while it is better in a climb, else if it was not met lately. Where all
    were met, or too many came again too often, tabu search escapes by random moves: about as many
    as a cycle has steps."""
    numbers = memory.numbers
    for _ in range(steps):
        if parameters.kind == TABU:
            ago = _remember(memory, s.mark[0])
            if parameters.grow > 1:
                _adapt_tabu_length(memory, parameters, s.mark[0], ago)
        away = 0
        if numbers[REPEATED] > parameters.chaos:
            away = 1 + int((1 + random_float(rng)) * numbers[CYCLE])
        else:
            quality, a, b, c = _choose_neighbour(f, s, best, rng, memory, parameters.alpha)
            if parameters.kind == CLIMB and quality <= numbers[CURRENT_QUALITY] * (1 + TOLERANCE):
                numbers[ENDED] = 1
                break
            if quality < 0:
                away = 1
            else:
                _apply_move(f, s, a, b, c)
        if away:
            numbers[REPEATED] = 0
            numbers[LENGTH] = max(1.0, numbers[LENGTH] * parameters.shrink)
            _make_random_moves(f, s, rng, parameters.alpha, away)
            quality = _evaluate_counted(f, s, best, -1.0)
        _make_current(s, best, memory, quality)


@jit_entry
def walk(f: Any, s: Any, best: Any, rng: Any, memory: Any, parameters: Any, steps: int) -> None:
    """Go that many steps on; the first call also looks at where the walk starts."""
    if memory.numbers[CURRENT_QUALITY] < 0:
        _make_current(s, best, memory, _evaluate_counted(f, s, best, -1.0))
    if parameters.kind == ANNEAL:
        _anneal(f, s, best, rng, memory, parameters, steps)
    else:
        _follow_best_neighbour(f, s, best, rng, memory, parameters, steps)
