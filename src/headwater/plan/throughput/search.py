"""Searches for the best configuration, all behind one interface.

A search is a function of a problem, a configuration to start from and a seed. It returns an iterator
over the best configuration so far, a new one every few milliseconds: the caller continues the search by
asking for the next one and may stop at any time; the last one is the answer. A search that has nothing
left to do ends by itself.
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
from headwater.plan.throughput import arrays
from headwater.plan.throughput.enumerate import (
    bound_placements,
    enumerate_plans,
    new_plan_store,
    restore_plan,
    try_all_placements,
)
from headwater.plan.throughput.local_search import (
    ANNEAL,
    CLIMB,
    CURRENT_QUALITY,
    ENDED,
    LOGICAL,
    PHYSICAL,
    TABU,
    BestConfiguration,
    WalkParameters,
    new_best,
    new_memory,
    rng_state,
    walk,
)
from headwater.plan.throughput.model import Configuration, ThroughputProblem

MIXED_MOVES = 0.5
"""The fraction of physical moves in a walk with moves of both kinds."""

HEATS = (0.3, 0.1, 0.03, 0.01)
"""The temperatures of annealing."""

ANY_TEMPERATURE = 1e9
"""A temperature at which every move is accepted."""

MAX_PLANS = 400_000
MAX_PLACEMENTS = 50_000_000


@dataclass(frozen=True)
class SearchResult:
    """The best configuration so far, how many were looked at, and whether none can be better."""

    configuration: Configuration
    quality: float
    seen: int
    proven: bool = False


Search = Callable[[ThroughputProblem, Configuration, int], Iterator[SearchResult]]


def run_search(
    search: Search,
    problem: ThroughputProblem,
    start: Configuration | None = None,
    seed: int = 0,
    *,
    seconds: float = math.inf,
    max_seen: float = math.inf,
    progress: Callable[[SearchResult], None] | None = None,
) -> SearchResult:
    """The best configuration found until the search ends, its time is up, or it reaches the limit of configurations.

    Time counts from the first result, when Numba has compiled all that it has to.
    """
    started = math.nan
    best = None
    for result in search(problem, start or problem.initial_configuration(), seed):
        started = time.monotonic() if best is None else started
        best = result
        if progress is not None:
            progress(result)
        if time.monotonic() - started >= seconds or result.seen >= max_seen:
            break
    if best is None:
        raise PlanError("the search found no configuration")
    return best


def run_restarts(
    search: Search,
    problem: ThroughputProblem,
    seeds: Sequence[int],
    *,
    seconds: float = math.inf,
    workers: int = 2,
) -> SearchResult:
    """The best of several runs at the same time, each from random places with a seed of its own."""

    def one(seed: int) -> SearchResult:
        return run_search(search, problem, random_placement(problem, seed), seed, seconds=seconds)

    # Threads are enough: the compiled walks release the interpreter lock.
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(one, seeds))
    best = max(results, key=lambda one: one.quality)
    return replace(best, seen=sum(one.seen for one in results))


def random_placement(problem: ThroughputProblem, seed: int) -> Configuration:
    """The plan as written, with every operator on a random one of its options."""
    # Not the seed itself, from which the walk draws its moves.
    rng = random.Random(f"scattered {seed}")
    hosts = tuple(rng.choice(options) for options in problem.options)
    return replace(problem.initial_configuration(), hosts=hosts)


# ---- walks


def no_search(
    problem: ThroughputProblem, start: Configuration, seed: int
) -> Iterator[SearchResult]:
    """No search at all: the start."""
    yield from _run_walks(problem, start, seed, [(WalkParameters(CLIMB), 0)])


def greedy(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    steps: int = 1000,
    alpha: float = MIXED_MOVES,
) -> Iterator[SearchResult]:
    """To the best neighbour, until none is better."""
    yield from _run_walks(problem, start, seed, [(WalkParameters(CLIMB, alpha), steps)])


def annealing(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    heats: Sequence[float] = HEATS,
    steps: int = 400,
    alpha: float = MIXED_MOVES,
) -> Iterator[SearchResult]:
    """Random moves at falling temperatures."""
    walks = [(WalkParameters(ANNEAL, alpha, heat), steps) for heat in heats]
    yield from _run_walks(problem, start, seed, walks)


def tabu(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    steps: int = 1000,
    length: int = 1000,
    alpha: float = MIXED_MOVES,
) -> Iterator[SearchResult]:
    """To the best neighbour that is not among the last `length` configurations."""
    yield from _run_walks(
        problem, start, seed, [(WalkParameters(TABU, alpha), steps)], float(length)
    )


def reactive_tabu(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    steps: int = 1000,
    alpha: float = MIXED_MOVES,
) -> Iterator[SearchResult]:
    """Tabu search that sets the length of its list by itself, and escapes from basins.

    When nothing better was found for a while it begins again, some random moves from the start, since
    there are moves that no others take back.
    """
    parameters = WalkParameters(TABU, alpha, grow=1.1, shrink=0.9, longest=50, chaos=3)
    yield from _run_walks(problem, start, seed, [(parameters, steps)], 1.0, again=True)


def _run_walks(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    walks: Sequence[tuple[WalkParameters, int]],
    length: float = 0.0,
    again: bool = False,
) -> Iterator[SearchResult]:
    """Walk after walk, a few steps at once; if `again`, from near the start when these led to nothing."""
    facts = arrays.problem_arrays(problem)
    state = arrays.configuration_arrays(problem, facts, start)
    best, rng = new_best(state), rng_state(seed)
    memory = new_memory(sum(steps for _, steps in walks) if length else 0, length)
    # A chunk is what runs between two results: long enough that calling compiled code costs little,
    # short enough that a caller can stop within milliseconds.
    chunk, draw = max(25, 5 * len(problem.operators)), random.Random(seed)
    for parameters, steps in walks:
        left = steps
        while True:
            now, before = min(left, chunk), best.quality[0]
            walk(facts, state, best, rng, memory, parameters, now)
            left -= now
            if again and best.quality[0] == before:
                arrays.load_configuration(problem, facts, state, start)
                memory.numbers[CURRENT_QUALITY] = -1.0
                distance = draw.randint(1, len(problem.operators))
                walk(
                    facts,
                    state,
                    best,
                    rng,
                    memory,
                    WalkParameters(ANNEAL, parameters.alpha, ANY_TEMPERATURE),
                    distance,
                )
            yield _search_result(problem, facts, best)
            if left <= 0 or memory.numbers[ENDED]:
                break


def _search_result(
    problem: ThroughputProblem, facts: Any, best: BestConfiguration, proven: bool = False
) -> SearchResult:
    configuration = arrays.configuration_of(problem, facts, best.child, best.outputs, best.pick)
    return SearchResult(configuration, float(best.quality[0]), int(best.seen[0]), proven)


# ---- two phases


def two_phases(
    first: Search, second: Search, problem: ThroughputProblem, start: Configuration, seed: int
) -> Iterator[SearchResult]:
    """The plan first, as if all ran on one machine; then the placement of that plan."""
    merged = merge_sites(problem)
    plan = run_search(
        first, merged, replace(start, hosts=merged.initial_configuration().hosts), seed
    )
    chosen = replace(plan.configuration, hosts=start.hosts)
    for result in second(problem, chosen, seed):
        # The best places of the best plan on one site need not be the best of all.
        yield replace(result, seen=result.seen + plan.seen, proven=False)


def merge_sites(problem: ThroughputProblem) -> ThroughputProblem:
    """The problem with all sites merged into one that has their total power and memory."""
    sites = problem.network.sites
    cpu, memory = sum(site.cpu for site in sites), sum(site.memory for site in sites)
    merged = Site("all", cpu=cpu, memory=memory)
    options = (((0,),),) * len(problem.operators)
    # Without the bound on latency: a single site has no links to be slow.
    return replace(problem, network=Network((merged,), ()), options=options, latency=None)


# ---- exact


def exhaustive(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    alpha: float = MIXED_MOVES,
    plans: int = MAX_PLANS,
) -> Iterator[SearchResult]:
    """All plans, all places; raises PlanError if these are too many."""
    yield from _search_exactly(problem, start, alpha, plans, _try_all)


def branch_and_bound(
    problem: ThroughputProblem,
    start: Configuration,
    seed: int,
    *,
    alpha: float = MIXED_MOVES,
    plans: int = MAX_PLANS,
    most: int = 2_000_000,
) -> Iterator[SearchResult]:
    """All plans; of the placements only those that may be better than the best found by annealing.

    The last one found is proven to be the best, up to a billionth, if no plan took more than
    `most` steps to be decided. Raises PlanError if there are too many plans.
    """
    guess = None
    for guess in annealing(problem, start, seed, alpha=alpha):
        yield guess
    assert guess is not None
    yield from _search_exactly(problem, start, alpha, plans, partial(_bound_all, most=most), guess)


def _search_exactly(
    problem: ThroughputProblem,
    start: Configuration,
    alpha: float,
    most: int,
    look: Callable[..., Iterator[SearchResult]],
    guess: SearchResult | None = None,
) -> Iterator[SearchResult]:
    """Look at all plans that moves lead to from the start, with a guess to improve on."""
    if alpha == LOGICAL:
        problem = _fix_placement(problem, start)
    facts = arrays.problem_arrays(problem)
    state = arrays.configuration_arrays(problem, facts, guess.configuration if guess else start)
    best = new_best(state)
    best.seen[0] = guess.seen if guess else 0
    # No step at all: it only looks at where it is.
    walk(facts, state, best, rng_state(0), new_memory(0), WalkParameters(CLIMB), 0)
    yield _search_result(problem, facts, best)
    arrays.load_configuration(problem, facts, state, start)
    plans, count = new_plan_store(state, 1), 1
    if alpha == PHYSICAL:
        enumerate_plans(facts, state, plans)
    else:
        plans, count = _enumerate_plans(facts, state, most)
    yield from look(problem, facts, state, best, plans, count)


def _fix_placement(problem: ThroughputProblem, start: Configuration) -> ThroughputProblem:
    """The problem with every operator staying where it is."""
    return replace(problem, options=tuple((hosts,) for hosts in start.hosts))


def _enumerate_plans(facts: Any, state: Any, most: int) -> tuple[Any, int]:
    """All plans; raises PlanError if there are too many."""
    # The number of plans is not known before they are enumerated: begin small, and grow by four.
    capacity = min(most, 4096)
    while True:
        plans = new_plan_store(state, capacity)
        count = enumerate_plans(facts, state, plans)
        if count <= capacity:
            return plans, count
        if capacity == most:
            raise PlanError(f"more than {most:,} plans are too many; take another search")
        # Enumeration has left the state at another plan, and has to begin where it began.
        restore_plan(facts, state, plans, 0)
        capacity = min(most, 4 * capacity)


def _try_all(
    problem: ThroughputProblem,
    facts: Any,
    state: Any,
    best: BestConfiguration,
    plans: Any,
    count: int,
) -> Iterator[SearchResult]:
    for number in range(count):
        restore_plan(facts, state, plans, number)
        if not try_all_placements(facts, state, best, MAX_PLACEMENTS):
            raise PlanError(
                f"more than {MAX_PLACEMENTS:,} places are too many to look at all; take another search"
            )
        yield _search_result(problem, facts, best, proven=number == count - 1)


def _bound_all(
    problem: ThroughputProblem,
    facts: Any,
    state: Any,
    best: BestConfiguration,
    plans: Any,
    count: int,
    most: int,
) -> Iterator[SearchResult]:
    undecided, chunk = 0, 64
    for number in range(0, count, chunk):
        until = min(count, number + chunk)
        left, _ = bound_placements(facts, state, best, plans, number, until, most)
        undecided += left
        yield _search_result(problem, facts, best, proven=until == count and not undecided)


# ---- all together


def portfolio(
    problem: ThroughputProblem, start: Configuration, seed: int
) -> Iterator[SearchResult]:
    """All searches in turn, each as it would run alone, then annealing again and again.

    So it is never worse than any of them, once each has had its turn. The quick ones come first. The annealing
    at the end begins at the best and at a random placement by turns. All of it ends when branch and bound has
    proven that there is nothing better; otherwise it continues until it is stopped.
    """
    best: SearchResult | None = None
    seen = 0
    for search in PORTFOLIO_SEARCHES.values():
        last = 0
        try:
            for result in search(problem, start, seed):
                last = result.seen
                best = result if best is None or result.quality > best.quality else best
                yield replace(best, seen=seen + last, proven=False)
                if result.proven:
                    yield replace(result, seen=seen + last)
                    return
        # Too large for this one, an exact search: the others still run.
        except PlanError:
            continue
        finally:
            seen += last
    assert best is not None
    for attempt in range(1, 1 << 30):
        origin = best.configuration if attempt % 2 else random_placement(problem, seed + attempt)
        for result in annealing(problem, origin, seed + attempt, steps=2000):
            best = result if result.quality > best.quality else best
            last = result.seen
            yield replace(best, seen=seen + last, proven=False)
        seen += last


SEARCHES: dict[str, Search] = {
    "start": no_search,
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

PORTFOLIO_SEARCHES: dict[str, Search] = {
    name: SEARCHES[name]
    for name in ("annealing", "greedy", "reactive-tabu", "tabu", "two-phase-reactive-tabu")
} | {"branch-and-bound": partial(branch_and_bound, plans=16_384, most=2_000)}
"""The searches that the portfolio runs first, quick ones before slow ones."""
