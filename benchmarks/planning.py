"""What it takes to plan one query more, with 100 to 100,000 running.

From text to the operator that serves it: read, canonicalise, look into the lattice, decide. Twice: with
the running queries sharing what they can, and with each of them in an operator of its own, which is the
most that a lattice can be asked to look through. Then by submitting to a catalog in SQLite. Times are of
the processor, as others may use it too; the last line compares 10,000 running queries with 100. The
curves are drawn into build/planning.png. With --orders only: how many operators the same queries end
up in, in several orders of arrival.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _spelled import STREAMS, TEMPLATES, Test, gate, heavy, names, queries, spelled
from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse_query
from headwater.reuse import QuerySignature, minimal_operator, signature_of
from headwater.reuse.load import SharingCosts
from headwater.reuse.planning.graph import Graph, Node, Sources
from headwater.reuse.planning.single_site import QueryParts, SitePlan, SiteSetting, plan_at_site
from headwater.reuse.signature import leaves_of
from headwater.runtime.api import open_state

RUNNING = (100, 1_000, 10_000, 100_000)
IN_CATALOG = (100, 1_000, 10_000)
MEASURED = 400
"""Queries that are planned, and timed, at each size."""

WORDS = 11
"""Tells the words in which the running queries are written."""

PRICES = SharingCosts(rates=dict.fromkeys(("flights", "checkins", "baggage", "weather"), 100.0))


@dataclass(frozen=True)
class Timed:
    """Milliseconds at a number of running queries."""

    running: int
    operators: int
    median: float
    p95: float

    @staticmethod
    def of(running: int, operators: int, seconds: Sequence[float]) -> Timed:
        times = sorted(1_000 * s for s in seconds)
        return Timed(running, operators, statistics.median(times), times[int(0.95 * len(times))])

    def __str__(self) -> str:
        return (
            f"{self.running:>9,} running in {self.operators:>7,} operators:"
            f"  median {self.median:7.2f} ms  p95 {self.p95:7.2f} ms"
        )


# ---- in memory


@dataclass(frozen=True)
class Planner:
    """What runs, and what queries may name."""

    known: Namespace
    graph: Graph[Node]

    def plan(self, text: str) -> SitePlan:
        parts = QueryParts(self.form(text))
        leaves = {parts.labels[s.alias]: s for s in leaves_of(parts.signature.content)}

        def candidates(sources: Sources, part: QuerySignature) -> Iterator[Node]:
            # A unit that reads another is read by none.
            nodes = self.graph.nearest(part)
            return (n for n in nodes if sources == parts.whole or not n.inputs)

        def readable(sources: Sources) -> bool:
            return self.graph.lattice.has_sources(leaves[label] for label in sources)

        return plan_at_site(SiteSetting(parts, candidates, PRICES, readable))

    def form(self, text: str) -> QuerySignature:
        return signature_of(canonicalize(parse_query(text, self.known)))

    def run(self, name: str, plan: SitePlan) -> None:
        for node, operator in plan.relaxed.items():
            node.operator = operator
            self.graph.insert(node)
        if plan.choice.name is None:
            reads = () if plan.reads is None else (plan.reads,)
            self.graph.insert(Node(name, plan.choice.operator, inputs=reads))


def alike(number: int) -> Iterator[str]:
    """Queries of all templates in the same words, which are quick to read."""
    rng = random.Random(7)
    return (spelled(rng.choice(TEMPLATES)(rng), random.Random(WORDS)) for _ in range(number))


def different(number: int) -> Iterator[str]:
    """Queries of which no two want the same: every second one a flight of its own, as agents at gates
    do, the others bags of another weight."""
    rng = random.Random(7)
    for n in range(number):
        flight = replace(gate(rng), tests=(Test("flights.num", "=", 1_000 + n),))
        weight = replace(heavy(rng), tests=(Test("baggage.weight", ">", 1_000 + n),))
        yield spelled(weight if n % 2 else flight, random.Random(WORDS))


def measured(sizes: Iterable[int], apart: bool) -> list[Timed]:
    planner = Planner(names(), Graph())
    texts = different(max(sizes)) if apart else alike(max(sizes))
    found, running = [], 0
    for size in sizes:
        while running < size:
            text = next(texts)
            if apart:
                planner.graph.insert(Node(f"o{running}", minimal_operator(planner.form(text))))
            else:
                planner.run(f"o{running}", planner.plan(text))
            running += 1
        for text in queries(MEASURED // 4, seed=size + 1):
            planner.plan(text)
        seconds = [_seconds(planner.plan, text) for text in queries(MEASURED, seed=size)]
        found.append(Timed.of(size, len(planner.graph), seconds))
        print(found[-1], flush=True)
    return found


def _seconds(action: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    action(text)
    return time.process_time() - begun


def operators_by_order(number: int, orders: int) -> list[int]:
    """How many operators the same queries run in, by the order in which they came."""
    texts, counts = list(alike(number)), []
    for order in range(orders):
        random.Random(order).shuffle(texts)
        planner = Planner(names(), Graph())
        for at, text in enumerate(texts):
            planner.run(f"o{at}", planner.plan(text))
        counts.append(len(planner.graph))
        reading = sum(bool(node.inputs) for node in planner.graph)
        print(f"order {order}: {counts[-1]} operators, {reading} that read others", flush=True)
    return counts


# ---- in a catalog


def submitted(sizes: Iterable[int], folder: Path) -> list[Timed]:
    texts = iter(queries(max(sizes), seed=3))
    found, running = [], 0
    with open_state(folder) as state:
        state.execute(STREAMS)

        def submit(text: str) -> None:
            nonlocal running
            running += 1
            state.execute(f"CREATE QUERY q{running} AS {text}")

        for size in sizes:
            while running < size:
                submit(next(texts))
            seconds = [_seconds(submit, text) for text in queries(MEASURED // 4, seed=size)]
            found.append(Timed.of(size, len(state.catalog.units()), seconds))
            print(found[-1], flush=True)
    return found


def plot(path: Path, curves: dict[str, list[Timed]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for label, found in curves.items():
        sizes = [one.running for one in found]
        (line,) = axes.loglog(sizes, [one.median for one in found], "o-", label=f"{label}, median")
        axes.loglog(sizes, [one.p95 for one in found], "--", color=line.get_color(), label="95 %")
    axes.set_xlabel("running queries")
    axes.set_ylabel("milliseconds for one more")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=RUNNING[-1], help="running queries at most")
    parser.add_argument("--submitted", type=int, default=1_000, help="in a catalog at most")
    parser.add_argument("--plot", type=Path, default=Path("build/planning.png"))
    parser.add_argument("--orders", type=int, default=0, help="orders of arrival to compare")
    given = parser.parse_args()
    if given.orders:
        counts = operators_by_order(min(given.most, 10_000), given.orders)
        print(f"ratio: {max(counts) / min(counts):.3f}x the operators in the worst order")
        return 0
    sizes = [size for size in RUNNING if size <= given.most]
    print("planning in memory, sharing what can be shared")
    shared = measured(sizes, apart=False)
    print("planning in memory, every running query in an operator of its own")
    apart = measured(sizes, apart=True)
    print("submitting to a catalog in SQLite")
    with tempfile.TemporaryDirectory() as folder:
        some = [size for size in IN_CATALOG if size <= given.submitted]
        catalog = submitted(some, Path(folder) / "state")
    plot(given.plot, {"shared": shared, "apart": apart, "submitted": catalog})
    few, many = shared[0], next(one for one in reversed(shared) if one.running <= 10_000)
    print(
        f"ratio: {many.median / few.median:.2f}x the time at {many.running:,} running "
        f"as at {few.running:,}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
