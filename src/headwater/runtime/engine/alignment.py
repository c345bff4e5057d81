"""When two units stand at the same place in the streams that both read.

One can take over from the other only there: what either has made of the streams is then made of the
same tuples. A position is the last sequence number read; segments without rows do not count, as a unit
passes them only together with some that have rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Positions = Mapping[str, int]
"""The last sequence number read of each log."""

RowsBetween = Callable[[str, int, int], bool]
"""Whether a log has rows after one number and up to another."""


def meeting_point(one: Positions, other: Positions) -> dict[str, int]:
    """The first place that both can reach by reading on: the later position in each common log."""
    return {log: max(one[log], other[log]) for log in one if log in other}


def stand_together(one: Positions, other: Positions, has_rows: RowsBetween) -> bool:
    """Whether two units have read the same rows of each log that both read."""
    for log in one.keys() & other.keys():
        low, high = sorted((one[log], other[log]))
        if low < high and has_rows(log, low, high):
            return False
    return True


def rows_needed_from(marks: Mapping[str, int | None], reach: int) -> int | None:
    """The time after which rows of a partial join have to be there for tuples that are still to come.

    `marks` are the watermarks of all streams where the reader stands: a tuple that it has not read is
    no older, and a row of the partial join that it meets was emitted at most the reach of the windows
    before it. None: all rows, as a stream has no watermark yet.
    """
    known = [mark for mark in marks.values() if mark is not None]
    return min(known) - reach if known and len(known) == len(marks) else None
