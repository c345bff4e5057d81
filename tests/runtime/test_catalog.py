"""Every method of the catalog, yes and no, on every database."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from catalog_helpers import Clock, S, accept, segment

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import (
    Catalog,
    Event,
    Lease,
    LogEnd,
    LogStats,
    NewQuery,
    NewSegment,
    NewUnit,
    QueryRow,
    Reject,
    Rejects,
    Segment,
    Site,
    Statistic,
    TableRow,
    UnitRow,
    journal,
    log,
    schema,
    table_input,
    unit_log,
)


def committed(catalog: Catalog, count: int, of: str = S) -> list[Segment]:
    """One segment after another, with as many rows as its number and its event time."""
    return [
        catalog.commit(None, segments=[segment(n, at=n, of=of)])[0] for n in range(1, count + 1)
    ]


def seqs(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(s.first_seq, s.seq) for s in segments]


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
        batch = Rejects("s", malformed=1, records=(("bad", "{"),))
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


class TestQueries:
    def test_accepting_a_query_makes_its_unit_and_sets_cursors(self, catalog: Catalog) -> None:
        catalog.declare_stream("s", "")
        new = NewQuery("Gate_A7", "SELECT g", "d1", [["g", "STRING"]], {"to": "files"}, 5, 9)
        unit = NewUnit("d1", "SELECT canonical", (S,), id="u1")
        row = catalog.accept_query(new, unit, {("u1", S): {"seq": 0}})
        assert row == catalog.query("gate_a7") == catalog.queries()[0] == catalog.members("u1")[0]
        assert (row.spelled, row.state, row.unit_id) == ("Gate_A7", "running", "u1")
        assert (row.columns, row.sink) == ([["g", "STRING"]], {"to": "files"})
        assert (row.start_at, row.end_at, row.accepted_at) == (5, 9, 1_000)
        expected = UnitRow("u1", "d1", unit.definition, (S,), 1, "running", 0, 0.0, "", 1_000.0)
        assert catalog.units() == [expected] and catalog.unit("u1") == expected
        assert catalog.cursor("u1", S) == {"seq": 0}
        assert catalog.log_ends()[unit_log("u1")] == LogEnd(0, None)

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
        assert [q.name for q in catalog.members("u")] == ["b"] and catalog.cursors("sink:a") == {}
        assert catalog.drop_query("b") == ["u"]
        assert catalog.units() == catalog.queries() == catalog.members("u") == []
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


@pytest.fixture
def stream(catalog: Catalog) -> Catalog:
    catalog.declare_stream("s", "", lateness=2)
    return catalog


class TestCommit:
    def test_it_keeps_all_of_a_step(self, stream: Catalog) -> None:
        new = NewSegment(S, "/log/1", 3, 30, 5, 9, 7, 100, {"gate": ["A", "C"]}, key="s/1")
        kept = stream.commit(
            None,
            segments=[new],
            cursors={("ingest:s", "files"): {"batch": 1}},
            statistics={("s", "rate"): 3.5},
            stream_progress=("S", 9),
            rejects=[Rejects("s", malformed=2, late=1, records=(("bad", "{"),))],
            ended="S",
        )
        assert (
            kept
            == stream.segments(S)
            == [
                Segment(
                    kept[0].id, S, 1, 1, "/log/1", 3, 30, 5, 9, 7, 100, new.keys, 0, None, 1_000.0
                )
            ]
        )
        assert stream.cursor("ingest:s", "files") == {"batch": 1}
        assert stream.statistic("s", "rate") == Statistic(3.5, 1_000.0)
        found = stream.stream("s")
        assert found is not None
        assert (found.max_event_time, found.watermark, found.next_seq) == (9, 7, 2)
        assert (found.malformed, found.late, found.ended) == (2, 1, True)
        assert stream.log_ends() == {S: LogEnd(1, 7)}

    def test_numbers_have_no_gap_and_are_never_used_again(self, stream: Catalog) -> None:
        first = stream.commit(None, segments=[segment(), segment(), segment()])
        assert seqs(first) == [(1, 1), (2, 2), (3, 3)]
        with pytest.raises(CatalogError, match="no stream none"):
            stream.commit(None, segments=[segment(), segment(of="stream:none")])
        stream.remove_segments(s.id for s in first)
        assert seqs(stream.commit(None, segments=[segment()])) == [(4, 4)]

    def test_a_replayed_batch_changes_nothing(self, stream: Catalog) -> None:
        rejects = [Rejects("s", malformed=1, records=(("bad", "x"),))]
        batch = [segment(2, key="1"), segment(3, key="1b")]
        kept = stream.commit(None, segments=batch, cursors={("a", "b"): 1}, rejects=rejects)
        again = [replace(new, path="/log/other") for new in batch]
        for _ in range(2):
            assert kept == stream.commit(
                None, segments=again, cursors={("a", "b"): 2}, rejects=rejects
            )
        assert len(stream.segments(S)) == 2 and len(stream.rejects("s")) == 1
        assert stream.cursor("a", "b") == 1
        with pytest.raises(CatalogError, match="repeats 1 of stream:s, but not with the segments"):
            stream.commit(None, segments=[batch[0], segment(key="2")])

    def test_a_batch_is_remembered_when_its_segments_are_gone(self, stream: Catalog) -> None:
        kept = stream.commit(None, segments=[segment(key="1")])
        stream.remove_segments([kept[0].id])
        assert stream.commit(None, segments=[segment(key="1")]) == []
        assert stream.segments(S) == []

    def test_old_batches_are_forgotten_in_the_end(
        self, stream: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log, "KEPT_BATCHES", 40)
        stream.commit(None, segments=[segment(key=str(n)) for n in range(1, 101)])
        assert stream.commit(None, segments=[segment(key="61")])[0].seq == 61
        assert stream.commit(None, segments=[segment(key="60")])[0].seq == 101

    def test_a_key_belongs_to_one_log(self, stream: Catalog) -> None:
        accept(stream, "q", "u")
        one = stream.commit(None, segments=[segment(key="1")])
        other = stream.commit(None, segments=[segment(key="1", of=unit_log("u"))])
        assert (one[0].log, other[0].log) == (S, unit_log("u"))
        with pytest.raises(CatalogError):
            stream.commit(None, segments=[segment(key="2"), segment(key="2")])

    def test_an_empty_batch_needs_no_file(self, stream: Catalog) -> None:
        empty = NewSegment(S, "", 0, 0, watermark=4, key="1")
        assert stream.commit(None, segments=[empty])[0].seq == 1
        assert stream.commit(None, segments=[empty])[0].seq == 1
        assert stream.log_ends() == {S: LogEnd(1, 4)} and stream.all_paths() == set()
        assert stream.segments(S, overlapping=(0, 9)) == []

    def test_progress_only_grows(self, stream: Catalog) -> None:
        for time in (5, 3, 8):
            watermark = [replace(segment(), watermark=time - 2)]
            stream.commit(None, segments=watermark, stream_progress=("s", time))
        found = stream.stream("s")
        assert found is not None and found.max_event_time == 8
        assert stream.log_ends()[S].watermark == 6

    def test_nothing_is_kept_of_a_commit_that_fails(self, stream: Catalog) -> None:
        everything = {
            "segments": [segment()],
            "cursors": {("a", "b"): 1},
            "statistics": {("a", "b"): 1.0},
        }
        for bad in (
            {"stream_progress": ("none", 1)},
            {"ended": "none"},
            {"rejects": [Rejects("none", 1)]},
            {"cursors": {("a", "b"): 1, ("a", "c"): None}},
        ):
            with pytest.raises(CatalogError):
                stream.commit(None, **{**everything, **bad})  # type: ignore[arg-type]
        assert stream.segments(S) == [] and stream.log_ends()[S].seq == 0
        assert stream.cursors("a") == {} == stream.statistics("a")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ((S, "/x", -1, 0), "-1 rows"),
            ((S, "/x", 1, -1), "-1 bytes"),
            ((S, "", 1, 1), "1 rows needs a file"),
            ((S, "/x", 1, 1, 5), "both its least and largest"),
            ((S, "/x", 1, 1, 5, 4), "from 5 back to 4"),
        ],
    )
    def test_a_bad_segment_is_refused_when_built(self, values: tuple, message: str) -> None:
        with pytest.raises(CatalogError, match=message):
            NewSegment(*values)


class TestSegments:
    def test_a_span_of_numbers_and_of_times(self, stream: Catalog) -> None:
        kept = committed(stream, 5)
        assert stream.segments(S) == kept
        assert stream.segments(S, after_seq=3) == kept[3:]
        assert stream.segments(S, up_to=3) == kept[:3]
        assert stream.segments(S, 1, 3) == kept[1:3]
        assert stream.segments(S, overlapping=(2, 4)) == kept[1:4]
        assert stream.segments(S, after_seq=2, overlapping=(2, 4)) == kept[2:4]
        assert stream.segments(S, overlapping=(6, 9)) == stream.segments("stream:none") == []

    def test_what_a_log_holds(self, stream: Catalog) -> None:
        assert stream.log_stats(S) == LogStats(0, 0, 0, None, None, 0, 0)
        kept = committed(stream, 3)
        assert stream.log_stats(S) == LogStats(3, 6, 60, 1, 3, 6, 60)
        stream.remove_segments([kept[0].id])
        assert stream.log_stats(S) == LogStats(2, 5, 50, 2, 3, 6, 60)
        with pytest.raises(CatalogError, match="there is no stream none"):
            stream.log_stats("stream:none")

    def test_a_compacted_segment_stands_for_its_pieces(self, stream: Catalog) -> None:
        kept = committed(stream, 5)
        whole = stream.replace_segments(None, [kept[2].id, kept[1].id], segment(5, at=3))
        assert (whole.first_seq, whole.seq, whole.pieces) == (2, 3, 2)
        assert seqs(stream.segments(S)) == [(1, 1), (2, 3), (4, 4), (5, 5)]
        assert seqs(stream.segments(S, after_seq=1)) == [(2, 3), (4, 4), (5, 5)]
        assert seqs(stream.segments(S, after_seq=2)) == [(3, 3), (4, 4), (5, 5)]
        assert seqs(stream.segments(S, up_to=2)) == [(1, 1), (2, 2)]
        assert stream.log_stats(S) == LogStats(4, 15, 150, 1, 5, 15, 150)
        assert len(stream.all_paths()) == 6

    def test_compaction_of_what_was_compacted(self, stream: Catalog) -> None:
        kept = committed(stream, 4)
        low = stream.replace_segments(None, [kept[0].id, kept[1].id], segment(3))
        high = stream.replace_segments(None, [low.id, kept[2].id], segment(6))
        assert seqs(stream.segments(S)) == [(1, 3), (4, 4)]
        assert seqs(stream.segments(S, up_to=2)) == [(1, 2)]
        assert seqs(stream.segments(S, 1, 3)) == [(2, 2), (3, 3)]
        removed = stream.remove_segments([high.id])
        assert {s.id for s in removed} == {high.id, low.id, *(s.id for s in kept[:3])}
        assert seqs(stream.segments(S)) == [(4, 4)]
        assert stream.remove_segments([high.id]) == []

    def test_without_its_pieces_a_compacted_segment_cannot_be_split(self, stream: Catalog) -> None:
        kept = committed(stream, 3)
        stream.replace_segments(None, [s.id for s in kept], segment(6))
        assert stream.remove_segments([kept[0].id]) == [
            replace(kept[0], compacted_into=stream.segments(S)[0].id)
        ]
        assert seqs(stream.segments(S)) == [(1, 3)]
        for span in ({"after_seq": 1}, {"up_to": 2}):
            with pytest.raises(CatalogError, match="1 to 3 were compacted into one"):
                stream.segments(S, **span)
        assert stream.segments(S, after_seq=3) == []

    def test_what_cannot_be_replaced(self, stream: Catalog) -> None:
        accept(stream, "q", "u")
        one, two, three = committed(stream, 3)
        other = committed(stream, 1, unit_log("u"))[0]
        for ids, new, message in (
            ([], segment(0), "0 are there to be replaced"),
            ([one.id, 999_999], segment(1), "1 are there to be replaced"),
            ([one.id, three.id], segment(4), "only segments that are neighbours"),
            ([one.id, two.id], segment(2), "3 rows cannot be replaced by 2"),
            ([one.id, other.id], segment(2), "segments of other logs"),
        ):
            with pytest.raises(CatalogError, match=message):
                stream.replace_segments(None, ids, new)
        stream.replace_segments(None, [one.id, two.id], segment(3))
        with pytest.raises(CatalogError, match="were replaced before"):
            stream.replace_segments(None, [two.id, three.id], segment(5))
        assert seqs(stream.segments(S)) == [(1, 2), (3, 3)]

    def test_compaction_and_removal_can_be_fenced(self, stream: Catalog) -> None:
        kept = committed(stream, 2)
        lost = Lease("compact", "me", 1, 0.0)
        with pytest.raises(LeaseLost):
            stream.replace_segments(lost, [s.id for s in kept], segment(3))
        with pytest.raises(LeaseLost):
            stream.remove_segments([kept[0].id], lease=lost)
        assert stream.segments(S) == kept

    def test_many_at_once(self, stream: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "_CHUNK", 3)
        kept = committed(stream, 10)
        whole = stream.replace_segments(None, [s.id for s in kept[:8]], segment(36))
        assert seqs(stream.segments(S)) == [(1, 8), (9, 9), (10, 10)]
        removed = stream.remove_segments([whole.id, *(s.id for s in kept)])
        assert len(removed) == 11 and stream.segments(S) == []


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
            with pytest.raises(LeaseLost, match="it was given up"):
                stream.commit(gone)

    @pytest.mark.parametrize(("holder", "ttl"), [("", 1.0), ("a", 0.0), ("a", -1.0)])
    def test_a_claim_of_nobody_or_for_no_time(
        self, catalog: Catalog, holder: str, ttl: float
    ) -> None:
        with pytest.raises(CatalogError, match="needs a holder and a time to live"):
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
        assert made[3] == Event(made[3].id, 1_000.0, "parked", "u1", {"n": 3})
        assert catalog.events() == [*made, other]
        assert catalog.events(limit=2) == [made[3], other]
        assert catalog.events(made[1].id, limit=2) == made[2:]
        assert catalog.events(kind="parked", subject="u0") == [made[0], made[2]]
        monkeypatch.setattr(journal, "KEPT_EVENTS", 3)
        last = catalog.record_event("started", "u2")
        assert catalog.events() == [made[3], other, last]

    def test_rejects_are_all_counted_and_the_newest_kept(
        self, stream: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "KEPT_REJECTS", 5)
        stream.declare_stream("other", "")
        stream.commit(None, rejects=[Rejects("other", 1, records=(("bad", "o"),))])
        for batch in range(3):
            records = tuple(("bad", f"{batch}{n}") for n in range(3))
            stream.commit(None, rejects=[Rejects("S", 3, 2, records)])
        stream.commit(None, rejects=[Rejects("s", malformed=1_000_000)])
        found = stream.stream("s")
        assert found is not None and (found.malformed, found.late) == (1_000_009, 6)
        assert [r.record for r in stream.rejects("s")] == ["22", "21", "20", "12", "11"]
        assert [r.record for r in stream.rejects("S", limit=1)] == ["22"]
        assert [r.record for r in stream.rejects("other")] == ["o"]
        many = tuple(("bad", str(n)) for n in range(7))
        stream.commit(None, rejects=[Rejects("s", 7, records=many)])
        assert [r.record for r in stream.rejects("s")] == ["6", "5", "4", "3", "2"]

    def test_a_record_may_hold_anything(self, stream: Catalog) -> None:
        records = (("nul \x00", "a\x00b\ud800c"), ("long", "é" * 20_000))
        stream.commit(None, rejects=[Rejects("s", 2, records=records)])
        long, nul = stream.rejects("s")
        assert isinstance(nul, Reject)
        assert (nul.reason, nul.record) == ("nul \ufffd", "a\ufffdb?c")
        assert long.record == "é" * journal.KEPT_CHARACTERS

    def test_sites(self, catalog: Catalog, clock: Clock) -> None:
        catalog.record_site("north", {"master": "local[2]"})
        clock.now += 5
        catalog.see_site("north")
        assert catalog.sites() == [Site("north", {"master": "local[2]"}, 1_005.0)]
        catalog.record_site("north", {})
        assert catalog.sites()[0].definition == {}
        assert catalog.forget_site("north") and not catalog.forget_site("north")
        with pytest.raises(CatalogError, match="there is no site north"):
            catalog.see_site("north")

    def test_options(self, catalog: Catalog) -> None:
        assert catalog.option("trigger") is None
        catalog.set_option("trigger", "1 s")
        catalog.set_option("trigger", "2 s")
        assert catalog.option("trigger") == "2 s" and catalog.options() == {"trigger": "2 s"}
        catalog.set_option("trigger", None)
        assert catalog.options() == {}


class TestChanges:
    def test_a_change_by_anyone_is_seen(self, catalog: Catalog, where: str) -> None:
        before = catalog.changes()
        with Catalog.open(where) as other:
            assert catalog.changes() == other.changes() == before
            other.declare_stream("s", "")
        assert catalog.changes() > before
        assert catalog.watch(before, timeout=10) > before

    def test_without_a_change_watching_ends(self, catalog: Catalog) -> None:
        seen = catalog.changes()
        assert catalog.watch(seen, timeout=0.02, poll=0.01) == seen

    def test_signs_of_life_wake_nobody(self, catalog: Catalog) -> None:
        catalog.record_site("north", {})
        seen = catalog.changes()
        lease = catalog.acquire("x", "a", ttl=10)
        assert lease
        catalog.renew(lease, ttl=10)
        catalog.see_site("north")
        catalog.set_statistics({("u", "cost"): 1.0})
        catalog.record_event("started", "u")
        catalog.segments(S)
        assert catalog.changes() == seen
        catalog.release(lease)
        assert catalog.changes() > seen

    def test_a_refused_change_is_none(self, catalog: Catalog) -> None:
        seen = catalog.changes()
        with pytest.raises(CatalogError):
            catalog.drop_stream("none")
        assert catalog.changes() == seen


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (schema.tables, TableRow),
        (schema.units, UnitRow),
        (schema.queries, QueryRow),
        (schema.segments, Segment),
        (schema.leases, Lease),
        (schema.sites, Site),
        (schema.events, Event),
        (schema.rejects, Reject),
    ],
)
def test_a_row_has_the_columns_of_its_table_in_order(table: object, row: type) -> None:
    assert [column.name for column in table.c] == [field.name for field in fields(row)]  # type: ignore[attr-defined]
