"""What the catalog knows of sites: assignments, and copies of logs, on every database."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalog_helpers import Clock, S, segment

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import Assignment, Catalog, log_copy

COPY = log_copy(S, "north")


def test_signs_of_life(catalog: Catalog, clock: Clock) -> None:
    catalog.record_site("north", {})
    catalog.record_site("south", {}, is_alive=False)
    assert catalog.recently_seen_sites(10) == {"north"}
    clock.now += 11
    assert catalog.recently_seen_sites(10) == set()
    catalog.touch_site("south")
    assert catalog.recently_seen_sites(10) == {"south"}
    catalog.mark_site_gone("south")
    assert catalog.recently_seen_sites(10) == set()


def test_an_assignment_replaces_the_one_before(stream: Catalog) -> None:
    assert stream.assignment() == Assignment()
    first = Assignment({"unit:u": "north", "ingest:s": "south"}, {(S, "north"): "south"})
    stream.replace_assignment(first, {COPY}, statistics={("u", "estimated_cpu"): 0.5})
    assert stream.assignment() == first
    assert stream.log_ends()[COPY].seq == 0
    found = stream.statistic("u", "estimated_cpu")
    assert found is not None and found.value == 0.5
    stream.replace_assignment(Assignment({"unit:u": "south"}))
    assert stream.assignment() == Assignment({"unit:u": "south"})
    assert COPY not in stream.log_ends() and S in stream.log_ends()


def test_who_lost_the_lease_assigns_nothing(stream: Catalog, clock: Clock) -> None:
    old = stream.acquire("plan", "one", 10)
    clock.now += 11
    assert stream.acquire("plan", "other", 10) is not None
    with pytest.raises(LeaseLost):
        stream.replace_assignment(Assignment({"unit:u": "north"}), lease=old)
    assert stream.assignment() == Assignment()


def copy_at(folder: Path, name: str) -> str:
    path = folder / name
    path.touch()
    return str(path)


def test_copies_keep_their_numbers_and_what_is_known_of_them(
    stream: Catalog, tmp_path: Path
) -> None:
    two, three = copy_at(tmp_path, "2"), copy_at(tmp_path, "3")
    stream.replace_assignment(Assignment(routes={(S, "north"): "south"}), {COPY})
    for at in (5, 6, 7):
        stream.commit(None, segments=[segment(3, at=at)])
    first, second, third = stream.segments(S)
    stream.remove_segments([first.id])
    stream.register_copies(None, COPY, [(second, two), (third, three)], 3)
    copies = stream.segments(COPY)
    assert [(c.first_seq, c.seq, c.path) for c in copies] == [
        (2, 2, two),
        (3, 3, three),
    ]
    for copy, original in zip(copies, (second, third), strict=True):
        assert (copy.rows, copy.bytes, copy.least_time, copy.watermark, copy.keys) == (
            original.rows,
            original.bytes,
            original.least_time,
            original.watermark,
            original.keys,
        )
    with pytest.raises(CatalogError, match="has 3 already"):
        stream.register_copies(None, COPY, [(third, three)], 3)
    stream.register_copies(None, COPY, [], 9)
    assert stream.log_ends()[COPY].seq == 9
    with pytest.raises(CatalogError, match="was dropped"):
        stream.register_copies(None, log_copy(S, "west"), [(third, three)], 3)


def test_a_copy_of_a_merged_segment_cannot_be_cut(stream: Catalog, tmp_path: Path) -> None:
    stream.replace_assignment(Assignment(routes={(S, "north"): "south"}), {COPY})
    for at in (5, 6):
        stream.commit(None, segments=[segment(3, at=at)])
    ids = [s.id for s in stream.segments(S)]
    merged = stream.replace_segments(None, ids, segment(6, at=6))
    stream.register_copies(None, COPY, [(merged, copy_at(tmp_path, "2"))], 2)
    assert [c.seq for c in stream.segments(COPY)] == [2]
    with pytest.raises(CatalogError, match="were compacted into one"):
        stream.segments(COPY, 1)


def test_files_that_moved(stream: Catalog) -> None:
    stream.commit(None, segments=[segment(3, at=5)])
    (known,) = stream.segments(S)
    with pytest.raises(CatalogError, match="was removed before"):
        stream.relocate_segments(None, {known.id: "/nowhere/file"})
    stream.relocate_segments(None, {known.id: __file__, 99: __file__})
    (moved,) = stream.segments(S)
    assert moved.path == __file__ and moved.id == known.id
