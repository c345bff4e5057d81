"""What a source is: it says what is new since a position, as tables of Arrow.

A source keeps no record of progress itself. Its position is JSON that the catalog stores in the same
transaction in which it registers the segment made of the batch, so a batch is taken in once, whatever
happens. Every table has the stream's columns and `_arrival` (place in the source's own order).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.errors import InputError
from headwater.runtime.catalog import FileChanges, RejectedRecord

Position = Mapping[str, Any]


class SourceReplaced(InputError):
    """What a source reads is not what it read before, so going on would skip or repeat something.

    The stream stops until RESTART STREAM accepts that, and then goes on at `resume_at`.
    """

    def __init__(self, message: str, resume_at: Position) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class TupleChunk(NamedTuple):
    """Some tuples of a batch, and what was refused among them."""

    table: pa.Table
    rejected: Sequence[RejectedRecord] = ()


@dataclass(frozen=True)
class Batch:
    """Tuples that are new, read while they are asked for, and the position behind them."""

    chunks: Iterable[TupleChunk] | None
    """None if only the position is new."""
    position: Position
    locate: Callable[[int], str] = str
    """Where the tuple with some arrival is in the source, for people."""
    files: FileChanges | None = None
    """What is to be noted of the files that it was read from."""
    warnings: tuple[str, ...] = ()
    """What operators have to know, for example that input was lost."""
    confirm: Callable[[], None] = lambda: None
    """Called when all tuples were read and before they count; raises InputError if they must not."""


class Source(Protocol):
    """What a stream reads from."""

    @property
    def finite(self) -> bool:
        """Whether a source that has nothing new may be taken as ended when all is idle."""

    @property
    def expects_more(self) -> bool:
        """Whether more is sure to come by itself, so that a pause is no end."""

    def poll(self, spark: SparkSession, position: Position, /) -> Batch | None:
        """What came since the position; None if nothing did. Raises InputError."""

    def close(self) -> None:
        """Give up what is held open; the next poll opens it again."""
