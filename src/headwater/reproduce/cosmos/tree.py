"""The tree of coordinators as it grows: probes of a join, depth, cluster sizes, and what holds under change.

The thesis describes the tree (section 3.3.3) and measures nothing of it. The rules of the claims: every join stays within
(3k - 1) log_k n probes, and probes per doubling of n do not grow; after every change no invariant is broken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from headwater.federation.coordinators.changes import (
    build_tree,
    elect_parents,
    join_tree,
    leave_tree,
)
from headwater.federation.coordinators.invariants import broken_invariants, outdated_parents
from headwater.federation.coordinators.tree import CoordinatorTree
from headwater.network.paths import shortest_routes
from headwater.network.transit_stubs import COSMOS, COSMOS_DISSEMINATION, transit_stub_network
from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    PlotLine,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.progress import run_in_parallel
from headwater.sim.federation import FederationSimulation

FIRST_SEED = 1001
SIZES, QUICK_SIZES = (16, 64, 256, 1024, 4096), (16, 64, 256)
CLUSTER_SIZES, QUICK_CLUSTER_SIZES = (2, 4, 8), (4,)
CHANGES = 1000
CHECKED_EACH = 256
"""In larger trees the invariants are checked after every tenth change: a check looks at every cluster."""

GROWTH_FROM = 64
MAX_GROWTH = 1.5
"""By how much probes per doubling of the providers may grow from the tree of GROWTH_FROM providers to the largest."""

SIMULATED, QUICK_SIMULATED = 200, 40
QUIET_SECONDS = 600.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TreeRun:
    """What was seen of one tree, built and then changed."""

    providers: int
    most_providers: int
    k: int
    depth: int
    probes: tuple[int, ...]
    sizes: tuple[int, ...]
    checks: int
    broken: tuple[str, ...]


@dataclass(frozen=True)
class ProtocolRun:
    """What was seen of providers that keep the tree by messages."""

    providers: int
    probes: float
    messages: float
    seconds: float | None


@cache
def host_latencies(seed: int, quick: bool) -> Floats:
    """Latencies between the hosts of a random network, more of them than the largest tree needs."""
    shape = COSMOS_DISSEMINATION if quick else replace(COSMOS, hosts=10)
    network = transit_stub_network(shape, seed)
    hosts = list(network.hosts)
    return shortest_routes(network).distance[np.ix_(hosts, hosts)]


def run_tree(latencies: Floats, count: int, k: int, changes: int, seed: int) -> TreeRun:
    """Build a tree of random hosts, then let providers join and leave, as many of each on average."""
    random = np.random.default_rng(seed)
    order = [int(host) for host in random.permutation(len(latencies))]
    tree = build_tree(latencies, order[:count], k)
    outside = order[count:]
    depth, most, sizes = tree.depth, count, _sizes(tree)
    probes: list[int] = []
    broken = broken_invariants(tree, latencies)
    checks, each = 1, 1 if count <= CHECKED_EACH else 10
    for change in range(changes):
        # As likely as a leave at the first size, and likelier the fewer there are.
        if random.random() < count / (count + len(tree.providers)):
            tree, asked = join_tree(tree, latencies, outside.pop())
            probes.append(asked)
        else:
            gone = tree.providers[int(random.integers(len(tree.providers)))]
            tree = leave_tree(tree, latencies, gone)
            # At the far end: those who join next were not in the tree before, as long as there are
            # any.
            outside.insert(0, gone)
        if change % 100 == 99:
            tree = elect_parents(tree, latencies)
        if change % each == 0:
            checks += 1
            broken += broken_invariants(tree, latencies)
        depth, most = max(depth, tree.depth), max(most, len(tree.providers))
        sizes += _sizes(tree) if change % 100 == 99 else ()
    return TreeRun(count, most, k, depth, tuple(probes), sizes, checks, tuple(broken))


def _sizes(tree: CoordinatorTree) -> tuple[int, ...]:
    """Sizes of all clusters but the root's, which has no lower bound."""
    return tuple(len(c.members) for level in tree.levels[:-1] for c in level.values())


