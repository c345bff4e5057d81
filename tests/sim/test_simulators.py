"""What the simulators compute: the paper's example, joins by brute force, conservation, memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SimulationError
from headwater.reproduce.scheduling.examples import EXAMPLE, PENDING, example_seed
from headwater.schedule import POLICIES
from headwater.sim.arrivals import FixedTimes, OnOff, Poisson, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.metrics import COUNT
from headwater.sim.plain import PlainChains, run_plan
from headwater.sim.workload import (
    Chain,
    SimulatedOperator,
    cost_class,
    paper_chains,
)

QUICK = settings(max_examples=50, deadline=None)

BSD = POLICIES["bsd"]


@pytest.mark.parametrize(
    ("name", "response", "slowdown"), [("hr", 12.25, 3.875), ("hnr", 13.0, 2.9)]
)
def test_example_1_of_the_paper(name: str, response: float, slowdown: float) -> None:
    seed = example_seed()
    compiled = run_chains(EXAMPLE, POLICIES[name], PENDING, seed)
    plain = run_plan(PlainChains(EXAMPLE, seed), POLICIES[name], [PENDING], [seed])
    for outcome in (compiled, plain):
        assert outcome.metrics().response == response
        assert outcome.metrics().slowdown == pytest.approx(slowdown, rel=1e-15)


def test_every_policy_gives_the_same_results_and_does_the_same_work() -> None:
    arrivals = OnOff(300)
    chains = paper_chains(2, 0.9, mean_gap(arrivals, 2), queries=50)
    for by_operator in (False, True):
        runs = [run_chains(chains, p, arrivals, 2, by_operator) for p in POLICIES.values()]
        assert len({run.tally[:, COUNT].tobytes() for run in runs}) == 1
        assert len({run.executions for run in runs}) == 1


def test_round_robin_goes_round_the_queries_whatever_their_rates() -> None:
    chains = [Chain((SimulatedOperator(3.0),)), Chain((SimulatedOperator(1.0),))]
    run = run_chains(chains, POLICIES["rr"], FixedTimes((0.0, 0.0)), 1)
    assert [run.metrics([query]).response for query in (0, 1)] == [(3 + 7) / 2, (4 + 8) / 2]


def test_the_processor_is_as_busy_as_the_load_says() -> None:
    arrivals = Poisson(4000)
    chains = paper_chains(1, 0.6, mean_gap(arrivals, 1), queries=100)
    busy = sum(run_chains([c], BSD, FixedTimes((0.0,) * 2000), 1).end_time for c in chains) / 2000
    assert busy / mean_gap(arrivals, 1) == pytest.approx(0.6, rel=0.05)


def test_the_paper_classes() -> None:
    chains = paper_chains(1, 0.9, 1.0)
    assert sorted({cost_class(chains, query) for query in range(500)}) == [0, 1, 2, 3, 4]
    for chain in chains:
        select, join, project = chain.operators
        assert select == join
        assert (project.cost, project.selectivity) == (join.cost, 1.0)
        assert 0.1 <= select.selectivity <= 1.0


# ---- the bound


@QUICK
@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 100))
def test_with_a_bound_no_tuple_waits_much_longer_than_first_come_first_served(
    name: str, seed: int
) -> None:
    """Overloaded on purpose: once overdue, a tuple has only older ones before it."""
    chains = [
        Chain((SimulatedOperator(1.0),)),
        Chain((SimulatedOperator(8.0, 0.2),)),
        Chain((SimulatedOperator(3.0, 0.9),)),
    ]
    arrivals = Poisson(25, 9.0)

    def longest(policy: str, bound: float | None = None) -> float:
        plan = PlainChains(chains, seed)
        return run_plan(plan, POLICIES[policy], [arrivals], [seed], bound).metrics().max_response

    assert longest(name, bound=20.0) <= max(longest("fcfs"), 20.0) + 2 * 12.0


# ---- bytes and memory


def test_the_same_seed_gives_the_same_bytes() -> None:
    arrivals = OnOff(200)
    chains = paper_chains(9, 0.95, mean_gap(arrivals, 9), queries=40)
    first, again = (run_chains(chains, BSD, arrivals, 9) for _ in range(2))
    assert first.tally.tobytes() == again.tally.tobytes()
    assert first.tally.tobytes() != run_chains(chains, BSD, arrivals, 10).tally.tobytes()


PROGRAM = """
import hashlib
from headwater.schedule import POLICIES
from headwater.sim.arrivals import OnOff, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.workload import paper_chains
arrivals = OnOff(500)
chains = paper_chains(9, 0.95, mean_gap(arrivals, 9))
for policy in POLICIES.values():
    print(hashlib.sha256(run_chains(chains, policy, arrivals, 9).tally.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_other_processes_give_the_same_bytes() -> None:
    printed = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert printed[0].stdout == printed[1].stdout
    assert len(printed[0].stdout.splitlines()) == len(POLICIES)


def test_an_hour_takes_no_more_memory_than_some_minutes() -> None:
    """Ten tuples a second of simulated time."""
    chains = paper_chains(1, 0.9, 0.1, queries=20)

    def peak(tuples: int) -> int:
        tracemalloc.start()
        run_chains(chains, BSD, Poisson(tuples, 0.1), 1)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(6_000)
    assert peak(36_000) <= 1.2 * peak(12_000)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: SimulatedOperator(0.0),
        lambda: SimulatedOperator(1.0, 1.5),
        lambda: run_chains([], BSD, Poisson(1), 1),
    ],
)
def test_what_cannot_be_simulated_is_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(SimulationError):
        bad()
