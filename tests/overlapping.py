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
PAIR_CONDITIONS = [
    "b.price > a.cost",
    "b.ts <= a.at",
    "b.bidder - a.item > {n}",
    "b.bidder - a.item BETWEEN -1 AND {n}",
    "(b.note = a.note OR b.bidder = {n})",
    "b.note = a.note",
]
"""Conditions on both sides of a join beside what joins them; the last one joins them too."""

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
    if rng.random() < 0.3:
        conditions.append(rng.choice(PAIR_CONDITIONS).format(n=rng.randrange(4)))
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


def with_both(rng: random.Random) -> str:
    """A join of three that contains joins of two."""
    items = _items(
        rng,
        [*((i, "b") for i in BID_ITEMS), *((i, "a") for i in ASK_ITEMS), ("{a}.label", "i")],
    )
    conditions = ["b.item = a.item", "b.item = i.item", *_bounds(rng, BID_BOUNDS, "b")]
    conditions += _bounds(rng, ASK_BOUNDS, "a")
    if rng.random() < 0.3:
        conditions.append(rng.choice(PAIR_CONDITIONS).format(n=rng.randrange(4)))
    one, other = window(rng, False), window(rng, False)
    return f"SELECT {items} FROM Bids {one} b, Asks {other} a, Items i{_where(conditions)}"


JOINS = [selection, join, join, lambda rng: join(rng, True), self_join, three, with_table]


def random_nested(rng: random.Random) -> Query:
    """A join of two sources, or of these and a third."""
    return parse_query(rng.choice([join, with_table, with_both, with_both])(rng), SOURCES)


def random_join(rng: random.Random) -> Query:
    """A select-project-join of one of the templates."""
    return parse_query(rng.choice(JOINS)(rng), SOURCES)


# ---- groups

KEYS = ["b.item", "b.note", "b.bidder", "b.item % 2", "b.item, b.note", "b.note, b.bidder"]
CALLS = [
    "COUNT(*)",
    "COUNT(b.bidder)",
    "SUM(b.bidder)",
    "MAX(b.price)",
    "MIN(b.note)",
    "AVG(b.item)",
    "SUM(b.item) FILTER (WHERE b.note = 'a')",
    "COUNT(DISTINCT b.note)",
    "COUNT(DISTINCT b.price) FILTER (WHERE b.bidder > 0)",
    "SUM(DISTINCT b.bidder)",
    "AVG(DISTINCT b.item)",
    "VAR_POP(b.bidder)",
    "STDDEV(b.item)",
    "ROUND(STDDEV_POP(b.price), 6)",
]
OUTPUTS = ["ISTREAM", "DSTREAM", "RSTREAM"]


def _calls(rng: random.Random) -> list[str]:
    return [f"{call} AS a{n}" for n, call in enumerate(rng.sample(CALLS, rng.randint(1, 3)))]


def grouped(rng: random.Random, slides: bool | None = None) -> str:
    """Groups of one stream, by keys or all in one."""
    slides = rng.random() < 0.5 if slides is None else slides
    keys = rng.choice([*KEYS, *KEYS, ""])
    shown = [] if rng.random() < 0.2 else [f"{k} AS k{n}" for n, k in enumerate(keys.split(", "))]
    items = [*(shown if keys else []), *_calls(rng)]
    having = rng.choice(["", "", "", " HAVING COUNT(*) > 1", " HAVING MAX(b.price) > 1"])
    return (
        f"{rng.choice(OUTPUTS)}(SELECT {', '.join(items)} FROM Bids {window(rng, slides)} b"
        f"{_where(_bounds(rng, BID_BOUNDS, 'b'))}{f' GROUP BY {keys}' if keys else ''}{having})"
    )


def tenants(rng: random.Random) -> str:
    """The same groups for one value of a column or another."""
    which = rng.choice([f"b.item = {rng.randrange(4)}", "b.note = 'a'", "b.note = 'b'"])
    return (
        f"SELECT b.bidder, COUNT(*) AS n, MAX(b.price) AS top FROM Bids "
        f"[RANGE {rng.choice([2, 4, 6])} SEC SLIDE 2 SEC] b WHERE {which} GROUP BY b.bidder"
    )


def grouped_join(rng: random.Random) -> str:
    conditions = ["b.item = a.item", *_bounds(rng, BID_BOUNDS, "b"), *_bounds(rng, ASK_BOUNDS, "a")]
    keys = rng.choice(["b.item", "b.note", "b.item, a.open"])
    return (
        f"{rng.choice(OUTPUTS)}(SELECT {', '.join(_calls(rng))} FROM Bids [RANGE 3 SEC SLIDE 1 SEC] b, "
        f"Asks [RANGE 2 SEC SLIDE 1 SEC] a{_where(conditions)} GROUP BY {keys})"
    )


def rows_or_changes(rng: random.Random) -> str:
    """Rows without groups: emitted when they leave, all at each instant, or distinct ones as they enter or leave."""
    items = _items(rng, [(item, "b") for item in BID_ITEMS])
    output, distinct = rng.choice(
        [("DSTREAM", ""), ("RSTREAM", ""), ("ISTREAM", "DISTINCT "), ("DSTREAM", "DISTINCT ")]
    )
    where = _where(_bounds(rng, BID_BOUNDS, "b"))
    win = window(rng, rng.random() < 0.5)
    return f"{output}(SELECT {distinct}{items} FROM Bids {win} b{where})"


TOTALS = ["[RANGE UNBOUNDED]", "[RANGE UNBOUNDED SLIDE 2 SEC]"]


