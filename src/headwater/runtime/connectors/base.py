"""The protocol of sources: what is new since a position, as Arrow tables.

A source keeps no record of progress itself. Its position is JSON that the catalog stores in the
same transaction that registers the segment of the batch, so a batch is ingested exactly once. Every
table has the stream's columns and `_arrival` (the position in the source's own order).
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
    """A source was replaced by another, so that continuing would skip or repeat tuples.

    The stream stops until RESTART STREAM accepts that, and then continues at `resume_at`.
    """

    def __init__(self, message: str, resume_at: Position) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class TupleChunk(NamedTuple):
    """Some tuples of a batch, and the rejected records among them."""

    table: pa.Table
    rejected: Sequence[RejectedRecord] = ()


@dataclass(frozen=True)
class Batch:
    """New tuples, read lazily, and the position behind them."""

    chunks: Iterable[TupleChunk] | None
    """None if only the position has changed."""
    position: Position
    locate: Callable[[int], str] = str
    """Describes, for people, where in the source the tuple with an arrival number is."""
    files: FileChanges | None = None
    """Changes to record about the files that it was read from."""
    warnings: tuple[str, ...] = ()
    """Messages for whoever runs the system, for example that input was lost."""
    confirm: Callable[[], None] = lambda: None
    """Called after all tuples were read and before the commit; raises InputError to prevent it."""


class Source(Protocol):
    """Something that a stream reads from."""

    @property
    def finite(self) -> bool:
        """Whether the source may be declared ended when it has nothing new and all is idle."""

    @property
    def expects_more(self) -> bool:
        """Whether more is certain to come by itself, so that a pause is not the end."""

    def poll(self, spark: SparkSession, position: Position, /) -> Batch | None:
        """The tuples since the position; None if there are none. Raises InputError."""

    def close(self) -> None:
        """Close what is open; the next poll opens it again."""
