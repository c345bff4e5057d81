"""One result stream for two queries: figure 3.3 with the queries of Table 3.1.

Q3 and Q4 run at n1, their users are at n3 and n4, behind n2. Instead of both result streams, n1 sends that of Q5, which contains them, and
n2 filters it by the two profiles p1 and p2. All three are evaluated by the reference evaluator; the rule of the claims is equality of
rows, and a comparison of bytes over the link n1-n2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np

from headwater.algebra.canonical import canonicalize
from headwater.algebra.nodes import Query
from headwater.algebra.types import Value
from headwater.cql import CreateQuery, parse
from headwater.reference import evaluate
from headwater.reference.values import Result
from headwater.reproduce.figure import Claim, FigureSettings, Report, ReportTable, format_spread
from headwater.reproduce.progress import run_in_parallel
from headwater.reuse import Containment, classify_containment, minimal_operator, relax, signature_of

FIRST_SEED = 1001
HOUR = 3600 * 1_000_000
DAY = 24 * HOUR
AUCTIONS, QUICK_AUCTIONS = 400, 100

STATEMENTS = """
CREATE STREAM OpenAuction (itemID INT, sellerID INT, start_price DECIMAL(9, 2), timestamp TIMESTAMP)
  TIMESTAMP BY timestamp KEEP 5 HOURS FROM CLIENT;
CREATE STREAM ClosedAuction (itemID INT, buyerID INT, timestamp TIMESTAMP)
  TIMESTAMP BY timestamp KEEP 5 HOURS FROM CLIENT;
CREATE QUERY q3 AS SELECT O.* FROM OpenAuction [RANGE 3 HOUR] O, ClosedAuction [NOW] C
  WHERE O.itemID = C.itemID;
CREATE QUERY q4 AS SELECT O.itemID, O.timestamp, C.buyerID, C.timestamp
  FROM OpenAuction [RANGE 5 HOUR] O, ClosedAuction [NOW] C WHERE O.itemID = C.itemID;
CREATE QUERY q5 AS SELECT O.*, C.buyerID, C.timestamp
  FROM OpenAuction [RANGE 5 HOUR] O, ClosedAuction [NOW] C WHERE O.itemID = C.itemID;
