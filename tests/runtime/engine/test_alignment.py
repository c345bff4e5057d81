"""Where two units stand together, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headwater.runtime.engine.alignment import meeting_point, rows_needed_from, stand_together

NUMBERS = st.integers(0, 6)
POSITIONS = st.dictionaries(st.sampled_from("abc"), NUMBERS)
ROWS = st.fixed_dictionaries({name: st.frozensets(st.integers(1, 6)) for name in "abc"})


@given(POSITIONS, POSITIONS)
def test_where_two_meet(one: Mapping[str, int], other: Mapping[str, int]) -> None:
    """Neither has to go back, and both have read no more than one of them has already."""
    there = meeting_point(one, other)
    assert there == meeting_point(other, one)
    assert set(there) == set(one) & set(other)
    for log, seq in there.items():
        assert seq >= one[log] and seq >= other[log] and seq in (one[log], other[log])


@given(POSITIONS, POSITIONS, ROWS)
def test_two_that_have_read_the_same_rows(
    one: Mapping[str, int], other: Mapping[str, int], rows: Mapping[str, frozenset[int]]
) -> None:
    """Segments without rows do not count: a unit need not have passed them."""

    def has_rows(log: str, after: int, until: int) -> bool:
        return any(after < seq <= until for seq in rows[log])

    def read(positions: Mapping[str, int], log: str) -> set[int]:
        return {seq for seq in rows[log] if seq <= positions[log]}

    same = all(read(one, log) == read(other, log) for log in set(one) & set(other))
    assert stand_together(one, other, has_rows) == same
    assert stand_together(other, one, has_rows) == same


def test_where_they_meet_they_stand_together() -> None:
    def has_rows(log: str, after: int, until: int) -> bool:
        return True

    one, other = {"a": 3, "b": 5, "c": 1}, {"a": 4, "b": 2}
    assert not stand_together(one, other, has_rows)
    there = meeting_point(one, other)
    assert there == {"a": 4, "b": 5}
    assert stand_together(one | there, other | there, has_rows)


MARKS = st.dictionaries(
    st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 20)), min_size=1
)


@given(MARKS, st.integers(0, 5), st.integers(0, 5), st.data())
def test_no_row_is_missing_for_a_tuple_to_come(
    marks: Mapping[str, int | None], reach: int, later: int, data: st.DataObject
) -> None:
    """A row is met by a new tuple of any stream only if it was emitted at most the reach before it."""
    since = rows_needed_from(marks, reach)
    if since is None:
        assert None in marks.values(), "a tuple of any time may come"
        return
    mark = marks[data.draw(st.sampled_from(sorted(marks)))]
    assert mark is not None
    emitted = mark + later - data.draw(st.integers(0, reach))
    assert emitted >= since


def test_as_few_rows_as_possible() -> None:
    assert rows_needed_from({"a": 9, "b": 7}, 3) == 4
    assert rows_needed_from({"a": 9, "b": None}, 3) is None
    assert rows_needed_from({}, 3) is None
