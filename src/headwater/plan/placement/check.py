"""Whether a plan is one: every constraint of the model, proven from the plan and the problem alone.

What a site holds is computed from where base streams come in, step by step, so streams that only
feed themselves are not held by anybody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.errors import PlanError
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import Plan, Problem

TOLERANCE = 1e-6
"""The share of a capacity by which sums of floating numbers may be beyond it."""

RESOURCES = ("cpu", "memory", "bandwidth in", "bandwidth out")
"""Of a site, in the order of a ledger's rows."""

CONSTRAINTS = ("demand", "availability", "causality", *RESOURCES, "link", "admitted")


@dataclass(frozen=True)
class Broken:
    """A constraint that does not hold: where, and by how much; `text` says it for people."""

    constraint: str
    where: str
    by: float
    text: str

    def __str__(self) -> str:
        return f"{self.constraint} of {self.where}: {self.text}"


def check(problem: Problem, plan: Plan, before: Plan | None = None) -> tuple[Broken, ...]:
    """All the constraints that a plan breaks; none if it is good.

    With a plan `before`, no query that it admits may be missing.
    """
    return (
        *_demand(problem, plan),
        *_availability(problem, plan),
        *_resources(problem, plan),
        *_kept(problem, plan, before or Plan()),
    )


def prove(problem: Problem, plan: Plan, before: Plan | None = None) -> None:
    """Raises PlanError if a constraint is broken."""
    broken = check(problem, plan, before)
    if broken:
        raise PlanError("not a plan: " + "; ".join(map(str, broken[:5])))


def held(problem: Problem, plan: Plan) -> set[tuple[int, int]]:
    """The pairs of a site and a stream that it holds, by causes that begin at base streams."""
    found = {(site, s) for s, stream in enumerate(problem.streams) for site in stream.sites}
    waiting: dict[tuple[int, int], list[tuple[set[tuple[int, int]], tuple[int, int]]]]
    waiting = defaultdict(list)
    ready = list(found)

    def when(needs: set[tuple[int, int]], then: tuple[int, int]) -> None:
        needs = needs - found
        for need in needs:
            waiting[need].append((needs, then))
        if not needs and then not in found:
            found.add(then)
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
            if not needs and then not in found:
                found.add(then)
                ready.append(then)
    return found


def _demand(problem: Problem, plan: Plan) -> Iterator[Broken]:
    asked = {problem.queries[query].stream for query in plan.admitted}
    times = Counter(serve.stream for serve in plan.serves)
    for stream in sorted(asked | set(times)):
        name, served = problem.streams[stream].name, times[stream]
        if stream not in asked:
            yield Broken("demand", name, served, f"served {served} times, and nobody asked for it")
        elif served != 1:
            yield Broken("demand", name, abs(served - 1), f"served {served} times, not once")


def _availability(problem: Problem, plan: Plan) -> Iterator[Broken]:
    """Whoever reads, sends or serves a stream has to hold it."""
    found = held(problem, plan)
    needed = [(s.origin, s.stream, "sends") for s in plan.sends]
    needed += [(s.site, s.stream, "serves") for s in plan.serves]
    needed += [
        (run.site, stream, "reads")
        for run in plan.runs
        for stream in problem.operators[run.operator].inputs
    ]
    missing = sorted({need for need in needed if need[:2] not in found})
    claimed = _claimed(problem, plan, found) if missing else found
    for site, stream, does in missing:
        where, name = problem.sites[site].name, problem.streams[stream].name
        if (site, stream) in claimed:
            yield Broken("causality", where, 1, f"it {does} {name}, which only feeds itself")
        else:
            yield Broken("availability", where, 1, f"it {does} {name}, which it does not hold")


def _claimed(problem: Problem, plan: Plan, found: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """What sites would hold if streams could feed themselves."""
    made = [(r.site, problem.operators[r.operator]) for r in plan.runs]
    claimed = set(found)
    claimed |= {(s.target, s.stream) for s in plan.sends}
    claimed |= {(site, operator.output) for site, operator in made}
    while True:
        kept = found | {(s.target, s.stream) for s in plan.sends if (s.origin, s.stream) in claimed}
        for site, operator in made:
            if all((site, s) in claimed for s in operator.inputs):
                kept.add((site, operator.output))
        if kept == claimed:
            return claimed
        claimed = kept


def _resources(problem: Problem, plan: Plan) -> Iterator[Broken]:
    for site in site_loads(problem, plan):
        yield from within("cpu", site.site, site.cpu)
        yield from within("memory", site.site, site.memory)
        yield from within("bandwidth in", site.site, site.bandwidth_in)
        yield from within("bandwidth out", site.site, site.bandwidth_out)
    for link in link_loads(problem, plan):
        yield from within("link", f"{link.origin} -> {link.target}", link.bandwidth)


def within(constraint: str, where: str, load: Load) -> Iterable[Broken]:
    """Nothing, or that a load is more than there is."""
    used, capacity = load.used, load.capacity
    if used <= capacity * (1 + TOLERANCE):
        return ()
    text = f"{used:,.6g} of {capacity:,.6g}, {used - capacity:,.4g} too much"
    return (Broken(constraint, where, used - capacity, text),)


def _kept(problem: Problem, plan: Plan, before: Plan) -> Iterator[Broken]:
    for query in sorted(before.admitted - plan.admitted):
        yield Broken("admitted", problem.queries[query].name, 1, "it was admitted, and is dropped")
