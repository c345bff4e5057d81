"""How long the first distribution of the thesis's largest federation takes, and in how much memory.

60,000 queries over 20,000 substreams onto 256 providers of a network of 4,096 nodes, hierarchically, by WEC. Fails if a provider
gets more than 1.10 of its share. Takes some minutes; an argument asks for fewer queries.
"""

from __future__ import annotations

import resource
import sys
import time

from headwater.federation.distribution.hierarchy import distribute
from headwater.reproduce.cosmos.distribution_worlds import (
    FIRST_SEED,
    FULL,
    hierarchy_settings,
    make_world,
    measure,
)
from headwater.reproduce.figure import FigureSettings

QUERIES = 60_000
BOUND = 1.10
MEMORY_GB = 4.0


def peak_gigabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(queries: int) -> int:
    world = make_world(FULL, FIRST_SEED)
    drawn = world.queries(queries, FIRST_SEED)
    settings = hierarchy_settings(FigureSettings(1), "wec")
    # What is compiled by the first call is not part of the time.
    distribute(world.federation, world.queries(50, FIRST_SEED), settings)
    before = peak_gigabytes()
    begun, clock = time.process_time(), time.perf_counter()
    found = distribute(world.federation, drawn, settings, clock=time.process_time)
    cpu, seconds = time.process_time() - begun, time.perf_counter() - clock
    peak = peak_gigabytes()
    one = measure(world, drawn, found.place)
    print(
        f"{queries:,} queries, {len(world.federation.substreams):,} substreams, {FULL.providers} providers"
    )
    print(
        f"seconds        {cpu:8.1f} of CPU, {seconds:.1f} on the clock, {found.response_seconds:.1f} of CPU in the longest chain"
    )
    print(f"memory         {peak:8.2f} GB at most, {before:.2f} GB before")
    print(f"largest load   {one.largest:8.3f} of a share")
    print(f"cost           {one.cost:8,.0f}, of it results {one.of_results:,.0f}")
    if one.largest > BOUND * (1 + 1e-9):
        print(f"a provider has more than {BOUND:.2f} of its share", file=sys.stderr)
        return 1
    print(f"ratio: {MEMORY_GB / peak:.1f}x less memory than {MEMORY_GB:g} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else QUERIES))
