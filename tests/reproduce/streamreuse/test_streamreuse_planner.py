"""Plans are the cheapest there are, and what is shared covers all that share it."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from random import Random

import pytest

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.network import TransitStubShape
from headwater.reproduce.streamreuse.deployment import (
    JoinPrices,
    RunningOperator,
    SimulatedDeployment,
    feeders,
    operators_of,
)
from headwater.reproduce.streamreuse.question import PreparedQuery, prepare_query
from headwater.reproduce.streamreuse.simulate import prepare_submissions, simulate
from headwater.reproduce.streamreuse.strategies import (
    HEADWATER,
    NO_REUSE,
    NO_REWRITING,
    STRATEGIES,
    VARIANTS,
    Strategy,
    Submission,
    decide_plan,
    deploy_plan,
    offer_nothing,
)
from headwater.reproduce.streamreuse.workload import (
    AIRLINE_STREAMS,
    Airline,
    airline_workload,
    gate_query,
    rfid_workload,
    terminal_query,
)
from headwater.reproduce.streamreuse.world import World, build_world
from headwater.reuse import relax
from headwater.reuse.planning.decision import PlanStep

STATISTICS = Airline().statistics
SMALL = TransitStubShape(domains=1, transit=2, stubs=2, hosts=4)


@cache
def small() -> World:
    return build_world(list(STATISTICS), 1, SMALL)


def ask(text: str, infer: bool = False) -> PreparedQuery:
    declared = parse(AIRLINE_STREAMS)
    names = Namespace.of(one.stream for one in declared if isinstance(one, CreateStream))
    return prepare_query(parse_query(text, names), STATISTICS, infer)


def empty(place: World, prices: JoinPrices | None = None) -> SimulatedDeployment:
    return SimulatedDeployment(place, STATISTICS, prices or JoinPrices())


# ---- what is asked for


def test_a_source_applies_what_the_text_compares() -> None:
    rates = {stream: known.rate * 100 for stream, known in STATISTICS.items()}
    written, inferred = ask(gate_query(7)), ask(gate_query(7), infer=True)
    flights, bags = frozenset({"flights"}), frozenset({"baggage"})
    assert written.rates[flights] == pytest.approx(rates["flights"] / 1500)
    assert written.rates[bags] == pytest.approx(rates["baggage"])
    assert inferred.rates[bags] == pytest.approx(rates["baggage"] / 1500)
    assert inferred.rates[inferred.streams] == written.rates[written.streams]


def test_parts_are_joins_that_conditions_hold_together() -> None:
    parts = {"+".join(sorted(s)) for s in ask(terminal_query(0, 0)).joins}
    assert "flights+weather" in parts
    assert "baggage+weather" not in parts
    assert len(parts) == len({frozenset(p.split("+")) for p in parts})


def test_a_part_keeps_the_bounds_on_its_streams() -> None:
    part = frozenset({"flights", "check_ins"})
    gate, terminal = ask(gate_query(7)).rates[part], ask(terminal_query(0, 0)).rates[part]
    assert gate * 1500 == pytest.approx(terminal * 8 * 20)


# ---- the cheapest plan


def cost(state: SimulatedDeployment, stay: Submission) -> float:
    """What all that runs costs, with the way to the sink, in a second."""
    running = {
        one.name: one for query in state.queries.values() for one in operators_of(query.source)
    }
    query = state.queries[0]
    to_sink = query.rate * state.world.transit[query.source.site, query.sink]
    return sum(one.price for one in running.values()) + float(to_sink)


def left_deep(
    asked: PreparedQuery, order: tuple[str, ...], sites: tuple[int, ...]
) -> PlanStep | None:
    """The plan that joins the streams in that order at those sites; None if one has no condition."""
    step = PlanStep(frozenset({order[0]}), sites[0])
    for stream, site in zip(order[1:], sites, strict=True):
        streams = step.sources | {stream}
        if streams not in asked.parts:
            return None
        step = PlanStep(streams, site, inputs=(step, PlanStep(frozenset({stream}), site)))
    return step


def cheapest(stay: Submission, prices: JoinPrices) -> float:
    found = []
    for order in permutations(sorted(stay.query.streams)):
        for sites in product(small().join_sites.tolist(), repeat=len(order) - 1):
            step = left_deep(stay.query, order, sites)
            if step is not None:
                state = empty(small(), prices)
                deploy_plan(state, 0, stay, step)
                found.append(cost(state, stay))
    return min(found)


@pytest.mark.parametrize(("sink", "join"), [(4, 0.0), (13, 1.5)])
def test_without_reuse_no_left_deep_plan_is_cheaper(sink: int, join: float) -> None:
    prices = JoinPrices(join)
    stay = Submission(ask(gate_query(7)), sink, 0.0, 7200.0)
    state = empty(small(), prices)
    deploy_plan(state, 0, stay, decide_plan(state, stay, STRATEGIES[NO_REUSE]).best.step)
    assert cost(state, stay) == pytest.approx(cheapest(stay, prices))


@pytest.mark.parametrize("other", ["baggage", "check_ins"])
def test_with_foresight_a_join_that_others_ask_for_comes_first(other: str) -> None:
    """All three streams of the query could be joined with flights first."""
    foresight = Strategy(offer_nothing, offer_nothing, foresight=1e6)
    pair = f"""SELECT fl.gate FROM flights [RANGE 5 MIN] AS fl, {other} [RANGE 1 MIN] AS x
        WHERE fl.num = x.flight AND fl.num = 9"""
    state = empty(small())
    for number in range(4):
        stay = Submission(ask(pair), 4, 0.0, 7200.0)
        deploy_plan(state, number, stay, decide_plan(state, stay, foresight).best.step)
    joined = frozenset({"flights", other})
    assert (
        state.expected_requests(joined) == 4
        and state.expected_requests(frozenset({"flights", "weather"})) == 0
    )
    state.remove_query(0)
    assert state.expected_requests(joined) == 3
    stay = Submission(ask(gate_query(7)), 4, 0.0, 7200.0)
    step = decide_plan(state, stay, foresight).best.step
    assert joined in {one.sources for one in step.inputs}


# ---- what is shared


def covered(one: RunningOperator) -> bool:
    """Whether an operator serves all its members, and its inputs serve them too."""
    return all(
        relax(one.operator, form) is one.operator for form in one.subscribers.values()
    ) and all(set(one.subscribers) <= set(feeder.subscribers) for feeder in feeders(one))


@pytest.mark.parametrize("strategy", [*STRATEGIES, *VARIANTS])
@pytest.mark.parametrize(
    ("name", "hours", "every"),
    [
        ("EW", 0.2, 1),
        pytest.param("EW", 2, 20, marks=pytest.mark.slow),
        pytest.param("RW", 1, 10, marks=pytest.mark.slow),
    ],
)
def test_operators_cover_whom_they_serve_until_nobody_is_left(
    name: str, hours: float, every: int, strategy: str
) -> None:
    workload = (airline_workload if name == "EW" else rfid_workload)(5, hours)
    place = build_world(list(workload.statistics), 1)
    state = SimulatedDeployment(place, workload.statistics, JoinPrices())
    random = Random(1)
    for number, stay in enumerate(prepare_submissions(workload, place, 1)):
        deploy_plan(
            state,
            number,
            stay,
            decide_plan(state, stay, (STRATEGIES | VARIANTS)[strategy]).best.step,
        )
        if random.random() < 0.3:
            state.remove_query(random.choice(list(state.queries)))
        running = {id(one): one for q in state.queries.values() for one in operators_of(q.source)}
        assert number % every or all(covered(one) for one in running.values())
        assert state.joins == sum(bool(one.inputs) for one in running.values())
    for number in list(state.queries):
        state.remove_query(number)
    assert (state.joins, state.selections, state.usage()) == (0, 0, 0)


def test_the_second_gate_shares_all_and_the_same_one_is_found_without_rewriting() -> None:
    for strategy, joins in ((NO_REUSE, 6), (NO_REWRITING, 4), (HEADWATER, 2)):
        state = empty(small())
        for number, flight in enumerate((7, 8, 7)):
            stay = Submission(ask(gate_query(flight)), 4, 0.0, 7200.0)
            deploy_plan(
                state, number, stay, decide_plan(state, stay, STRATEGIES[strategy]).best.step
            )
        assert state.joins == joins


def test_what_was_relaxed_is_tightened_when_queries_leave() -> None:
    state = empty(small())
    for number, flight in enumerate((7, 8)):
        stay = Submission(ask(gate_query(flight)), 4, 0.0, 7200.0)
        deploy_plan(state, number, stay, decide_plan(state, stay, STRATEGIES[HEADWATER]).best.step)
    both = state.usage()
    state.remove_query(1)
    alone = empty(small())
    stay = Submission(ask(gate_query(7)), 4, 0.0, 7200.0)
    deploy_plan(alone, 0, stay, decide_plan(alone, stay, STRATEGIES[NO_REUSE]).best.step)
    assert state.usage() == pytest.approx(alone.usage())
    assert state.usage() < both


@pytest.mark.long
def test_a_run_repeats_itself() -> None:
    workload = airline_workload(2, hours=0.3)
    place = build_world(list(workload.statistics), 2)
    stays = prepare_submissions(workload, place, 2)
    runs = [
        simulate(STRATEGIES[HEADWATER], stays, workload, place, 0.3, JoinPrices()) for _ in range(2)
    ]
    assert runs[0].samples == runs[1].samples
    assert [one.latency for one in runs[0].timings] == [one.latency for one in runs[1].timings]
