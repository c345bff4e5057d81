"""States of earlier releases go on: their catalogs are migrated, and their queries lose no row.

The fixture was made by `headwater run --until-idle` of commit f9bb911, with settings by the names that
they had then; the catalog is kept as SQL, in which @INPUT@ is the folder of the source.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import opened

from headwater.algebra.times import parse_timestamp, to_micros
from headwater.cql import CreateQuery, parse
from headwater.reference import evaluate
from headwater.runtime.api import Headwater, open_state

FIXTURE = Path(__file__).parents[2] / "fixtures" / "states" / "f9bb911"

NEXT_DAY = [
    {"id": 5, "region": "n", "amount": 12, "ts": "2026-03-01T08:04:30Z"},
    {"id": 6, "region": "s", "amount": 40, "ts": "2026-03-02T09:00:00Z"},
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state as the earlier release left it, with its input beside it."""
    inputs = tmp_path / "in"
    inputs.mkdir()
    shutil.copy(FIXTURE / "a.json", inputs)
    shutil.copytree(FIXTURE / "log", tmp_path / "state" / "log")
    text = (FIXTURE / "catalog.sql").read_text().replace("@INPUT@", str(inputs))
    connection = sqlite3.connect(tmp_path / "state" / "catalog.sqlite")
    connection.executescript(text)
    connection.close()
    return tmp_path / "state"


def expected(headwater: Headwater, name: str, folder: Path) -> Counter[Any]:
    """The rows of a query over all files, by the reference evaluator."""
    (statement,) = parse(headwater.query(name).row.definition, headwater.definitions.namespace)
    assert isinstance(statement, CreateQuery)
    lines = [
        line for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()
    ]
    records = [json.loads(line) for line in lines]
    rows = [
        (r["id"], r["region"], r["amount"], parse_timestamp(r["ts"].replace("Z", "+00:00")))
        for r in records
    ]
    return Counter((row.tau, row.values) for row in evaluate(statement.query, {"orders": rows}))


def emitted(headwater: Headwater, name: str) -> Counter[Any]:
    return Counter(
        (to_micros(row.pop("_tau")), tuple(value for value in row.values()))
        for row in headwater.query(name).results()
    )


def test_settings_and_results_are_taken_over(state: Path) -> None:
    with open_state(state) as headwater:
        assert headwater.catalog.options() == {"max_concurrency": "2", "max_backlog_rows": "1000"}
        for name in ("large", "larger", "per_region"):
            assert headwater.query(name).row.state == "finished"
            assert emitted(headwater, name) == expected(headwater, name, state.parent / "in")


@pytest.mark.spark
def test_queries_go_on_with_files_of_the_next_day(spark: Any, state: Path) -> None:
    folder = state.parent / "in"
    (folder / "b.json").write_text("".join(json.dumps(record) + "\n" for record in NEXT_DAY))
    with opened(state, spark) as headwater:
        while headwater.engine.tick() or headwater.engine.end_finite_streams():
            pass
        for name in ("large", "larger", "per_region"):
            assert emitted(headwater, name) == expected(headwater, name, folder)
