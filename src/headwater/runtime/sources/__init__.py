"""Where tuples come from: one small class for each kind of source, and the ones that are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.algebra.catalog import Stream
from headwater.cql.statements import Connector, CreateStream
from headwater.runtime.connectors import (
    FileOptions,
    KafkaOptions,
    RateOptions,
    ReplayOptions,
    SocketOptions,
    source_options,
)
from headwater.runtime.paths import check_connector, check_paths
from headwater.runtime.sources.base import Batch, Position, Source, SourceReplaced, Tuples
from headwater.runtime.sources.files import Files, list_files, read_table, table_fingerprint
from headwater.runtime.sources.kafka import Kafka
from headwater.runtime.sources.rate import Rate
from headwater.runtime.sources.replay import Replay
from headwater.runtime.sources.socket import Socket

__all__ = [
    "Batch",
    "Files",
    "Position",
    "Source",
    "SourceReplaced",
    "Sources",
    "Tuples",
    "check_files",
    "open_source",
    "read_table",
    "table_fingerprint",
]


def open_source(source: Connector, stream: Stream) -> Source:
    """The source of a stream as declared; raises InputError for options that do not fit."""
    match source_options(source, stream):
        case FileOptions() as options:
            return Files(options, stream.schema)
        case KafkaOptions() as options:
            return Kafka(options, stream.schema)
        case RateOptions() as options:
            return Rate(options, stream)
        case SocketOptions() as options:
            return Socket(options, stream.schema)
        case ReplayOptions() as options:
            return Replay(options, stream)


def check_files(source: Connector | None, roots: Sequence[Path]) -> None:
    """Raises InputError if a source, or a link among its files, leads out of the allowed roots."""
    check_connector(source, roots)
    path = source.get("path") if source is not None else None
    if roots and isinstance(path, str):
        check_paths(list_files(path), roots)


@dataclass
class Sources:
    """The open sources by the name of their stream, as long as its declaration stays the same."""

    _open: dict[str, tuple[CreateStream, Source]] = field(default_factory=dict)

    def of(self, name: str, declared: CreateStream) -> Source | None:
        """The source of a stream; None for one that clients push to."""
        if declared.source is None:
            return None
        known = self._open.get(name)
        if known is None or known[0] != declared:
            if known is not None:
                known[1].close()
            known = (declared, open_source(declared.source, declared.stream))
            self._open[name] = known
        return known[1]

    def keep(self, names: set[str]) -> None:
        """Close the sources of other streams."""
        for name in set(self._open) - names:
            self._open.pop(name)[1].close()

    def waiting(self, names: set[str]) -> bool:
        """Whether one of these streams is sure to get more by itself."""
        return any(source.waits for name, (_, source) in self._open.items() if name in names)