def max_probes(run: TreeRun) -> float:
    """The largest number of probes that O(k log n) stands for here."""
    return (3 * run.k - 1) * math.log(run.most_providers, run.k)


def run_protocol(latencies: Floats, count: int, changes: int, seed: int) -> ProtocolRun:
    """Let providers join, leave and die every few seconds, with lost messages; then wait until the tree is right."""
    random = np.random.default_rng(seed)
    hosts = random.choice(len(latencies), 2 * count, replace=False)
    federation = FederationSimulation(latencies[np.ix_(hosts, hosts)], seed=seed, loss=0.01)
    federation.start(0)
    for provider in range(1, count):
        federation.start(provider, (0,))
        federation.run_for(0.2)
    federation.run_for(120.0)
    first = set(federation.nodes)
    for _ in range(changes):
        _change(federation, random, count)
        federation.run_for(float(random.random()) * 4.0)
    federation.lose_nothing()
    seconds = _seconds_until_right(federation)
    # Messages of a tree at rest, without those that mend it.
    before, start = sum(federation.sent.values()), federation.now
    federation.run_for(100.0)
    sent = sum(federation.sent.values()) - before
    rate = sent / len(federation.nodes) / (federation.now - start)
    # Those of the start joined a tree that was still small.
    joined = [node.membership.probes for p, node in federation.nodes.items() if p not in first]
    return ProtocolRun(count, float(np.mean(joined)), rate, seconds)


def _change(federation: FederationSimulation, random: np.random.Generator, count: int) -> None:
    inside = sorted(federation.nodes)
    outside = [p for p in range(2 * count) if p not in federation.nodes]
    # Joins and departures are equally likely when half of all are inside.
    if random.random() < 1 - len(inside) / (2 * count):
        contacts = random.choice(inside, 3, replace=False)
        federation.start(int(random.choice(outside)), [int(contact) for contact in contacts])
    elif random.random() < 0.5:
        federation.leave(int(random.choice(inside)))
    else:
        federation.kill(int(random.choice(inside)))


def _seconds_until_right(federation: FederationSimulation) -> float | None:
    start = federation.now
    while federation.now - start < QUIET_SECONDS:
        federation.run_for(10.0)
        tree = federation.tree()
        wrong = broken_invariants(tree, federation.latencies) or federation.disagreements()
        if not wrong and not outdated_parents(tree, federation.latencies):
            return federation.now - start
    return None