"""
BYTES = {"INT": 4, "TIMESTAMP": 8, "DECIMAL": 16}
INSTANT_BYTES = 8
"""Every row carries the instant at which it was emitted."""

Durations = Callable[[np.random.Generator, int], np.ndarray]
DURATIONS: dict[str, Durations] = {
    "even up to 8 h": lambda random, count: random.uniform(0, 8, count),
    "exponential, mean 1 h": lambda random, count: random.exponential(1, count),
    "exponential, mean 3 h": lambda random, count: random.exponential(3, count),
    "even from 2 h to 8 h": lambda random, count: random.uniform(2, 8, count),
    "even from 3 h to 8 h": lambda random, count: random.uniform(3, 8, count),
}
"""How long an auction is open, in hours: the thesis does not say, and what is saved depends on it."""

BASE = "even up to 8 h"


@dataclass(frozen=True)
class StreamRun:
    """Rows and bytes of the result streams, and whether the profiles give the rows of the queries."""

    rows: tuple[int, int, int]
    sizes: tuple[int, int, int]
    exact: bool

    @property
    def share(self) -> float:
        """What s5 carries, as a share of what s3 and s4 carry together."""
        return self.sizes[2] / (self.sizes[0] + self.sizes[1])


def queries() -> dict[str, Query]:
    """Q3, Q4 and Q5."""
    statements = parse(STATEMENTS)
    return {s.name: s.query for s in statements if isinstance(s, CreateQuery)}


def auctions(durations: Durations, count: int, seed: int) -> dict[str, list[tuple[Value, ...]]]:
    """Auctions that open within a day, and their ends."""
    random = np.random.default_rng(seed)
    opened = np.sort(random.integers(0, DAY, count))
    closed = opened + (durations(random, count) * HOUR).astype(np.int64)
    openings: list[tuple[Value, ...]] = [
        (item, int(random.integers(50)), Decimal(int(random.integers(1, 10_000))) / 100, int(time))
        for item, time in enumerate(opened)
    ]
    # Tuples of a stream come in the order of their times.
    ends: list[tuple[Value, ...]] = [
        (int(item), int(random.integers(500)), int(closed[item])) for item in np.argsort(closed)
    ]
    return {"OpenAuction": openings, "ClosedAuction": ends}


def run_streams(durations: Durations, count: int, seed: int) -> StreamRun:
    """The three result streams over the same auctions."""
    streams = auctions(durations, count, seed)
    asked = queries()
    q3, q4, q5 = (evaluate(asked[name], streams) for name in ("q3", "q4", "q5"))
    sizes = [
        len(rows) * _row_bytes(asked[name]) for name, rows in (("q3", q3), ("q4", q4), ("q5", q5))
    ]
    exact = filter_by_p1(q5) == q3 and filter_by_p2(q5) == q4
    return StreamRun((len(q3), len(q4), len(q5)), (sizes[0], sizes[1], sizes[2]), exact)


def _row_bytes(query: Query) -> int:
    return INSTANT_BYTES + sum(
        BYTES[str(column.type).partition("(")[0]] for column in query.columns
    )


def filter_by_p1(s5: Sequence[Result]) -> list[Result]:
    """-3 h <= O.timestamp - C.timestamp <= 0, and O.*: it needs C.timestamp, which Q3 does not have."""
    return _filtered(s5, 3 * HOUR, (0, 1, 2, 3))


def filter_by_p2(s5: Sequence[Result]) -> list[Result]:
    """-5 h <= O.timestamp - C.timestamp <= 0, and the columns of Q4."""
    return _filtered(s5, 5 * HOUR, (0, 3, 4, 5))


def _filtered(s5: Sequence[Result], window: int, columns: tuple[int, ...]) -> list[Result]:
    def is_within(row: Result) -> bool:
        opened, closed = row.values[3], row.values[5]
        assert isinstance(opened, int) and isinstance(closed, int)
        return -window <= opened - closed <= 0

    return [
        Result(row.tau, tuple(row.values[column] for column in columns))
        for row in s5
        if is_within(row)
    ]


def result_streams(settings: FigureSettings) -> Report:
    """Figure 3.3(a) against (b)."""
    seeds = range(FIRST_SEED, FIRST_SEED + settings.seeds)
    count = QUICK_AUCTIONS if settings.quick else AUCTIONS
    jobs = [
        partial(run_streams, durations, count, seed)
        for durations in DURATIONS.values()
        for seed in seeds
    ]
    done = run_in_parallel("result streams", jobs)
    runs = {name: done[n * len(seeds) : (n + 1) * len(seeds)] for n, name in enumerate(DURATIONS)}
    rows = tuple(
        (name, *map(str, some[0].rows), *map(str, some[0].sizes), f"{some[0].share:.2f}")
        for name, some in runs.items()
    )
    columns = (
        *("auctions are open", "rows of s3", "s4", "s5", "bytes of s3", "s4", "s5"),
        "s5 / (s3 + s4)",
    )
    title = f"Over the link n1-n2, {count} auctions in a day, first seed"
    return Report((ReportTable(title, columns, rows),), _claims(runs))


def _claims(runs: dict[str, list[StreamRun]]) -> tuple[Claim, ...]:
    shares = {name: [run.share for run in some] for name, some in runs.items()}
    exact = [run.exact for some in runs.values() for run in some]
    worst = max(shares, key=lambda name: max(shares[name]))
    asked = {name: signature_of(canonicalize(query)) for name, query in queries().items()}
    shared = relax(minimal_operator(asked["q3"]), asked["q4"])
    is_q5 = classify_containment(asked["q5"], shared) is Containment.EQUAL
    return (
        Claim(
            "p1 and p2 give exactly the rows of Q3 and Q4",
            "yes",
            f"{sum(exact)} of {len(exact)} runs",
            all(exact),
        ),
        Claim("the least operator that serves Q3 and Q4 is Q5", "yes", str(is_q5), is_q5),
        Claim(
            f"s5 carries less than s3 and s4 (open {BASE})",
            "yes",
            format_spread(shares[BASE], 2),
            max(shares[BASE]) < 1,
        ),
        Claim(
            "s5 carries less than s3 and s4, however long auctions are open",
            "not restricted",
            f"up to {max(shares[worst]):.2f} (open {worst})",
            max(shares[worst]) < 1,
        ),
    )
