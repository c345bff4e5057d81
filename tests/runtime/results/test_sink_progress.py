"""How far a sink has come is a matter of the catalog, in every database it can live in."""

from __future__ import annotations

import pytest
from catalog_helpers import Clock, segment

from headwater.runtime.catalog import Catalog, NewQuery, NewUnit, QueryRow, unit_log
from headwater.runtime.results.sink_progress import (
    has_deliveries_to_await,
    pending_deliveries,
    read_delivery,
)

LOG = unit_log("u")
SINK = {"kind": "files", "options": {"path": "out"}}


@pytest.fixture
def answered(catalog: Catalog) -> Catalog:
    """A query with a sink and one without in a unit whose log has two segments."""
    accept(catalog, "q", NewUnit("d", "SELECT", (), id="u"))
    catalog.accept_query(NewQuery("plain", "SELECT 1", "d"), "u")
    catalog.commit(None, segments=[segment(of=LOG), segment(of=LOG)])
    return catalog


def accept(catalog: Catalog, name: str, unit: NewUnit | str) -> QueryRow:
    return catalog.accept_query(NewQuery(name, "SELECT 1", "d", sink=SINK), unit)


def waiting(catalog: Catalog) -> list[tuple[str, int]]:
    return [(one.query.name, one.seq) for one in pending_deliveries(catalog)]


def test_a_sink_is_behind_until_it_has_all(answered: Catalog) -> None:
    for seq, left in ((1, [("q", 1)]), (2, [])):
        (sent,) = pending_deliveries(answered)
        answered.commit(None, cursors=sent.cursors_after_sending(seq))
        assert waiting(answered) == left


def test_a_paused_query_waits_with_its_sink(answered: Catalog) -> None:
    answered.set_query_state("q", "paused")
    assert waiting(answered) == []
    answered.set_query_state("q", "running")
    assert waiting(answered) == [("q", 0)]


def test_a_failure_is_kept_until_a_delivery(answered: Catalog) -> None:
    (sent,) = pending_deliveries(answered)
    answered.commit(None, cursors=sent.cursors_after_failure("no room", 1, 1_000.0, 1_001.0))
    (failed,) = pending_deliveries(answered)
    assert (failed.failure["error"], failed.failure["retries"]) == ("no room", 1)
    assert (failed.failure["failed_at"], failed.failure["not_before"]) == (1_000.0, 1_001.0)
    answered.commit(None, cursors=failed.cursors_after_sending(2))
    assert not read_delivery(answered, failed.query).failure


def test_a_sink_is_waited_for_until_it_failed_too_often_in_a_run(answered: Catalog) -> None:
    (sent,) = pending_deliveries(answered)
    for failures, awaited in ((0, True), (2, True), (3, False)):
        if failures:
            answered.commit(
                None, cursors=sent.cursors_after_failure("no room", failures, 50.0, 60.0)
            )
        assert has_deliveries_to_await(answered, retries=2, since=50.0) == awaited
    assert has_deliveries_to_await(answered, retries=2, since=50.1), "another run"
    assert has_deliveries_to_await(answered, retries=3, since=50.0)
    answered.commit(None, cursors=sent.cursors_after_sending(2))
    assert not has_deliveries_to_await(answered, retries=2, since=0.0)


def test_a_new_query_with_the_name_of_a_dropped_one_starts_from_nothing(
    answered: Catalog, clock: Clock
) -> None:
    (sent,) = pending_deliveries(answered)
    answered.drop_query("q")
    answered.commit(None, cursors=sent.cursors_after_sending(2))
    clock.now += 1
    accept(answered, "q", "u")
    assert waiting(answered) == [("q", 0)]
