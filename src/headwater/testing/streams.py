"""Streams that push what a test says, up to a pause or their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from headwater.cql import EndStream, unparse
from headwater.runtime.api import Headwater

Record = Mapping[str, object] | Sequence[object]


class ScriptMark(Enum):
    """What a script holds besides tuples."""

    PAUSE = "pause"
    END = "end"


PAUSE: Final = ScriptMark.PAUSE
"""`play` returns here; the next call goes on."""

END: Final = ScriptMark.END
"""The stream ends here: no more tuples come, so that all windows can close."""


class ScriptedStream:
    """A stream declared FROM CLIENT that plays a script: tuples, PAUSE and END in their order."""

    def __init__(
        self,
        headwater: Headwater,
        stream: str,
        script: Iterable[Record | ScriptMark],
        timestamp_unit: str | None = None,
    ) -> None:
        self._headwater = headwater
        self._stream = stream
        self._rest = list(script)
        self._timestamp_unit = timestamp_unit

    @property
    def is_done(self) -> bool:
        """Whether the whole script was played."""
        return not self._rest

    def play(self) -> int:
        """Push the tuples up to the next mark, in one batch; returns how many were accepted.

        Tuples that are late, or too far from the clock, are rejected as they would be in production.
        """
        batch: list[Record] = []
        mark = None
        while self._rest and mark is None:
            step = self._rest.pop(0)
            if isinstance(step, ScriptMark):
                mark = step
            else:
                batch.append(step)
        accepted = 0
        if batch:
            accepted = self._headwater.push(self._stream, batch, self._timestamp_unit)
        # After the push, as a stream that has ended takes no more tuples.
        if mark is END:
            self._headwater.execute(unparse(EndStream(self._stream)))
        return accepted

    def play_all(self) -> int:
        """Push all that is left, a batch for each pause; returns how many tuples were accepted."""
        accepted = 0
        while not self.is_done:
            accepted += self.play()
        return accepted
