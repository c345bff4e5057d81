"""What a unit that reads another's rows still needs of its own streams, while it is behind."""

from __future__ import annotations

from dataclasses import replace

from headwater.runtime.catalog import LogPosition, Segment
from headwater.runtime.engine.housekeeping import bounded_marks

ROWS = Segment(1, "unit:u", 1, 1, "/r", 2, 9, 30, 50, None, None, None, 0, None, 0.0)


def test_a_row_that_is_still_to_be_read_is_older_than_the_watermark() -> None:
    cursors = {
        "stream:a": LogPosition(5, 60).to_json(),
        "stream:b": LogPosition(4, 20).to_json(),
        "stream:c": LogPosition(0, None).to_json(),
        "start": 7,
    }
    assert bounded_marks(cursors, []) == cursors
    for unread in ([ROWS], [replace(ROWS, least_time=40), ROWS]):
        bounded = bounded_marks(cursors, unread)
        assert bounded["stream:a"] == LogPosition(5, 30).to_json()
        assert {k: v for k, v in bounded.items() if k != "stream:a"} == {
            k: v for k, v in cursors.items() if k != "stream:a"
        }
