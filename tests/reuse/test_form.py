"""Forms: which queries have a base in common, and what they want beyond it."""

from __future__ import annotations

import random

import pytest
from compensated import asked, form
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.conditions.predicate import implies, normalize, to_expr
from headwater.algebra.expressions import columns_of
from headwater.reuse import SharingKind, partial_join_queries, signature_of
from headwater.reuse.signature import leaves_of, restrict_to_sources, scans_of, source_name
from overlapping import random_join

JOIN = "FROM Bids [RANGE 2 SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item"


@pytest.mark.parametrize(
    "one, other",
    [
        (f"SELECT b.price {JOIN}", f"SELECT a.cost {JOIN} AND b.price > 1"),
        (
            f"SELECT b.price {JOIN}",
            "SELECT y.price FROM Asks [NOW] x JOIN Bids [RANGE UNBOUNDED] y ON y.item = x.item",
        ),
        (f"SELECT b.price {JOIN}", f"SELECT b.price {JOIN} AND a.item IN (1, 2)"),
        (
            f"SELECT b.price {JOIN} AND b.ts <= a.at",
            f"SELECT b.price {JOIN} AND b.ts <= a.at - INTERVAL 1 SECOND",
        ),
        (
            "SELECT x.price FROM Bids [NOW] x, Bids [NOW] y WHERE x.item = y.bidder AND x.price > 1",
            "SELECT x.price FROM Bids [NOW] y, Bids [NOW] x WHERE y.item = x.bidder AND x.price > 1",
        ),
        (
            "SELECT x.price FROM Bids [NOW] x, Bids [NOW] y WHERE x.item = y.bidder AND x.price > 1",
            "SELECT y.price FROM Bids [NOW] x, Bids [NOW] y WHERE x.bidder = y.item",
        ),
        ("SELECT item FROM Bids", "SELECT price FROM Bids [NOW] WHERE note = 'a'"),
        (
            "SELECT item, sum(price) FROM Bids [RANGE 2 SEC SLIDE 1 SEC] GROUP BY item",
            "SELECT count(*) FROM Bids [RANGE 6 SEC SLIDE 2 SEC] WHERE item > 1",
        ),
    ],
)
def test_the_same_base(one: str, other: str) -> None:
    assert form(one).sharing_key == form(other).sharing_key


@pytest.mark.parametrize(
    "one, other",
    [
        (f"SELECT b.price {JOIN}", f"SELECT b.price {JOIN} AND b.note = a.note"),
        (f"SELECT b.price {JOIN}", "SELECT item FROM Bids [RANGE 2 SEC]"),
        (f"SELECT b.price {JOIN}", f"SELECT count(*) {JOIN}"),
        (f"SELECT b.price {JOIN}", f"SELECT DISTINCT b.price {JOIN}"),
        (f"SELECT b.price {JOIN}", f"DSTREAM(SELECT b.price {JOIN})"),
        ("SELECT item FROM Bids [ROWS 1]", "SELECT cost FROM Asks [ROWS 1]"),
        (
            "SELECT x.item FROM Bids [NOW] x, Bids [NOW] y WHERE x.item = y.bidder",
            "SELECT x.item FROM Bids [NOW] x, Bids [NOW] y WHERE x.item = y.item",
        ),
        (
            "SELECT sum(b.price) FROM Bids [RANGE 2 SEC] b, Asks [NOW] a WHERE b.item = a.item",
            "SELECT sum(b.price) FROM Bids [RANGE 4 SEC] b, Asks [NOW] a WHERE b.item = a.item",
        ),
        (
            "SELECT count(*) FROM Bids [RANGE 2 SEC]",
            "SELECT count(*) FROM Bids [RANGE 2 SEC SLIDE 1 SEC]",
        ),
    ],
)
def test_not_the_same_base(one: str, other: str) -> None:
    assert form(one).sharing_key != form(other).sharing_key


