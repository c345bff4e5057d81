"""How fast the simulator is: operator executions a second on one core, compiled against plain.

The workload is the scheduling paper's, 500 queries at load 0.97 with arrivals in bursts; the plain twin
runs a small part of it. Both must give the same bytes there, or nothing is reported. The last line
is the ratio of the slowest policy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from headwater.schedule import POLICIES
from headwater.sim.arrivals import OnOff, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.metrics import SimulationResult
from headwater.sim.plain import PlainChains, run_plan
from headwater.sim.workload import paper_chains

LOAD, SEED, TUPLES, FEW, QUERIES = 0.97, 1, 3000, 4, 100
ROUNDS = 3
WANTED = 5_000_000


def measured(run: Callable[[], SimulationResult]) -> tuple[float, SimulationResult]:
    """Executions a second of processor time, the best of some rounds, and the outcome."""
    best = 0.0
    for _ in range(ROUNDS):
        begun = time.process_time()
        outcome = run()
        best = max(best, outcome.executions / (time.process_time() - begun))
    return best, outcome


def main() -> int:
    large, small = OnOff(TUPLES), OnOff(FEW)
    chains = paper_chains(SEED, LOAD, mean_gap(large, SEED))
    some = paper_chains(SEED, LOAD, mean_gap(small, SEED), QUERIES)
    run_chains(some, POLICIES["bsd"], small, SEED)
    slowest, ratio = float("inf"), float("inf")
    for name, policy in POLICIES.items():
        compiled, _ = measured(lambda policy=policy: run_chains(chains, policy, large, SEED))
        plain, outcome = measured(
            lambda policy=policy: run_plan(PlainChains(some, SEED), policy, [small], [SEED])
        )
        if outcome.tally.tobytes() != run_chains(some, policy, small, SEED).tally.tobytes():
            print(f"{name}: the two give different results; nothing to report")
            return 1
        print(f"{name:10} {compiled:14,.0f} executions/s, plain {plain:10,.0f}")
        slowest, ratio = min(slowest, compiled), min(ratio, compiled / plain)
    print(f"slowest policy: {slowest:,.0f} executions/s ({slowest / WANTED:.1f} of those wanted)")
    print(f"ratio {ratio:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
