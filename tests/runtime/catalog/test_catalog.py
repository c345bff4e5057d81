"""Every method of the catalog, yes and no, on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import pytest
from catalog_helpers import Clock, S, accept, segment

from headwater.errors import CatalogError, CommitConflict, LeaseLost
from headwater.runtime.catalog import (
    MAX_LEASE_SECONDS,
    BatchRejects,
    Catalog,
    EventRow,
    Lease,
    LogEnd,
    NewQuery,
    NewUnit,
    QueryRow,
    RejectRow,
    Segment,
    SiteRow,
    Statistic,
    TableRow,
    UnitRow,
    journal,
    schema,
    table_input,
    unit_log,
)


class TestSources:
    def test_a_stream_is_known_by_any_case_and_keeps_its_spelling(self, catalog: Catalog) -> None:
        made = catalog.declare_stream("Flights", "CREATE STREAM ...", lateness=5, keep=60)
        assert catalog.stream("fLIGHTS") == made == catalog.streams()[0]
        assert (made.name, made.spelled, made.lateness, made.keep) == ("flights", "Flights", 5, 60)
        assert (made.ended, made.watermark, made.next_seq, made.created_at) == (
            False,
            None,
            1,
            1_000,
        )
        assert catalog.stream("weather") is None

    def test_a_table_gets_a_new_version_when_its_content_changes(self, catalog: Catalog) -> None:
        made = catalog.declare_table("Airports", "CREATE TABLE ...", fingerprint="a")
        assert made == TableRow("airports", "Airports", "CREATE TABLE ...", 1, "a", 1_000.0)
        assert catalog.refresh_table("AIRPORTS", "a") == 1
        assert catalog.refresh_table("airports", "b") == 2
        assert catalog.table("airports") == replace(made, version=2, fingerprint="b")
        with pytest.raises(CatalogError, match="no table airport; did you mean Airports"):
            catalog.refresh_table("airport", "c")

    def test_a_name_is_one_thing_only(self, catalog: Catalog) -> None:
        catalog.declare_stream("Flights", "")
        catalog.declare_table("airports", "")
        for declare in (catalog.declare_stream, catalog.declare_table):
            with pytest.raises(CatalogError, match="there is a stream Flights already"):
                declare("FLIGHTS", "")
            with pytest.raises(CatalogError, match="there is a table airports already"):
                declare("Airports", "")
        assert len(catalog.streams()) == len(catalog.tables()) == 1

    def test_dropping_a_stream_leaves_nothing_of_it(self, catalog: Catalog) -> None:
        catalog.declare_stream("s", "")
        batch = BatchRejects("s", malformed=1, records=(("bad", "{"),))
        cursors = {("ingest:s", "files"): 7, ("sink:q", S): 1, ("ingest:t", "files"): 3}
        catalog.commit(None, segments=[segment(key="1")], cursors=cursors, rejects=[batch])
        catalog.drop_stream("S")
        assert catalog.streams() == [] and catalog.all_paths() == set()
        assert catalog.cursors("ingest:s") == {} == catalog.cursors("sink:q")
        assert catalog.cursor("ingest:t", "files") == 3
        catalog.declare_stream("s", "")
        assert catalog.rejects("s") == []
        assert catalog.commit(None, segments=[segment(key="1")])[0].seq == 1

    def test_what_is_read_or_unknown_is_not_dropped(self, catalog: Catalog) -> None:
        catalog.declare_stream("s", "")
        catalog.declare_table("t", "")
        accept(catalog, "Gates", "u", S, table_input("t"))
        with pytest.raises(CatalogError, match="s is read by Gates"):
            catalog.drop_stream("s")
        with pytest.raises(CatalogError, match="t is read by Gates"):
            catalog.drop_table("t")
        catalog.drop_query("gates")
        catalog.drop_stream("s")
        catalog.drop_table("t")
        with pytest.raises(CatalogError, match="no stream s; there is none here"):
            catalog.drop_stream("s")
        with pytest.raises(CatalogError, match="no table t; there is none here"):
            catalog.drop_table("t")


class TestSnapshot:
    def test_all_that_is_read_in_it_is_of_one_moment(self, catalog: Catalog) -> None:
        def declare(name: str) -> list[str]:
            catalog.declare_stream(name, "")
            return [row.name for row in catalog.streams()]

        with ThreadPoolExecutor(1) as other:
            with catalog.snapshot():
                assert catalog.declarations() == {}
                assert other.submit(declare, "s").result() == ["s"]
                with catalog.snapshot():
                    assert catalog.streams() == []
                assert catalog.stream("s") is None and catalog.declarations() == {}
            assert catalog.declarations() == {"s": ""}

    def test_one_does_not_write_in_it(self, catalog: Catalog) -> None:
        with pytest.raises(AssertionError, match="a snapshot would not see this"):  # noqa: SIM117
            with catalog.snapshot():
                catalog.declare_stream("s", "")
        catalog.declare_stream("s", "")


class TestQueries:
    def test_accepting_a_query_makes_its_unit_and_sets_cursors(self, catalog: Catalog) -> None:
        catalog.declare_stream("s", "")
        new = NewQuery("Gate_A7", "SELECT g", "d1", [["g", "STRING"]], {"to": "files"}, 5, 9)
        unit = NewUnit("d1", "SELECT canonical", (S,), id="u1")
        row = catalog.accept_query(new, unit, {("u1", S): {"seq": 0}})
        assert (
            row == catalog.query("gate_a7") == catalog.queries()[0] == catalog.subscribers("u1")[0]
        )
        assert (row.spelled, row.state, row.unit_id) == ("Gate_A7", "running", "u1")
        assert (row.columns, row.sink) == ([["g", "STRING"]], {"to": "files"})
        assert (row.start_at, row.end_at, row.accepted_at) == (5, 9, 1_000)
        expected = UnitRow("u1", "d1", unit.definition, (S,), 1, "running", 0, 0.0, "", 1_000.0)
        assert catalog.units() == [expected] and catalog.unit("u1") == expected
        assert catalog.cursor("u1", S) == {"seq": 0}
        assert catalog.log_ends()[unit_log("u1")] == LogEnd(0, None)

    def test_a_query_that_joins_makes_its_unit_run(self, catalog: Catalog) -> None:
        accept(catalog, "q", "u")
        catalog.set_unit_state("u", "parked", error="no disk", retries=3, not_before=9.5)
        accept(catalog, "r", "u")
        found = catalog.unit("u")
        assert found is not None and (found.state, found.version) == ("running", 2)
        assert (found.error, found.retries, found.not_before) == ("", 0, 0.0)

    def test_a_query_joins_the_version_of_a_unit_that_it_has_seen(self, catalog: Catalog) -> None:
        accept(catalog, "q", "u")
        new = NewQuery("r", "SELECT", "d", placement_note={"why": "near"})
        with pytest.raises(CommitConflict, match="unit u has version 1, not 2"):
            catalog.accept_query(new, "u", definition="wider", version=2)
        unit = catalog.unit("u")
        assert unit is not None and (unit.version, unit.definition) == (1, "SELECT")
        assert catalog.query("r") is None and catalog.events() == []
        catalog.accept_query(new, "u", definition="wider", version=1)
        unit = catalog.unit("u")
        assert unit is not None and (unit.version, unit.definition) == (2, "wider")
        assert catalog.events() == [EventRow(1, 1_000, "query placed", "r", {"why": "near"})]

    def test_a_new_unit_is_made_only_if_no_newer_one_is_there(
        self, catalog: Catalog, clock: Clock
    ) -> None:
        accept(catalog, "q", "u")
        clock.now += 1
        for newest, made in ((999.0, False), (1_000.0, True), (1_000.5, False), (None, True)):
            unit = NewUnit("d", "SELECT")
            try:
                catalog.accept_query(NewQuery(unit.id, "", "d"), unit, newest_unit=newest)
            except CommitConflict as error:
                assert str(error) == "a unit was created meanwhile" and not made
            assert (catalog.unit(unit.id) is not None) == made

    def test_units_get_different_ids(self) -> None:
        assert NewUnit("d", "").id != NewUnit("d", "").id

    @pytest.mark.parametrize(
        ("unit", "message"),
        [
            (NewUnit("d", "", ("stream:none",)), "there is no stream none"),
            (NewUnit("d", "", ("table:none",)), "there is no table none"),
            (NewUnit("d", "", ("unit:none",)), "there is no unit none"),
            (NewUnit("d", "", id="u"), "there is a unit u already"),
            ("none", "there is no unit none"),
        ],
    )
    def test_a_refused_query_leaves_nothing(
        self, catalog: Catalog, unit: NewUnit | str, message: str
    ) -> None:
        accept(catalog, "q", "u")
        with pytest.raises(CatalogError, match=message):
            catalog.accept_query(NewQuery("r", "", "d"), unit)
        with pytest.raises(CatalogError, match="a cursor needs a position"):
            catalog.accept_query(NewQuery("r", "", "d"), NewUnit("d", ""), {("u", "s"): None})
        assert [u.id for u in catalog.units()] == ["u"] and catalog.query("r") is None

    def test_a_name_can_be_taken_once_and_again_after_a_drop(self, catalog: Catalog) -> None:
        accept(catalog, "Q", "u1")
        with pytest.raises(CatalogError, match="there is a query Q already"):
            accept(catalog, "q", "u2")
        assert catalog.unit("u2") is None
        catalog.drop_query("q")
        assert accept(catalog, "q", "u2").unit_id == "u2"

    def test_the_last_member_takes_the_unit_along(self, catalog: Catalog) -> None:
        accept(catalog, "a", "u")
        accept(catalog, "b", "u")
        cursors = {("u", "in"): 1, ("sink:a", unit_log("u")): 1}
        catalog.commit(
            None,
            segments=[segment(of=unit_log("u"))],
            cursors=cursors,
            statistics={("u", "cost"): 1.0},
        )
        assert catalog.drop_query("A") == []
        assert [q.name for q in catalog.subscribers("u")] == ["b"] and catalog.cursors(
            "sink:a"
        ) == {}
        assert catalog.drop_query("b") == ["u"]
        assert catalog.units() == catalog.queries() == catalog.subscribers("u") == []
        assert [q.state for q in catalog.queries(dropped=True)] == ["dropped", "dropped"]
        assert [u.state for u in catalog.units(dropped=True)] == ["dropped"]
        assert catalog.all_paths() == set() and catalog.cursors("u") == {}
        assert catalog.statistics("u") == {}
        with pytest.raises(CatalogError, match="unit u was dropped"):
            catalog.accept_query(NewQuery("c", "", "d"), "u")
        with pytest.raises(CatalogError, match="no unit u, or it was dropped"):
            catalog.commit(None, segments=[segment(of=unit_log("u"))])
        assert catalog.forget_dropped() == 3
        assert catalog.queries(dropped=True) == catalog.units(dropped=True) == []

    def test_a_unit_stays_while_another_reads_it(self, catalog: Catalog) -> None:
        accept(catalog, "low", "u1")
        accept(catalog, "middle", "u2", unit_log("u1"))
        accept(catalog, "high", "u3", unit_log("u2"))
        assert catalog.drop_query("low") == [] == catalog.drop_query("middle")
        assert len(catalog.units()) == 3
        assert catalog.drop_query("high") == ["u3", "u2", "u1"]

    def test_states_of_queries(self, catalog: Catalog) -> None:
        accept(catalog, "Q", "u")
        for state in ("paused", "parked", "running"):
            catalog.set_query_state("q", state, error="boom\x00")  # type: ignore[arg-type]
            found = catalog.query("q")
            assert found is not None and (found.state, found.error) == (state, "boom\ufffd")
        with pytest.raises(CatalogError, match="stopped is not a state to set"):
            catalog.set_query_state("q", "stopped")  # type: ignore[arg-type]
        with pytest.raises(CatalogError, match="dropped is not a state to set"):
            catalog.set_query_state("q", "dropped")
        catalog.set_query_state("q", "finished")
        catalog.set_query_state("q", "finished")
        with pytest.raises(CatalogError, match="query Q is finished and cannot be running"):
            catalog.set_query_state("q", "running")
        catalog.drop_query("q")
        for change in (catalog.drop_query, lambda name: catalog.set_query_state(name, "paused")):
            with pytest.raises(CatalogError, match="there is no query q"):
                change("q")

    def test_states_of_units(self, catalog: Catalog) -> None:
        accept(catalog, "q", "u")
        catalog.set_unit_state("u", "parked", error="no disk", retries=3, not_before=9.5)
        found = catalog.unit("u")
        assert found is not None
        assert (found.state, found.error, found.retries, found.not_before) == (
            "parked",
            "no disk",
            3,
            9.5,
        )
        catalog.set_unit_state("u", "running")
        assert catalog.unit("u") == replace(
            found, state="running", error="", retries=0, not_before=0.0
        )
        with pytest.raises(CatalogError, match="finished is not a state to set"):
            catalog.set_unit_state("u", "finished")  # type: ignore[arg-type]
        with pytest.raises(CatalogError, match="there is no unit v"):
            catalog.set_unit_state("v", "paused")
        catalog.drop_query("q")
        with pytest.raises(CatalogError, match="unit u was dropped"):
            catalog.set_unit_state("u", "running")


class TestLeases:
    def test_one_holds_it_until_it_ends(self, catalog: Catalog, clock: Clock) -> None:
        first = catalog.acquire("unit:u", "a", ttl=10)
        assert first == Lease("unit:u", "a", 1, 1_010.0) and catalog.leases() == [first]
        assert catalog.acquire("unit:u", "b", ttl=10) is None
        clock.now = 1_010.0
        second = catalog.acquire("unit:u", "b", ttl=10)
        assert second == Lease("unit:u", "b", 2, 1_020.0)
        assert catalog.acquire("unit:u", "a", ttl=10) is None
        assert catalog.acquire("unit:v", "a", ttl=10) == Lease("unit:v", "a", 1, 1_020.0)

    def test_renewed_it_lasts_longer(self, catalog: Catalog, clock: Clock) -> None:
        first = catalog.acquire("x", "a", ttl=10)
        assert first
        clock.now = 1_009.0
        renewed = catalog.renew(first, ttl=10)
        assert renewed == replace(first, expires_at=1_019.0)
        clock.now = 1_018.0
        assert catalog.acquire("x", "b", ttl=10) is None
        clock.now = 1_030.0
        assert catalog.renew(renewed, ttl=10).token == 1  # late, but nobody came in between

    def test_given_up_it_is_free_and_the_token_still_grows(self, catalog: Catalog) -> None:
        first = catalog.acquire("x", "a", ttl=10)
        assert first and catalog.release(first)
        assert catalog.leases() == [] and not catalog.release(first)
        second = catalog.acquire("x", "b", ttl=10)
        assert second and second.token == 2

    def test_the_same_holder_fences_its_former_self(self, stream: Catalog) -> None:
        first, second = (stream.acquire("x", "a", ttl=10) for _ in range(2))
        assert first and second and second.token == 2
        with pytest.raises(LeaseLost):
            stream.commit(first, segments=[segment()])
        stream.commit(second, segments=[segment()])

    def test_who_lost_it_can_neither_commit_nor_renew(self, stream: Catalog, clock: Clock) -> None:
        old = stream.acquire("x", "a", ttl=10)
        assert old
        clock.now += 60
        stream.commit(old, segments=[segment()])  # expired, but still the last to have claimed it
        new = stream.acquire("x", "b", ttl=10)
        with pytest.raises(LeaseLost, match="a no longer holds x: b took it"):
            stream.commit(old, segments=[segment()], cursors={("a", "b"): 1})
        with pytest.raises(LeaseLost):
            stream.renew(old, ttl=10)
        assert not stream.release(old)
        assert len(stream.segments(S)) == 1 and stream.cursors("a") == {}
        assert new and stream.release(new)
        for gone in (old, new, Lease("never", "a", 1, 0.0)):
            with pytest.raises(LeaseLost, match="it was released"):
                stream.commit(gone)

    @pytest.mark.parametrize(
        ("holder", "ttl"), [("", 1.0), ("a", 0.0), ("a", -1.0), ("a", MAX_LEASE_SECONDS + 1)]
    )
    def test_a_claim_of_nobody_or_for_no_time_or_too_long(
        self, catalog: Catalog, holder: str, ttl: float
    ) -> None:
        with pytest.raises(CatalogError, match=r"needs a holder|needs a time to live"):
            catalog.acquire("x", holder, ttl)


class TestJournal:
    def test_statistics(self, catalog: Catalog, clock: Clock) -> None:
        catalog.set_statistics({("u", "cost"): 1.5, ("u", "rate"): 2.0, ("v", "cost"): 3.0})
        clock.now += 1
        catalog.set_statistics({("u", "cost"): 2.5})
        catalog.set_statistics({})
        assert catalog.statistics("u") == {
            "cost": Statistic(2.5, 1_001.0),
            "rate": Statistic(2.0, 1_000.0),
        }
        assert catalog.statistic("w", "cost") is None

    def test_events(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        made = [catalog.record_event("parked", f"u{n % 2}", n=n) for n in range(4)]
        other = catalog.record_event("dropped", "u0")
        assert made[3] == EventRow(made[3].id, 1_000.0, "parked", "u1", {"n": 3})
        assert catalog.events() == [*made, other]
        assert catalog.events(limit=2) == [made[3], other]
        assert catalog.events(made[1].id, limit=2) == made[2:]
        assert catalog.events(kind="parked", subject="u0") == [made[0], made[2]]
        monkeypatch.setattr(journal, "MAX_EVENTS", 3)
        last = catalog.record_event("started", "u2")
        assert catalog.events() == [made[3], other, last]

    def test_rejects_are_all_counted_and_the_newest_kept(
        self, stream: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "MAX_REJECTS", 5)
        stream.declare_stream("other", "")
        stream.commit(None, rejects=[BatchRejects("other", 1, records=(("bad", "o"),))])
        for batch in range(3):
            records = tuple(("bad", f"{batch}{n}") for n in range(3))
            stream.commit(None, rejects=[BatchRejects("S", 3, 2, records)])
        stream.commit(None, rejects=[BatchRejects("s", malformed=1_000_000)])
        found = stream.stream("s")
        assert found is not None and (found.malformed, found.late) == (1_000_009, 6)
        assert [r.record for r in stream.rejects("s")] == ["22", "21", "20", "12", "11"]
        assert [r.record for r in stream.rejects("S", limit=1)] == ["22"]
        assert [r.record for r in stream.rejects("other")] == ["o"]
        many = tuple(("bad", str(n)) for n in range(7))
        stream.commit(None, rejects=[BatchRejects("s", 7, records=many)])
        assert [r.record for r in stream.rejects("s")] == ["6", "5", "4", "3", "2"]

    def test_a_record_may_hold_anything(self, stream: Catalog) -> None:
        records = (("nul \x00", "a\x00b\ud800c"), ("long", "é" * 20_000))
        stream.commit(None, rejects=[BatchRejects("s", 2, records=records)])
        long, nul = stream.rejects("s")
        assert isinstance(nul, RejectRow)
        assert (nul.reason, nul.record) == ("nul \ufffd", "a\ufffdb?c")
        assert long.record == "é" * journal.MAX_REJECT_CHARACTERS

    def test_sites(self, catalog: Catalog, clock: Clock) -> None:
        catalog.record_site("north", {"master": "local[2]"})
        clock.now += 5
        catalog.touch_site("north")
        assert catalog.sites() == [SiteRow("north", {"master": "local[2]"}, 1_005.0)]
        catalog.record_site("north", {})
        assert catalog.sites()[0].definition == {}
        assert catalog.forget_site("north") and not catalog.forget_site("north")
        with pytest.raises(CatalogError, match="there is no site north"):
            catalog.touch_site("north")

    def test_options(self, catalog: Catalog) -> None:
        assert catalog.option("trigger") is None
        catalog.set_option("trigger", "1 s")
        catalog.set_option("trigger", "2 s")
        assert catalog.option("trigger") == "2 s" and catalog.options() == {"trigger": "2 s"}
        catalog.set_option("trigger", None)
        assert catalog.options() == {}


class TestChanges:
    def test_a_change_by_anyone_is_seen(self, catalog: Catalog, where: str) -> None:
        before = catalog.change_count()
        with Catalog.open(where) as other:
            assert catalog.change_count() == other.change_count() == before
            other.declare_stream("s", "")
        assert catalog.change_count() > before
        assert catalog.wait_for_change(before, timeout=10) > before

    def test_without_a_change_watching_ends(self, catalog: Catalog) -> None:
        seen = catalog.change_count()
        assert catalog.wait_for_change(seen, timeout=0.02, poll=0.01) == seen

    def test_signs_of_life_wake_nobody(self, catalog: Catalog) -> None:
        catalog.record_site("north", {})
        seen = catalog.change_count()
        lease = catalog.acquire("x", "a", ttl=10)
        assert lease
        catalog.renew(lease, ttl=10)
        catalog.touch_site("north")
        catalog.set_statistics({("u", "cost"): 1.0})
        catalog.record_event("started", "u")
        catalog.segments(S)
        assert catalog.change_count() == seen
        catalog.release(lease)
        assert catalog.change_count() > seen

    def test_a_refused_change_is_none(self, catalog: Catalog) -> None:
        seen = catalog.change_count()
        with pytest.raises(CatalogError):
            catalog.drop_stream("none")
        assert catalog.change_count() == seen


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (schema.tables, TableRow),
        (schema.units, UnitRow),
        (schema.queries, QueryRow),
        (schema.segments, Segment),
        (schema.leases, Lease),
        (schema.sites, SiteRow),
        (schema.events, EventRow),
        (schema.rejects, RejectRow),
    ],
)
def test_a_row_has_the_columns_of_its_table_in_order(table: object, row: type) -> None:
    assert [column.name for column in table.c] == [field.name for field in fields(row)]  # type: ignore[attr-defined]
