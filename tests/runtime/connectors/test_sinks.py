"""A sink gets every row of its query once, over restarts, crashes and folders that cannot be written."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import HOUR, Stop, expected, opened, result_rows, settle, stop_at, tick_until

from headwater.algebra.nodes import Query
from headwater.algebra.types import TIMESTAMP, Field, Schema
from headwater.cql import parse_query
from headwater.reference.data import load_rows
from headwater.reference.values import normalize_row, row_order_key
from headwater.runtime.api import Headwater
from headwater.runtime.results.sink_progress import pending_deliveries, read_delivery
from strategies import BIDS, SOURCES

pytestmark = pytest.mark.spark

ONE = "SELECT item, price, note FROM bids [RANGE 2 SECONDS] WHERE item > 0"
SAME = "SELECT note AS words, price, item FROM bids [RANGE 2000 MS] b WHERE NOT b.item <= 0"
TOLD = "SELECT item, COUNT(*) AS n FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item"
DECLARED = f"CREATE STREAM bids ({{}}) TIMESTAMP BY ts LATENESS {HOUR} MICROSECONDS FROM CLIENT"


def sample(seed: int, size: int = 40) -> list[Any]:
    rng = random.Random(seed)
    notes = ["a", "", 'say "b", twice', None, "ü\n2"]
    return [
        (rng.randrange(4), None, rng.choice([1.0, 0.1, None]), rng.choice(notes), n * 500_000)
        for n in range(size)
    ]


def declare(headwater: Headwater) -> None:
    columns = ", ".join(
        f"{f.name} {f.type}{'' if f.nullable else ' NOT NULL'}" for f in BIDS.schema
    )
    headwater.execute(DECLARED.format(columns))


def found_in(folder: Path, query: Query) -> list[tuple[Any, ...]]:
    """The rows of all files of a sink, as the reference evaluator has them."""
    fields = [Field(column.name, column.type) for column in query.columns]
    schema = Schema((*fields, Field("_tau", TIMESTAMP)))
    rows = []
    for file in sorted(folder.iterdir()):
        assert file.name[0] != "."
        plain = file if file.suffix != ".json" else file.with_suffix(".jsonl")
        file.rename(plain)
        rows += load_rows(folder, plain.stem, schema)
        plain.rename(file)
    return sorted(((row[-1], *normalize_row(row[:-1])) for row in rows), key=row_order_key)


def feed(headwater: Headwater, rows: Sequence[Any], pieces: int) -> None:
    size = -(-len(rows) // pieces)
    for begin in range(0, len(rows), size):
        headwater.push("bids", rows[begin : begin + size], timestamp_unit="us")
        settle(headwater)


@pytest.mark.parametrize("pieces", [1, 4])
def test_files_of_every_format(spark: Any, tmp_path: Path, pieces: int) -> None:
    """Two queries of one unit, with columns and starts of their own, and one of another."""
    data = sample(pieces)
    queries = {
        "one": (parse_query(ONE, SOURCES), "json"),
        "same": (parse_query(SAME, SOURCES), "parquet"),
        "counts": (parse_query(TOLD, SOURCES), "csv"),
    }
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater)
        for (name, (_, format_)), text in zip(queries.items(), (ONE, SAME, TOLD), strict=True):
            start = "STARTING AT TIMESTAMP '1970-01-01T00:00:03Z'" if name == "same" else ""
            headwater.execute(f"""
                CREATE QUERY {name} {start}
                TO files(path => '{tmp_path / name}', format => '{format_}') AS {text}
                """)
        feed(headwater, data, pieces)
        headwater.execute("END STREAM bids")
        headwater.run(until_idle=True)
        assert headwater.query("one").row.unit_id == headwater.query("same").row.unit_id
        assert not pending_deliveries(headwater.catalog)
        for name, (query, _) in queries.items():
            bounds = {"start": 3 * 10**6} if name == "same" else {}
            wanted = expected(query, {"Bids": data}, {}, **bounds)
            assert wanted
            assert found_in(tmp_path / name, query) == wanted, name


def test_a_line_of_json_is_what_is_printed(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater)
        headwater.execute(f"CREATE QUERY q TO files(path => '{tmp_path / 'out'}') AS {ONE}")
        feed(headwater, [(2, None, 0.25, "ü", 1_500_000)], 1)
    (file,) = (tmp_path / "out").iterdir()
    assert json.loads(file.read_text()) == {
        "item": 2,
        "price": 0.25,
        "note": "ü",
        "_tau": "1970-01-01T00:00:01.500000Z",
    }


@pytest.mark.parametrize("point", ["sink: written", "sink: committed"])
def test_a_crash_loses_and_doubles_nothing(spark: Any, tmp_path: Path, point: str) -> None:
    data = sample(9)
    query = parse_query(ONE, SOURCES)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater)
        headwater.execute(f"CREATE QUERY q TO files(path => '{tmp_path / 'out'}') AS {ONE}")
    kept: dict[str, bytes] = {}
    for begin in range(0, len(data), 10):
        for crash in (stop_at(point, 1), lambda met: None):
            with opened(tmp_path / "state", spark, at_point=crash, holder=f"{crash}") as headwater:
                if crash.__name__ != "<lambda>":
                    headwater.push("bids", data[begin : begin + 10], timestamp_unit="us")
                    with pytest.raises(Stop):
                        settle(headwater)
                else:
                    settle(headwater)
                files = {f.name: f.read_bytes() for f in (tmp_path / "out").iterdir()}
                assert kept.items() <= files.items()
                kept = files
    assert found_in(tmp_path / "out", query) == expected(query, {"Bids": data}, {})


def test_a_failing_sink_is_reported_and_retried(spark: Any, tmp_path: Path) -> None:
    data = sample(4)
    one, other = parse_query(ONE, SOURCES), parse_query(TOLD, SOURCES)
    (tmp_path / "bad").write_text("no folder")
    with opened(tmp_path / "state", spark) as headwater:
        headwater.engine.sinks.backoff = 0.01
        declare(headwater)
        headwater.execute(f"""
            CREATE QUERY q TO files(path => '{tmp_path / "bad"}') AS {ONE};
            CREATE QUERY o TO files(path => '{tmp_path / "good"}') AS {TOLD};
            """)
        feed(headwater, data, 2)
        headwater.execute("END STREAM bids")
        settle(headwater)
        failure = read_delivery(headwater.catalog, headwater.query("q").row).failure
        assert "bad" in failure["error"]
        assert "cannot be written" in failure["error"]
        assert [e.kind for e in headwater.catalog.events()].count("sink failed") == 1
        assert found_in(tmp_path / "good", other) == expected(other, {"Bids": data}, {})
        assert result_rows(headwater, "q", one) == expected(one, {"Bids": data}, {})
        (tmp_path / "bad").unlink()
        tick_until(headwater, lambda: not pending_deliveries(headwater.catalog))
        assert found_in(tmp_path / "bad", one) == expected(one, {"Bids": data}, {})
        assert not read_delivery(headwater.catalog, headwater.query("q").row).failure


def test_a_sink_that_goes_on_failing_ends_the_wait_until_idle(spark: Any, tmp_path: Path) -> None:
    """After as many failures as `retries` allows; another run tries it again, once at least."""
    one = parse_query(ONE, SOURCES)
    (tmp_path / "bad").write_text("no folder")
    with opened(tmp_path / "state", spark) as headwater:
        headwater.engine.sinks.backoff = 0.01
        declare(headwater)
        headwater.execute(f"""
            SET retries = 2;
            CREATE QUERY q TO files(path => '{tmp_path / "bad"}') AS {ONE};
            """)
        headwater.push("bids", sample(4), timestamp_unit="us")

        def failures() -> int:
            """Failures in a row, after a run until idle."""
            rounds = itertools.count()
            headwater.engine.run(
                until_idle=True, interval=0.02, stopping=lambda: next(rounds) > 1_000
            )
            assert next(rounds) < 1_000, "it ended by itself"
            failure = read_delivery(headwater.catalog, headwater.query("q").row).failure
            return int(failure.get("retries", 0))

        assert failures() == 3
        assert failures() == 4
        assert pending_deliveries(headwater.catalog)
        (tmp_path / "bad").unlink()
        assert failures() == 0
        assert not pending_deliveries(headwater.catalog)
        headwater.execute("END STREAM bids")
        assert failures() == 0
        assert found_in(tmp_path / "bad", one) == expected(one, {"Bids": sample(4)}, {})


def test_pausing_and_dropping(spark: Any, tmp_path: Path) -> None:
    """A paused query sends nothing and loses nothing; a new one of the same name sends everything again."""
    data = sample(6)
    query = parse_query(ONE, SOURCES)
    asked = f"CREATE QUERY q STARTING AT EARLIEST TO files(path => '{tmp_path / '{}'}') AS {ONE}"
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater)
        headwater.execute(asked.format("a"))
        headwater.execute(f"CREATE QUERY keeps_the_unit AS {ONE}")
        headwater.execute("PAUSE QUERY q")
        feed(headwater, data, 2)
        assert not (tmp_path / "a").exists()
        headwater.execute("RESUME QUERY q")
        settle(headwater)
        assert found_in(tmp_path / "a", query) == expected(query, {"Bids": data}, {})
        headwater.execute("DROP QUERY q")
        headwater.execute(asked.format("b"))
        settle(headwater)
        assert found_in(tmp_path / "b", query) == expected(query, {"Bids": data}, {})
