"""In which order sources are joined: the cheapest of all by what was measured, or as it is written;
and all orders give the same rows."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import opened, settle
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import Block, canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cost.model import CostModel
from headwater.cost.operators import CostTable, OperatorCost
from headwater.cost.provenance import Estimate
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream
from headwater.errors import HeadwaterError
from headwater.runtime.compile.join_order import JoinOrdering, Term, order_term, written_join_tree
from headwater.runtime.settings import JOIN_ORDER_MODES, parse_setting

QUERY = """CREATE QUERY q AS SELECT a.x, b.x AS y, c.x AS z
    FROM a [RANGE 100 SECONDS], b [RANGE 100 SECONDS], c [RANGE 100 SECONDS]
    WHERE a.k = b.k AND a.m = c.m"""
SECOND = 1_000_000


@pytest.mark.spark
def test_the_order_follows_what_was_measured(spark: Any, tmp_path: Path) -> None:
    """b has fewer tuples than c, but every tuple of a meets all of b, and few meet one of c."""
    with opened(tmp_path, spark) as headwater:
        for name in "abc":
            headwater.execute(
                f"CREATE STREAM {name} (k INT, m INT, x INT, ts TIMESTAMP) TIMESTAMP BY ts "
                "LATENESS 1 HOUR FROM CLIENT"
            )
        headwater.execute(QUERY)
        headwater.push("b", [(0, 0, x, SECOND) for x in range(20)], timestamp_unit="us")
        headwater.push("c", [(0, 10 + x, x, SECOND) for x in range(60)], timestamp_unit="us")
        settle(headwater)
        (row,) = headwater.catalog.units()
        unit, engine = headwater.engine.units.current(row), headwater.engine
        headwater.push("a", [(0, x, x, SECOND) for x in range(30)], timestamp_unit="us")
        engine.step(unit)
        (first,) = [one.order for one in unit.last_report.terms]
        measured = dict(engine.meter.values(row.id))
        headwater.push("a", [(0, x, 100 + x, SECOND) for x in range(30)], timestamp_unit="us")
        engine.step(unit)
        (second,) = [one.order for one in unit.last_report.terms]
        names = {scan.stream.lower(): alias for alias, scan in unit.plan.scans}
        assert first == (names["a"], names["b"], names["c"])
        assert second == (names["a"], names["c"], names["b"])
        assert measured[f"join {names['b']} to {names['a']}"] == 1.0
        assert len(headwater.query("q").arrow()) == 2 * 20 * 20


# ---- the cheapest order

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, m INT, x INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    for name in "abcde"
)
WINDOW = "[RANGE 100 SECONDS]"


def names() -> Namespace:
    statements = parse(STREAMS)
    return Namespace.of([s.stream for s in statements if isinstance(s, CreateStream)])


def block_of(text: str) -> Block:
    body = canonicalize(parse_query(text, names())).body
    assert isinstance(body, Block)
    return body


def joined(conditions: str) -> Block:
    """Five streams, of which sources are s0 .. s4 in the order of their names."""
    streams = ", ".join(f"{name} {WINDOW}" for name in "abcde")
    return block_of(f"SELECT a.x FROM {streams} WHERE {conditions}")


CHAIN = "a.k = b.k AND b.m = c.m AND c.x = d.x AND d.k < e.k"
STAR = "a.k = b.k AND a.m = c.m AND a.x = d.x AND a.x = e.k"
shares = st.floats(1e-6, 1.0)


@settings(deadline=None)
@given(
    st.sampled_from((CHAIN, STAR)),
    st.lists(st.integers(1, 10_000), min_size=5, max_size=5),
    st.lists(shares, min_size=5, max_size=5),
    st.lists(shares, min_size=10, max_size=10),
    st.sampled_from(range(5)),
    st.sampled_from((OperatorCost(1, 1), OperatorCost(1, 100), OperatorCost(100, 1))),
)
def test_no_order_is_cheaper(
    conditions: str,
    sizes: list[int],
    kept: list[float],
    met: list[float],
    first: int,
    cost: OperatorCost,
) -> None:
    block = joined(conditions)
    rows = {f"s{n}": size for n, size in enumerate(sizes)}
    known = {f"filter s{n}": share for n, share in enumerate(kept)}
    pairs = [(a, b) for a in range(5) for b in range(a)]
    for (a, b), share in zip(pairs, met, strict=True):
        known[f"join s{a} to s{b}"] = share * kept[a]
    costs = CostTable({**CostTable().costs, "join": cost})
    found = order_term(
        block, f"s{first}", rows, known, ordering=JoinOrdering("throughput", CostModel(costs=costs))
    ).order
    links = [
        frozenset(("s" + str("abcde".index(x[0])), "s" + str("abcde".index(y[0]))))
        for x, _, y in (c.split() for c in conditions.split(" AND "))
    ]
    equal = [link for link, c in zip(links, conditions.split(" AND "), strict=True) if "=" in c]
    prices = dict(zip(pairs, met, strict=True))

    def price(order: tuple[str, ...]) -> float | None:
        """What an order costs, counted anew; None for one with a product that need not be."""
        total, before = 0.0, rows[order[0]] * kept[int(order[0][1])]
        for place, alias in enumerate(order[1:], 1):
            done, n = set(order[:place]), int(alias[1])
            mine = [link for link in links if alias in link and link & done]
            if not mine and any(link & done and link - done for link in links):
                return None
            after = before * rows[alias] * kept[n] if mine else before * rows[alias] * 0.01
            for other in {o for link in mine for o in link - {alias}}:
                m = int(other[1])
                after *= prices[max(n, m), min(n, m)]
            total += cost.per_tuple * before + cost.per_result * after
            if not any(link in equal for link in mine):
                total += costs["select"].per_tuple * before * rows[alias] * kept[n]
            before = after
        return total

    others = permutations(sorted(set(rows) - {f"s{first}"}))
    possible = [p for o in others if (p := price((f"s{first}", *o))) is not None]
    mine = price(found)
    assert mine is not None
    assert mine <= min(possible) * (1 + 1e-9)


def test_a_dearer_step_may_lead_to_a_cheaper_way() -> None:
    """b leaves fewer rows than c, but c is the way to d, which leaves hardly any."""
    block = block_of(
        f"SELECT a.x FROM a {WINDOW}, b {WINDOW}, c {WINDOW}, d {WINDOW} "
        "WHERE a.k = b.k AND a.m = c.m AND c.x = d.x"
    )
    rows = dict.fromkeys(("s0", "s1", "s2", "s3"), 1000)
    known = {"join s1 to s0": 0.9e-3, "join s2 to s0": 1e-3, "join s3 to s2": 1e-6}
    orders = {
        m: order_term(block, "s0", rows, known, ordering=JoinOrdering(m)).order
        for m in JOIN_ORDER_MODES[:2]
    }
    assert orders["greedy"] == ("s0", "s1", "s2", "s3")
    assert orders["throughput"] == ("s0", "s2", "s3", "s1")


def test_what_this_unit_has_not_measured_is_asked_of_the_cost_model() -> None:
    """What other units have measured of a join, and what conditions on one stream are assumed to keep."""
    text = f"SELECT a.x FROM a {WINDOW}, b {WINDOW}, c {WINDOW} WHERE a.k = b.k AND a.m = c.m"
    rows = dict.fromkeys(("s0", "s1", "s2"), 1000)

    def ordered(shares: dict[str, float], more: str = "", **known: float) -> Term:
        joins = {name: Estimate(share) for name, share in shares.items()}
        unit = {name.replace("_", " "): share for name, share in known.items()}
        ordering = JoinOrdering(model=CostModel(joins=joins))
        return order_term(block_of(text + more), "s0", rows, unit, ordering=ordering)

    few_b, few_c = {"a.k = b.k": 1e-5, "a.m = c.m": 0.1}, {"a.k = b.k": 0.1, "a.m = c.m": 1e-5}
    assert ordered(few_b).order == ("s0", "s1", "s2")
    assert ordered(few_c).order == ("s0", "s2", "s1")
    assert ordered(few_c).expected == pytest.approx((1e-5, 0.1))
    # What the unit itself has measured comes first.
    assert ordered(few_c, join_s1_to_s0=1e-7).order == ("s0", "s1", "s2")
    assert ordered({}).order == ("s0", "s1", "s2")
    assert ordered({}, " AND c.x = 1").order == ("s0", "s2", "s1")


@pytest.mark.parametrize(
    ("text", "first", "order"),
    [
        ("a W, b W, c W WHERE a.k = b.k AND b.m = c.m", "s1", "s1 s0 s2"),
        ("c W, b W, a W WHERE a.k = b.k AND b.m = c.m", "s1", "s1 s2 s0"),
        (
            "a W, (SELECT b.k, c.x FROM b W, c W WHERE b.m = c.m) n WHERE a.k = n.k",
            "s1",
            "s1 s2 s0",
        ),
        (
            "a W, (SELECT b.k, c.x FROM b W, c W WHERE b.m = c.m) n WHERE a.k = n.k",
            "s0",
            "s0 s1 s2",
        ),
        ("a W p, a W q, b W WHERE p.k = b.k AND q.m = b.m", "s2", "s2 s0 s1"),
    ],
)
def test_as_it_is_written(text: str, first: str, order: str) -> None:
    query = parse_query(
        f"SELECT 1 AS one FROM {text.replace('W,', WINDOW + ',').replace('W ', WINDOW + ' ')}",
        names(),
    )
    body = canonicalize(query).body
    assert isinstance(body, Block)
    written = JoinOrdering("written", written_joins=written_join_tree(query))
    assert " ".join(order_term(body, first, {}, {}, ordering=written).order) == order


def test_the_modes_are_named_when_one_is_wrong() -> None:
    assert parse_setting("optimise", "Greedy") == "greedy"
    with pytest.raises(HeadwaterError, match="throughput, greedy or written, not fast"):
        parse_setting("optimise", "fast")


@pytest.mark.spark
def test_all_orders_give_the_same_rows(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = {
        name: [(rng.randrange(4), rng.randrange(6), n, n * SECOND) for n in range(40)]
        for name in "abc"
    }
    found = {}
    for mode in JOIN_ORDER_MODES:
        with opened(tmp_path / mode, spark) as headwater:
            headwater.execute(f"{STREAMS} SET optimise = '{mode}'; {QUERY}")
            for cut in range(0, 40, 10):
                for name in "cab":
                    headwater.push(name, rows[name][cut : cut + 10], timestamp_unit="us")
                settle(headwater)
            found[mode] = Counter(map(tuple, headwater.query("q").results()))
    assert found["throughput"] == found["greedy"] == found["written"]
    assert found["written"].total() > 100
