"""Commits, segments and cursors: what keeps every row exactly once, on every database."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from catalog_helpers import S, accept, segment
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    Lease,
    LogEnd,
    LogStats,
    NewSegment,
    Segment,
    Statistic,
    first_segments,
    log,
    unit_log,
)


def committed(catalog: Catalog, count: int, of: str = S) -> list[Segment]:
    """One segment after another, with as many rows as its number and its event time."""
    return [
        catalog.commit(None, segments=[segment(n, at=n, of=of)])[0] for n in range(1, count + 1)
    ]


def seqs(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(s.first_seq, s.seq) for s in segments]


class TestCommit:
    def test_it_keeps_all_of_a_step(self, stream: Catalog) -> None:
        new = NewSegment(S, "/log/1", 3, 30, 5, 9, 7, 100, {"gate": ["A", "C"]}, key="s/1")
        kept = stream.commit(
            None,
            segments=[new],
            cursors={("ingest:s", "files"): {"batch": 1}},
            statistics={("s", "rate"): 3.5},
            stream_progress=("S", 9),
            rejects=[BatchRejects("s", malformed=2, late=1, records=(("bad", "{"),))],
            ended_stream="S",
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
        rejects = [BatchRejects("s", malformed=1, records=(("bad", "x"),))]
        batch = [segment(2, key="1"), segment(3, key="1b")]
        kept = stream.commit(None, segments=batch, cursors={("a", "b"): 1}, rejects=rejects)
        again = [replace(new, path="/log/other") for new in batch]
        for _ in range(2):
            assert kept == stream.commit(
                None, segments=again, cursors={("a", "b"): 2}, rejects=rejects
            )
        assert len(stream.segments(S)) == 2 and len(stream.rejects("s")) == 1
        assert stream.cursor("a", "b") == 1
        with pytest.raises(CatalogError, match="repeats 1 of stream:s, but with other segments"):
            stream.commit(None, segments=[batch[0], segment(key="2")])

    def test_a_batch_is_remembered_when_its_segments_are_gone(self, stream: Catalog) -> None:
        kept = stream.commit(None, segments=[segment(key="1")])
        stream.remove_segments([kept[0].id])
        assert stream.commit(None, segments=[segment(key="1")]) == []
        assert stream.segments(S) == []

    def test_old_batches_are_forgotten_in_the_end(
        self, stream: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log, "MAX_BATCH_KEYS", 40)
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
            {"ended_stream": "none"},
            {"rejects": [BatchRejects("none", 1)]},
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
            ((S, "/x", 1, 1, 5), "a least and a largest"),
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
        assert seqs(stream.compacted_pieces(S)) == [(2, 2), (3, 3)]
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
            ([], segment(0), r"only 0 of the segments \[\] exist"),
            ([one.id, 999_999], segment(1), "only 1 of the segments"),
            ([one.id, three.id], segment(4), "only neighbouring segments"),
            ([one.id, two.id], segment(2), "3 rows cannot be replaced by 2"),
            ([one.id, other.id], segment(2), "segments of other logs"),
        ):
            with pytest.raises(CatalogError, match=message):
                stream.replace_segments(None, ids, new)
        stream.replace_segments(None, [one.id, two.id], segment(3))
        with pytest.raises(CatalogError, match="were replaced already"):
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


class TestFiles:
    def test_files_beside_an_sqlite_catalog_move_with_it(self, tmp_path: Path) -> None:
        inside, outside = tmp_path / "a" / "log" / "1", tmp_path / "2"
        with Catalog.open(tmp_path / "a" / "catalog.sqlite") as catalog:
            catalog.declare_stream("s", "")
            new = [NewSegment(S, str(path), 1, 1, 0, 0) for path in (inside, outside)]
            kept = catalog.commit(None, segments=new)
            assert [s.path for s in kept] == [str(inside), str(outside)]
            assert catalog.segments(S) == kept
        (tmp_path / "a").rename(tmp_path / "b")
        moved = str(tmp_path / "b" / "log" / "1")
        with Catalog.open(tmp_path / "b" / "catalog.sqlite") as catalog:
            assert [s.path for s in catalog.segments(S)] == [moved, str(outside)]
            assert catalog.all_paths() == {moved, str(outside)}
            whole = catalog.replace_segments(
                None, [s.id for s in catalog.segments(S)], NewSegment(S, moved, 2, 1, 0, 0)
            )
            assert whole.path == moved
            removed = catalog.remove_segments([whole.id])
            assert [s.path for s in removed] == [moved, str(outside), moved]

    def test_a_file_that_was_swept_is_not_registered(self, stream: Catalog, tmp_path: Path) -> None:
        """A step may stand still for as long as it likes between its write and its commit."""
        file = tmp_path / "step.parquet"
        file.touch()
        written = NewSegment(S, str(file), 1, 1, 0, 0, on_disk=True)
        assert stream.remove_unreferenced([str(file)], os.remove) == [str(file)]
        with pytest.raises(CatalogError, match="was removed before it could be registered"):
            stream.commit(None, segments=[written])
        assert stream.segments(S) == []
        file.touch()
        stream.commit(None, segments=[written])
        assert stream.remove_unreferenced([str(file)], os.remove) == [] and file.exists()


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_the_first_segments_fit_and_one_more_would_not(
    sizes: list[tuple[int, int]], rows: int, size: int
) -> None:
    segments = [
        Segment(n, S, n, n, "", r, b, None, None, None, None, None, 0, None, 0.0)
        for n, (r, b) in enumerate(sizes)
    ]
    chosen = first_segments(segments, rows=rows, size=size)
    assert chosen == segments[: len(chosen)] and bool(chosen) == bool(segments)

    def fits(number: int) -> bool:
        some = sizes[:number]
        return sum(r for r, _ in some) <= rows and sum(b for _, b in some) <= size

    assert len(chosen) <= 1 or fits(len(chosen))
    assert len(chosen) == len(segments) or not fits(len(chosen) + 1)
