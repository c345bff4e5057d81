"""The helpers for users' tests; those of the engine need Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.errors import EvaluationError, InputError
from headwater.runtime.catalog import stream_log
from headwater.runtime.results.reader import ResultRow
from headwater.testing import (
    END,
    PAUSE,
    ManualClock,
    ScriptedStream,
    check_results,
    expected_results,
    temporary_state,
)
from headwater.testing.expected import row_differences

EIGHT = datetime(2026, 3, 1, 8, tzinfo=UTC)
TEXT = """
CREATE STREAM sales (item STRING, price DECIMAL(6,2), day DATE, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY dear AS SELECT item, price, day FROM sales [NOW] WHERE price > 100;
CREATE QUERY counts AS SELECT COUNT(*) AS n FROM sales [RANGE 1 HOUR SLIDE 1 HOUR];
"""


def sale(item: str, price: str, minutes: int) -> dict[str, object]:
    at = EIGHT + timedelta(minutes=minutes)
    return {"item": item, "price": price, "day": at.date(), "ts": at}


SCRIPT = (sale("lamp", "129.90", 0), sale("pen", "1.20", 1), PAUSE, sale("desk", "340", 90), END)


def test_a_clock_moves_when_it_is_set() -> None:
    clock = ManualClock(EIGHT)
    assert clock() == clock() == EIGHT.timestamp()
    clock.advance(timedelta(hours=1))
    clock.advance(0.5)
    assert clock() == EIGHT.timestamp() + 3600.5
    clock.set(7)
    assert clock() == clock.now == 7
    with pytest.raises(ValueError, match="has no time zone"):
        clock.set(datetime(2026, 3, 1))


def test_a_state_removes_itself() -> None:
    with temporary_state() as hw:
        hw.execute(TEXT)
        folder = hw.state
        assert folder.is_dir()
    assert not folder.exists() and not folder.parent.exists()
    with pytest.raises(KeyError), temporary_state() as hw:
        folder = hw.state
        raise KeyError
    assert not folder.exists()


def test_a_stream_pauses_and_ends() -> None:
    clock = ManualClock(EIGHT)
    with temporary_state(clock=clock) as hw:
        hw.execute(TEXT)
        sales = ScriptedStream(hw, "sales", SCRIPT)
        assert sales.play() == 2 and not sales.is_done
        assert [row["item"] for row in expected_results(hw, "dear")] == ["lamp"]
        clock.advance(timedelta(hours=1))
        assert sales.play() == 1 and sales.is_done
        stream = hw.catalog.stream("sales")
        assert stream is not None and stream.ended
        with pytest.raises(InputError, match="has ended"):
            hw.push("sales", [sale("late", "1", 91)])
        assert sales.play() == 0


def test_the_clock_bounds_event_times() -> None:
    """A stream from clients rejects what is more than an hour ahead, by the clock of the test."""
    with temporary_state(clock=ManualClock(EIGHT)) as hw:
        hw.execute(TEXT)
        assert ScriptedStream(hw, "sales", SCRIPT).play_all() == 2
        (reject,) = hw.show("rejects")
        assert "ahead of the clock, 2026-03-01T08:00:00" in reject.as_json()["reason"]


def test_expected_results_are_as_results() -> None:
    with temporary_state(clock=ManualClock(EIGHT + timedelta(hours=2))) as hw:
        hw.execute(TEXT)
        ScriptedStream(hw, "sales", SCRIPT).play_all()
        lamp, desk = expected_results(hw, "dear")
        assert lamp == {
            "item": "lamp",
            "price": lamp["price"],
            "day": EIGHT.date(),
            "_tau": EIGHT,
        }
        assert (str(lamp["price"]), desk["_tau"]) == ("129.90", EIGHT + timedelta(minutes=90))
        assert [row["n"] for row in expected_results(hw, "counts")][:1] == [1]


def test_rows_that_differ_are_shown() -> None:
    with temporary_state(clock=ManualClock(EIGHT)) as hw:
        hw.execute(TEXT)
        check_results(hw, "dear")
        ScriptedStream(hw, "sales", SCRIPT).play()
        with pytest.raises(AssertionError) as raised:
            check_results(hw, "dear")
        text = str(raised.value)
        assert text.startswith(
            "query dear emitted 0 rows, 1 were expected\nmissing:\n  {'item': 'lamp'"
        )
        assert "unexpected" not in text


def test_a_stream_that_lost_its_oldest_tuples_is_refused() -> None:
    """Rows that the deleted tuples caused would be reported as unexpected."""
    with temporary_state() as hw:
        hw.execute(
            "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            "CREATE QUERY q AS SELECT a FROM s [NOW];"
        )
        hw.push("s", [(1, "2026-03-01T08:00:00Z")])
        hw.push("s", [(2, "2026-03-01T12:00:00Z")])
        assert [row["a"] for row in expected_results(hw, "q")] == [1, 2]
        hw.catalog.remove_segments([hw.catalog.segments(stream_log("s"))[0].id])
        with pytest.raises(EvaluationError, match="the oldest tuples of s were deleted"):
            expected_results(hw, "q")
        hw.catalog.remove_segments([hw.catalog.segments(stream_log("s"))[0].id])
        with pytest.raises(EvaluationError, match="the oldest tuples of s were deleted"):
            expected_results(hw, "q")


def test_a_stream_that_was_rewound_has_lost_nothing() -> None:
    """What is left of a segment is another one, with another number."""
    with temporary_state() as hw:
        hw.execute(
            "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            "CREATE QUERY q AS SELECT a FROM s [NOW];"
        )
        hw.push("s", [(1, "2026-03-01T08:00:00Z"), (2, "2026-03-01T12:00:00Z")])
        hw.execute("REWIND STREAM s TO TIMESTAMP '2026-03-01 09:00:00'")
        assert hw.catalog.segments(stream_log("s"))[0].first_seq > 1
        assert [row["a"] for row in expected_results(hw, "q")] == [1]
        hw.execute("REWIND STREAM s TO TIMESTAMP '2026-03-01 07:00:00'")
        assert expected_results(hw, "q") == []


def test_only_the_rows_of_a_query_count_after_its_start() -> None:
    with temporary_state(clock=ManualClock(EIGHT)) as hw:
        hw.execute(TEXT)
        sales = ScriptedStream(hw, "sales", SCRIPT)
        sales.play()
        hw.execute("CREATE QUERY later AS SELECT item FROM sales [NOW] WHERE price > 1")
        assert expected_results(hw, "later") == []


@pytest.mark.spark
def test_the_engine_emits_what_is_expected(spark: Any) -> None:
    clock = ManualClock(EIGHT)
    with temporary_state(spark=spark, clock=clock) as hw:
        hw.execute(TEXT)
        sales = ScriptedStream(hw, "sales", SCRIPT)
        sales.play()
        hw.run(until_idle=True, interval=0.01)
        check_results(hw, "dear")
        clock.advance(timedelta(hours=1))
        sales.play()
        hw.run(until_idle=True, interval=0.01)
        for query in ("dear", "counts"):
            check_results(hw, query)
            assert expected_results(hw, query)


def test_the_package_is_typed() -> None:
    assert (Path(headwater.__file__).parent / "py.typed").is_file()


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.randoms())
def test_sums_in_another_order_are_the_same_results(values: list[float], rng: Random) -> None:
    mixed = rng.sample(values, len(values))
    first: list[ResultRow] = [{"item": "lamp", "total": sum(values)}, {"item": "pen", "total": 1.5}]
    other: list[ResultRow] = [{"item": "pen", "total": 1.5}, {"item": "lamp", "total": sum(mixed)}]
    assert row_differences(first, other) == ([], [])


NAN = float("nan")


@pytest.mark.parametrize(
    "expected, emitted, missing, unexpected",
    [
        ([{"x": 1.0}], [{"x": 1.001}], [{"x": 1.0}], [{"x": 1.001}]),
        ([{"x": 1.0}], [{"x": 1}], [{"x": 1.0}], [{"x": 1}]),
        ([{"x": 1.0}], [{"x": None}], [{"x": 1.0}], [{"x": None}]),
        ([{"x": 1.0}], [{"x": 1.0}] * 2, [], [{"x": 1.0}]),
        ([{"x": 0.1 + 0.2}] * 2, [{"x": 0.3}], [{"x": 0.1 + 0.2}], []),
        ([{"k": "a", "x": 1.0}], [{"k": "b", "x": 1.0}], [{"k": "a", "x": 1.0}], [{"k": "b", "x": 1.0}]),
        ([{"x": NAN}], [{"x": NAN}], [], []),
        ([{"x": NAN}], [{"x": 1.0}], [{"x": NAN}], [{"x": 1.0}]),
    ],
)  # fmt: skip
def test_rows_that_differ_are_found(
    expected: list[ResultRow],
    emitted: list[ResultRow],
    missing: list[ResultRow],
    unexpected: list[ResultRow],
) -> None:
    assert repr(row_differences(expected, emitted)) == repr((missing, unexpected))
