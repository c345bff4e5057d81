"""Lanes: each query has all its pairs in one of them, and few pairs are joined that nobody wants."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from compensated import Asked, alone, asked, by_base, form, serving, shared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import Block
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.conditions.predicate import implies
from headwater.algebra.nodes import Output, Query
from headwater.cql import parse_query
from headwater.reference import evaluate
from headwater.reuse import Operator, QuerySignature, SharingKind, lanes, relax
from headwater.reuse.describe import describe_lanes
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.lanes import MAX_LANES, MAX_LOSS, Lane, lanes_of
from overlapping import join, random_join
from strategies import SECOND, SOURCES, streams, tables

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**32)


def drawn(seed: int, size: int) -> Iterator[tuple[list[Asked], Operator]]:
    """Random joins in groups that could share, each with its operator."""
    rng = random.Random(seed)
    queries = [join(rng, rng.random() < 0.3) for _ in range(size)]
    asked_for = [asked(parse_query(text, SOURCES)) for text in queries]
    asked_for += [asked(random_join(rng)) for _ in range(size)]
    for group in by_base({one.form.digest: one for one in asked_for}.values()):
        if group[0].form.kind is SharingKind.JOIN:
            yield group, serving([one.form for one in group])


# ---- never a wrong row


@settings(SLOW, max_examples=10)
@given(SEEDS, streams(), tables())
def test_each_query_has_its_rows_from_its_lane(seed: int, data: Any, rows: Any) -> None:
    for group, operator in drawn(seed, 10):
        for one, part in zip(group, shared(group, operator, data, rows), strict=True):
            assert part == alone(one, data, rows), str(one.query)


@pytest.mark.long
@settings(SLOW, max_examples=20)
@given(SEEDS)
def test_each_query_is_in_one_lane_that_serves_it_and_none_else(seed: int) -> None:
    for group, operator in drawn(seed, 16):
        forms = [one.form for one in group]
        found = lanes_of(operator, forms)
        assert len(found) <= MAX_LANES
        members = [s.digest for lane in found for s in lane.signatures]
        assert sorted(members) == sorted(s.digest for s in forms)
        for lane in found:
            assert implies(lane.operator.where, operator.where)
            for signature in lane.signatures:
                assert relax(lane.operator, signature) is lane.operator
                assert implies(signature.content.where, lane.operator.where)


@pytest.mark.long
@settings(SLOW, max_examples=12)
@given(SEEDS)
def test_the_order_of_queries_does_not_matter(seed: int) -> None:
    for group, operator in drawn(seed, 12):
        forms = [one.form for one in group]
        mixed = random.Random(seed).sample(forms, len(forms))
        assert _as_sets(lanes_of(operator, forms)) == _as_sets(lanes_of(operator, mixed))


def _as_sets(found: Sequence[Lane]) -> set[tuple[Any, ...]]:
    return {
        (lane.operator.sources, lane.operator.where, frozenset(s.digest for s in lane.signatures))
        for lane in found
    }


# ---- few pairs

JOIN = "SELECT b.bidder, a.cost FROM Bids {0} b, Asks {0} a WHERE b.item = a.item{1}"


def asked_for(more: str = "", window: str = "[RANGE 4 SEC]") -> QuerySignature:
    return form(JOIN.format(window, f" AND {more}" if more else ""))


def data(size: int = 200) -> dict[str, list[Any]]:
    rng = random.Random(1)
    times = [sorted(rng.randrange(100 * SECOND) for _ in range(size)) for _ in range(2)]
    bids = [(rng.randrange(4), rng.randrange(9), rng.randrange(9) / 2, "a", t) for t in times[0]]
    asks = [(rng.randrange(4), True, rng.randrange(9) / 2, rng.choice("xyz"), t) for t in times[1]]
    return {"Bids": bids, "Asks": asks}


def pairs(operator: Operator, streams: Any) -> list[Any]:
    """The pairs that an operator joins, by their times."""
    times = tuple(next(c for c in s.columns if c.name == s.time) for s in operator.scans)
    block = Block(operator.sources, operator.where, (), None, times, False)
    query = Query(Output.ISTREAM, RelationBuilder().build(block))
    return [row.values for row in evaluate(query, streams, {})]


@pytest.mark.parametrize(
    "asked_together",
    [
        [asked_for(c) for c in ("b.bidder = 1", "b.price = 2", "a.cost = 3", "a.note = 'x'")],
        [asked_for(c) for c in ("b.bidder > 7", "b.price > 3.5", "a.cost < 0.5", "a.note > 'y'")],
        [asked_for(window="[RANGE 1 SEC]"), asked_for("b.bidder = 1", "[RANGE 40 SEC]")],
        [asked_for(f"b.bidder = {n}", "[RANGE 1 SEC]") for n in range(9)]
        + [asked_for("b.bidder = 4", "[RANGE 60 SEC]")],
        [asked_for(f"b.price = {n}") for n in (0.5, 1.5, 3.5)],
        [asked_for(f"b.bidder = {n} AND a.note = '{'xyz'[n % 3]}'") for n in range(9)],
        [asked_for(window=f"[RANGE 8 SEC SLIDE {n} SEC]") for n in (2, 3)],
    ],
    ids=[
        "columns",
        "ranges",
        "long window",
        "long for one",
        "values of one term",
        "of two",
        "slides",
    ],
)
def test_few_pairs_are_joined_that_nobody_wants(asked_together: list[QuerySignature]) -> None:
    streams, operator = data(), serving(asked_together)
    joined = [pairs(lane.operator, streams) for lane in lanes_of(operator, asked_together)]
    wanted = set[Any]()
    for one in asked_together:
        wanted |= set(pairs(serving([one]), streams))
    assert wanted == {pair for of_lane in joined for pair in of_lane} & wanted
    assert sum(map(len, joined)) <= 2 * len(wanted)


@settings(SLOW, max_examples=12)
@given(SEEDS)
def test_no_other_lanes_are_estimated_as_far_better(seed: int) -> None:
    """Compared with all ways to divide the groups of like queries."""
    for group, operator in drawn(seed, 5):
        forms = [one.form for one in group]
        if len(operator.scans) < 2 or len(forms) > 6:
            continue
        found = sum(_estimate(lane.operator) for lane in lanes_of(operator, forms))
        best = min(
            sum(_estimate(serving([forms[at] for at in part])) for part in parts)
            for parts in _partitions(list(range(len(forms))))
        )
        assert found <= MAX_LOSS * best


def _estimate(operator: Operator) -> float:
    return lanes._estimate_pairs(operator.sources, operator.where)


def _partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for parts in _partitions(rest):
        yield [[first], *parts]
        for at, part in enumerate(parts):
            yield [*parts[:at], [first, *part], *parts[at + 1 :]]


# ---- by hand


def test_one_lane_is_the_operator_itself() -> None:
    together = [asked_for("b.bidder = 1"), asked_for("b.bidder = 2"), asked_for("b.bidder > 5")]
    operator = serving(together)
    (lane,) = lanes_of(operator, together)
    assert lane.operator is operator and lane.signatures == tuple(together)
    assert describe_lanes((lane,), operator) == []


def test_a_lone_stream_is_read_once() -> None:
    together = [form(f"SELECT item FROM Bids WHERE {c}") for c in ("bidder = 1", "price = 2")]
    assert len(lanes_of(serving(together), together)) == 1


def test_more_values_than_an_operator_lists_are_still_not_joined_in_vain() -> None:
    together = [asked_for(f"b.bidder = {7 * n}") for n in range(400)]
    operator = serving(together)
    (lane,) = lanes_of(operator, together)
    assert implies(lane.operator.where, operator.where)
    assert not implies(operator.where, lane.operator.where)


def test_lanes_in_words() -> None:
    together = [asked_for(window="[RANGE 1 SEC]"), asked_for("b.bidder = 1", "[RANGE 40 SEC]")]
    members = JoinSubscribers(serving(together), tuple(together))
    assert describe_lanes(members.lanes, members.operator) == [
        "computed in 2 lanes, in small steps all at once:",
        "Asks [RANGE 1 SECOND], Bids [RANGE 1 SECOND] where Asks.item = Bids.item, for 1 query",
        "Asks [RANGE 40 SECONDS], Bids [RANGE 40 SECONDS] where Asks.item = Bids.item AND "
        "Bids.bidder = 1, for 1 query",
    ]
    assert {shape.lane for shape in members.shapes} == {0, 1}
