"""How long planning takes: the ladder, our exact form, and the paper's form on the same sub-problems.

A system of SQPR's kind is filled until 75 % of its CPU is in use; then the next queries are
planned by each, always from the same plan. Every plan is checked, and where both exact forms prove
their answer it has to be the same; otherwise there is nothing to report. The paper's form is stopped at
LIMIT seconds, so the ratio is a lower bound.

    python benchmarks/placement.py [HOSTS [QUERIES [LIMIT]]]
    python benchmarks/placement.py regions [HOSTS ...]
    python benchmarks/placement.py admissions [HOSTS [LIMIT]]

The second compares regions first with the flat ladder: on an empty system, and on one that is so full
that queries climb the whole ladder, both from the same plan. The third submits 20 queries for each host to
every planner, one by one, the paper's form with its LIMIT for each of them, and counts admissions.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace

from headwater.plan.placement.check import find_violations
from headwater.plan.placement.fixed_load import ReplanScope
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementPlan, PlacementProblem, objective
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners.compact import CompactFormulation
from headwater.plan.placement.planners.dynamic import (
    StreamPlacer,
    StreamPopularity,
    place_stream,
)
from headwater.plan.placement.planners.flows import FlowFormulation
from headwater.plan.placement.planners.ladder import LadderPlanner
from headwater.plan.placement.planners.regions import RegionPlacer
from headwater.plan.placement.program import Solution, SolverStatus
from headwater.plan.placement.samples import TIGHT, sample_problem
from headwater.plan.placement.solver import solve_cp_sat, solve_highs
from headwater.reproduce.sqpr.runs import SECONDS, submit_queries

FULL = 0.75
GAP = 1e-4

CROWDED = 0.95
CLIMBING = 40
"""So many queries climb the whole ladder when that share of the CPU is in use."""


class Invalid(Exception):
    """A plan that is none, or two proofs that contradict each other."""


def main() -> int:
    if sys.argv[1:2] == ["regions"]:
        for size in map(int, sys.argv[2:] or ("200", "1000", "5000")):
            regions(size)
        return 0
    if sys.argv[1:2] == ["admissions"]:
        hosts, limit = (*map(int, sys.argv[2:]), *(10, 30)[len(sys.argv) - 2 :])
        admissions(hosts, float(limit))
        return 0
    hosts, queries, limit = (*map(int, sys.argv[1:]), *(10, 5, 30)[len(sys.argv) - 1 :])
    try:
        for size in (50, 200, 1000):
            dynamic(size)
        ladder, ours, theirs, proven = compare(hosts, queries, float(limit))
    except Invalid as error:
        print(f"nothing to report: {error}", file=sys.stderr)
        return 1
    print(f"{queries} sub-problems on {hosts} hosts; the paper's form proved {proven} in {limit} s")
    print(f"the ladder     {statistics.mean(ladder) * 1e3:10.1f} ms")
    print(f"our exact form {statistics.mean(ours) * 1e3:10.1f} ms")
    print(f"the paper's    {statistics.mean(theirs) * 1e3:10.1f} ms")
    print(f"the ladder is {sum(theirs) / sum(ladder):,.0f}x as fast as the paper's form")
    print(f"ratio: our exact form {sum(theirs) / sum(ours):,.0f}x as fast as the paper's")
    return 0


def dynamic(hosts: int) -> None:
    """Print how long queries take that the dynamic program can place."""
    problem = sample_problem(replace(TIGHT, hosts=hosts, base_streams=10 * hosts), 1)
    ledger, taste = Ledger(problem), StreamPopularity()
    times = []
    for number, query in enumerate(problem.queries):
        begun = time.perf_counter()
        taste.record_query(problem, query.stream)
        done = place_stream(ledger, query.stream, taste)
        if done:
            ledger.ask(number)
            times.append(time.perf_counter() - begun)
        ledger.commit()
    valid(problem, ledger.plan(), None)
    times.sort()
    middle, late = times[len(times) // 2] * 1e3, times[len(times) * 95 // 100] * 1e3
    print(f"{hosts:5} hosts: {len(times)} placed, median {middle:.2f} ms, 95 % below {late:.2f} ms")


def regions(hosts: int) -> None:
    """Print the time for each query and the admissions of regions first, and of the flat ladder."""
    setting = replace(TIGHT, hosts=hosts, base_streams=10 * hosts, queries=12 * hosts)
    problem = sample_problem(setting, 1)
    early = range(2 * hosts)
    ways: tuple[tuple[str, StreamPlacer], ...] = (
        ("flat", place_stream),
        ("regions", RegionPlacer()),
    )
    warm_up(problem, [way for _, way in ways])
    times = {}
    for name, way in ways:
        ledger, planner = Ledger(problem), LadderPlanner(("dynamic",), way)
        decisions = list(planner(ledger, early, Budget()))
        times[name] = told(f"{hosts} hosts, empty", name, decisions)
        valid(problem, ledger.plan(), None)
    print(f"ratio: regions first {times['flat'] / times['regions']:.2f}x as fast when empty")
    query = len(early)
    while query < len(problem.queries) - CLIMBING:
        if ledger.free[0].sum() < (1 - CROWDED) * ledger.capacity[0].sum():
            break
        list(planner(ledger, [query], Budget()))
        query += 1
    plan = ledger.plan()
    used = 1 - ledger.free[0].sum() / ledger.capacity[0].sum()
    for name, way in ways:
        ledger = Ledger(problem, plan)
        ladder = LadderPlanner(
            placer=way,
            popularity=StreamPopularity(stream_counts=planner.popularity.stream_counts.copy()),
        )
        decisions = list(ladder(ledger, range(query, query + CLIMBING), Budget(seconds=10.0)))
        times[name] = told(f"{hosts} hosts, {used:.0%} of the CPU in use", name, decisions)
        valid(problem, ledger.plan(), plan)
    print(f"ratio: regions first {times['flat'] / times['regions']:.2f}x as fast when full")


def admissions(hosts: int, limit: float) -> None:
    """Print how many queries each planner admits, the paper's form with its limit of time."""
    problem = sample_problem(
        replace(TIGHT, hosts=hosts, base_streams=10 * hosts, queries=20 * hosts), 1
    )
    found = {}
    for name in ("headwater", "heuristic", "soda", "sqpr"):
        found[name] = submit_queries(name, problem, seconds=limit if name == "sqpr" else SECONDS)
        one = found[name]
        ways = ", ".join(f"{w}-way {yes}/{of}" for w, (yes, of) in one.admitted_by_ways().items())
        first = one.first_refusal
        print(
            f"{name:10} admitted {one.admitted_count(10 * hosts)} of {10 * hosts}, {one.admitted_count()} of "
            f"{20 * hosts} ({ways}), first refused {first}, mean {one.mean_seconds:.3f} s",
            flush=True,
        )
    ours, theirs = found["headwater"], found["sqpr"]
    ratio = ours.admitted_count(10 * hosts) / theirs.admitted_count(10 * hosts)
    print(
        f"ratio: of the first half ours admits {ratio:.2f}x the paper's form, "
        f"{theirs.mean_seconds / ours.mean_seconds:,.0f}x as fast"
    )


