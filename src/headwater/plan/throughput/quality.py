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

from headwater.plan.throughput.model import Configuration, OperatorKind, ThroughputProblem
from headwater.plan.throughput.polynomial import ZERO, Polynomial, add, largest_within, scale, value
from headwater.plan.throughput.rates import OperatorFlow, group_count, held_inputs, operator_flows


@dataclass(frozen=True)
class CapacityConstraint:
    """A load that must stay within a capacity; `resource` is cpu, memory, in, out or link."""

    resource: str
    where: str
    load: Polynomial
    capacity: float

    def __str__(self) -> str:
        return f"{self.resource} of {self.where}"

    @property
    def max_multiple(self) -> float:
        """The largest multiple of the profile at which it holds."""
        return largest_within(self.load, self.capacity)


@dataclass(frozen=True)
class Quality:
    """The multiple of the profile that is borne, and the constraint that binds at which point.

    The multiple is infinite, and nothing binds, if nothing is limited; it is 0 if the configuration
    is not possible at all.
    """

    value: float
    binding: CapacityConstraint | None
    point: int = 0

    def rates(self, problem: ThroughputProblem) -> dict[str, float]:
        """The rate of each stream that is borne, at the point that binds."""
        return {s: self.value * problem.points[self.point][s] for s in problem.streams}


def quality(problem: ThroughputProblem, configuration: Configuration) -> Quality:
    """The quality of a configuration, and what binds."""
    if problem.latency is not None:
        seconds = latency(problem, configuration)
        # No rate makes a path faster, so there is no multiple to look for.
        if seconds > problem.latency:
            return Quality(
                0.0, CapacityConstraint("latency", "the slowest path", (seconds,), problem.latency)
            )
    best = Quality(math.inf, None)
    for point in range(len(problem.points)):
        for constraint in constraints(problem, configuration, point):
            allowed = constraint.max_multiple
            if allowed < best.value:
                best = Quality(allowed, constraint, point)
    return best


def constraints(
    problem: ThroughputProblem, configuration: Configuration, point: int = 0
) -> Iterator[CapacityConstraint]:
    """Every constraint of sites and links under which there is a load."""
    flow_of = operator_flows(problem, configuration, point)
    cpu: defaultdict[int, list[Polynomial]] = defaultdict(list)
    memory: defaultdict[int, list[Polynomial]] = defaultdict(list)
    for position, hosts in enumerate(configuration.hosts):
        share = 1 / len(hosts)
        shared, fixed = memory_load(problem, configuration, position, flow_of)
        for host in hosts:
            cpu[host].append(scale(share, cpu_load(problem, configuration, position, flow_of)))
            memory[host].append(add(scale(share, shared), (fixed,)))
    sites = problem.network.sites
    for host, site in enumerate(sites):
        yield CapacityConstraint("cpu", site.name, add(*cpu[host]), site.cpu)
        yield CapacityConstraint("memory", site.name, add(*memory[host]), site.memory)
    traffic = _link_traffic(configuration, flow_of)
    for host, site in enumerate(sites):
        into = [load for (_, target), load in traffic.items() if target == host]
        out = [load for (source, _), load in traffic.items() if source == host]
        yield CapacityConstraint("in", site.name, add(*into), site.bandwidth_in)
        yield CapacityConstraint("out", site.name, add(*out), site.bandwidth_out)
    for (source, target), load in sorted(traffic.items()):
        ends = f"{sites[source].name} -> {sites[target].name}"
        link = problem.network.direct_link(source, target)
        yield CapacityConstraint("link", ends, load, link.bandwidth if link else 0.0)


def cpu_load(
    problem: ThroughputProblem,
    configuration: Configuration,
    position: int,
    flow_of: Sequence[OperatorFlow],
) -> Polynomial:
    """The instructions a second of an operator, all its copies together."""
    operator = problem.operators[position]
    arriving = add(*(flow_of[i].rate for i in configuration.inputs[position]))
    return add(scale(operator.cost, arriving), scale(operator.result_cost, flow_of[position].rate))


def memory_load(
    problem: ThroughputProblem,
    configuration: Configuration,
    position: int,
    flow_of: Sequence[OperatorFlow],
) -> tuple[Polynomial, float]:
    """The bytes of an operator: what its copies share, and what each of them needs."""
    operator, below = (
        problem.operators[position],
        [flow_of[i] for i in configuration.inputs[position]],
    )
    match operator.kind:
        case OperatorKind.EMIT:
            return ZERO, 0.0
        case OperatorKind.SELECT | OperatorKind.PROJECT | OperatorKind.UNION:
            return ZERO, sum(flow.width for flow in below) + operator.table
        case OperatorKind.AGGREGATE:
            rows = group_count(problem, configuration, position)
            shared = add(scale(below[0].width, below[0].held), (rows * flow_of[position].width,))
            return shared, operator.table
    held = held_inputs(operator, below)
    shared = add(*(scale(flow.width, h) for flow, h in zip(below, held, strict=True)))
    return shared, len(below) * operator.table


def latency(problem: ThroughputProblem, configuration: Configuration) -> float:
    """Seconds on the slowest path from a stream to a result: work for one tuple, and links."""
    sites = problem.network.sites
    reached: dict[tuple[int, int], float] = {}
    for position in configuration.order:
        operator = problem.operators[position]
        for host in configuration.hosts[position]:
            arrival = max(
                (
                    reached[below, source] + _link_delay(problem, source, host)
                    for below in configuration.inputs[position]
                    for source in configuration.hosts[below]
                ),
                default=0.0,
            )
            reached[position, host] = arrival + operator.cost / sites[host].cpu
    return max(
        (
            reached[position, host]
            for position in configuration.outputs
            for host in configuration.hosts[position]
        ),
        default=0.0,
    )


def total_cpu_load(
    problem: ThroughputProblem, configuration: Configuration, multiple: float = 1.0
) -> float:
    """The instructions a second of all operators together at a multiple of the profile."""
    flow_of = operator_flows(problem, configuration)
    return math.fsum(
        value(cpu_load(problem, configuration, position, flow_of), multiple)
        for position in range(len(problem.operators))
    )


def _link_delay(problem: ThroughputProblem, source: int, target: int) -> float:
    if source == target:
        return 0.0
    link = problem.network.direct_link(source, target)
    return link.latency if link else math.inf


def _link_traffic(
    configuration: Configuration, flow_of: Sequence[OperatorFlow]
) -> dict[tuple[int, int], Polynomial]:
    """The bytes a second from site to site."""
    traffic: defaultdict[tuple[int, int], list[Polynomial]] = defaultdict(list)
    for position, below in enumerate(configuration.inputs):
        for reads in below:
            sources, targets = configuration.hosts[reads], configuration.hosts[position]
            part = flow_of[reads].width / (len(sources) * len(targets))
            for source in sources:
                for target in targets:
                    if source != target:
                        traffic[source, target].append(scale(part, flow_of[reads].rate))
    return {ends: add(*loads) for ends, loads in traffic.items()}
