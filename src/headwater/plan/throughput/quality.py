"""How good a configuration is: the largest multiple of the profile that every site and link bears.

The constraints are those of the paper's section 4 (processing, memory by Table 4, links, latency), and
what a site can receive and send in all. Of the largest multiples that they allow the least is
the quality, and the constraint that allows no more is the one that binds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.plan.throughput.model import Configuration, Kind, Problem
from headwater.plan.throughput.polynomial import NONE, Polynomial, add, largest, scale, value
from headwater.plan.throughput.rates import Flow, flows, groups, inputs_held


@dataclass(frozen=True)
class Constraint:
    """A load that must stay within a capacity; `resource` is cpu, memory, in, out or link."""

    resource: str
    where: str
    load: Polynomial
    capacity: float

    def __str__(self) -> str:
        return f"{self.resource} of {self.where}"

    @property
    def allows(self) -> float:
        """The largest multiple of the profile at which it holds."""
        return largest(self.load, self.capacity)


@dataclass(frozen=True)
class Quality:
    """The multiple of the profile that is borne, and the constraint that binds at which point.

    The multiple is infinite, and nothing binds, if nothing is limited; it is 0 if the configuration
    is not possible at all.
    """

    value: float
    binding: Constraint | None
    point: int = 0

    def rates(self, problem: Problem) -> dict[str, float]:
        """The rate of each stream that is borne, at the point that binds."""
        return {s: self.value * problem.points[self.point][s] for s in problem.streams}


def quality(problem: Problem, configuration: Configuration) -> Quality:
    """The quality of a configuration, and what binds."""
    if problem.latency is not None:
        late = latency(problem, configuration)
        if late > problem.latency:
            return Quality(0.0, Constraint("latency", "the slowest path", (late,), problem.latency))
    best = Quality(math.inf, None)
    for point in range(len(problem.points)):
        for constraint in constraints(problem, configuration, point):
            allowed = constraint.allows
            if allowed < best.value:
                best = Quality(allowed, constraint, point)
    return best


def constraints(
    problem: Problem, configuration: Configuration, point: int = 0
) -> Iterator[Constraint]:
    """Every constraint of sites and links under which there is a load."""
    given = flows(problem, configuration, point)
    cpu: defaultdict[int, list[Polynomial]] = defaultdict(list)
    memory: defaultdict[int, list[Polynomial]] = defaultdict(list)
    for place, hosts in enumerate(configuration.hosts):
        share = 1 / len(hosts)
        kept, fixed = space(problem, configuration, place, given)
        for host in hosts:
            cpu[host].append(scale(share, work(problem, configuration, place, given)))
            memory[host].append(add(scale(share, kept), (fixed,)))
    sites = problem.network.sites
    for host, site in enumerate(sites):
        yield Constraint("cpu", site.name, add(*cpu[host]), site.cpu)
        yield Constraint("memory", site.name, add(*memory[host]), site.memory)
    traffic = _traffic(configuration, given)
    for host, site in enumerate(sites):
        into = [load for (_, target), load in traffic.items() if target == host]
        out = [load for (source, _), load in traffic.items() if source == host]
        yield Constraint("in", site.name, add(*into), site.bandwidth_in)
        yield Constraint("out", site.name, add(*out), site.bandwidth_out)
    for (source, target), load in sorted(traffic.items()):
        ends = f"{sites[source].name} -> {sites[target].name}"
        link = problem.network.direct(source, target)
        yield Constraint("link", ends, load, link.bandwidth if link else 0.0)


def work(
    problem: Problem, configuration: Configuration, place: int, given: Sequence[Flow]
) -> Polynomial:
    """The instructions a second of an operator, all its copies together."""
    operator = problem.operators[place]
    arriving = add(*(given[i].rate for i in configuration.inputs[place]))
    return add(scale(operator.cost, arriving), scale(operator.result_cost, given[place].rate))


def space(
    problem: Problem, configuration: Configuration, place: int, given: Sequence[Flow]
) -> tuple[Polynomial, float]:
    """The bytes of an operator: what its copies share, and what each of them needs."""
    operator, below = problem.operators[place], [given[i] for i in configuration.inputs[place]]
    match operator.kind:
        case Kind.EMIT:
            return NONE, 0.0
        case Kind.SELECT | Kind.PROJECT | Kind.UNION:
            return NONE, sum(flow.width for flow in below) + operator.table
        case Kind.AGGREGATE:
            rows = groups(problem, configuration, place)
            kept = add(scale(below[0].width, below[0].held), (rows * given[place].width,))
            return kept, operator.table
    held = inputs_held(operator, below)
    kept = add(*(scale(flow.width, h) for flow, h in zip(below, held, strict=True)))
    return kept, len(below) * operator.table


def latency(problem: Problem, configuration: Configuration) -> float:
    """Seconds on the slowest path from a stream to a result: work for one tuple, and links."""
    sites = problem.network.sites
    reached: dict[tuple[int, int], float] = {}
    for place in configuration.order:
        operator = problem.operators[place]
        for host in configuration.hosts[place]:
            arrival = max(
                (
                    reached[below, source] + _delay(problem, source, host)
                    for below in configuration.inputs[place]
                    for source in configuration.hosts[below]
                ),
                default=0.0,
            )
            reached[place, host] = arrival + operator.cost / sites[host].cpu
    return max(
        (
            reached[place, host]
            for place in configuration.outputs
            for host in configuration.hosts[place]
        ),
        default=0.0,
    )


def work_rate(problem: Problem, configuration: Configuration, multiple: float = 1.0) -> float:
    """The instructions a second of all operators together at a multiple of the profile."""
    given = flows(problem, configuration)
    return math.fsum(
        value(work(problem, configuration, place, given), multiple)
        for place in range(len(problem.operators))
    )


def _delay(problem: Problem, source: int, target: int) -> float:
    if source == target:
        return 0.0
    link = problem.network.direct(source, target)
    return link.latency if link else math.inf


def _traffic(
    configuration: Configuration, given: Sequence[Flow]
) -> dict[tuple[int, int], Polynomial]:
    """The bytes a second from site to site."""
    found: defaultdict[tuple[int, int], list[Polynomial]] = defaultdict(list)
    for place, below in enumerate(configuration.inputs):
        for reads in below:
            sources, targets = configuration.hosts[reads], configuration.hosts[place]
            part = given[reads].width / (len(sources) * len(targets))
            for source in sources:
                for target in targets:
                    if source != target:
                        found[source, target].append(scale(part, given[reads].rate))
    return {ends: add(*loads) for ends, loads in found.items()}
