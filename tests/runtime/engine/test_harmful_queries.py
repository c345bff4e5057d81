"""Queries that are meant to harm, beside others with which they share streams and units: each function of
the language with extreme arguments. Whatever becomes of them, the others have all their rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, told
from poisoned import SCHEMA, fuzz, poison

from headwater.algebra.functions import FUNCTIONS
from headwater.cql import parse_query
from headwater.runtime.api import open_state

pytestmark = pytest.mark.spark

NEIGHBOURS = {
    "chosen": "SELECT t, i FROM s [NOW] WHERE i > 1",
    "others": "SELECT t, d FROM s [NOW] WHERE i > 0 AND t <> 'a'",
    "counted": "SELECT i, COUNT(*) AS c FROM s [RANGE 10 SEC SLIDE 5 SEC] GROUP BY i",
    "largest": "SELECT i, MAX(d) AS m FROM s [RANGE 10 SEC SLIDE 10 SEC] WHERE d > 0 GROUP BY i",
    "last": "SELECT DISTINCT i FROM s [ROWS 3]",
}
HARMFUL = ["repeat", "lpad", "like", "rlike", "date_format", "replace", "pow", "timestamp_micros"]


def rows(rng: random.Random, size: int) -> list[tuple[Any, ...]]:
    """Tuples with extreme values, a second apart."""
    return [
        (
            rng.choice(["a", "", None, "aaa%", "\\", "\U0001f600", "b" * 300]),
            rng.choice([0, 1, 2, 2**31 - 1, -(2**31), None]),
            rng.choice([2**63 - 1, -(2**63), 0, None]),
            rng.choice([1e308, -1e308, 0.5, None]),
            None,
            rng.choice([True, False, None]),
            rng.choice([-719_162, 0, 2_932_896, None]),
            at * 1_000_000,
        )
        for at in range(1, size + 1)
    ]


def check(folder: Path, seed: int, functions: Sequence[str], size: int) -> dict[str, Any]:
    rng = random.Random(seed)
    bad, good = [poison(rng, name) for name in functions], rows(rng, size)
    with open_state(folder / "state") as headwater:
        headwater.execute(f"CREATE STREAM s ({SCHEMA}) TIMESTAMP BY ts FROM CLIENT")
        for name, text in NEIGHBOURS.items():
            headwater.execute(f"CREATE QUERY {name} AS {text}")
        found = fuzz(folder / "state", bad, good)
        for name, text in NEIGHBOURS.items():
            query = parse_query(text, headwater.definitions.namespace)
            assert told(headwater, name, query) == expected(query, {"s": good}, {}), name
            assert headwater.query(name).row.state == "finished"
    assert sum(found["became"].values()) == len(bad)
    return found


def test_neighbours_of_poison_lose_nothing(tmp_path: Path) -> None:
    check(tmp_path, 3, HARMFUL, 12)


@pytest.mark.slow
def test_each_function_with_extreme_arguments(tmp_path: Path) -> None:
    print(check(tmp_path, 1, list(islice(cycle(FUNCTIONS), 200)), 400))