@pytest.mark.parametrize(
    "text, kind",
    [
        (f"SELECT b.price {JOIN}", SharingKind.JOIN),
        ("SELECT item FROM Bids", SharingKind.JOIN),
        ("SELECT count(*) FROM Bids [RANGE 2 SEC]", SharingKind.GROUP),
        ("SELECT DISTINCT item FROM Bids [RANGE 2 SEC]", SharingKind.GROUP),
        ("RSTREAM(SELECT item FROM Bids [RANGE 2 SEC])", SharingKind.GROUP),
        ("SELECT item FROM Bids [ROWS 2]", SharingKind.RELATION),
        ("SELECT item FROM Bids WHERE item > 1 AND item < 1", SharingKind.EXACT),
        ("SELECT avg(item / 3.0) FROM Bids [RANGE 2 SEC]", SharingKind.EXACT),
        (
            "SELECT item FROM Bids b WHERE item IN (SELECT item FROM Asks [NOW])",
            SharingKind.RELATION,
        ),
        ("SELECT item FROM Bids UNION ALL SELECT item FROM Asks", SharingKind.RELATION),
    ],
)
def test_kinds(text: str, kind: SharingKind) -> None:
    assert form(text).kind is kind


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_bounds_follow_from_the_condition(seed: int) -> None:
    one = asked(random_join(random.Random(seed))).form
    if one.block is None:
        return
    for bound in one.bounds:
        wanted = bound.domain.as_expr(bound.term)
        assert implies(one.content.where, normalize(wanted)), str(wanted)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_sources_of_the_same_name_may_come_in_any_order(seed: int) -> None:
    text = (
        "SELECT x.item, y.price FROM Bids {0} x, Bids {1} y, Bids {2} z "
        "WHERE x.item = y.bidder AND y.item = z.bidder"
    )
    rng = random.Random(seed)
    windows = [f"[RANGE {rng.randint(1, 3)} SEC]" for _ in range(3)]
    one = form(text.format(*windows))
    turned = text.replace(
        "Bids {0} x, Bids {1} y, Bids {2} z", "Bids {2} z, Bids {0} x, Bids {1} y"
    )
    other = form(turned.format(*windows))
    assert one == other


THREE = (
    "SELECT b.price, c.price AS other FROM Bids [RANGE 2 SEC] b, Asks [RANGE 4 SEC] a, Items c "
    "WHERE b.item = a.item AND a.note = c.label AND b.price > 1 AND c.label <> 'x'"
).replace("c.price", "c.item")


def test_prefixes_are_the_connected_parts_larger_first() -> None:
    found = [signature_of(canonicalize(part)) for part in partial_join_queries(form(THREE))]
    names = [
        [s.table if hasattr(s, "table") else s.stream for s in leaves_of(p.content)] for p in found
    ]
    assert names == [["Asks", "Bids"], ["Asks", "Items"]]
    assert (
        found[0].sharing_key
        == form("SELECT b.price FROM Bids b, Asks a WHERE a.item = b.item").sharing_key
    )


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32))
def test_a_query_implies_its_prefixes(seed: int) -> None:
    one = form(THREE) if seed % 2 else asked(random_join(random.Random(seed))).form
    parts = list(partial_join_queries(one))
    here = {source_name(source): source.alias for source in leaves_of(one.content)} if parts else {}
    for part in parts:
        theirs = signature_of(canonicalize(part)).content
        names = {source.alias: here[source_name(source)] for source in leaves_of(theirs)}
        assert implies(
            one.content.where, restrict_to_sources(one.content.where, set(names.values()))
        )
        told = {(names[c.relation], c.name) for item in theirs.items for c in columns_of(item)}
        needed = {c for e in one.content.items for c in columns_of(e)}
        assert {(c.relation, c.name) for c in needed if c.relation in names.values()} <= told
        assert {(names[s.alias], s.time) for s in scans_of(theirs)} <= told


def test_what_a_condition_says_of_some_sources() -> None:
    where = form(THREE).content.where
    found = restrict_to_sources(where, {"s1"})
    assert to_expr(found) is not None
    assert implies(where, found)
    assert restrict_to_sources(where, set()) == normalize(None)
