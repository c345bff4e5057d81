"""Problems and configurations as arrays, for the compiled code in `kernel` and `local_search`.

`ProblemArrays` never change; `ConfigurationArrays` are one configuration with all that follows from
it. Column names become bits, sets of sites become numbers of options, and constraints places in one
array: cpu, memory, in and out of each site, then the links.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from headwater.network.model import Link
from headwater.plan.throughput.kernel import update_all_operators
from headwater.plan.throughput.model import Configuration, OperatorKind, ThroughputProblem
from headwater.plan.throughput.rates import group_count, operator_flows

Array = np.ndarray[Any, Any]


OPERATOR_FACTS = np.dtype(
    [(name, np.int64) for name in ("kind", "arity", "first", "options")]
    + [(name, np.float64) for name in ("cost", "result_cost", "selectivity", "window")]
    + [(name, np.float64) for name in ("rows", "period", "table", "width_change")]
)
"""The constants of an operator; -1 means no window or no period."""

OPERATOR_STATE = np.dtype(
    [(name, np.int64) for name in ("pick", "uses", "low", "high")]
    + [(name, np.float64) for name in ("groups", "width", "fixed")]
)
"""An operator under one configuration."""


class ProblemArrays(NamedTuple):
    """What no move changes: operators, options, capacities, and the random numbers that hashes are built from."""

    op: Array
    sets: Array
    emitted: Array
    rules: Array
    hosts: Array
    capacity: Array
    delay: Array
    latency: float
    sites: int
    mark_option: Array
    mark_edge: Array


class ConfigurationArrays(NamedTuple):
    """A configuration, and what follows from it: polynomials for each point of the profile, and the
    loads that are known at two multiples. `sums`, `spare` and `reached` are working space."""

    op: Array
    child: Array
    outputs: Array
    order: Array
    columns: Array
    poly: Array
    known: Array
    powers: Array
    sums: Array
    spare: Array
    reached: Array
    mark: Array


def problem_arrays(problem: ThroughputProblem) -> ProblemArrays:
    """The arrays of a problem."""
    operators = problem.operators
    bits = {
        column: position
        for position, column in enumerate(sorted({c for o in operators for c in o.adds}))
    }
    every = [hosts for options in problem.options for hosts in options]
    hosts = np.full((len(every), 1 + max(map(len, every))), -1, np.int64)
    for position, option in enumerate(every):
        hosts[position, : 1 + len(option)] = len(option), *option
    rules = np.zeros((len(OperatorKind), len(OperatorKind)), np.bool_)
    for top, bottom in problem.rules:
        rules[top, bottom] = True
    # Always the same numbers, so that what collides, if anything does, collides in every run.
    rng = np.random.default_rng(20070401)
    count = len(operators)
    return ProblemArrays(
        op=_operator_facts(problem),
        sets=np.stack(
            [
                _masks([getattr(o, name) for o in operators], bits)
                for name in ("reads", "drops", "adds", "keys")
            ],
            axis=1,
        ),
        emitted=np.array(
            [[point.get(o.stream, 0.0) for o in operators] for point in problem.points], np.float64
        ),
        rules=rules,
        hosts=hosts,
        capacity=_capacities(problem),
        delay=_delays(problem),
        latency=math.inf if problem.latency is None else problem.latency,
        sites=len(problem.network.sites),
        mark_option=rng.integers(1, 2**63, len(every), np.uint64),
        mark_edge=rng.integers(1, 2**63, (count + len(problem.outputs), count), np.uint64),
    )


def _operator_facts(problem: ThroughputProblem) -> Array:
    facts = np.zeros(len(problem.operators), OPERATOR_FACTS)
    first = 0
    for position, o in enumerate(problem.operators):
        change = problem.width(o.adds) - problem.width(o.drops)
        options = len(problem.options[position])
        window = -1.0 if o.window is None else o.window
        period = -1.0 if o.period is None else o.period
        facts[position] = (
            *(o.kind, len(problem.initial_inputs[position]), first, options),
            *(o.cost, o.result_cost, o.selectivity, window, o.rows, period, o.table, change),
        )
        first += options
    return facts


def configuration_arrays(
    problem: ThroughputProblem, facts: ProblemArrays, configuration: Configuration
) -> ConfigurationArrays:
    """A configuration as arrays."""
    count, points = len(problem.operators), len(problem.points)
    size = 1 + max(len(f.rate) for f in operator_flows(problem, configuration))
    arrays = ConfigurationArrays(
        op=np.zeros(count, OPERATOR_STATE),
        child=np.full((count, max(map(len, problem.initial_inputs))), -1, np.int64),
        outputs=np.zeros(len(problem.outputs), np.int64),
        order=np.zeros(count, np.int64),
        columns=np.zeros((count, facts.sets.shape[2]), np.uint64),
        poly=np.zeros((4, points, count, size)),
        known=np.zeros((2, points, count, 3)),
        powers=np.ones((2, size)),
        sums=np.zeros(len(facts.capacity)),
        spare=np.zeros((4, size)),
        reached=np.zeros((count, facts.hosts.shape[1])),
        mark=np.zeros(1, np.uint64),
    )
    load_configuration(problem, facts, arrays, configuration)
    return arrays


def load_configuration(
    problem: ThroughputProblem,
    facts: ProblemArrays,
    into: ConfigurationArrays,
    configuration: Configuration,
) -> None:
    """Put another configuration of the same problem into a state."""
    for position, below in enumerate(configuration.inputs):
        into.child[position, : len(below)] = below
        option = problem.options[position].index(configuration.hosts[position])
        into.op["pick"][position] = facts.op["first"][position] + option
        if problem.operators[position].kind is OperatorKind.AGGREGATE:
            into.op["groups"][position] = group_count(problem, configuration, position)
        into.op["uses"][position] = configuration.use_count(position)
    into.outputs[:] = configuration.outputs
    into.order[:] = configuration.order
    update_all_operators(facts, into)


def configuration_of(
    problem: ThroughputProblem, facts: ProblemArrays, child: Array, outputs: Array, pick: Array
) -> Configuration:
    """The configuration that the arrays represent."""
    inputs = tuple(
        tuple(int(i) for i in child[position, : facts.op["arity"][position]])
        for position in range(len(problem.operators))
    )
    hosts = tuple(
        problem.options[position][int(pick[position] - facts.op["first"][position])]
        for position in range(len(problem.operators))
    )
    return Configuration(inputs, tuple(int(position) for position in outputs), hosts)


def _floats(values: Any) -> Array:
    return np.array(list(values), np.float64)


def _masks(sets: list[frozenset[str]], bits: dict[str, int]) -> Array:
    masks = np.zeros((len(sets), max(1, -(-len(bits) // 64))), np.uint64)
    for position, names in enumerate(sets):
        for name in names:
            word, bit = divmod(bits[name], 64)
            masks[position, word] |= np.uint64(1 << bit)
    return masks


def _capacities(problem: ThroughputProblem) -> Array:
    sites = problem.network.sites
    return _floats(
        [site.cpu for site in sites]
        + [site.memory for site in sites]
        + [site.bandwidth_in for site in sites]
        + [site.bandwidth_out for site in sites]
        + [link.bandwidth if link else 0.0 for link in _links(problem)]
    )


def _delays(problem: ThroughputProblem) -> Array:
    count = len(problem.network.sites)
    delays = _floats(link.latency if link else math.inf for link in _links(problem))
    delays = delays.reshape(count, count)
    np.fill_diagonal(delays, 0.0)
    return delays


def _links(problem: ThroughputProblem) -> list[Link | None]:
    """The links from each site to each."""
    count = range(len(problem.network.sites))
    return [problem.network.direct_link(a, b) for a in count for b in count]
