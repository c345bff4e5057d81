"""Runs a state in a process of its own, whose Java may end, with queries that are meant to harm.

With `deadly`, `reverse` of the text b makes a text that is larger than the memory that Java has. A
`fuzz` submits queries that use each function with extreme arguments, some at a time.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import headwater
from headwater.algebra.expressions import Column, Expr, Literal
from headwater.algebra.functions import FUNCTIONS, build_call
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Type,
)
from headwater.cql.writer import expr_text
from headwater.errors import AlgebraError, HeadwaterError

MEMORY = "600m"
AT_ONCE = 10


def run(state: Path, deadly: bool) -> None:
    """Run the state until nothing is left to do."""
    _process(str(state), "deadly" if deadly else "")


def fuzz(state: Path, queries: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    """Run the state while queries come, rows are pushed to the stream s, and the queries go; what became
    of them."""
    return dict(json.loads(_process(str(state), "fuzz", json.dumps([queries, rows]))))


def _process(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, __file__, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    return done.stdout


# ---- queries

SCHEMA = "t STRING, i INT, b BIGINT, d DOUBLE, n DECIMAL(38, 10), f BOOLEAN, day DATE, ts TIMESTAMP"
COLUMNS = [
    Column("", name, type_)
    for name, type_ in [
        ("t", STRING),
        ("i", INT),
        ("b", BIGINT),
        ("d", DOUBLE),
        ("n", Type("DECIMAL", 38, 10)),
        ("f", BOOLEAN),
        ("day", DATE),
        ("ts", TIMESTAMP),
    ]
]
TEXTS = [
    "",
    "a",
    "%",
    "_",
    "\\",
    "c:\\temp%",
    "[",
    "(?=",
    "a{2147483647}",
    "*",
    "'",
    "\n",
    "x" * 5000,
]
FORMATS = ["QQQQQQQQ", "yyyy-MM-dd", "'", "[[", "#", "G" * 50, "VVVVV", "month", "year"]
NUMBERS = [0, 1, -1, 20, 10_000, 10_000_000, 2_000_000_000, 2**31 - 1, -(2**31)]
EXTREMES: list[Expr] = [
    *(Literal(text, STRING) for text in [*TEXTS, *FORMATS]),
    *(Literal(number, INT) for number in NUMBERS),
    *(Literal(number, BIGINT) for number in (2**63 - 1, -(2**63))),
    *(Literal(number, DOUBLE) for number in (1e308, -1e308, 5e-324, 0.0)),
    Literal(Decimal("9" * 38), Type("DECIMAL", 38, 0)),
    Literal(-719_162, DATE),
    Literal(253_402_300_799_999_999, TIMESTAMP),
    Literal(None, STRING),
]
SHAPES = [
    "SELECT {e} AS x FROM s [NOW] WHERE i > 0",
    "SELECT t, i FROM s [NOW] WHERE i > 1 AND ({e}) IS NOT NULL",
    "SELECT i, COUNT(*) AS c FROM s [RANGE 10 SEC SLIDE 5 SEC] WHERE ({e}) IS NOT NULL GROUP BY i",
    "SELECT i, MAX({e}) AS m FROM s [RANGE 10 SEC SLIDE 5 SEC] GROUP BY i",
]


def extreme(rng: random.Random, name: str, depth: int = 1) -> Expr:
    """A call of a function with arguments that it takes, as extreme as can be."""
    function = FUNCTIONS[name]
    for _ in range(10_000):
        size = rng.randint(function.min_args, function.max_args or function.min_args + 2)
        args = [rng.choice(EXTREMES if rng.random() < 0.6 else COLUMNS) for _ in range(size)]
        if depth and rng.random() < 0.3:
            args[0] = extreme(rng, rng.choice(["repeat", "concat", "lpad", "*", "+"]), 0)
        try:
            found = build_call(name, *args)
        except AlgebraError:
            continue
        if any(isinstance(arg, Column) for arg in args):
            return found
    raise AssertionError(f"no arguments fit {name}")


def poison(rng: random.Random, name: str) -> str:
    """A query with such a call."""
    return rng.choice(SHAPES).format(e=expr_text(extreme(rng, name)))


# ---- in the process


def work(state: str, deadly: bool) -> None:
    from headwater.runtime.spark import sql

    if deadly:
        sql._SPECIAL["reverse"] = lambda _, args: (
            f"IF({args[0]} = 'b', repeat({args[0]}, 2000000000), reverse({args[0]}))"
        )
    with headwater.open(state, master="local[2]", memory=MEMORY) as opened:
        opened.run(until_idle=True, interval=0.05)
        opened.engine.spark.stop()


def harm(state: str, queries: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    """Submit queries, some at a time, each time with some rows."""
    became: Counter[str] = Counter()
    errors: dict[str, str] = {}
    times = -(-len(queries) // AT_ONCE)
    with headwater.open(state, master="local[2]", memory=MEMORY) as opened:
        opened.execute("SET retries = 1; SET backoff = 0.05")
        for time in range(times):
            names = []
            for at, text in enumerate(queries[time * AT_ONCE : (time + 1) * AT_ONCE]):
                try:
                    opened.execute(f"CREATE QUERY p{at} AS {text}")
                    names.append((f"p{at}", text))
                except HeadwaterError as error:
                    became["refused"] += 1
                    errors[text] = str(error).splitlines()[0]
            opened.push(
                "s",
                rows[time * len(rows) // times : (time + 1) * len(rows) // times],
                timestamp_unit="us",
            )
            opened.run(until_idle=True, interval=0.05)
            for name, text in names:
                row = opened.query(name).row
                became[row.state] += 1
                if row.error:
                    errors[text] = row.error
                opened.execute(f"DROP QUERY {name}")
        opened.execute("END STREAM s")
        opened.run(until_idle=True, interval=0.05)
        ended = len(opened.catalog.events(kind="spark ended", limit=10_000))
        opened.engine.spark.stop()
    return {"became": dict(became), "errors": errors, "ended": ended}


if __name__ == "__main__":
    if sys.argv[2] == "fuzz":
        print(json.dumps(harm(sys.argv[1], *json.loads(sys.argv[3]))))
    else:
        work(sys.argv[1], bool(sys.argv[2]))
