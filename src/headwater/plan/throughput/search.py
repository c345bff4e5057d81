"""Searches for the best configuration, all behind one interface.

A search is a function of a problem, a configuration to start from and a seed. It gives an iterator
over the best configuration met so far, a new one every few milliseconds: to take the next is to search
on, to stop is to stop, and the last one taken is the answer. A search that has nothing left to do
ends by itself.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headwater.errors import PlanError
from headwater.network.model import Network, Site
from headwater.plan.throughput import flat
from headwater.plan.throughput.enumerate import (
    all_places,
    all_plans,
    bound_places,
    plans_for,
    restore,
)
from headwater.plan.throughput.model import Configuration, Problem
from headwater.plan.throughput.walks import (
    ANNEAL,
    CLIMB,
    ENDED,
    HERE,
    LOGICAL,
    PHYSICAL,
    TABU,
    Best,
    How,
    best_of,
    memory_for,
    seeded,
    walk,
)

BOTH = 0.5
"""The share of physical moves if a walk makes moves of both kinds."""

HEATS = (0.3, 0.1, 0.03, 0.01)
"""The temperatures of annealing."""

ANY = 1e9
"""A temperature at which every move is taken."""

MOST_PLANS = 400_000
MOST_PLACES = 50_000_000


@dataclass(frozen=True)
class Found:
    """The best configuration so far, how many were looked at, and whether none can be better."""

    configuration: Configuration
    quality: float
    seen: int
    proven: bool = False


Search = Callable[[Problem, Configuration, int], Iterator[Found]]


def run(
    search: Search,
    problem: Problem,
    start: Configuration | None = None,
    seed: int = 0,
    *,
    seconds: float = math.inf,
    seen: float = math.inf,
    progress: Callable[[Found], None] | None = None,
) -> Found:
    """The best that a search finds until it ends, or its time is up, or so many were looked at.

    Time counts from the first one found, when all that has to be compiled is.
    """
    begun = math.nan
    best = None
    for found in search(problem, start or problem.start(), seed):
        begun = time.monotonic() if best is None else begun
        best = found
        if progress is not None:
            progress(found)
        if time.monotonic() - begun >= seconds or found.seen >= seen:
            break
    if best is None:
        raise PlanError("the search found no configuration")
    return best


def restarts(
    search: Search,
    problem: Problem,
    seeds: Sequence[int],
    *,
    seconds: float = math.inf,
    workers: int = 2,
) -> Found:
    """The best of several runs at the same time, each from random places with a seed of its own."""

    def one(seed: int) -> Found:
        return run(search, problem, scattered(problem, seed), seed, seconds=seconds)

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(one, seeds))
    best = max(found, key=lambda one: one.quality)
    return replace(best, seen=sum(one.seen for one in found))


def scattered(problem: Problem, seed: int) -> Configuration:
    """The plan as written, with every operator on a random one of its options."""
    rng = random.Random(f"scattered {seed}")
    hosts = tuple(rng.choice(options) for options in problem.options)
    return replace(problem.start(), hosts=hosts)


# ---- walks


def anywhere(problem: Problem, start: Configuration, seed: int) -> Iterator[Found]:
    """No search at all: the start."""
    yield from _steps(problem, start, seed, [(How(CLIMB), 0)])


def greedy(
    problem: Problem, start: Configuration, seed: int, *, steps: int = 1000, alpha: float = BOTH
) -> Iterator[Found]:
    """To the best neighbour, until none is better."""
    yield from _steps(problem, start, seed, [(How(CLIMB, alpha), steps)])


def annealing(
    problem: Problem,
    start: Configuration,
    seed: int,
    *,
    heats: Sequence[float] = HEATS,
    steps: int = 400,
    alpha: float = BOTH,
) -> Iterator[Found]:
    """Random moves at falling temperatures."""
    walks = [(How(ANNEAL, alpha, heat), steps) for heat in heats]
    yield from _steps(problem, start, seed, walks)


def tabu(
    problem: Problem,
    start: Configuration,
    seed: int,
    *,
    steps: int = 1000,
    length: int = 1000,
    alpha: float = BOTH,
) -> Iterator[Found]:
    """To the best neighbour that is not among the last `length` configurations."""
    yield from _steps(problem, start, seed, [(How(TABU, alpha), steps)], float(length))


def reactive_tabu(
    problem: Problem,
    start: Configuration,
    seed: int,
    *,
    steps: int = 1000,
    alpha: float = BOTH,
) -> Iterator[Found]:
    """Tabu search that sets the length of its list by itself, and escapes from basins.

    When nothing better was found for a while it begins again, some random moves from the start, since
    there are moves that no others take back.
    """
    how = How(TABU, alpha, grow=1.1, shrink=0.9, longest=50, chaos=3)
    yield from _steps(problem, start, seed, [(how, steps)], 1.0, again=True)


def _steps(
    problem: Problem,
    start: Configuration,
    seed: int,
    walks: Sequence[tuple[How, int]],
    length: float = 0.0,
    again: bool = False,
) -> Iterator[Found]:
    """Walk after walk, a few steps at once; if `again`, from near the start when these led to nothing."""
    facts = flat.facts(problem)
    state = flat.state(problem, facts, start)
    best, rng = best_of(state), seeded(seed)
    memory = memory_for(sum(steps for _, steps in walks) if length else 0, length)
    at_once, draw = max(25, 5 * len(problem.operators)), random.Random(seed)
    for how, steps in walks:
        left = steps
        while True:
            now, before = min(left, at_once), best.quality[0]
            walk(facts, state, best, rng, memory, how, now)
            left -= now
            if again and best.quality[0] == before:
                flat.load(problem, facts, state, start)
                memory.numbers[HERE] = -1.0
                away = draw.randint(1, len(problem.operators))
                walk(facts, state, best, rng, memory, How(ANNEAL, how.alpha, ANY), away)
            yield _found(problem, facts, best)
            if left <= 0 or memory.numbers[ENDED]:
                break


def _found(problem: Problem, facts: Any, best: Best, proven: bool = False) -> Found:
    configuration = flat.configuration_of(problem, facts, best.child, best.outputs, best.pick)
    return Found(configuration, float(best.quality[0]), int(best.seen[0]), proven)


# ---- two phases


def two_phases(
    first: Search, second: Search, problem: Problem, start: Configuration, seed: int
) -> Iterator[Found]:
    """The plan first, as if all ran on one machine; then the places, with that plan."""
    alone = on_one_site(problem)
    plan = run(first, alone, replace(start, hosts=alone.start().hosts), seed)
    chosen = replace(plan.configuration, hosts=start.hosts)
    for found in second(problem, chosen, seed):
        yield replace(found, seen=found.seen + plan.seen, proven=False)


def on_one_site(problem: Problem) -> Problem:
    """The problem with all sites made one, which has the power and the memory of all."""
    sites = problem.network.sites
    cpu, memory = sum(site.cpu for site in sites), sum(site.memory for site in sites)
    one = Site("all", cpu=cpu, memory=memory)
    options = (((0,),),) * len(problem.operators)
    return replace(problem, network=Network((one,), ()), options=options, latency=None)


# ---- exact


def exhaustive(
    problem: Problem,
    start: Configuration,
    seed: int,
    *,
    alpha: float = BOTH,
    plans: int = MOST_PLANS,
) -> Iterator[Found]:
    """All plans, all places; raises PlanError if these are too many."""
    yield from _exact(problem, start, alpha, plans, _try_all)


def branch_and_bound(
    problem: Problem,
    start: Configuration,
    seed: int,
    *,
    alpha: float = BOTH,
    plans: int = MOST_PLANS,
    most: int = 2_000_000,
) -> Iterator[Found]:
    """All plans; of the places only those that may be better than the best found by annealing.

    The last one found is proven to be the best, up to a billionth, if no plan took more than
    `most` steps to be decided. Raises PlanError if there are too many plans.
    """
    guess = None
    for guess in annealing(problem, start, seed, alpha=alpha):
        yield guess
    assert guess is not None
    yield from _exact(problem, start, alpha, plans, partial(_bound, most=most), guess)


def _exact(
    problem: Problem,
    start: Configuration,
    alpha: float,
    most: int,
    look: Callable[..., Iterator[Found]],
    guess: Found | None = None,
) -> Iterator[Found]:
    """Look at all plans that moves lead to from the start, with a guess to improve on."""
    if alpha == LOGICAL:
        problem = _fixed(problem, start)
    facts = flat.facts(problem)
    state = flat.state(problem, facts, guess.configuration if guess else start)
    best = best_of(state)
    best.seen[0] = guess.seen if guess else 0
    walk(facts, state, best, seeded(0), memory_for(0), How(CLIMB), 0)
    yield _found(problem, facts, best)
    flat.load(problem, facts, state, start)
    plans, count = plans_for(state, 1), 1
    if alpha == PHYSICAL:
        all_plans(facts, state, plans)
    else:
        plans, count = _plans(facts, state, most)
    yield from look(problem, facts, state, best, plans, count)


def _fixed(problem: Problem, start: Configuration) -> Problem:
    """The problem with every operator staying where it is."""
    return replace(problem, options=tuple((hosts,) for hosts in start.hosts))


def _plans(facts: Any, state: Any, most: int) -> tuple[Any, int]:
    """All plans; raises PlanError if there are too many."""
    room = min(most, 4096)
    while True:
        plans = plans_for(state, room)
        count = all_plans(facts, state, plans)
        if count <= room:
            return plans, count
        if room == most:
            raise PlanError(f"more than {most:,} plans are too many; take another search")
        restore(facts, state, plans, 0)
        room = min(most, 4 * room)


def _try_all(
    problem: Problem, facts: Any, state: Any, best: Best, plans: Any, count: int
) -> Iterator[Found]:
    for number in range(count):
        restore(facts, state, plans, number)
        if not all_places(facts, state, best, MOST_PLACES):
            raise PlanError(
                f"more than {MOST_PLACES:,} places are too many to look at all; take another search"
            )
        yield _found(problem, facts, best, proven=number == count - 1)


def _bound(
    problem: Problem, facts: Any, state: Any, best: Best, plans: Any, count: int, most: int
) -> Iterator[Found]:
    undecided, at_once = 0, 64
    for number in range(0, count, at_once):
        until = min(count, number + at_once)
        left, _ = bound_places(facts, state, best, plans, number, until, most)
        undecided += left
        yield _found(problem, facts, best, proven=until == count and not undecided)


# ---- all together


def portfolio(problem: Problem, start: Configuration, seed: int) -> Iterator[Found]:
    """All searches in turn, each as it would run alone, then annealing again and again from the best.

    So it is never worse than any of them, once each has had its turn. The quick ones come first. It ends
    when branch and bound has proven that there is nothing better, and else goes on until it is stopped.
    """
    best: Found | None = None
    seen = 0
    for search in MEMBERS.values():
        last = 0
        try:
            for found in search(problem, start, seed):
                last = found.seen
                best = found if best is None or found.quality > best.quality else best
                yield replace(best, seen=seen + last, proven=False)
                if found.proven:
                    yield replace(found, seen=seen + last)
                    return
        except PlanError:
            continue
        finally:
            seen += last
    assert best is not None
    for again in range(1, 1 << 30):
        origin = best.configuration if again % 2 else scattered(problem, seed + again)
        for found in annealing(problem, origin, seed + again, steps=2000):
            best = found if found.quality > best.quality else best
            last = found.seen
            yield replace(best, seen=seen + last, proven=False)
        seen += last


SEARCHES: dict[str, Search] = {
    "start": anywhere,
    "greedy": greedy,
    "annealing": annealing,
    "tabu": tabu,
    "reactive-tabu": reactive_tabu,
    "two-phase-reactive-tabu": partial(
        two_phases, partial(reactive_tabu, alpha=LOGICAL), partial(reactive_tabu, alpha=PHYSICAL)
    ),
    "exhaustive": exhaustive,
    "two-phase-exhaustive": partial(
        two_phases, partial(exhaustive, alpha=LOGICAL), partial(exhaustive, alpha=PHYSICAL)
    ),
    "branch-and-bound": branch_and_bound,
    "portfolio": portfolio,
}
"""All searches by name."""

MEMBERS: dict[str, Search] = {
    name: SEARCHES[name]
    for name in ("annealing", "greedy", "reactive-tabu", "tabu", "two-phase-reactive-tabu")
} | {"branch-and-bound": partial(branch_and_bound, plans=16_384, most=2_000)}
"""The searches that the portfolio runs first, quick ones before slow ones."""
