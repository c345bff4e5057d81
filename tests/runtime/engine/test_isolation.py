"""A query that fails at run time is set apart: its neighbours go on from where they were, and it does
too when the cause is gone, all of them with exactly the rows they would have alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import (
    Stop,
    as_csv_keeps,
    declare,
    expected,
    opened,
    settle,
    stop_at,
    submit,
    told,
)
from hypothesis import given
from hypothesis import strategies as st
from sample_queries import sample
from test_shared_units import TABLES

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from headwater.runtime.engine.isolation import bisect_culprits
from headwater.runtime.settings import Settings
from headwater.runtime.spark import sql
from overlapping import random_group, random_join, random_nested
from strategies import SOURCES

# ---- who is to blame

NAMES = st.integers(1, 40).map(lambda size: [f"q{n}" for n in range(size)])


@given(NAMES, st.data())
def test_those_that_fail_by_themselves_are_found(names: list[str], data: st.DataObject) -> None:
    bad = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5)))
    trials: list[Sequence[str]] = []

    def fails(some: Sequence[str]) -> str | None:
        trials.append(some)
        return "poison" if bad & set(some) else None

    assert bisect_culprits(names, fails, max_trials=1_000) == dict.fromkeys(bad, "poison")
    if len(bad) == 1:
        assert len(trials) <= 2 * len(names).bit_length() + 1


@given(NAMES, st.data())
def test_after_many_trials_more_are_blamed_never_fewer(
    names: list[str], data: st.DataObject
) -> None:
    bad = set(data.draw(st.lists(st.sampled_from(names), min_size=1)))
    most = data.draw(st.integers(1, 10))
    trials: list[Sequence[str]] = []

    def fails(some: Sequence[str]) -> str | None:
        trials.append(some)
        return "poison" if bad & set(some) else None

    assert bad <= set(bisect_culprits(names, fails, most))
    assert len(trials) <= most + 2


@given(NAMES.filter(lambda names: len(names) > 1), st.data())
def test_none_is_to_blame_for_what_fails_only_together(
    names: list[str], data: st.DataObject
) -> None:
    pair = set(data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)))
    found = bisect_culprits(
        names, lambda some: "both" if pair <= set(some) else None, max_trials=1_000
    )
    assert found == {}


# ---- on Spark

POISON = {
    random_join: "SELECT b.item AS i, reverse(b.note) AS r FROM Bids [RANGE 2 SEC] b, "
    "Asks [RANGE 4 SEC] a WHERE b.item = a.item",
    random_nested: "SELECT b.item AS i, reverse(b.note) AS r FROM Bids [RANGE 4 SEC] b, "
    "Asks [RANGE 9 SEC] a WHERE b.item = a.item",
    random_group: "SELECT b.item AS i, COUNT(*) AS n FROM Bids [RANGE 4 SEC SLIDE 2 SEC] b "
    "WHERE reverse(b.note) <> 'zz' GROUP BY b.item",
}


class Poison:
    """While it works, `reverse` fails for the text b."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.works = False
        monkeypatch.setitem(sql._SPECIAL, "reverse", lambda _, args: self._sql(args[0]))

    def _sql(self, arg: str) -> str:
        if not self.works:
            return f"reverse({arg})"
        return f"IF({arg} = 'b', CAST(raise_error('poisoned') AS STRING), reverse({arg}))"


@pytest.mark.spark
@pytest.mark.parametrize("query", POISON)
@pytest.mark.parametrize("seed", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_neighbours_go_on_and_the_culprit_waits(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    query: Callable[[random.Random], Query],
    seed: int,
) -> None:
    rng = random.Random(seed)
    queries = {f"q{n}": query(rng) for n in range(7)}
    queries |= {
        "bad": parse_query(POISON[query], SOURCES),
        "twin": parse_query(POISON[query], SOURCES),
    }
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    poison = Poison(monkeypatch)
    limits = Settings(backoff=0.01, retries=2)
    with opened(tmp_path / "state", spark, settings=limits) as headwater:
        declare(headwater, tmp_path / "items", tables)
        for name, asked in queries.items():
            submit(headwater, name, asked)
        neighbours = headwater.catalog.subscribers(headwater.query("bad").row.unit_id)
        assert {one.name for one in neighbours} > {"bad", "twin"}
        assert any(one.is_hidden for one in neighbours) == (query is random_nested)

        def push(part: int) -> None:
            for name, rows in streams.items():
                size = len(rows) // 4
                headwater.push(name, rows[part * size : (part + 1) * size], timestamp_unit="us")
            headwater.run(until_idle=True, interval=0.01)

        push(0)
        poison.works = True
        headwater.engine.at_point = stop_at("unit: moved", 1)
        with pytest.raises(Stop):
            push(1)
    with opened(tmp_path / "state", spark, settings=limits) as headwater:  # killed, and run again
        headwater.run(until_idle=True, interval=0.01)
        rows = {name: headwater.query(name).row for name in queries}
        assert {n for n, row in rows.items() if row.state == "parked"} == {"bad", "twin"}
        assert "poisoned" in rows["bad"].error and rows["bad"].unit_id == rows["twin"].unit_id
        push(2)
        headwater.engine.tidy()
        poison.works = False
        headwater.execute("RESUME QUERY bad")
        push(3)
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name, asked in queries.items():
            assert told(headwater, name, asked) == expected(asked, streams, tables), name
            assert headwater.query(name).row.state == "finished"
