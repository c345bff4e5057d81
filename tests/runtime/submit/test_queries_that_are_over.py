"""Which queries may still have rows: the others count neither for plans nor for those that come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from joining_worlds import OTHER, World, form, join

from headwater.runtime.catalog import (
    QueryRow,
    StreamRow,
)
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.lifecycle import (
    equal_running_queries,
    input_streams,
    is_final,
    plannable_queries,
)


def stream_row(**changed: Any) -> StreamRow:
    known: dict[str, Any] = {
        "name": "bids",
        "spelled": "Bids",
        "definition": "",
        "lateness": 0,
        "keep": 10,
        "ended": False,
        "max_event_time": None,
        "malformed": 0,
        "late": 0,
        "created_at": 0.0,
        "reopens": False,
        "closed_until": None,
        "source": None,
        "next_seq": 1,
    }
    return StreamRow(**known | changed)


def query_row(name: str = "q", **changed: Any) -> QueryRow:
    known: dict[str, Any] = {
        "name": name,
        "spelled": name,
        "definition": "",
        "digest": "d",
        "unit_id": "u",
        "state": "finished",
        "start_at": 0,
        "end_at": 20,
        "columns": [],
        "sink": None,
        "error": "",
        "accepted_at": 0.0,
        "lifetime": 20,
        "result_key": "d",
    }
    return QueryRow(**known | changed)


@pytest.mark.parametrize(
    ("stream", "query", "expected"),
    [
        # A tuple of the end itself counts, so the watermark has to be beyond it ..
        ({"max_event_time": 21}, {}, True),
        ({"max_event_time": 20}, {}, False),
        # .. and a tuple has to be there: where a stream was reopened the watermark is further.
        ({"max_event_time": 20, "closed_until": 20}, {}, True),
        ({"max_event_time": 19, "closed_until": 20}, {}, False),
        ({"closed_until": 20}, {}, False),
        ({}, {}, False),
        # Only more input undoes the end of one that has no lifetime, and then it does.
        ({"max_event_time": 21}, {"end_at": None}, False),
        ({"ended": True, "max_event_time": 5}, {"end_at": None}, True),
        ({"ended": True, "max_event_time": 5}, {}, True),
        ({"ended": True, "reopens": True, "max_event_time": 5}, {}, False),
        ({"ended": True, "reopens": True, "max_event_time": 21}, {}, True),
        ({"ended": True, "reopens": True, "max_event_time": 21}, {"end_at": None}, False),
        # One that is not finished has rows to come, whatever its streams say.
        ({"ended": True, "max_event_time": 21}, {"state": "running"}, False),
        ({"ended": True, "max_event_time": 21}, {"state": "paused"}, False),
        ({"ended": True, "max_event_time": 21}, {"state": "parked"}, False),
    ],
)
def test_a_query_is_over_when_nothing_can_bring_it_a_row(
    stream: Mapping[str, Any], query: Mapping[str, Any], expected: bool
) -> None:
    assert is_final(query_row(**query), [stream_row(**stream)]) is expected


def test_one_stream_that_may_be_reopened_is_enough_to_go_on() -> None:
    over = stream_row(ended=True, max_event_time=5)
    open_again = replace(over, name="asks", reopens=True)
    endless = query_row(end_at=None)
    assert is_final(endless, [over, over])
    assert not is_final(endless, [over, open_again])
    assert not is_final(endless, [over, stream_row(max_event_time=50)])
    # The stream that is furthest has passed the end: rows of a join need them all.
    assert is_final(query_row(), [stream_row(max_event_time=50), stream_row(max_event_time=1)])


def test_a_plan_is_made_for_queries_that_may_still_have_rows() -> None:
    streams = [stream_row(max_event_time=21)]
    over, lasting, running = (
        query_row("over"),
        query_row("lasting", end_at=None),
        query_row("running", state="running"),
    )
    assert plannable_queries([over, lasting, running], streams) == (lasting, running)
    assert plannable_queries([running], streams) == (running,)
    assert plannable_queries([over], streams) == (over,), "a plan of nothing cannot be made"
    assert plannable_queries([over, over], streams) == (over, over)
    assert plannable_queries([], streams) == ()


def test_the_operator_of_a_unit_is_that_of_queries_that_may_still_have_rows(world: World) -> None:
    """Otherwise a new query would be compared with what the unit does not do any more."""
    unit = world.ask("wide", join(10), 30, lifetime=5)
    assert world.ask("narrow", join(3, OTHER), 30) == unit
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    world.finish("wide")
    row = UnitPlanner(world.definitions).ensure_definition(world.catalog, world.unit(unit))
    assert "3 SECONDS" in row.definition and "10 SECONDS" not in row.definition
    streams = input_streams(world.catalog, row)
    assert [q.name for q in plannable_queries(world.catalog.subscribers(unit), streams)] == [
        "narrow"
    ]


def test_equals_that_still_write_rows(world: World) -> None:
    digest = form(join(10)).digest
    unit = world.unit(world.ask("short", join(10), 30, lifetime=5))
    assert world.ask("long", join(10), 30, lifetime=50) == unit.id
    assert world.ask("other", join(10, OTHER), 30) == unit.id

    def names() -> list[str]:
        return sorted(query.name for query in equal_running_queries(world.catalog, unit, digest))

    assert names() == ["long", "short"]
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    assert names() == ["long", "short"], "nothing is over before its unit has said so"
    world.finish("short")
    assert names() == ["long"]
    world.execute("PAUSE QUERY long")
    assert names() == ["long"], "it goes on where it was"
