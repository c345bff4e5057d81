"""The records that `show` and `status` print, asked of the package itself: numbers add up, a name narrows a
list to what has it, and their JSON is read back as it was written."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.runtime.api import Headwater, open_state
from headwater.runtime.inspect.listing import LISTS, UnknownObject, list_views
from headwater.runtime.inspect.summary import summarize

STREAMS = ("Flights", "baggage", "gates")
QUERIES = {"all_of": STREAMS[0], "Late_ones": STREAMS[0], "bags": STREAMS[1]}
NAMED = {"streams": "stream", "queries": "query", "units": "unit"}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as headwater:
        for name in STREAMS:
            headwater.execute(
                f"CREATE STREAM {name} (num INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
            )
        for name, stream in QUERIES.items():
            headwater.execute(f"CREATE QUERY {name} AS SELECT num FROM {stream} WHERE num > 1")
        yield headwater


def test_a_summary_counts_what_the_lists_have(state: Headwater) -> None:
    rng = random.Random(1)
    pushed: Counter[str] = Counter()
    for second in range(20):
        name = rng.choice(STREAMS)
        rows = [(n, f"2026-03-01T08:00:{second:02}Z") for n in range(rng.randint(1, 4))]
        pushed[name] += state.push(name, rows)
    state.catalog.set_query_state("bags", "paused")
    found = summarize(state.catalog, "here")
    lists = {kind: [v.as_json() for v in list_views(state.catalog, kind)] for kind in NAMED}
    assert found.rows_in == sum(pushed.values()) == sum(v["rows"] for v in lists["streams"])
    assert {v["stream"]: v["rows"] for v in lists["streams"]} == {n: pushed[n] for n in STREAMS}
    assert found.queries == Counter(v["state"] for v in lists["queries"])
    assert (found.queries["paused"], found.queries["running"]) == (1, 2)
    assert sum(found.units.values()) == len(lists["units"])
    # A unit reads each stream once, however many queries it serves.
    reads = Counter(name for v in lists["units"] for name in v["inputs"])
    assert found.backlog == sum(times * pushed[spelled(name)] for name, times in reads.items())


def spelled(log: str) -> str:
    """A stream as it was declared, of the log that a unit reads."""
    return next(name for name in STREAMS if log in (name, name.lower(), f"stream:{name.lower()}"))


@pytest.mark.parametrize(("kind", "key"), NAMED.items())
def test_a_name_narrows_a_list_however_it_is_written(state: Headwater, kind: str, key: str) -> None:
    rows = [view.as_json() for view in list_views(state.catalog, kind)]
    assert len(rows) > 1
    for row in rows:
        for name in (row[key], row[key].upper()):
            assert [v.as_json() for v in list_views(state.catalog, kind, name)] == [row]


@pytest.mark.parametrize("kind", LISTS)
def test_an_unknown_name_is_refused(state: Headwater, kind: str) -> None:
    with pytest.raises(UnknownObject, match=r"there is no .* nowhere"):
        list_views(state.catalog, kind, "nowhere")


@pytest.mark.parametrize("kind", LISTS)
def test_json_is_read_back_as_it_was_written(state: Headwater, kind: str) -> None:
    state.push(STREAMS[0], [(1, "2026-03-01T08:00:00Z")])
    for view in (*list_views(state.catalog, kind), summarize(state.catalog, "here")):
        record = view.as_json()
        assert json.loads(json.dumps(record)) == record
