"""One query of each kind over the streams of `strategies`, and random rows for them."""

from __future__ import annotations

import random

from engine_helpers import Rows
from hypothesis import HealthCheck, Phase, settings

QUIET = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""Without shrinking: a case takes seconds."""


KINDS = {
    "select": "SELECT item, price FROM bids WHERE item > 0",
    "join": "SELECT b.item, a.cost FROM bids [RANGE 3 SEC] b, asks [RANGE 2 SEC] a WHERE b.item = a.item",
    "sliding join": """SELECT b.note, a.note AS other FROM bids [RANGE 4 SEC SLIDE 2 SEC] b,
        asks [RANGE 3 SEC SLIDE 1 SEC] a WHERE b.item = a.item""",
    "self-join": "SELECT x.item, y.bidder FROM bids [RANGE 2 SEC] x, bids [NOW] y WHERE x.item = y.item",
    "table": "SELECT b.item, i.label FROM bids b, items i WHERE b.item = i.item",
    "aggregate": "SELECT item, COUNT(*) AS n, SUM(price) AS s FROM bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
    "global": "SELECT COUNT(*) AS n, MAX(bidder) AS m FROM bids [RANGE 3 SEC SLIDE 1 SEC]",
    "changes": "SELECT item, COUNT(*) AS n FROM bids [RANGE 2 SEC] GROUP BY item HAVING COUNT(*) > 1",
    "distinct": "DSTREAM(SELECT DISTINCT note FROM bids [RANGE 2 SEC])",
    "rows": "SELECT item, note FROM bids [PARTITION BY item ROWS 1]",
    "anti": "SELECT item FROM bids [RANGE 2 SEC] WHERE item NOT IN (SELECT item FROM asks [RANGE 2 SEC])",
    "outer": """SELECT b.item, a.cost FROM bids [RANGE 2 SEC] b LEFT JOIN asks [RANGE 1 SEC] a
        ON b.item = a.item""",
    "union": "SELECT item, note FROM bids [NOW] UNION ALL SELECT item, note FROM asks [NOW]",
    "nested": """SELECT b.item, m.top FROM bids [NOW] b,
        (SELECT item, MAX(price) AS top FROM bids [RANGE 3 SEC] GROUP BY item) m WHERE b.item = m.item""",
}


def sample(seed: int, size: int = 40) -> Rows:
    rng = random.Random(seed)

    def times() -> list[int]:
        return sorted(rng.randrange(0, 24) * 500_000 for _ in range(size))

    notes = ["a", "b", None]
    bids = [
        (
            rng.randrange(4),
            rng.choice([1, 2, None]),
            rng.choice([1.0, 0.25, 2.5]),
            rng.choice(notes),
            t,
        )
        for t in times()
    ]
    asks = [
        (rng.choice([0, 1, 2, None]), rng.random() < 0.5, None, rng.choice(notes), t)
        for t in times()
    ]
    return {"Bids": bids, "Asks": asks}


TABLES: Rows = {"Items": [(0, "zero"), (1, "one"), (1, "uno"), (None, "none")]}
