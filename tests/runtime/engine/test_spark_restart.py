"""Java that ends, as it runs out of memory, is started again in the same process; the query that ends it
is parked, and nobody loses a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, told
from poisoned import run

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from headwater.runtime.api import Headwater, open_state

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (a STRING, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
QUERIES = {
    "good": "SELECT a, v FROM s [NOW] WHERE v > 1",
    "bad": "SELECT reverse(a) AS r FROM s [NOW] WHERE v > 0",
    "other": "SELECT a, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY a",
}
ROWS = [("ab"[at % 3 == 2], at % 5, at * 1_000_000) for at in range(1, 30)]


def equal(headwater: Headwater, queries: dict[str, Query], rows: list[Any]) -> list[str]:
    """The queries that have what the reference evaluator gives."""
    return [
        name
        for name, query in queries.items()
        if told(headwater, name, query) == expected(query, {"s": rows}, {})
    ]


def test_only_the_query_that_ends_java_is_parked(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        texts = [f"CREATE QUERY {name} AS {text};" for name, text in QUERIES.items()]
        headwater.execute(STREAM + "".join(texts))
        names = headwater.definitions.namespace
        queries = {name: parse_query(text, names) for name, text in QUERIES.items()}
        units = {name: headwater.query(name).row.unit_id for name in QUERIES}
        assert units["good"] == units["bad"] != units["other"]
        headwater.push("s", ROWS[:20], timestamp_unit="us")
        run(tmp_path / "state", deadly=True)
        headwater.push("s", ROWS[20:], timestamp_unit="us")
        rows = {name: headwater.query(name).row for name in QUERIES}
        assert {name for name, row in rows.items() if row.state == "parked"} == {"bad"}
        assert "Java ended" in rows["bad"].error
        ended = headwater.catalog.events(kind="spark ended")
        assert len(ended) >= 2
        assert all("it is started again" in str(event) for event in ended)
        headwater.execute("END STREAM s; RESUME QUERY bad")
        run(tmp_path / "state", deadly=False)
        assert equal(headwater, queries, ROWS) == list(QUERIES)
