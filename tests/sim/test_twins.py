"""The compiled simulators give the same bytes as the plain ones, under every policy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schedule import POLICIES, Policy
from headwater.sim.arrivals import OnOff, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.metrics import Floats, SimulationResult
from headwater.sim.plain import PlainChains, run_plan
from headwater.sim.workload import Chain, SimulatedOperator, paper_chains

QUICK = settings(max_examples=50, deadline=None)

EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def same(compiled: SimulationResult, plain: SimulationResult) -> bool:
    return (
        compiled.tally.tobytes() == plain.tally.tobytes()
        and compiled.end_time == plain.end_time
        and compiled.executions == plain.executions
        and compiled.decisions == plain.decisions
        and compiled.metrics().results > 0
    )


@EVERY
@pytest.mark.parametrize("by_operator", [False, True], ids=["query", "operator"])
def test_chains(policy: Policy, by_operator: bool) -> None:
    arrivals = OnOff(40)
    chains = paper_chains(3, 0.95, mean_gap(arrivals, 3), queries=12)
    compiled = run_chains(chains, policy, arrivals, 3, by_operator)
    assert same(compiled, run_plan(PlainChains(chains, 3, by_operator), policy, [arrivals], [3]))


operators = st.builds(
    SimulatedOperator, st.sampled_from([0.5, 1.0, 1.5, 3.0]), st.sampled_from([0, 0.3, 1])
)
plans = st.lists(
    st.builds(Chain, st.lists(operators, min_size=1, max_size=4).map(tuple)), min_size=1, max_size=6
)


@QUICK
@given(plans, st.sampled_from(list(POLICIES)), st.booleans(), st.integers(0, 1000))
def test_any_chains_of_any_length_with_many_ties(
    chains: list[Chain], name: str, by_operator: bool, seed: int
) -> None:
    """Times and costs are few round numbers, so that equal ranks and simultaneous events abound."""

    class Round:
        def chunks(self, seed: int) -> Iterator[Floats]:
            yield np.floor(np.cumsum(np.random.default_rng(seed).exponential(4.0, 12)))

    policy = POLICIES[name]
    compiled = run_chains(chains, policy, Round(), seed, by_operator)
    plain = run_plan(PlainChains(chains, seed, by_operator), policy, [Round()], [seed])
    assert compiled.tally.tobytes() == plain.tally.tobytes()
    assert compiled.decisions == plain.decisions
