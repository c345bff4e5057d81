"""The queries of ten teams of a shop over the same streams, as each would write them, and events of one morning.

A template is one thing that a team asks in many variants: for its region, its limit, its product. Constants, windows
and columns vary between the variants; what the question is does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count

STREAMS = """
CREATE STREAM orders (id INT, customer INT, region STRING, product INT, amount INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM payments (order_id INT, method STRING, paid INT, ok BOOLEAN, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM shipments (order_id INT, carrier STRING, weight INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM clicks (customer INT, page INT, device STRING, millis INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM logins (customer INT, country STRING, ok BOOLEAN, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM stock (product INT, warehouse STRING, quantity INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM tickets (customer INT, topic STRING, priority INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
"""

CUSTOMERS, PRODUCTS, PAGES = 12, 8, 6
REGIONS = ("north", "south", "east", "west")
METHODS = ("card", "transfer", "voucher")
CARRIERS = ("ups", "dhl", "post")
DEVICES = ("phone", "tablet", "desktop")
COUNTRIES = ("de", "fr", "uk", "us")
WAREHOUSES = ("w1", "w2", "w3")
TOPICS = ("refund", "delivery", "login")

START = 1_780_300_800_000_000
SECOND = 1_000_000

Row = tuple[int | str | bool, ...]
Events = dict[str, list[Row]]


def events(seed: int, seconds: int = 900, rows: int = 60) -> Events:
    """So many events of each stream in so many seconds, in order of time."""
    chance = random.Random(seed)
    order_ids = count(1)

    def customer() -> int:
        return chance.randrange(CUSTOMERS)

    def paid_order() -> int:
        return chance.randrange(1, rows + 1)

    makers: dict[str, Callable[[], Row]] = {
        "orders": lambda: (
            next(order_ids),
            customer(),
            chance.choice(REGIONS),
            chance.randrange(PRODUCTS),
            chance.randrange(1, 500),
        ),
        "payments": lambda: (
            paid_order(),
            chance.choice(METHODS),
            chance.randrange(1, 500),
            chance.random() < 0.8,
        ),
        "shipments": lambda: (paid_order(), chance.choice(CARRIERS), chance.randrange(1, 40)),
        "clicks": lambda: (
            customer(),
            chance.randrange(PAGES),
            chance.choice(DEVICES),
            chance.randrange(5, 3_000),
        ),
        "logins": lambda: (customer(), chance.choice(COUNTRIES), chance.random() < 0.6),
        "stock": lambda: (
            chance.randrange(PRODUCTS),
            chance.choice(WAREHOUSES),
            chance.randrange(100),
        ),
        "tickets": lambda: (customer(), chance.choice(TOPICS), chance.randrange(1, 5)),
    }
    return {
        name: [
            (*make(), START + at * SECOND)
            for at in sorted(chance.randrange(seconds) for _ in range(rows))
        ]
        for name, make in makers.items()
    }


Template = Callable[[random.Random], str]


def _region(chance: random.Random) -> str:
    return chance.choice(REGIONS)


def _range(chance: random.Random) -> str:
    return f"[RANGE {chance.choice([1, 2, 5])} MINUTES]"


def _sliding(chance: random.Random) -> str:
    size, slide = chance.choice([(1, 1), (2, 1), (5, 1), (10, 5)])
    return f"[RANGE {size} MINUTES SLIDE {slide} MINUTES]"


def _columns(chance: random.Random, *names: str) -> str:
    """Some of the columns, never none."""
    chosen = [name for name in names if chance.random() < 0.6] or [names[0]]
    return ", ".join(chosen)


TEMPLATES: dict[str, Template] = {
    # sales
    "large orders": lambda c: (
        f"SELECT {_columns(c, 'id', 'customer', 'amount')} FROM orders "
        f"WHERE amount > {c.randrange(100, 480)} AND region = '{_region(c)}'"
    ),
    "orders of products": lambda c: (
        f"SELECT id, amount FROM orders WHERE product IN ({c.randrange(4)}, {c.randrange(4, 8)})"
    ),
    "revenue by region": lambda c: (
        f"SELECT region, SUM(amount) AS revenue, COUNT(*) AS n FROM orders {_sliding(c)} GROUP BY region"
    ),
    "revenue of a product": lambda c: (
        f"SELECT SUM(amount) AS revenue FROM orders {_sliding(c)} WHERE product = {c.randrange(PRODUCTS)}"
    ),
    "best products": lambda c: (
        f"SELECT product, COUNT(*) AS n FROM orders {_sliding(c)} GROUP BY product HAVING COUNT(*) > {c.randrange(1, 4)}"
    ),
    "revenue since the start": lambda c: (
        f"SELECT region, SUM(amount) AS revenue FROM orders WHERE amount > {c.randrange(0, 200)} GROUP BY region"
    ),
    "regions of orders": lambda c: (
        f"SELECT DISTINCT region FROM orders {_range(c)} WHERE amount > {c.randrange(100, 400)}"
    ),
    # payments
    "payments of orders": lambda c: (
        f"SELECT {_columns(c, 'o.id', 'p.paid', 'p.method')} FROM orders {_range(c)} o, payments {_range(c)} p "
        f"WHERE o.id = p.order_id AND o.amount > {c.randrange(50, 400)}"
    ),
    "underpaid": lambda c: (
        f"SELECT o.id, o.amount, p.paid FROM orders {_range(c)} o JOIN payments {_range(c)} p ON o.id = p.order_id "
        f"WHERE p.paid < o.amount AND o.region = '{_region(c)}'"
    ),
    "failed payments": lambda c: (
        f"SELECT order_id, paid FROM payments WHERE NOT ok AND method = '{c.choice(METHODS)}' AND paid > {c.randrange(300)}"
    ),
    "not paid": lambda c: (
        f"SELECT {_columns(c, 'o.id', 'o.amount')} FROM orders [RANGE {c.choice([1, 2])} MINUTES SLIDE 1 MINUTE] o "
        f"WHERE o.region = '{_region(c)}' AND NOT EXISTS (SELECT * FROM payments [RANGE 5 MINUTES SLIDE 1 MINUTE] p "
        f"WHERE p.order_id = o.id)"
    ),
    "not paid above": lambda c: (
        f"SELECT o.id FROM orders {_range(c)} o WHERE o.amount > {c.randrange(100, 400)} "
        f"AND NOT EXISTS (SELECT * FROM payments {_range(c)} p WHERE p.order_id = o.id AND p.ok)"
    ),
    "not paid, counted": lambda c: (
        f"SELECT o.region, COUNT(*) AS n FROM orders [RANGE 5 MINUTES SLIDE 1 MINUTE] o WHERE o.amount > {c.randrange(200)} "
        f"AND NOT EXISTS (SELECT * FROM payments [RANGE 5 MINUTES SLIDE 1 MINUTE] p WHERE p.order_id = o.id) GROUP BY o.region"
    ),
    "orders with payments": lambda c: (
        f"SELECT o.id, o.amount, p.paid FROM orders {_range(c)} o LEFT JOIN payments {_range(c)} p ON o.id = p.order_id "
        f"WHERE o.product = {c.randrange(PRODUCTS)}"
    ),
    "paid by method": lambda c: (
        f"SELECT p.method, SUM(p.paid) AS paid FROM orders [RANGE 5 MINUTES SLIDE 1 MINUTE] o, "
        f"payments [RANGE 5 MINUTES SLIDE 1 MINUTE] p "
        f"WHERE o.id = p.order_id AND o.amount > {c.randrange(300)} GROUP BY p.method"
    ),
    "payment methods": lambda c: (
        f"SELECT method, COUNT(*) AS n, AVG(paid) AS mean FROM payments {_sliding(c)} WHERE paid > {c.randrange(200)} GROUP BY method"
    ),
    # fulfilment
    "shipped": lambda c: (
        f"SELECT o.id, s.carrier FROM orders {_range(c)} o, shipments {_range(c)} s "
        f"WHERE o.id = s.order_id AND s.carrier = '{c.choice(CARRIERS)}'"
    ),
    "paid and shipped": lambda c: (
        f"SELECT o.id, p.method, s.carrier FROM orders {_range(c)} o, payments {_range(c)} p, shipments {_range(c)} s "
        f"WHERE o.id = p.order_id AND o.id = s.order_id AND o.customer = {c.randrange(CUSTOMERS)}"
    ),
    "not shipped": lambda c: (
        f"SELECT o.id, o.region FROM orders {_range(c)} o WHERE o.region IN ('{_region(c)}', '{_region(c)}') "
        f"AND NOT EXISTS (SELECT * FROM shipments {_range(c)} s WHERE s.order_id = o.id)"
    ),
    "paid, not shipped": lambda c: (
        f"SELECT o.id, p.paid FROM orders {_range(c)} o JOIN payments {_range(c)} p ON o.id = p.order_id "
        f"WHERE p.paid > {c.randrange(300)} AND NOT EXISTS (SELECT * FROM shipments {_range(c)} s WHERE s.order_id = o.id)"
    ),
    "weight by carrier": lambda c: (
        f"SELECT carrier, MAX(weight) AS heaviest, COUNT(*) AS n FROM shipments {_sliding(c)} GROUP BY carrier"
    ),
    "heavy shipments": lambda c: (
        f"SELECT order_id, weight FROM shipments WHERE weight > {c.randrange(5, 38)} AND carrier = '{c.choice(CARRIERS)}'"
    ),
    "shipments left over": lambda c: (
        f"SELECT s.order_id, s.carrier, o.amount FROM shipments {_range(c)} s LEFT JOIN orders {_range(c)} o "
        f"ON s.order_id = o.id AND o.amount > {c.randrange(300)}"
    ),
    # web
    "visits of pages": lambda c: (
        f"SELECT page, COUNT(*) AS n FROM clicks {_sliding(c)} WHERE device = '{c.choice(DEVICES)}' GROUP BY page"
    ),
    "visitors": lambda c: (
        f"SELECT page, COUNT(DISTINCT customer) AS visitors FROM clicks {_sliding(c)} GROUP BY page"
    ),
    "slow pages": lambda c: (
        f"SELECT page, AVG(millis) AS mean, MAX(millis) AS worst FROM clicks {_sliding(c)} "
        f"GROUP BY page HAVING AVG(millis) > {c.randrange(500, 2_000)}"
    ),
    "slow clicks": lambda c: (
        f"SELECT {_columns(c, 'customer', 'page', 'millis')} FROM clicks WHERE millis > {c.randrange(1_000, 2_900)}"
    ),
    "last page": lambda c: (
        f"SELECT customer, {_columns(c, 'page', 'device')} FROM clicks [PARTITION BY customer ROWS 1] WHERE page = {c.randrange(PAGES)}"
    ),
    "last clicks": lambda c: (
        f"SELECT customer, page FROM clicks [PARTITION BY customer ROWS {c.choice([2, 3])}] WHERE device = '{c.choice(DEVICES)}'"
    ),
    "latest clicks, slowest": lambda c: (
        f"SELECT MAX(millis) AS worst FROM clicks [ROWS {c.choice([5, 10, 20])}] WHERE page <> {c.randrange(PAGES)}"
    ),
    "session starts": lambda c: (
        f"SELECT a.customer, a.page FROM clicks [NOW] a WHERE a.device = '{c.choice(DEVICES)}' "
        f"AND NOT EXISTS (SELECT * FROM clicks [RANGE {c.choice([1, 2])} MINUTES] b WHERE b.customer = a.customer AND b.ts < a.ts)"
    ),
    "clicks before an order": lambda c: (
        f"SELECT o.id, k.page FROM orders [NOW] o, clicks {_range(c)} k "
        f"WHERE o.customer = k.customer AND o.amount > {c.randrange(400)}"
    ),
    "clicks by devices since the start": lambda c: (
        f"SELECT device, COUNT(*) AS n FROM clicks WHERE page = {c.randrange(PAGES)} GROUP BY device"
    ),
    # security
    "failed logins": lambda c: (
        f"SELECT customer, COUNT(*) AS n FROM logins {_sliding(c)} WHERE NOT ok GROUP BY customer HAVING COUNT(*) >= {c.randrange(1, 4)}"
    ),
    "failed logins, at once": lambda c: (
        f"SELECT customer, COUNT(*) AS n FROM logins {_range(c)} WHERE NOT ok GROUP BY customer HAVING COUNT(*) >= {c.randrange(1, 4)}"
    ),
    "two countries": lambda c: (
        f"SELECT a.customer, a.country AS one, b.country AS other FROM logins {_range(c)} a, logins {_range(c)} b "
        f"WHERE a.customer = b.customer AND a.country < b.country AND a.country = '{c.choice(COUNTRIES[:3])}'"
    ),
    "login after failures": lambda c: (
        f"SELECT g.customer FROM logins [NOW] g WHERE g.ok AND g.country = '{c.choice(COUNTRIES)}' "
        f"AND EXISTS (SELECT * FROM logins {_range(c)} f WHERE f.customer = g.customer AND NOT f.ok)"
    ),
    "last country": lambda c: (
        f"SELECT customer, country FROM logins [PARTITION BY customer ROWS 1] WHERE country IN ('{c.choice(COUNTRIES)}', '{c.choice(COUNTRIES)}')"
    ),
    "orders of the unsafe": lambda c: (
        f"SELECT o.id, o.amount FROM orders [NOW] o WHERE o.amount > {c.randrange(400)} "
        f"AND o.customer IN (SELECT l.customer FROM logins {_range(c)} l WHERE NOT l.ok)"
    ),
    # stock
    "low stock": lambda c: (
        f"SELECT product, quantity FROM stock [PARTITION BY product, warehouse ROWS 1] WHERE quantity < {c.randrange(5, 60)}"
    ),
    "stock of a warehouse": lambda c: (
        f"SELECT product, quantity FROM stock [PARTITION BY product, warehouse ROWS 1] WHERE warehouse = '{c.choice(WAREHOUSES)}'"
    ),
    "total stock": lambda c: (
        f"SELECT product, SUM(quantity) AS total FROM stock [PARTITION BY product, warehouse ROWS 1] "
        f"WHERE quantity > {c.randrange(20)} GROUP BY product"
    ),
    "orders at low stock": lambda c: (
        f"SELECT o.id, w.quantity FROM orders [NOW] o, stock [PARTITION BY product, warehouse ROWS 1] w "
        f"WHERE o.product = w.product AND w.quantity < {c.randrange(10, 80)}"
    ),
    "changes of stock": lambda c: (
        f"DSTREAM(SELECT product, quantity FROM stock {_range(c)} WHERE warehouse = '{c.choice(WAREHOUSES)}')"
    ),
    "mean stock": lambda c: (
        f"SELECT warehouse, AVG(quantity) AS mean, MIN(quantity) AS least FROM stock {_sliding(c)} GROUP BY warehouse"
    ),
    # support
    "urgent tickets": lambda c: (
        f"SELECT customer, topic FROM tickets WHERE priority >= {c.randrange(1, 5)} AND topic = '{c.choice(TOPICS)}'"
    ),
    "tickets by topic": lambda c: (
        f"SELECT topic, COUNT(*) AS n FROM tickets {_sliding(c)} WHERE priority > {c.randrange(4)} GROUP BY topic"
    ),
    "tickets of buyers": lambda c: (
        f"SELECT t.customer, t.topic, o.amount FROM tickets [NOW] t JOIN orders {_range(c)} o ON t.customer = o.customer "
        f"WHERE t.priority > {c.randrange(4)}"
    ),
    "tickets without an order": lambda c: (
        f"SELECT t.customer, t.topic FROM tickets [NOW] t WHERE t.topic = '{c.choice(TOPICS)}' "
        f"AND t.customer NOT IN (SELECT o.customer FROM orders {_range(c)} o)"
    ),
    "latest ticket": lambda c: (
        f"SELECT customer, topic, priority FROM tickets [PARTITION BY customer ROWS 1] WHERE priority >= {c.randrange(1, 5)}"
    ),
    # finance
    "busiest region": lambda c: (
        f"SELECT MAX(r.n) AS most FROM (SELECT region, COUNT(*) AS n FROM orders [RANGE 5 MINUTES SLIDE {c.choice([1, 5])} MINUTES] "
        f"WHERE amount > {c.randrange(200)} GROUP BY region) r"
    ),
    "regions above": lambda c: (
        f"SELECT r.region, r.total FROM (SELECT region, SUM(amount) AS total FROM orders {_range(c)} GROUP BY region) r "
        f"WHERE r.total > {c.randrange(200, 1_500)}"
    ),
    "orders above the mean": lambda c: (
        f"SELECT o.id, o.amount FROM orders [NOW] o, (SELECT region, AVG(amount) AS mean FROM orders {_range(c)} GROUP BY region) r "
        f"WHERE o.region = r.region AND o.amount > r.mean AND o.region = '{_region(c)}'"
    ),
    "daily snapshot": lambda c: (
        f"RSTREAM(SELECT id, amount FROM orders [RANGE 2 MINUTES SLIDE 2 MINUTES] WHERE region = '{_region(c)}' AND amount > {c.randrange(300)})"
    ),
    # data platform
    "all money": lambda c: (
        f"SELECT id, amount FROM orders WHERE amount > {(least := c.randrange(400))} "
        f"UNION ALL SELECT order_id, paid FROM payments WHERE paid > {least}"
    ),
    "active customers": lambda c: (
        f"SELECT DISTINCT u.customer FROM (SELECT customer FROM clicks {(window := _range(c))} WHERE page = {c.randrange(PAGES)} "
        f"UNION ALL SELECT customer FROM orders {window}) u"
    ),
    "events by customer": lambda c: (
        f"SELECT u.customer, COUNT(*) AS n FROM (SELECT customer FROM clicks [RANGE 5 MINUTES SLIDE 1 MINUTE] "
        f"UNION ALL SELECT customer FROM tickets [RANGE 5 MINUTES SLIDE 1 MINUTE]) u "
        f"WHERE u.customer < {c.randrange(2, CUSTOMERS)} GROUP BY u.customer"
    ),
}


def asked(number: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """So many queries in random order, each with the name of its template; every template is used."""
    chance = random.Random(seed)
    names = [name for _, name in zip(range(number), _endless(), strict=False)]
    chance.shuffle(names)
    for name in names:
        yield name, TEMPLATES[name](chance)


def _endless() -> Iterator[str]:
    while True:
        yield from TEMPLATES
