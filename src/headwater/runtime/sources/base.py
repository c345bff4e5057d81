"""What a source is: it says what is new since a position, as a DataFrame.

A source keeps no record of progress itself. Its position is JSON that the catalog stores in the same
transaction in which it registers the segment made of the batch, so a batch is taken in once, whatever
happens. Every batch has the stream's columns, `_arrival` (place in the source's own order) and
`_malformed` (the record, where it could not be read), and may have `_why` (what is wrong with it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import InputError

MALFORMED = "_malformed"
WHY = "_why"

Position = Mapping[str, Any]


class SourceReplaced(InputError):
    """What a source reads is not what it read before, so going on would skip or repeat something.

    The stream stops until RESTART STREAM accepts that, and then goes on at `resume_at`.
    """

    def __init__(self, message: str, resume_at: Position) -> None:
        super().__init__(message)
        self.resume_at = resume_at


@dataclass(frozen=True)
class Batch:
    """Tuples that are new, and the position behind them. They are with Spark, or here already, or
    there are none and only the position is new. Few tuples pass through the driver."""

    frame: DataFrame | None
    position: Position
    small: bool = True
    table: pa.Table | None = None
    """With `_arrival`; no record of it is malformed."""

    warnings: tuple[str, ...] = ()
    """What operators have to know, for example that input was lost."""

    confirm: Callable[[], None] = lambda: None
    """Called when all tuples were read and before they count; raises InputError if they must not."""

    @property
    def is_empty(self) -> bool:
        return self.frame is None and self.table is None


class Source(Protocol):
    """What a stream reads from."""

    @property
    def finite(self) -> bool:
        """Whether a source that has nothing new may be taken as ended when all is idle."""

    @property
    def waits(self) -> bool:
        """Whether more is sure to come by itself, so that a pause is no end."""

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        """What came since the position; None if nothing did. Raises InputError."""

    def close(self) -> None:
        """Give up what is held open; the next poll opens it again."""