def warm_up(problem: PlacementProblem, ways: list[StreamPlacer]) -> None:
    """Have everything compiled and loaded before time is taken."""
    for way in ways:
        way(Ledger(problem), problem.queries[0].stream, StreamPopularity())
    small = sample_problem(replace(TIGHT, hosts=2, base_streams=8, queries=1), 1)
    list(LadderPlanner(("exact",))(Ledger(small), [0], Budget()))


def told(what: str, name: str, decisions: list[Decision]) -> float:
    """Print one line; returns the mean time."""
    times = sorted(d.seconds * 1e3 for d in decisions)
    mean = statistics.mean(times)
    print(
        f"{what}: {name:8} admitted {sum(d.admitted for d in decisions)} of {len(decisions)}, mean "
        f"{mean:.2f} ms, median {times[len(times) // 2]:.2f} ms, 95 % below "
        f"{times[len(times) * 95 // 100]:.2f} ms, proven {sum(d.proven for d in decisions)}",
        flush=True,
    )
    return mean


def compare(
    hosts: int, queries: int, limit: float
) -> tuple[list[float], list[float], list[float], int]:
    """The seconds of the ladder, of our exact form and of the paper's; how many the latter proved."""
    problem = sample_problem(
        replace(TIGHT, hosts=hosts, base_streams=10 * hosts, queries=20 * hosts), 1
    )
    ledger, taste = Ledger(problem), StreamPopularity()
    query = 0
    while ledger.free[0].sum() > (1 - FULL) * ledger.capacity[0].sum():
        stream = problem.queries[query].stream
        if place_stream(ledger, stream, taste):
            ledger.ask(query)
        ledger.commit()
        query += 1
    plan = ledger.plan()
    ladder, ours, theirs, proven = [], [], [], 0
    while len(ours) < queries:
        stream = problem.queries[query].stream
        if stream not in ledger.served:
            copy = Ledger(problem, plan)
            (decision,) = LadderPlanner()(copy, [query], Budget(limit))
            valid(problem, copy.plan(), plan)
            ladder.append(decision.seconds)
            wanted = [stream]
            begun = time.perf_counter()
            compact = CompactFormulation(ReplanScope(Ledger(problem, plan), wanted), wanted)
            mine = solve_cp_sat(compact.program, limit, GAP)
            ours.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            flows = FlowFormulation(ReplanScope(Ledger(problem, plan), wanted), wanted)
            other = solve_highs(flows.program, limit)
            theirs.append(time.perf_counter() - begun)
            plans = [
                None if solution.values is None else form.extract_plan(solution, [query])
                for form, solution in ((compact, mine), (flows, other))
            ]
            agree(problem, plan, mine, other, plans)
            proven += other.status in (SolverStatus.OPTIMAL, SolverStatus.INFEASIBLE)
            print(
                f"query {query}: ladder {ladder[-1]:.4f} s ({decision.step}), exact {ours[-1]:.3f} s "
                f"({mine.status.value}), paper {theirs[-1]:.2f} s ({other.status.value})"
            )
        query += 1
    return ladder, ours, theirs, proven


def agree(
    problem: PlacementProblem,
    before: PlacementPlan,
    mine: Solution,
    other: Solution,
    plans: list[PlacementPlan | None],
) -> None:
    """Raises Invalid if a plan is none, or if what one form proves the other one contradicts."""
    for plan in plans:
        if plan is not None:
            valid(problem, plan, before)
    found = [plan is not None for plan in plans]
    for one, has in ((mine, found[1]), (other, found[0])):
        if one.status is SolverStatus.INFEASIBLE and has:
            raise Invalid("one form proves that there is no plan, the other has one")
    if mine.status is other.status is SolverStatus.OPTIMAL and plans[0] and plans[1]:
        costs = [objective(problem, plan) for plan in plans if plan is not None]
        if abs(costs[0] - costs[1]) > 2 * GAP * max(costs):
            raise Invalid(f"both forms prove their plan the best: {costs[0]} and {costs[1]}")


def valid(problem: PlacementProblem, plan: PlacementPlan, before: PlacementPlan | None) -> None:
    """Raises Invalid if a constraint is broken."""
    broken = find_violations(problem, plan, before)
    if broken:
        raise Invalid(str(broken[0]))


if __name__ == "__main__":
    sys.exit(main())