def running_total(rng: random.Random, window: str | None = None) -> str:
    """Groups of all that a stream has had."""
    keys = rng.choice([*KEYS, ""])
    items = [*([f"{k} AS k{n}" for n, k in enumerate(keys.split(", "))] if keys else [])]
    items += _calls(rng)
    return (
        f"{rng.choice(OUTPUTS)}(SELECT {', '.join(items)} FROM Bids {window or rng.choice(TOTALS)} b"
        f"{_where(_bounds(rng, BID_BOUNDS, 'b'))}{f' GROUP BY {keys}' if keys else ''})"
    )


def grouped_table(rng: random.Random, window: str | None = None) -> str:
    """Groups of the rows that a stream and a table join to."""
    conditions = ["b.item = i.item", *_bounds(rng, BID_BOUNDS, "b")]
    if rng.random() < 0.3:
        conditions.append("i.label <> 'two'")
    keys = rng.choice(["b.item", "i.label", "i.label, b.note"])
    window = window or rng.choice([*SLIDING, *SIZES])
    return (
        f"{rng.choice(OUTPUTS)}(SELECT {', '.join(_calls(rng))} FROM Bids {window} b, Items i"
        f"{_where(conditions)} GROUP BY {keys})"
    )


GROUPS = [
    *(grouped, grouped, grouped, tenants, grouped_join, rows_or_changes),
    *(running_total, grouped_table),
]


def random_group(rng: random.Random) -> Query:
    """A query computed from panes, of one of the templates."""
    return parse_query(rng.choice(GROUPS)(rng), SOURCES)


LATEST = ["[ROWS 1]", "[ROWS 3]", "[PARTITION BY item ROWS 1]", "[PARTITION BY item, note ROWS 2]"]
RELATIONS = [
    "SELECT {items} FROM Bids {w} b WHERE {bids} {exists} (SELECT * FROM Asks {v} a WHERE a.item = b.item{asks})",
    "SELECT {items} FROM Bids {w} b WHERE {bids} {exists} (SELECT * FROM Asks {v} a WHERE a.item = b.item)",
    "SELECT {items} FROM Bids [NOW] b WHERE {bids} {exists} (SELECT * FROM Bids {v} c WHERE c.item = b.item AND c.ts < b.ts)",
    "SELECT {items} FROM Bids {w} b WHERE {bids} b.item {isin} (SELECT a.item FROM Asks {v} a)",
    "SELECT b.item, b.price, a.cost, a.note FROM Bids {w} b {outer} JOIN Asks {v} a ON b.item = a.item{asks}",
    "SELECT b.item, a.note FROM Bids {w} b LEFT JOIN Asks {v} a ON b.item = a.item WHERE {bids} TRUE",
    "SELECT {items} FROM Bids {latest} b WHERE {bids} TRUE",
    "SELECT b.item, COUNT(*) AS n, MAX(b.price) AS m FROM Bids {latest} b WHERE {bids} TRUE GROUP BY b.item",
    "SELECT b.price, a.note FROM Bids [NOW] b, Asks [PARTITION BY item ROWS 1] a WHERE {bids} a.item = b.item{asks}",
    "SELECT b.note, COUNT(*) AS n FROM Bids {w} b WHERE {bids} {exists} (SELECT * FROM Asks {v} a WHERE a.item = b.item) GROUP BY b.note",
    "SELECT b.item AS i, b.note AS s FROM Bids {w} b WHERE {bids} TRUE UNION ALL SELECT a.item, a.note FROM Asks {w} a WHERE TRUE{asks}",
    "SELECT DISTINCT u.i FROM (SELECT b.item AS i FROM Bids {w} b WHERE {bids} TRUE UNION ALL SELECT a.item FROM Asks {w} a) u",
    "SELECT r.n, COUNT(*) AS c FROM (SELECT b.item, COUNT(*) AS n FROM Bids {w} b WHERE {bids} TRUE GROUP BY b.item) r WHERE r.n > {n} GROUP BY r.n",
    "SELECT MAX(r.n) AS m FROM (SELECT b.item, COUNT(*) AS n FROM Bids {w} b WHERE {bids} TRUE GROUP BY b.item) r",
]  # fmt: skip


def relation(rng: random.Random) -> str:
    """What is neither a join nor groups, of few forms and many constants."""
    slides = rng.random() < 0.3
    bids, asks = _bounds(rng, BID_BOUNDS, "b"), _bounds(rng, ASK_BOUNDS, "a", 1)
    form = rng.choice(RELATIONS)
    # IN and EXISTS are conditions like others; all but the last word of a list of conditions is AND.
    exists = rng.choice(["EXISTS", "NOT EXISTS", "NOT EXISTS"])
    text = form.format(
        items=_items(rng, [(item, "b") for item in BID_ITEMS]),
        w=window(rng, slides),
        v=window(rng, slides),
        latest=rng.choice(LATEST),
        outer=rng.choice(["LEFT", "LEFT", "FULL"]),
        isin=rng.choice(["IN", "NOT IN"]),
        exists=exists,
        bids="".join(f"{bound} AND " for bound in bids),
        asks="".join(f" AND {bound}" for bound in asks),
        n=rng.randrange(3),
    )
    return rng.choice(["{}", "{}", "{}", "ISTREAM({})", "DSTREAM({})", "RSTREAM({})"]).format(text)


def random_relation(rng: random.Random) -> Query:
    """A query that is computed by the lifetimes of its rows."""
    return parse_query(relation(rng), SOURCES)


def random_query(rng: random.Random) -> Query:
    return random_join(rng) if rng.random() < 0.5 else random_group(rng)
