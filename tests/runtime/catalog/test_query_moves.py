"""A query that moves to a unit of its own takes along all that its unit knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import CatalogError, CommitConflict, LeaseLost
from headwater.runtime.catalog import (
    ORIGIN_KEY,
    Catalog,
    Lease,
    NewQuery,
    NewSegment,
    NewUnit,
    UnitRow,
    panes_log,
    partial_join_name,
    stream_log,
    subscribers_log,
    unit_log,
)

OLD, NEW = "u", "v"


def unit_of(catalog: Catalog, unit_id: str) -> UnitRow:
    found = catalog.unit(unit_id)
    assert found is not None
    return found


@pytest.fixture
def shared(stream: Catalog, tmp_path: Path) -> tuple[Catalog, Lease]:
    """A unit of two queries, one of which has a sink, that has written and read something; and its
    lease."""
    catalog = stream
    unit = NewUnit("d", "SELECT", (stream_log("s"),), id=OLD)
    catalog.accept_query(NewQuery("good", "", "d"), unit, {(OLD, "start"): 7})
    catalog.accept_query(NewQuery("bad", "", "e", sink={"kind": "files"}), OLD)
    lease = catalog.acquire(unit_log(OLD), "me", 60)
    assert lease is not None
    for seq in (1, 2):
        catalog.commit(
            lease,
            segments=[
                NewSegment(unit_log(OLD), f"{tmp_path}/r{seq}", 1, 1, 5, 6, keys={"members": 1}),
                NewSegment(panes_log(OLD), f"{tmp_path}/p{seq}", 1, 1, keys={"scan": None}),
                NewSegment(subscribers_log(OLD), f"{tmp_path}/m{seq}", 1, 1),
            ],
            cursors={(OLD, stream_log("s")): {"seq": seq}, ("sink:bad", unit_log(OLD)): {"seq": 1}},
        )
    return catalog, lease


def moved(catalog: Catalog, lease: Lease, *names: str) -> UnitRow:
    old = unit_of(catalog, OLD)
    new = NewUnit(old.digest, old.definition, old.inputs, old.version + 1, NEW)
    paths = copies(catalog)
    catalog.move_queries(lease, old, new, names, paths)
    return unit_of(catalog, NEW)


def copies(catalog: Catalog) -> dict[int, str]:
    """Files for the segments of the unit to which queries are moved."""
    paths = {s.id: f"{s.path}.{NEW}" for s in catalog.segments_of_unit(OLD)}
    for path in paths.values():
        Path(path).touch()
    return paths


def test_a_moved_query_has_all_of_its_unit(shared: tuple[Catalog, Lease]) -> None:
    catalog, lease = shared
    before = unit_of(catalog, OLD)
    new = moved(catalog, lease, "bad")
    assert replace(new, id=OLD, created_at=before.created_at) == replace(
        before, version=new.version
    )
    assert catalog.cursors(NEW) == catalog.cursors(OLD)
    for log in (unit_log, panes_log, subscribers_log):
        ours, theirs = catalog.segments(log(NEW)), catalog.segments(log(OLD))
        assert [s.seq for s in ours] == [s.seq for s in theirs] == [1, 2]
        assert [s.path for s in ours] == [f"{s.path}.{NEW}" for s in theirs]
        assert catalog.log_ends()[log(NEW)] == catalog.log_ends()[log(OLD)]
    assert catalog.segments(unit_log(NEW))[0].keys == {"members": 1, ORIGIN_KEY: OLD}
    assert catalog.segments(panes_log(NEW))[0].keys == {"scan": None}
    assert [q.name for q in catalog.subscribers(NEW)] == ["bad"]
    assert [q.name for q in catalog.subscribers(OLD)] == ["good"]
    assert catalog.cursors("sink:bad") == {unit_log(NEW): {"seq": 1}}
    assert unit_of(catalog, OLD).version > before.version


def test_a_part_moves_with_the_unit_that_reads_it(shared: tuple[Catalog, Lease]) -> None:
    """A unit that has another one join something reads the unit to which that was moved."""
    catalog, lease = shared
    reader = NewUnit("f", "", (unit_log(OLD),), id="reader")
    catalog.accept_query(NewQuery(partial_join_name("reader"), "", "g"), OLD)
    catalog.accept_query(NewQuery("q", "", "f"), reader, {("reader", unit_log(OLD)): {"seq": 2}})
    version = unit_of(catalog, "reader").version
    moved(catalog, lease, partial_join_name("reader"))
    found = unit_of(catalog, "reader")
    assert found.inputs == (unit_log(NEW),) and found.version > version
    assert catalog.cursors("reader") == {unit_log(NEW): {"seq": 2}}
    catalog.park_unit(NEW, "broken")
    query = catalog.query("q")
    assert query is not None and query.state == "parked" and "broken" in query.error


def test_a_unit_that_reads_another_is_copied_with_its_part(shared: tuple[Catalog, Lease]) -> None:
    catalog, _ = shared
    reader = NewUnit("f", "", (unit_log(OLD),), id="reader")
    catalog.accept_query(NewQuery(partial_join_name("reader"), "", "g"), OLD)
    catalog.accept_query(NewQuery("q", "", "f"), reader)
    catalog.accept_query(NewQuery("r", "", "h"), "reader")
    known = unit_of(catalog, "reader")
    new = NewUnit(known.digest, "", known.inputs, known.version + 1, NEW)
    catalog.move_queries(None, known, new, ["r"], {})
    names = {query.name for query in catalog.subscribers(OLD)}
    assert {partial_join_name("reader"), partial_join_name(NEW)} <= names
    catalog.drop_query("r")
    assert unit_of(catalog, NEW).state == "dropped"
    names = {query.name for query in catalog.subscribers(OLD)}
    assert partial_join_name("reader") in names and partial_join_name(NEW) not in names


def test_messages_name_no_query_that_a_unit_submitted(shared: tuple[Catalog, Lease]) -> None:
    """Users cannot drop a hidden query: what it serves is named instead."""
    catalog, _ = shared
    (stream,) = (row.name for row in catalog.streams())
    reader = NewUnit("f", "", (unit_log(OLD),), id="reader")
    catalog.accept_query(NewQuery(partial_join_name("reader"), "", "g"), OLD)
    catalog.accept_query(NewQuery("Q", "", "f"), reader)
    with pytest.raises(CatalogError, match=f"{stream} is read by Q, bad, good: drop"):
        catalog.drop_stream(stream)
    with pytest.raises(CatalogError, match=r"no query x; there is: Q, bad, good$"):
        catalog.drop_query("x")
    catalog.drop_query("bad")
    catalog.drop_query("good")
    with pytest.raises(CatalogError, match=f"{stream} is read by Q: drop"):
        catalog.drop_stream(stream)


def test_nothing_moves_if_something_came_first(shared: tuple[Catalog, Lease]) -> None:
    catalog, lease = shared
    old = unit_of(catalog, OLD)
    new = NewUnit(old.digest, old.definition, old.inputs, old.version + 1, NEW)
    with pytest.raises(CommitConflict, match="segments"):
        catalog.move_queries(lease, old, new, ["bad"], {})
    paths = copies(catalog)
    with pytest.raises(CommitConflict, match="queries"):
        catalog.move_queries(lease, replace(old, version=old.version + 1), new, ["bad"], paths)
    with pytest.raises(CommitConflict, match="no longer"):
        catalog.move_queries(lease, old, new, ["gone"], paths)
    with pytest.raises(LeaseLost):
        catalog.move_queries(replace(lease, token=99), old, new, ["bad"], paths)
    Path(min(paths.values())).unlink()
    with pytest.raises(CatalogError, match="removed before it could be registered"):
        catalog.move_queries(lease, old, new, ["bad"], paths)
    assert catalog.unit(NEW) is None and len(catalog.subscribers(OLD)) == 2


def test_a_unit_is_parked_with_its_queries(shared: tuple[Catalog, Lease]) -> None:
    catalog, _ = shared
    catalog.set_query_state("good", "paused")
    catalog.park_unit(OLD, "broken", 3)
    assert (unit_of(catalog, OLD).state, unit_of(catalog, OLD).retries) == ("parked", 3)
    states = {q.name: (q.state, q.error) for q in catalog.subscribers(OLD)}
    assert states == {"good": ("paused", ""), "bad": ("parked", "broken")}
