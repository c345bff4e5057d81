"""Checks a plan: every constraint of the model, proven from the plan and the problem alone.

What a site holds is derived from where base streams come in, step by step, so that streams that only
feed themselves count as held by no site.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.errors import PlanError
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import PlacementPlan, PlacementProblem

TOLERANCE = 1e-6
"""The fraction of a capacity by which floating-point sums may exceed it."""

RESOURCES = ("cpu", "memory", "bandwidth in", "bandwidth out")
"""Of a site, in the order of a ledger's rows."""

CONSTRAINTS = ("demand", "availability", "causality", *RESOURCES, "link", "admitted")


@dataclass(frozen=True)
class Violation:
    """A constraint that does not hold: where, and by how much; `text` says it for people."""

    constraint: str
    where: str
    excess: float
    text: str

    def __str__(self) -> str:
        return f"{self.constraint} of {self.where}: {self.text}"


def find_violations(
    problem: PlacementProblem, plan: PlacementPlan, before: PlacementPlan | None = None
) -> tuple[Violation, ...]:
    """All the constraints that a plan breaks; none if it is good.

    With a plan `before`, no query that it admits may be missing.
    """
    return (
        *_check_demand(problem, plan),
        *_check_availability(problem, plan),
        *_check_resources(problem, plan),
        *_check_admitted(problem, plan, before or PlacementPlan()),
    )


def ensure_valid(
    problem: PlacementProblem, plan: PlacementPlan, before: PlacementPlan | None = None
) -> None:
    """Raises PlanError if a constraint is broken."""
    violations = find_violations(problem, plan, before)
    if violations:
        raise PlanError("not a plan: " + "; ".join(map(str, violations[:5])))


def held_streams(problem: PlacementProblem, plan: PlacementPlan) -> set[tuple[int, int]]:
    """The pairs of a site and a stream that it holds, derived from base streams."""
    held_pairs = {(site, s) for s, stream in enumerate(problem.streams) for site in stream.sites}
    waiting: dict[tuple[int, int], list[tuple[set[tuple[int, int]], tuple[int, int]]]]
    waiting = defaultdict(list)
    ready = list(held_pairs)

    def when(needs: set[tuple[int, int]], then: tuple[int, int]) -> None:
        needs = needs - held_pairs
        for need in needs:
            # One set for all of its needs, so that the last of them finds it empty.
            waiting[need].append((needs, then))
        if not needs and then not in held_pairs:
            held_pairs.add(then)
            ready.append(then)

    for run in plan.runs:
        operator = problem.operators[run.operator]
        when({(run.site, s) for s in operator.inputs}, (run.site, operator.output))
    for send in plan.sends:
        when({(send.origin, send.stream)}, (send.target, send.stream))
    while ready:
        pair = ready.pop()
        for needs, then in waiting.pop(pair, ()):
            needs.discard(pair)
            if not needs and then not in held_pairs:
                held_pairs.add(then)
                ready.append(then)
    return held_pairs


def _check_demand(problem: PlacementProblem, plan: PlacementPlan) -> Iterator[Violation]:
    requested = {problem.queries[query].stream for query in plan.admitted}
    times = Counter(serve.stream for serve in plan.serves)
    for stream in sorted(requested | set(times)):
        name, served = problem.streams[stream].name, times[stream]
        if stream not in requested:
            yield Violation(
                "demand", name, served, f"served {served} times, and nobody asked for it"
            )
        elif served != 1:
            yield Violation("demand", name, abs(served - 1), f"served {served} times, not once")


def _check_availability(problem: PlacementProblem, plan: PlacementPlan) -> Iterator[Violation]:
    """Whoever reads, sends or serves a stream has to hold it."""
    available = held_streams(problem, plan)
    needed = [(s.origin, s.stream, "sends") for s in plan.sends]
    needed += [(s.site, s.stream, "serves") for s in plan.serves]
    needed += [
        (run.site, stream, "reads")
        for run in plan.runs
        for stream in problem.operators[run.operator].inputs
    ]
    missing = sorted({need for need in needed if need[:2] not in available})
    # Only to name the violation: a cycle of streams that feed each other is a different mistake
    # from a stream that no operator computes.
    claimed = _claimed_streams(problem, plan, available) if missing else available
    for site, stream, does in missing:
        where, name = problem.sites[site].name, problem.streams[stream].name
        if (site, stream) in claimed:
            yield Violation("causality", where, 1, f"it {does} {name}, which only feeds itself")
        else:
            yield Violation("availability", where, 1, f"it {does} {name}, which it does not hold")


def _claimed_streams(
    problem: PlacementProblem, plan: PlacementPlan, available: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    """What sites would hold if streams could feed themselves."""
    running = [(r.site, problem.operators[r.operator]) for r in plan.runs]
    claimed = set(available)
    claimed |= {(s.target, s.stream) for s in plan.sends}
    claimed |= {(site, operator.output) for site, operator in running}
    while True:
        supported = available | {
            (s.target, s.stream) for s in plan.sends if (s.origin, s.stream) in claimed
        }
        for site, operator in running:
            if all((site, s) in claimed for s in operator.inputs):
                supported.add((site, operator.output))
        if supported == claimed:
            return claimed
        claimed = supported


def _check_resources(problem: PlacementProblem, plan: PlacementPlan) -> Iterator[Violation]:
    for site in site_loads(problem, plan):
        yield from check_capacity("cpu", site.site, site.cpu)
        yield from check_capacity("memory", site.site, site.memory)
        yield from check_capacity("bandwidth in", site.site, site.bandwidth_in)
        yield from check_capacity("bandwidth out", site.site, site.bandwidth_out)
    for link in link_loads(problem, plan):
        yield from check_capacity("link", f"{link.origin} -> {link.target}", link.bandwidth)


def check_capacity(constraint: str, where: str, load: Load) -> Iterable[Violation]:
    """Nothing, or that a load is more than there is."""
    used, capacity = load.used, load.capacity
    if used <= capacity * (1 + TOLERANCE):
        return ()
    text = f"{used:,.6g} of {capacity:,.6g}, {used - capacity:,.4g} too much"
    return (Violation(constraint, where, used - capacity, text),)


def _check_admitted(
    problem: PlacementProblem, plan: PlacementPlan, before: PlacementPlan
) -> Iterator[Violation]:
    for query in sorted(before.admitted - plan.admitted):
        yield Violation(
            "admitted", problem.queries[query].name, 1, "it was admitted, and is dropped"
        )
