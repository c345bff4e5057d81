"""Theorem 4.2: whether holders of several trees can wait for each other forever, by all interleavings."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headwater.reproduce.figure import Cell, Claim, FigureSettings, Report, ReportTable
from headwater.sim.checker.interleavings import Exploration, explore, sample_runs, shortest_failure
from headwater.sim.trees.members import (
    Parents,
    all_moves,
    judge_members,
    judge_printed,
    no_moves,
    ordered_world,
    printed_world,
)

SHARED_CHILDREN: tuple[Parents, ...] = ({0: None, 2: 0, 3: 0}, {1: None, 2: 1, 3: 1})
"""Two origins have the same two children."""
CHILD_AND_HOLDER: tuple[Parents, ...] = ({3: None, 0: 3, 1: 3}, {0: None, 1: 0, 2: 0})
"""A provider is held for one tree while it holds a child of both."""
CASES = {"A": SHARED_CHILDREN, "B": CHILD_AND_HOLDER}
FIVE_PROVIDERS: dict[str, tuple[Parents, ...]] = {
    "five providers, three trees": ({0: None, 4: 0, 3: 0}, {1: None, 2: 1}, {2: None, 3: 2}),
    "five providers, two trees": ({4: None, 0: 4, 3: 4, 1: 4, 2: 4}, {0: None, 1: 0}),
}
"""Small ones, beside those that are drawn."""

MOST_STATES = 60_000_000
"""Of a world; they take 3 GB while their table grows."""

COLUMNS = ("trees", "protocol", "states", "ends", "wrong ends", "all interleavings")


def random_trees(random: Random, providers: int, trees: int) -> list[Parents]:
    """Random trees that together have all the providers."""
    while True:
        drawn: list[Parents] = []
        for _ in range(trees):
            members = random.sample(range(providers), random.randint(2, providers))
            parents: dict[int, int | None] = {members[0]: None}
            for member in members[1:]:
                parents[member] = random.choice(list(parents))
            drawn.append(parents)
        # A provider in no tree would make the world smaller than it is said to be.
        if len({member for parents in drawn for member in parents}) == providers:
            return drawn


def locks(settings: FigureSettings) -> Report:
    """The printed protocol and ours, in the two cases and in random trees."""
    most_states = 200_000 if settings.quick else MOST_STATES
    worlds: dict[str, Sequence[Parents]] = dict(CASES)
    for seed in range(1, settings.seeds + 1):
        random = Random(seed)
        # Four seeds in a row have all pairs of 4 or 5 providers and 2 or 3 trees.
        providers, trees = (4, 2) if settings.quick else (4 + seed % 2, 2 + seed // 2 % 2)
        worlds[f"random {seed}"] = random_trees(random, providers, trees)
    if not settings.quick:
        worlds |= FIVE_PROVIDERS
    results = {name: _explore_all(trees, most_states) for name, trees in worlds.items()}
    rows: list[tuple[Cell, ...]] = [
        (name, protocol, one.states, one.ends, one.failures, one.complete)
        for name, outcomes in results.items()
        for protocol, one in outcomes.items()
    ]
    runs = _sample_largest(settings)
    rows.append(("5 providers, 3 trees", RANDOM, runs.states, runs.ends, runs.failures, False))
    tables = (
        ReportTable("All orders of messages and deaths", COLUMNS, tuple(rows)),
        _witness_table(),
    )
    return Report(tables, _claims(results, runs))


PRINTED = "printed"
OURS = "ordered locks"
RANDOM = "ordered locks, all moves, two deaths, random runs"


def _explore_all(trees: Sequence[Parents], most_states: int) -> dict[str, Exploration]:
    judge = judge_members(trees)
    outcomes = {PRINTED: explore(printed_world(trees), judge_printed, most_states)}
    for name, choices, kills in (
        (OURS, no_moves, 0),
        (f"{OURS}, one death", no_moves, 1),
        (f"{OURS}, all moves", all_moves, 0),
        (f"{OURS}, all moves, one death", all_moves, 1),
    ):
        outcomes[name] = explore(ordered_world(trees, choices, kills), judge, most_states)
    return outcomes


def _sample_largest(settings: FigureSettings) -> Exploration:
    """Random runs where there are too many states: five providers, three trees, two of them die."""
    states = ends = failures = 0
    first = ""
    for seed in range(1, settings.seeds + 1):
        # Other trees than those that are explored in full.
        random = Random(1000 + seed)
        trees = random_trees(random, 5, 3)
        world = ordered_world(trees, all_moves, 2)
        one = sample_runs(world, judge_members(trees), random, 20 if settings.quick else 2000)
        states, ends, failures = states + one.states, ends + one.ends, failures + one.failures
        first = first or one.first_failure
    return Exploration(states, ends, failures, first, complete=False)


def _witness_table() -> ReportTable:
    rows = [
        (name, number, step)
        for name, trees in CASES.items()
        for number, step in enumerate(
            shortest_failure(printed_world(trees), judge_printed) or (), start=1
        )
    ]
    title = "The printed protocol: the shortest ways into a deadlock"
    return ReportTable(title, ("trees", "step", "message"), tuple(rows))


def _claims(results: dict[str, dict[str, Exploration]], runs: Exploration) -> tuple[Claim, ...]:
    printed = {name: outcomes[PRINTED].failures for name, outcomes in results.items()}
    stuck = [name for name, failures in printed.items() if failures]
    return (
        Claim(
            "the printed protocol has no deadlock (theorem 4.2)",
            "yes",
            f"deadlocks in {', '.join(stuck) or 'none'} of {len(printed)} sets of trees",
            not stuck,
        ),
        _claim_right(
            "ordered locks: nobody waits for ever, every tree spans the living", results, False
        ),
        _claim_right("the same with every possible move", results, True),
        Claim(
            "the same in random runs of the largest worlds",
            "(ours)",
            f"{runs.failures} wrong of {runs.ends} ends",
            runs.failures == 0,
        ),
    )


def _claim_right(what: str, results: dict[str, dict[str, Exploration]], with_moves: bool) -> Claim:
    """That no end is wrong; undecided where there were too many states to visit all."""
    ours = [
        one
        for outcomes in results.values()
        for protocol, one in outcomes.items()
        if protocol != PRINTED and ("all moves" in protocol) == with_moves
    ]
    complete = sum(one.complete for one in ours)
    wrong = sum(one.failures for one in ours)
    shown = (
        f"{wrong} wrong of {sum(one.ends for one in ours)} ends in "
        f"{sum(one.states for one in ours):,} states; {complete} of {len(ours)} worlds in full"
    )
    right = not any(one.failures or one.endless for one in ours)
    return Claim(what, "(ours)", shown, None if right and complete < len(ours) else right)
