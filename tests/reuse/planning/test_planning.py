"""The decision is the cheapest of all plans there are, whatever the prices; and the same code decides for
the simulated network and for the queries of a state."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reproduce.streamreuse import strategies as simulated
from headwater.reuse import Operator, QuerySignature, minimal_operator, relax, signature_of
from headwater.reuse.lanes import MAX_LANES
from headwater.reuse.load import SharingCosts, operator_load, reading_load
from headwater.reuse.planning import single_site as at_site
from headwater.reuse.planning.decision import (
    Costs,
    OnePlace,
    PlanStep,
    Reuse,
    decide,
    foreseeing,
)
from headwater.reuse.planning.graph import Graph, Node, Sources
from headwater.reuse.planning.places import NetworkPlaces
from headwater.reuse.planning.single_site import (
    QueryParts,
    SitePlan,
    SiteSetting,
    plan_at_site,
    restricted_operator,
)

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM tax (item INT, tax INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
NAMES = Namespace.of(one.stream for one in parse(STREAMS) if isinstance(one, CreateStream))
RATES = {"bids": 400.0, "asks": 100.0, "fees": 50.0, "tax": 10.0}

MANY_FEES = RATES | {"fees": 4_000.0}
"""With these, bids and asks are the best to join first."""


def form(text: str) -> QuerySignature:
    return signature_of(canonicalize(parse_query(text, NAMES)))


# ---- the dynamic program


@dataclass(frozen=True)
class Drawn:
    """Prices at random: one place, or three with ways between them."""

    places: OnePlace | NetworkPlaces
    whole: Sources
    joins: Sequence[Sources]
    feeds: dict[Sources, Costs]
    prices: dict[Sources, float]
    rates: dict[Sources, float]
    running: dict[Sources, list[Reuse]]
    result: Costs
    max_reads: int | None = None

    @property
    def single_sources(self) -> Sequence[Sources]:
        return [frozenset({name}) for name in sorted(self.whole)]

    def feed_costs(self, source: Sources) -> Costs:
        return self.feeds[source]

    def sent(self, sources: Sources) -> float:
        return self.rates[sources]

    def join_price(self, sources: Sources) -> float:
        return self.prices[sources]

    def result_costs(self) -> Costs:
        return self.result

    def offers(self, sources: Sources) -> Iterable[Reuse]:
        return self.running.get(sources, [])


def drawn(rng: random.Random) -> Drawn:
    import numpy as np

    names = "abcde"[: rng.randint(2, 4)]
    sets = [frozenset(c) for n in range(1, len(names) + 1) for c in combinations(names, n)]
    joins = [s for s in sets if len(s) == len(names) or (len(s) > 1 and rng.random() < 0.7)]
    many = rng.random() < 0.5
    count = 3 if many else 1

    def costs() -> Costs:
        some = [float(rng.randint(0, 20)) for _ in range(count)]
        return np.array(some) if many else tuple(some)

    ways = np.array([[0.0 if i == j else rng.random() for i in range(3)] for j in range(3)])
    places = NetworkPlaces(np.array([4, 7, 9]), ways) if many else OnePlace()
    node = minimal_operator(form("SELECT item FROM bids [NOW]"))
    running = {
        s: [
            Reuse(Node(f"n{k}", node, int(places.at(rng.randrange(count)))), {}, rng.random() * 30)
            for k in range(rng.randint(0, 2))
        ]
        for s in joins
    }
    return Drawn(
        places,
        frozenset(names),
        joins,
        {frozenset({n}): costs() for n in names},
        {s: float(rng.randint(0, 20)) for s in joins},
        {s: rng.random() * 10 for s in sets},
        running,
        costs(),
        rng.choice((None, 0, 1, 2)),
    )


def all_costs(setting: Drawn, sources: Sources, place: int) -> Iterator[tuple[float, int]]:
    """The price of every way to have a set at a place, with how many nodes it reads."""
    known = {*setting.single_sources, *setting.joins}
    if sources not in known:
        return
    if len(sources) == 1:
        yield float(setting.feeds[sources][place]), 0
        return
    for reuse in setting.running[sources]:
        if setting.places.index(reuse.node.site) == place:
            yield reuse.price, 0 if sources == setting.whole else 1
    cut = False
    for size in range(1, len(sources)):
        for half in map(frozenset, combinations(sorted(sources), size)):
            rest = sources - half
            if min(sources) not in half or half not in known or rest not in known:
                continue
            for a, reads in brought(setting, half, place):
                for b, more in brought(setting, rest, place):
                    cut = True
                    yield a + b + setting.prices[sources], reads + more
    if sources == setting.whole and not cut:
        yield (
            sum(float(setting.feeds[s][place]) for s in setting.single_sources)
            + setting.prices[sources],
            0,
        )


def brought(setting: Drawn, sources: Sources, place: int) -> Iterator[tuple[float, int]]:
    """The same, brought there from wherever it is made."""
    if len(sources) == 1 or isinstance(setting.places, OnePlace):
        yield from all_costs(setting, sources, place)
        return
    for origin in range(len(setting.places.sites)):
        way = setting.rates[sources] * float(setting.places.between[origin, place])
        yield from ((cost + way, reads) for cost, reads in all_costs(setting, sources, origin))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_no_plan_is_cheaper(seed: int) -> None:
    setting = drawn(random.Random(seed))
    most = len(setting.whole) if setting.max_reads is None else setting.max_reads
    places = 1 if isinstance(setting.places, OnePlace) else len(setting.places.sites)
    found = [
        (cost + float(setting.result[place]), reads)
        for place in range(places)
        for cost, reads in all_costs(setting, setting.whole, place)
        if reads <= most
    ]
    decision = decide(setting)
    assert decision.best.price == pytest.approx(min(cost for cost, _ in found))
    assert recomputed(setting, decision.best.step) == pytest.approx(decision.best.price)
    prices = [plan.price for plan in (decision.best, *decision.alternatives)]
    assert prices == sorted(prices)
    uses = [
        frozenset((r.node.name, r.node.site) for r in plan.step.reused)
        for plan in (decision.best, *decision.alternatives)
    ]
    assert setting.max_reads is None or all(len(set_) <= max(1, most) for set_ in uses)


def recomputed(setting: Drawn, step: PlanStep) -> float:
    """The price of a plan, step by step."""
    place = setting.places.index(step.place)
    return _price_of(setting, step, place) + float(setting.result[place])


def _price_of(setting: Drawn, step: PlanStep, place: int) -> float:
    """What it costs to have what a step makes at a place."""
    origin = setting.places.index(step.place)
    way = 0.0
    if origin != place:
        assert isinstance(setting.places, NetworkPlaces)
        way = setting.rates[step.sources] * float(setting.places.between[origin, place])
    if step.reuse is not None:
        return step.reuse.price + way
    if len(step.sources) == 1:
        return float(setting.feeds[step.sources][origin]) + way
    inputs = sum(_price_of(setting, one, origin) for one in step.inputs)
    return inputs + setting.prices[step.sources] + way


def test_foresight_makes_what_nobody_asks_for_dearer() -> None:
    assert foreseeing(10, 0.0, 0) == 10
    assert foreseeing(10, 0.5, 0) == 15
    assert 10 < foreseeing(10, 0.5, 9) < foreseeing(10, 0.5, 1)


# ---- one decision for all


def test_the_simulator_and_a_state_ask_the_same_code() -> None:
    assert simulated.decide is at_site.decide is decide
    assert simulated.ReusePricing is at_site.ReusePricing
    assert isinstance(simulated.SimulatedDeployment.__init__.__globals__["Graph"], type)
    assert simulated.SimulatedDeployment.__init__.__globals__["Graph"] is Graph


def test_one_place_is_a_network_of_one(seed: int = 7) -> None:
    import numpy as np

    rng = random.Random(seed)
    for _ in range(40):
        setting = drawn(rng)
        if isinstance(setting.places, NetworkPlaces):
            continue
        alone = NetworkPlaces(np.array([0]), np.zeros((1, 1)))
        as_network = Drawn(
            alone,
            setting.whole,
            setting.joins,
            {source: np.array(costs) for source, costs in setting.feeds.items()},
            setting.prices,
            setting.rates,
            setting.running,
            np.array(setting.result),
            setting.max_reads,
        )
        one, many = decide(setting), decide(as_network)
        assert one.best.price == pytest.approx(many.best.price)
        assert [p.price for p in one.alternatives] == pytest.approx(
            [p.price for p in many.alternatives]
        )


# ---- at a single site


@dataclass
class Site:
    """What runs at a site, and what queries are planned with."""

    graph: Graph[Node] = field(default_factory=Graph)
    rates: dict[str, float] = field(default_factory=lambda: dict(RATES))

    def setting(self, text: str) -> SiteSetting:
        parts = QueryParts(form(text))
        return SiteSetting(
            parts,
            lambda sources, part: (
                # One that reads another is joined, and read by none.
                n
                for n in self.graph.nearest(part)
                if sources == parts.whole or not n.inputs
            ),
            SharingCosts(rates=self.rates),
            lambda _: True,
        )

    def submit(self, name: str, text: str) -> SitePlan:
        plan = plan_at_site(self.setting(text))
        for node, operator in plan.relaxed.items():
            node.operator = operator
            self.graph.insert(node)
        if plan.choice.name is None:
            reads = () if plan.reads is None else (plan.reads,)
            self.graph.insert(Node(name, plan.choice.operator, inputs=reads))
        return plan


TWO = "SELECT b.price FROM bids [RANGE 5 SEC] b, asks [RANGE 5 SEC] a WHERE b.item = a.item"
THREE = """SELECT b.price, f.fee FROM bids [RANGE 5 SEC] b, asks [RANGE 5 SEC] a, fees [RANGE 5 SEC] f
  WHERE b.item = a.item AND b.item = f.item"""


def test_a_join_of_three_reads_one_of_two_if_that_is_cheaper() -> None:
    site = Site(rates=MANY_FEES)
    site.submit("two", TWO)
    plan = site.submit("three", THREE)
    assert plan.reads is site.graph["two"] and plan.choice.name is None
    assert plan.choice.added_load < plan.choice.standalone_load
    assert any(other.plan == "a new unit" for other in plan.choice.alternatives)


def test_it_does_not_if_that_has_more_rows_than_the_streams() -> None:
    site = Site(rates=dict.fromkeys(RATES, 20_000.0))
    site.submit("two", TWO)
    plan = site.submit("three", THREE)
    assert plan.reads is None and plan.choice.name is None
    # The least plan reads nothing, and its price is that of the query alone.
    assert plan.choice.added_load == plan.choice.standalone_load


def test_what_is_read_has_a_lane_if_it_would_have_to_be_relaxed_by_much() -> None:
    """It joins no more than what each of the two wants, though a cover of both is of all rows."""
    site = Site()
    site.submit("two", f"{TWO} AND b.item = 1")
    plan = site.submit("three", f"{THREE} AND f.fee = 2 AND a.cost = 1 AND b.price = 3")
    assert plan.reads is site.graph["two"]
    assert plan.choice.added_load < plan.choice.standalone_load


def test_what_is_read_is_relaxed_by_the_part_alone() -> None:
    site = Site(rates=MANY_FEES)
    site.submit("two", f"{TWO} AND b.item IN (1, 2, 3)")
    plan = site.submit("three", f"{THREE} AND b.item IN (2, 3, 4)")
    two = site.graph["two"]
    assert plan.reads is two and plan.part is not None
    assert relax(two.operator, plan.part.signature) is two.operator
    assert not two.operator.where.constraints[0].domain.has_all_values


def test_what_overlaps_in_nothing_is_not_read() -> None:
    """The other would have as much more to join as this one has alone, where that is what costs."""
    site = Site(rates=dict.fromkeys(RATES, 20_000.0))
    site.submit("two", f"{TWO} AND b.item = 1")
    assert site.submit("three", f"{THREE} AND b.item = 2").reads is None


GROUPED = """SELECT b.item, count(*) AS n FROM bids [RANGE 5 SEC SLIDE 5 SEC] b,
  asks [RANGE 5 SEC SLIDE 5 SEC] a WHERE b.item = a.item AND {} GROUP BY b.item"""


def test_without_rates_no_relaxation_multiplies_the_work() -> None:
    """Conditions on three columns: panes for two of them would be of all pairs; joins have lanes."""
    bounds = ("b.price = 1", "a.cost = 2", "b.item = 3", "b.item = 4")
    site = Site(rates={})
    plans = [site.submit(f"g{n}", GROUPED.format(one)) for n, one in enumerate(bounds)]
    assert [plan.choice.name for plan in plans] == [None, None, None, "g2"]
    assert all(plan.choice.revisit for plan in plans)
    joins = [site.submit(f"q{n}", f"{TWO} AND {one}") for n, one in enumerate(bounds)]
    assert [plan.choice.name for plan in joins] == [None, "q0", "q0", "q0"]
    assert not Site().submit("q", TWO).choice.revisit


def test_a_lone_stream_and_streams_that_nothing_connects() -> None:
    site = Site()
    for text in (
        "SELECT item FROM bids [NOW] WHERE price > 1",
        "SELECT b.item FROM bids [NOW] b, asks [NOW] a WHERE b.price < a.cost",
        "SELECT item, count(*) AS n FROM bids [RANGE 2 SEC] GROUP BY item",
    ):
        first = site.submit(text, text)
        assert first.choice.name is None
        assert first.choice.added_load == first.choice.standalone_load > 0
        again = site.submit("again", text)
        assert again.choice.name == text and again.choice.added_load == 0


TEMPLATES = (
    TWO + " AND b.item = {n}",
    TWO + " AND b.price > {n}",
    THREE + " AND b.item = {n}",
    "SELECT a.cost FROM asks [RANGE {n} SEC] a, fees [RANGE 3 SEC] f WHERE a.item = f.item",
    "SELECT price FROM bids [NOW] WHERE item = {n}",
    "SELECT item, max(price) AS m FROM bids [RANGE {n} MIN SLIDE 1 MIN] GROUP BY item",
)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_arrival_decides_little(seed: int) -> None:
    """Benchmarks have the same for 10,000 queries."""
    rng = random.Random(seed)
    texts = [rng.choice(TEMPLATES).format(n=rng.randint(1, 60)) for _ in range(150)]
    counts = []
    for _ in range(3):
        rng.shuffle(texts)
        site = Site()
        for number, one in enumerate(texts):
            site.submit(f"q{number}", one)
        counts.append(len(site.graph))
    assert max(counts) <= 1.05 * min(counts) + 1


def test_a_query_joins_the_unit_that_reads_the_same_as_it_would() -> None:
    """However little its rows and theirs have in common: what both read is read once."""
    site = Site(rates=MANY_FEES)
    site.submit("two", TWO)
    site.submit("three", f"{THREE} AND f.fee = 1 AND b.price = 2")
    assert site.graph["three"].inputs == (site.graph["two"],)
    for number in range(3, 9):
        plan = site.submit(f"q{number}", f"{THREE} AND f.fee = {number} AND a.cost = {number + 10}")
        assert plan.choice.name == "three"
    assert len(site.graph) == 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 100.0, 10_000.0]))
def test_a_wider_join_that_reads_rows_never_costs_less(seed: int, rate: float) -> None:
    rng = random.Random(seed)
    model = SharingCosts(rates=dict.fromkeys(RATES, rate)).effective

    def bounds() -> str:
        # Of values that no two columns have, as equal ones join them.
        ranges = {"b.price": 10, "a.cost": 20, "f.fee": 30, "b.item": 40}
        some = rng.sample(sorted(ranges), rng.randrange(4))
        return "".join(f" AND {c} {rng.choice('=>')} {ranges[c] + rng.randrange(9)}" for c in some)

    def load(operator: Operator) -> float:
        part = restricted_operator(
            operator, {s.alias for s in operator.scans if "fees" not in s.stream}
        )
        return reading_load(operator, part, model).cpu

    one = minimal_operator(form(THREE + bounds()))
    seconds = rng.choice((1, 5, 60))
    both = relax(one, form(THREE.replace("5 SEC", f"{seconds} SEC") + bounds()))
    assert load(both) >= load(one) * (1 - 1e-9)


def test_a_join_without_a_free_lane_is_priced_as_it_would_grow() -> None:
    """Values of two columns: each has few pairs, but what covers both is of all rows."""
    site = Site(rates=dict.fromkeys(RATES, 10_000.0))
    site.submit("two", f"{TWO} AND b.price = 1")
    text = f"{TWO} AND a.cost = 1"
    free, full = site.setting(text), replace(site.setting(text), lanes=lambda _: MAX_LANES)
    assert plan_at_site(free).choice.name == "two"
    apart = plan_at_site(full).choice
    assert apart.name is None and apart.added_load > plan_at_site(free).choice.added_load
    (joined,) = (other.load for other in apart.alternatives if other.plan == "relax unit two")
    before, after = (
        operator_load(operator, full.costs.effective).cpu
        for operator in (
            site.graph["two"].operator,
            relax(site.graph["two"].operator, full.parts.signature),
        )
    )
    assert joined == pytest.approx(after - before)
