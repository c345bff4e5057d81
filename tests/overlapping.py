"""Random queries of a few templates over Bids and Asks, made to overlap: for tests of sharing."""

from __future__ import annotations

import random

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from strategies import SOURCES

SIZES = ["[NOW]", "[RANGE 1 SEC]", "[RANGE 2 SEC]", "[RANGE 4 SEC]", "[RANGE 9 SEC]"]
SLIDING = [
    "[RANGE 2 SEC SLIDE 1 SEC]",
    "[RANGE 4 SEC SLIDE 2 SEC]",
    "[RANGE 3 SEC SLIDE 2 SEC]",
    "[RANGE 1 SEC SLIDE 3 SEC]",
    "[RANGE 6 SEC SLIDE 3 SEC]",
]
BID_BOUNDS = [
    "{a}.item = {n}",
    "{a}.item IN ({n}, {m})",
    "{a}.item > {n}",
    "{a}.bidder = {n}",
    "{a}.bidder IS NULL",
    "{a}.price >= {n}",
    "{a}.price < {n} + 0.5",
    "{a}.note = 'a'",
    "{a}.note <> 'b'",
    "{a}.note LIKE 'a%'",
    "({a}.note = 'b' OR {a}.bidder = {n})",
    "{a}.item <> {n}",
    "{a}.item + {a}.bidder > {n}",
]
ASK_BOUNDS = [
    "{a}.item = {n}",
    "{a}.open",
    "NOT {a}.open",
    "{a}.cost <= {n}",
    "{a}.cost BETWEEN 0.5 AND {n}",
    "{a}.note = 'b'",
    "{a}.note IS NOT NULL",
]
BID_ITEMS = ["{a}.item", "{a}.price", "{a}.note", "{a}.bidder", "{a}.item + 1", "upper({a}.note)"]
ASK_ITEMS = ["{a}.cost", "{a}.note", "{a}.open", "coalesce({a}.item, 0)"]


def window(rng: random.Random, slides: bool) -> str:
    return rng.choice(SLIDING) if slides else rng.choice(SIZES)


def _bounds(rng: random.Random, bounds: list[str], alias: str, most: int = 2) -> list[str]:
    chosen = rng.sample(bounds, rng.randint(0, most))
    return [b.format(a=alias, n=rng.randrange(4), m=rng.randrange(4)) for b in chosen]


def _items(rng: random.Random, items: list[tuple[str, str]]) -> str:
    chosen = rng.sample(items, rng.randint(1, 3))
    return ", ".join(f"{item.format(a=a)} AS v{n}" for n, (item, a) in enumerate(chosen))


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def selection(rng: random.Random) -> str:
    win = rng.choice(["", "", "[RANGE 4 SEC]", "[NOW]", window(rng, True)])
    items = _items(rng, [(item, "b") for item in BID_ITEMS])
    return f"SELECT {items} FROM Bids {win} b{_where(_bounds(rng, BID_BOUNDS, 'b', 3))}"


def join(rng: random.Random, slides: bool = False) -> str:
    one, other = window(rng, slides), window(rng, slides)
    conditions = ["b.item = a.item", *_bounds(rng, BID_BOUNDS, "b"), *_bounds(rng, ASK_BOUNDS, "a")]
    if rng.random() < 0.15:
        conditions.append(rng.choice(["b.price > a.cost", "b.ts <= a.at"]))
    items = _items(rng, [*((i, "b") for i in BID_ITEMS), *((i, "a") for i in ASK_ITEMS)])
    rng.shuffle(conditions)
    return f"SELECT {items} FROM Bids {one} b, Asks {other} a{_where(conditions)}"


def self_join(rng: random.Random) -> str:
    items = _items(rng, [(i, a) for i in BID_ITEMS for a in ("x", "y")])
    one, other = window(rng, False), window(rng, False)
    conditions = ["x.item = y.item", *_bounds(rng, BID_BOUNDS, "x"), *_bounds(rng, BID_BOUNDS, "y")]
    return f"SELECT {items} FROM Bids {one} x, Bids {other} y{_where(conditions)}"


def three(rng: random.Random) -> str:
    windows = [window(rng, False) for _ in range(3)]
    items = _items(rng, [*((i, "b") for i in BID_ITEMS), *((i, "a") for i in ASK_ITEMS)])
    conditions = ["b.item = a.item", "b.bidder = c.bidder", *_bounds(rng, BID_BOUNDS, "b")]
    return (
        f"SELECT {items} FROM Bids {windows[0]} b, Asks {windows[1]} a, Bids {windows[2]} c"
        f"{_where(conditions)}"
    )


def with_table(rng: random.Random) -> str:
    items = _items(rng, [*((i, "b") for i in BID_ITEMS), ("{a}.label", "i")])
    conditions = ["b.item = i.item", *_bounds(rng, BID_BOUNDS, "b")]
    if rng.random() < 0.5:
        conditions.append("i.label = 'one'")
    return f"SELECT {items} FROM Bids {window(rng, False)} b, Items i{_where(conditions)}"


JOINS = [selection, join, join, lambda rng: join(rng, True), self_join, three, with_table]


def random_join(rng: random.Random) -> Query:
    """A select-project-join of one of the templates."""
    return parse_query(rng.choice(JOINS)(rng), SOURCES)
