"""How many new queries a second the root of the coordinator tree routes, on one core.

The thesis's setting: 20,000 substreams, queries of 100 to 200 of them, clusters of 4 to 11 children. The same queries are
routed by the compiled tables and by a loop over Python objects with dictionaries; refuses to report
if they do not choose the same children. Generating and submitting queries is not part of it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from headwater.federation.distribution.delivery import star_trees
from headwater.federation.distribution.hierarchy import Branch, Federation
from headwater.federation.distribution.model import Indices, Places, QueryGraph
from headwater.federation.distribution.objective import Objective
from headwater.federation.distribution.routing import make_table, route_batch
from headwater.federation.distribution.workload import (
    WorkloadSetting,
    draw_hot_spots,
    draw_queries,
    draw_substreams,
)

PROVIDERS, ORIGINS = 256, 100
KNOWN, NEW, LOOPED = 10_000, 40_000, 200
REPEATS = 15
THESIS = 800_000


def sample_federation(children: int) -> tuple[Federation, QueryGraph, QueryGraph]:
    """A root with so many children, the queries that it knows, and new ones."""
    generator = np.random.default_rng(1)
    points = generator.random((ORIGINS + PROVIDERS, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    latency, anchor = distance[ORIGINS:, ORIGINS:], distance[:, ORIGINS:]
    places = Places(np.ones(PROVIDERS), latency, anchor, star_trees(anchor[:ORIGINS]))
    setting = WorkloadSetting(queries=KNOWN + NEW)
    substreams = draw_substreams(setting, ORIGINS, generator)
    homes = np.arange(ORIGINS, ORIGINS + PROVIDERS, dtype=np.int32)
    spots = draw_hot_spots(setting, generator)
    queries = draw_queries(setting, substreams, homes, generator, spots)
    parts = np.array_split(np.argsort(latency[0]), children)
    below = [tuple(Branch(int(node)) for node in part) for part in parts]
    tree = Branch(0, tuple(Branch(branches[0].node, branches) for branches in below))
    numbers = np.arange(KNOWN + NEW, dtype=np.int32)
    federation = Federation(substreams, places, tree)
    return federation, queries.select(numbers[:KNOWN]), queries.select(numbers[KNOWN:])


def looped(
    federation: Federation, known: QueryGraph, host: Indices, new: QueryGraph, objective: Objective
) -> tuple[list[int], float]:
    """The children chosen by a loop over objects, and the seconds without setting up."""
    root = federation.tree
    problem = federation.child_problem(root, known, 1.0 / federation.places.capability.sum())
    places = problem.places
    rate, origin = federation.substreams.rate.tolist(), federation.substreams.origin.tolist()
    latency, anchor = places.latency.tolist(), places.anchor.tolist()
    child = federation.child_of(root)[host].tolist()
    wants: list[dict[int, int]] = [{} for _ in rate]
    load, total = [0.0] * len(places), float(known.load.sum())
    for query in range(len(known)):
        load[child[query]] += known.load[query]
        for s in known.substream[known.start[query] : known.start[query + 1]].tolist():
            wants[s][child[query]] = wants[s].get(child[query], 0) + 1
    chosen = []
    begun = time.process_time()
    for query in range(len(new)):
        own = new.substream[new.start[query] : new.start[query + 1]].tolist()
        total += new.load[query]
        options = []
        for k in range(len(places)):
            cost = new.result[query] * anchor[new.home[query]][k]
            for s in own:
                if objective == "wec":
                    cost += rate[s] * anchor[origin[s]][k]
                    cost += rate[s] * sum(latency[k][at] * n for at, n in wants[s].items())
                elif k not in wants[s]:
                    cost += rate[s] * anchor[origin[s]][k]
            bound = problem.bound[k] * total
            more = max(0.0, load[k] + new.load[query] - bound) - max(0.0, load[k] - bound)
            options.append((more, cost, k))
        best = min(options)[2]
        chosen.append(best)
        load[best] += new.load[query]
        for s in own:
            wants[s][best] = wants[s].get(best, 0) + 1
    return chosen, time.process_time() - begun


def main() -> int:
    federation, known, new = sample_federation(8)
    host = np.random.default_rng(2).integers(0, PROVIDERS, KNOWN).astype(np.int32)
    print(f"root with {len(federation.tree.branches)} children, {NEW:,} queries")
    ratios = []
    for objective in ("wec", "traffic"):
        table = make_table(federation, federation.tree, known, host, objective)
        few = new.select(np.arange(LOOPED, dtype=np.int32))
        first = route_batch(table, few)
        slow, seconds = looped(federation, known, host, few, objective)
        if first.tolist() != slow:
            print(f"{objective}: the two choose differently: nothing to report", file=sys.stderr)
            return 1
        best = np.inf
        for _ in range(REPEATS):
            table = make_table(federation, federation.tree, known, host, objective)
            begun = time.process_time()
            route_batch(table, new)
            best = min(best, time.process_time() - begun)
        rate, plain = NEW / best, LOOPED / seconds
        ratios.append(rate / plain)
        print(f"{objective:8} {rate:12,.0f} queries/s; by a loop over objects {plain:8,.0f}")
        print(f"{'':8} {rate / THESIS:12.2f} of the thesis's {THESIS:,} on a CPU of 2.8 GHz")
    print(f"ratio: arrays route {min(ratios):.0f}x as many queries as the loop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