def coordinator_trees(settings: FigureSettings) -> Report:
    """The tree by its size, and under changes."""
    seeds = range(FIRST_SEED, FIRST_SEED + settings.seeds)
    sizes = QUICK_SIZES if settings.quick else SIZES
    ks = QUICK_CLUSTER_SIZES if settings.quick else CLUSTER_SIZES
    changes = CHANGES // 5 if settings.quick else CHANGES
    # Before the threads: all of them need it, and it is computed once.
    latencies = {seed: host_latencies(seed, settings.quick) for seed in seeds}
    cells = [(k, size) for k in ks for size in sizes]
    jobs = [
        partial(run_tree, latencies[seed], size, k, changes, seed)
        for k, size in cells
        for seed in seeds
    ]
    done = run_in_parallel("trees", jobs)
    runs = {cell: done[n * len(seeds) : (n + 1) * len(seeds)] for n, cell in enumerate(cells)}
    simulated = QUICK_SIMULATED if settings.quick else SIMULATED
    protocol = run_in_parallel(
        "messages",
        [partial(run_protocol, latencies[seed], simulated, simulated // 2, seed) for seed in seeds],
    )
    return Report(
        (_tree_table(runs, changes), _protocol_table(protocol)),
        (*_tree_claims(runs), _protocol_claim(protocol)),
        (_probes_plot(ks, sizes, runs),),
    )


def _tree_table(runs: dict[tuple[int, int], list[TreeRun]], changes: int) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for (k, size), some in runs.items():
        probes = [p for run in some for p in run.probes]
        clusters = [s for run in some for s in run.sizes]
        rows.append(
            (
                k,
                size,
                max(run.depth for run in some),
                f"{max(1 + math.log(run.most_providers, k) for run in some):.1f}",
                f"{np.mean(probes):.1f}",
                max(probes),
                f"{max(map(max_probes, some)):.0f}",
                f"{min(clusters)} .. {max(clusters)}, mean {np.mean(clusters):.1f}"
                if clusters
                else "root only",
                sum(run.checks for run in some),
                sum(len(run.broken) for run in some),
            )
        )
    columns = (
        *("k", "providers", "depth", "allowed", "probes of a join", "most", "allowed most"),
        *("cluster sizes", "checks", "invariants broken"),
    )
    return ReportTable(f"Trees built and then changed {changes} times", columns, tuple(rows))


def _protocol_table(runs: Sequence[ProtocolRun]) -> ReportTable:
    rows = tuple(
        (
            run.providers,
            f"{run.probes:.1f}",
            f"{run.messages:.1f}",
            "never" if run.seconds is None else f"{run.seconds:.0f}",
        )
        for run in runs
    )
    columns = (
        "providers",
        "probes of who joined",
        "messages per provider and second",
        "right after s",
    )
    return ReportTable("The same by messages, 1 % of them lost", columns, rows)


def _tree_claims(runs: dict[tuple[int, int], list[TreeRun]]) -> tuple[Claim, ...]:
    every = [run for some in runs.values() for run in some]
    broken = sum(len(run.broken) for run in every)
    within = all(max(run.probes) <= max_probes(run) for run in every)
    share = max(max(run.probes) / max_probes(run) for run in every)
    growth = [_growth(runs, k) for k in dict.fromkeys(k for k, _ in runs)]
    return (
        Claim(
            "the invariants hold after every change that was checked",
            "sizes k .. 3k - 1, parent is the median",
            f"{broken} broken in {sum(run.checks for run in every)} checks",
            broken == 0,
        ),
        Claim(
            "a join takes at most (3k - 1) log_k n probes",
            "not measured",
            f"at most {share:.2f} of it",
            within,
        ),
        Claim(
            f"probes per doubling of the providers grow by less than {MAX_GROWTH} from {GROWTH_FROM} "
            "providers to the largest tree",
            "not measured",
            format_spread(growth, 2),
            max(growth) <= MAX_GROWTH,
        ),
    )


def _growth(runs: dict[tuple[int, int], list[TreeRun]], k: int) -> float:
    """How much larger probes / log n are in the largest tree than in that of GROWTH_FROM providers."""
    largest = max(size for own, size in runs if own == k)
    per_doubling = {
        size: float(np.mean([p for run in runs[k, size] for p in run.probes])) / math.log2(size)
        for size in (GROWTH_FROM, largest)
    }
    return per_doubling[largest] / per_doubling[GROWTH_FROM]


def _protocol_claim(runs: Sequence[ProtocolRun]) -> Claim:
    times = [run.seconds for run in runs if run.seconds is not None]
    ours = f"{len(times)} of {len(runs)}"
    return Claim(
        f"kept by messages, the tree is right within {QUIET_SECONDS:.0f} s of the last change",
        "not measured",
        f"{ours}, after {format_spread(times, 0, ' s')}" if times else ours,
        len(times) == len(runs),
    )


def _probes_plot(
    ks: Sequence[int], sizes: Sequence[int], runs: dict[tuple[int, int], list[TreeRun]]
) -> Plot:
    lines = []
    for k in ks:
        probes = [[p for run in runs[k, size] for p in run.probes] for size in sizes]
        lines.append(
            PlotLine(
                f"k = {k}",
                tuple(math.log2(size) for size in sizes),
                tuple(float(np.mean(p)) for p in probes),
                tuple(float(min(p)) for p in probes),
                tuple(float(max(p)) for p in probes),
            )
        )
    return Plot("cosmos-tree", "Probes of a join", "log2 of providers", "probes", tuple(lines))
