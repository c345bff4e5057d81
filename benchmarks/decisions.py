"""What a decision of BSD costs, from 10 to 100,000 queries: naive, exact by tournament, and over clusters.

All forms are asked while tuples arrive for all queries and the processor keeps up. Before anything is
reported, the choices of each form are compared with the best rank over all queries: the exact forms have
to find it, clusters have to stay within the factor that they promise. A plot is drawn with --out DIR.
The last line is how much cheaper clusters with pruning are than naive decisions at 10,000 queries.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from headwater.jit import cached_njit
from headwater.reproduce.draw import draw_plot
from headwater.reproduce.figure import Plot, PlotLine
from headwater.schedule import POLICIES, Candidate, WorkEstimate
from headwater.schedule.clusters import logarithmic_clusters
from headwater.sim.clustered import Queues, build_queues, choose_cluster, update_head
from headwater.sim.metrics import Floats, Ints
from headwater.sim.slots import Slots, build_slots, pick_slot, update_slot

SIZES = (10, 100, 1_000, 10_000, 100_000)
CLUSTERS = 12
CHECKED = 300
SPENT = 0.5
"""About so many seconds are spent on each figure."""


@cached_njit
def _naive(standing: Floats, since: Floats, now: float) -> int:
    chosen, best = 0, -1.0
    for query in range(len(standing)):
        rank = standing[query] * (now - since[query])
        if rank > best:
            chosen, best = query, rank
    return chosen


@cached_njit
def run_naive(standing: Floats, since: Floats, now: float, step: float, rounds: int) -> Ints:
    """The queries chosen; a query that ran has a new tuple."""
    chosen = np.empty(rounds, np.int64)
    for turn in range(rounds):
        chosen[turn] = _naive(standing, since, now)
        since[chosen[turn]] = now
        now += step
    return chosen


@cached_njit
def run_tournament(slots: Slots, now: float, step: float, rounds: int) -> Ints:
    """The slots chosen; a slot that ran has a new tuple."""
    chosen = np.empty(rounds, np.int64)
    for turn in range(rounds):
        chosen[turn] = pick_slot(slots, now)
        update_slot(slots, chosen[turn], now, now)
        now += step
    return chosen


@cached_njit
def run_clusters(queues: Queues, now: float, step: float, rounds: int) -> Ints:
    """The clusters chosen; a cluster that ran has a new tuple at its head."""
    chosen = np.empty(rounds, np.int64)
    for turn in range(rounds):
        cluster, _ = choose_cluster(queues, now, True)
        chosen[turn] = cluster
        update_head(queues, cluster, now)
        now += step
    return chosen


class Forms:
    """Queries of the paper's kind, all with something pending, and the forms of BSD over them."""

    def __init__(self, size: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        cost, share = 2.0 ** rng.integers(0, 5, size), rng.uniform(0.1, 1.0, size)
        bsd = POLICIES["bsd"]
        waiting = [
            Candidate("", 0.0, (WorkEstimate(s * s, c * (1 + s + s * s), 3 * c),))
            for c, s in zip(cost.tolist(), share.tolist(), strict=True)
        ]
        self.size, self.step = size, 12.0
        self.begun = self.step * size
        self.since = rng.uniform(0.0, self.begun, size)
        self.slots, order = build_slots(bsd, waiting)
        self.since = self.since[order]
        self.standing = np.array([bsd.static_priority(waiting[place]) for place in order])
        self.clusters = logarithmic_clusters(self.standing.tolist(), CLUSTERS)
        self.queues = build_queues(self.clusters)
        for slot, since in enumerate(self.since):
            update_slot(self.slots, slot, since, self.begun)
        for number, members in enumerate(self.clusters.queries):
            update_head(self.queues, number, float(self.since[list(members)].min()))

    def check(self) -> str:
        """What is wrong with the choices of a form; nothing, if all keep their promise."""
        since, now = self.since.copy(), self.begun
        exact = run_naive(self.standing, since.copy(), now, self.step, CHECKED)
        found = run_tournament(self.slots, now, self.step, CHECKED)
        if (exact != found).any():
            return "the tournament does not choose what comparing all does"
        heads = np.array([since[list(members)].min() for members in self.clusters.queries])
        for turn, cluster in enumerate(run_clusters(self.queues, now, self.step, CHECKED)):
            members = list(self.clusters.queries[cluster])
            best = (self.standing * (now - since)).max()
            chosen = self.standing[members].min() * (now - heads[cluster])
            if chosen * self.clusters.ratio < best * (1 - 1e-9):
                return f"decision {turn} over clusters is worse than the ratio allows"
            heads[cluster] = since[members] = now
            now += self.step
        return ""


def seconds(run: Callable[..., Ints], *state: object, step: float, begun: float) -> float:
    """Of processor time for a decision, over about as many as fit into the time spent."""
    rounds = 100
    while True:
        start = time.process_time()
        run(*state, begun, step, rounds)
        spent = time.process_time() - start
        if spent > SPENT / 4:
            return spent / rounds
        rounds = math.ceil(rounds * min(50, max(2, SPENT / max(spent, 1e-6))))
        begun += step * rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the plot is drawn")
    out = parser.parse_args().out
    lines: dict[str, list[float]] = {"naive": [], "tournament": [], "clusters, pruned": []}
    for size in SIZES:
        wrong = Forms(size).check()
        if wrong:
            print(f"{size:,} queries: {wrong}; nothing to report")
            return 1
        forms = Forms(size)
        timing = {"step": forms.step, "begun": forms.begun}
        lines["naive"].append(seconds(run_naive, forms.standing, forms.since, **timing))
        lines["tournament"].append(seconds(run_tournament, forms.slots, **timing))
        lines["clusters, pruned"].append(seconds(run_clusters, forms.queues, **timing))
        shown = ", ".join(f"{name} {1e9 * some[-1]:,.0f} ns" for name, some in lines.items())
        print(f"{size:8,} queries: {shown}", flush=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        x = tuple(math.log10(size) for size in SIZES)
        drawn = tuple(
            PlotLine(name, x, tuple(1e9 * y for y in some)) for name, some in lines.items()
        )
        title = "cost of a decision of BSD"
        plot = Plot("decisions", title, "queries, power of ten", "nanoseconds", drawn, True)
        print(f"drawn: {draw_plot(plot, out)}")
    at = SIZES.index(10_000)
    print(
        f"at 10,000 queries, over clusters: {1e6 * lines['clusters, pruned'][at]:.3f} microseconds"
    )
    print(f"ratio {lines['naive'][at] / lines['clusters, pruned'][at]:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
