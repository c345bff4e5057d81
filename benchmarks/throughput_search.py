"""How many configurations a second the searches for throughput look at, on queries of 40 operators.

Each search runs with the paper's parameters on the same random queries, from the same random places;
times are of the processor, after everything was compiled. Beside it the plain twin of the compiled code
evaluates the same configurations. Refuses to report if the two do not agree.
"""

from __future__ import annotations

import statistics
import sys
import time

from headwater.plan.throughput.quality import quality
from headwater.plan.throughput.search import SEARCHES, random_placement, run_search
from headwater.reproduce.throughput_samples import introduction_problem, large_problem

QUERIES = 20
NAMES = ("annealing", "greedy", "tabu", "reactive-tabu")
PAPER_ANNEALING = 0.200
"""The seconds that annealing took on average in the paper."""


def main() -> int:
    problems = [large_problem(seed, operators=40) for seed in range(QUERIES)]
    run_search(SEARCHES["annealing"], problems[0])
    average = {}
    found = {}
    for name in NAMES:
        seconds, seen = [], 0
        for seed, problem in enumerate(problems):
            start = random_placement(problem, seed)
            begun = time.process_time()
            found[name, seed] = run_search(SEARCHES[name], problem, start, seed)
            seconds.append(time.process_time() - begun)
            seen += found[name, seed].seen
        average[name] = statistics.mean(seconds)
        rate = seen / sum(seconds)
        print(f"{name:14} {average[name] * 1e3:8.1f} ms, {rate:10,.0f} configurations/s")

    begun = time.process_time()
    plain = [quality(problems[seed], one.configuration).value for (_, seed), one in found.items()]
    each = (time.process_time() - begun) / len(plain)
    print(f"{'plain twin':14} {'':8}    {1 / each:10,.0f} configurations/s")
    for value, one in zip(plain, found.values(), strict=True):
        if abs(value - one.quality) > 1e-9 * value:
            print("the compiled code and its twin disagree: nothing to report", file=sys.stderr)
            return 1

    example = introduction_problem()
    begun = time.process_time()
    exact = run_search(SEARCHES["branch-and-bound"], example)
    seconds_exact = time.process_time() - begun
    if not exact.proven:
        print("the introduction's example was not proven: nothing to report", file=sys.stderr)
        return 1
    print(f"the introduction's example, proven: {seconds_exact:.2f} s")
    print(f"reactive tabu takes {average['reactive-tabu'] / average['annealing']:.0f}x annealing")
    print(f"ratio: annealing {PAPER_ANNEALING / average['annealing']:.1f}x as fast as in the paper")
    return 0


if __name__ == "__main__":
    sys.exit(main())
