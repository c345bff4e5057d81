"""Relations with lifetimes: each rule, and queries of several, beside the reference evaluator.

The SQL of the rules runs on DuckDB here, cut into steps at random: as it is, in bands, and for the parts alone that change. At the end
queries of all kinds run on Spark, in one state.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import lifetimes_on_duckdb
import pytest
from engine_helpers import (
    Rows,
    as_csv_keeps,
    declare,
    expected,
    opened,
    pieces,
    settle,
    submit,
    told,
)
from sample_queries import TABLES, sample

from headwater.algebra.canonical import canonicalize
from headwater.algebra.nodes import Query
from headwater.cql import parse_query, unparse
from headwater.reference.evaluator import _Inputs
from headwater.runtime.compile import Lifetimes, compile_query
from headwater.runtime.compile.lifetimes import output, plan
from headwater.runtime.compile.lifetimes.describe import describe_steps
from headwater.runtime.settings import Settings
from strategies import ASKS, BIDS, SOURCES

WINDOWS = (
    "[RANGE 3 SEC]",
    "[RANGE 1 SEC]",
    "[RANGE 4 SEC SLIDE 2 SEC]",
    "[RANGE 3 SEC SLIDE 2 SEC]",
    "[RANGE 1 SEC SLIDE 3 SEC]",
    "[NOW]",
    "[RANGE UNBOUNDED]",
    "[RANGE UNBOUNDED SLIDE 2 SEC]",
    "[ROWS 3]",
    "[PARTITION BY item ROWS 1]",
)

RULES = {
    "join": """SELECT b.item, b.note, m.n AS other
        FROM Bids {0} b, (SELECT item, COUNT(*) AS n FROM Asks {1} GROUP BY item) m WHERE m.item = b.item""",
    "self-join": """SELECT x.item, x.note, y.bidder AS other FROM Bids {0} x JOIN Bids {1} y ON x.item = y.item
        WHERE NOT EXISTS (SELECT * FROM Asks {2} a WHERE a.item = x.bidder)""",
    "exists": "SELECT b.item, b.note, b.bidder AS other FROM {from} WHERE {not} EXISTS (SELECT * FROM Asks {1} a WHERE {on})",
    "exists any": "SELECT b.item, b.note, b.bidder AS other FROM {from} WHERE {not} EXISTS (SELECT * FROM Asks {1} WHERE item > 1)",
    "exists later": """SELECT b.item, b.note, b.bidder AS other FROM {from} WHERE {not} EXISTS
        (SELECT * FROM Asks [RANGE UNBOUNDED] a WHERE {later})""",
    "in": "SELECT b.item, b.note, b.bidder AS other FROM {from} WHERE b.item {not} IN (SELECT item FROM Asks {1})",
    "outer join": "SELECT b.item, b.note, a.item AS other FROM {from} {side} JOIN Asks {1} a ON {on}",
    "outer join of a table": "SELECT b.item, b.note, i.item AS other FROM {from} {side} JOIN Items i ON b.item = i.item",
    "outer join of groups": """SELECT b.item, b.note, m.n AS other FROM {from} LEFT JOIN
        (SELECT item, MAX(note) AS n FROM Asks {1} GROUP BY item HAVING COUNT(*) > 1) m ON m.item = b.item""",
    "union": "SELECT item, note, bidder AS other FROM Bids {0} UNION ALL SELECT item, note, item AS other FROM Asks {1}",
    "distinct": "SELECT DISTINCT b.item, b.note, 1 AS other FROM {from} WHERE {not} EXISTS (SELECT * FROM Asks {1} a WHERE {on})",
    "total": "SELECT b.item, b.note, m.n AS other FROM {from}, (SELECT COUNT(*) AS n FROM Asks {1}) m",
}
"""A query for each rule, and what of it is random: windows, sources, conditions."""

ABOVE = (
    "{0}",
    "{0}",
    "SELECT other, COUNT(*) AS n, SUM(item) AS s FROM ({0}) q GROUP BY other",
    "SELECT item, COUNT(*) AS n, MAX(note) AS s FROM ({0}) q GROUP BY item",
    "SELECT item, COUNT(other) AS n, COUNT(DISTINCT other) AS s FROM ({0}) q GROUP BY item, note",
    "SELECT DISTINCT item, other FROM ({0}) q",
    "SELECT COUNT(*) AS n, SUM(item) AS s FROM ({0}) q",
    "SELECT note, MAX(item) AS n, COUNT(DISTINCT other) AS s FROM ({0}) q GROUP BY note",
    "SELECT note, MAX(item) AS n, MIN(other) AS s FROM ({0}) q GROUP BY note",
    "SELECT DISTINCT other FROM ({0}) q",
    "SELECT MIN(item) AS m FROM ({0}) q HAVING COUNT(*) <> 2",
)
CONDITIONS = (
    "b.item = a.item",
    "b.note = a.note",
    "b.note <=> a.note",
    "b.item = a.item AND b.note = a.note",
    "b.item = a.item AND b.bidder < a.item",
    "b.bidder >= a.item",
    "b.note = a.note OR b.item = a.item",
)


LATER = (
    "a.at >= b.ts",
    "a.at < b.ts",
    "a.item > b.item",
    "b.item >= a.item AND a.note = b.note",
    "b.bidder < a.item AND b.note = a.note AND b.item > 1 AND a.note IS NOT NULL",
)


def random_query(rng: random.Random, rule: str) -> Query:
    windows = [rng.choice(WINDOWS) for _ in range(3)]
    if rng.random() < 0.5:  # else hardly two windows have the same slide
        windows = windows[:1] * 3
    sources = (
        f"Bids {windows[0]} b",
        f"Asks {windows[2]} c JOIN Bids {windows[0]} b ON c.note = b.note",
    )
    choices = {
        "from": rng.choice(sources),
        "on": rng.choice(CONDITIONS),
        "later": rng.choice(LATER),
        "not": rng.choice(["", "NOT"]),
        "side": rng.choice(["LEFT", "RIGHT", "FULL"]),
    }
    if rule == "outer join of a table" and choices["side"] == "RIGHT":
        choices["side"] = "FULL"
    text = rng.choice(ABOVE).format(RULES[rule].format(*windows, **choices))
    emitted = rng.choice(["ISTREAM", "ISTREAM", "DSTREAM", "DSTREAM", "RSTREAM"])
    return canonicalize(parse_query(f"{emitted}({text})", SOURCES)).query


def random_steps(rng: random.Random, query: Query, streams: Rows) -> list[list[int]]:
    """The instants of a query, cut into steps."""
    instants = list(_Inputs(streams, TABLES, None, {}).instants(query.root))
    cuts = sorted({rng.randrange(1, len(instants) + 1) for _ in range(rng.choice([0, 1, 3, 8]))})
    bounds = [0, *cuts, len(instants)]
    return [instants[a:b] for a, b in itertools.pairwise(bounds) if a < b]


def check_case(rule: str, seed: int) -> int:
    """Compare one random query as it is, in bands, and by parts; returns how many rows it emits."""
    rng = random.Random(f"{rule} {seed}")
    query = random_query(rng, rule)
    streams = sample(seed, rng.choice([5, 15, 30]))
    if rng.random() < 0.1:
        streams["Asks"] = []
    steps = random_steps(rng, query, streams)
    wanted = expected(query, streams, TABLES)
    database = lifetimes_on_duckdb.connect([BIDS, ASKS], streams)
    for banded_rows, narrowed_rows in ((2, 2), (1, 2), (2, 1)):
        plan.BANDED_ROWS, plan.NARROWED_ROWS = banded_rows, narrowed_rows
        found = lifetimes_on_duckdb.emitted_rows(database, query, steps, TABLES, 1)
        assert found == wanted, unparse(query)
    return len(wanted)


@pytest.fixture
def on_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "search_sql", lifetimes_on_duckdb.count_up_to)
    for name in ("BANDED_SPAN", "BANDED_ROWS", "NARROWED_ROWS"):
        monkeypatch.setattr(plan, name, 1)


@pytest.mark.parametrize("rule", RULES)
def test_rule(on_duckdb: None, rule: str) -> None:
    assert sum(check_case(rule, seed) for seed in range(4)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_rule_in_the_long_run(on_duckdb: None, rule: str) -> None:
    assert sum(check_case(rule, seed) for seed in range(100, 200)) > 0


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT {b} FROM Bids [NOW] b LEFT JOIN Asks [NOW] a ON a.item = b.item", ["item", "item"]),
        ("SELECT {b} FROM Bids [NOW] b FULL JOIN Asks [NOW] a ON a.item = b.item", ["item", "item"]),
        ("SELECT {b} FROM Bids [NOW] b WHERE NOT EXISTS (SELECT * FROM Asks [NOW] a WHERE a.item = b.item)", ["item", "item"]),
        ("SELECT {b} FROM Bids [NOW] b LEFT JOIN Items i ON i.item = b.item", [None]),
        ("SELECT {b} FROM Bids [NOW] b UNION ALL SELECT cost FROM Asks [NOW]", [None, None]),
        ("SELECT item, COUNT(*) AS n FROM (SELECT item FROM Bids [NOW] UNION ALL SELECT item FROM Asks [NOW]) q GROUP BY item", ["item", "item"]),
        ("SELECT {b} FROM Bids [NOW] b, (SELECT item, COUNT(*) AS n FROM Asks [NOW] GROUP BY item) m WHERE m.item = b.item", ["item", "item"]),
        # What is in one part may change rows of another.
        ("SELECT {b} FROM Bids [NOW] b FULL JOIN Items i ON i.label = 'one'", []),
        ("SELECT {b} FROM Bids [NOW] b WHERE b.item NOT IN (SELECT item FROM Asks [NOW])", []),
        ("SELECT {b} FROM Bids [NOW] b LEFT JOIN Asks [NOW] a ON a.item > b.item", []),
        ("SELECT {b} FROM Bids [NOW] b, (SELECT note, COUNT(*) AS n FROM Asks [NOW] GROUP BY note) m WHERE m.n = b.item", []),
        ("SELECT COUNT(*) AS n FROM (SELECT item FROM Bids [NOW] UNION ALL SELECT item FROM Asks [NOW]) q", []),
        ("SELECT DISTINCT {b} FROM Bids [NOW] b WHERE EXISTS (SELECT * FROM Asks [NOW] a WHERE a.item = b.item)", []),
    ],
)  # fmt: skip
def test_parts(text: str, columns: list[str | None]) -> None:
    query = canonicalize(parse_query(text.format(b="b.price"), SOURCES)).query
    shown = [c and c.name for part in Lifetimes(query).parts for c in part.columns.values()]
    assert shown == columns


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "SELECT item FROM Bids [NOW] b WHERE NOT EXISTS (SELECT * FROM Asks [NOW] a WHERE a.item = b.item)",
            ["a step reads the tuples with the Bids.item = Asks.item of one that enters or leaves a window"],
        ),
        (
            "SELECT item FROM Bids [NOW] UNION ALL SELECT item FROM Asks [NOW]",
            ["a step reads the tuples that enter or leave a window"] * 2,
        ),
        (
            "RSTREAM(SELECT item FROM Bids [NOW] UNION ALL SELECT item FROM Asks [NOW])",
            ["a step reads the tuples of its windows: RSTREAM emits all of them"],
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT note, MAX(item) AS m FROM Bids [NOW] GROUP BY note) q",
            [
                "a step reads the tuples of its windows: no equality ties all that it reads",
                "a group is added up again whenever it changes: max",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_not_incremental_is_named(text: str, lines: list[str]) -> None:
    plan_of = compile_query(canonicalize(parse_query(text, SOURCES)))
    assert isinstance(plan_of, Lifetimes) and describe_steps(plan_of) == lines


def test_a_step_is_cut_into_bands_only_if_it_is_long_and_reads_much() -> None:
    query = parse_query(
        "SELECT item FROM Bids [RANGE 3 SEC] UNION ALL SELECT item FROM Asks [NOW]", SOURCES
    )
    lifetimes = Lifetimes(canonicalize(query).query)
    hour = range(0, 3_600_000_000, 1_000_000)
    bands = lifetimes.timeline(None, hour, plan.BANDED_ROWS, plan.BANDED_ROWS).bands
    assert bands is not None and bands.length * bands.count > hour[-1]
    assert lifetimes.timeline(None, hour[:5], plan.BANDED_ROWS, plan.BANDED_ROWS).bands is None
    assert lifetimes.timeline(None, hour, plan.BANDED_ROWS - 1, 0).bands is None


# ---- on Spark


@pytest.mark.spark
def test_random_queries_on_spark(spark: Any, tmp_path: Path) -> None:
    check_on_spark(spark, tmp_path, seed=1, size=1)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2, 10))
def test_random_queries_on_spark_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check_on_spark(spark, tmp_path, seed, size=4)


def check_on_spark(spark: Any, folder: Path, seed: int, size: int) -> None:
    """Some queries of each rule over the same tuples, the state closed and opened again in the middle."""
    rng = random.Random(seed)
    queries = [random_query(rng, rule) for rule in RULES for _ in range(size)]
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    limits = Settings(rows_window_checkpoint_rows=5, instants_per_step=rng.choice([3, 2_000]))
    cuts = pieces(rng, streams)
    with opened(folder / "state", spark, settings=limits) as headwater:
        declare(headwater, folder / "items", tables)
        for n, query in enumerate(queries):
            submit(headwater, f"q{n}", query)
        for name, rows in cuts[: len(cuts) // 2]:
            headwater.push(name, rows, timestamp_unit="us")
            headwater.engine.tick()
    with opened(folder / "state", spark, settings=limits) as headwater:
        for name, rows in cuts[len(cuts) // 2 :]:
            headwater.push(name, rows, timestamp_unit="us")
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        assert any(isinstance(compile_query(canonicalize(q)), Lifetimes) for q in queries)
        for n, query in enumerate(queries):
            assert told(headwater, f"q{n}", query) == expected(query, streams, tables), unparse(
                query
            )
