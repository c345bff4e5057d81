"""The connectors: where streams read from and where results are sent, by kind.

A connector is one record: what CQL knows of the kind, and for its source and its sink the options, how
they are read, and how it is opened. The parser, the checks of statements, the engine and the tables of the
documentation follow from it; CONTRIBUTING.md has the recipe. Loading this module loads neither pyarrow nor
pyspark: what opens a source or sends rows imports its module when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headwater.algebra.catalog import Stream
from headwater.cql.connector_kinds import (
    CONNECTOR_KINDS,
    ConnectorKind,
    add_connector_kind,
    remove_connector_kind,
)
from headwater.cql.statements import Connector
from headwater.errors import HeadwaterError, InputError, suggest
from headwater.runtime.connectors.options import (
    FileOptions,
    FileSinkOptions,
    KafkaOptions,
    KafkaSinkOptions,
    OptionsClass,
    RateOptions,
    ReplayOptions,
    SocketOptions,
    check_rate_columns,
    file_options,
    file_sink_options,
    kafka_options,
    kafka_sink_options,
    rate_options,
    replay_options,
    socket_options,
)

if TYPE_CHECKING:
    from headwater.runtime.connectors.base import Source
    from headwater.runtime.connectors.sink_batch import SinkBatch


def _accept_any(_stream: Stream) -> None:
    """A source that fits every stream."""


@dataclass(frozen=True)
class SourceSpec:
    """How a stream reads from a connector.

    `options` is the frozen dataclass that `parse` makes of a statement; both `parse` and `check_stream`
    raise InputError. `open` makes the source of a stream; it may import what takes long to load.
    """

    options: type[OptionsClass]
    parse: Callable[[Connector], Any]
    open: Callable[[Any, Stream], Source]
    check_stream: Callable[[Stream], None] = _accept_any


@dataclass(frozen=True)
class SinkSpec:
    """How results are sent to a connector: `send` returns when all rows are out, and may get the same
    rows again after a crash."""

    options: type[OptionsClass]
    parse: Callable[[Connector], Any]
    send: Callable[[Any, SinkBatch], None]


@dataclass(frozen=True)
class ConnectorSpec:
    """A connector; `jars` returns the Java libraries that Spark needs for it, and raises RuntimeFailure
    where they cannot be had."""

    kind: ConnectorKind
    source: SourceSpec | None = None
    sink: SinkSpec | None = None
    jars: Callable[[], Sequence[Path]] | None = None

    def __post_init__(self) -> None:
        if (self.source is not None, self.sink is not None) != (
            self.kind.is_source,
            self.kind.is_sink,
        ):
            raise HeadwaterError(f"connector {self.kind.name} is not what its kind says it is")


# ---- the connectors that come with Headwater


# What opens and sends is imported then: options are checked by commands that load neither PyArrow
# nor PySpark.
def _open_files(options: FileOptions, stream: Stream) -> Source:
    from headwater.runtime.connectors.files import FileSource

    return FileSource(options, stream.schema)


def _open_kafka(options: KafkaOptions, stream: Stream) -> Source:
    from headwater.runtime.connectors.kafka.source import KafkaSource

    return KafkaSource(options, stream.schema)


def _open_rate(options: RateOptions, stream: Stream) -> Source:
    from headwater.runtime.connectors.rate import RateSource

    return RateSource(options, stream)


def _open_socket(options: SocketOptions, stream: Stream) -> Source:
    from headwater.runtime.connectors.socket import SocketSource

    return SocketSource(options, stream.schema)


def _open_replay(options: ReplayOptions, stream: Stream) -> Source:
    from headwater.runtime.connectors.replay import ReplaySource

    return ReplaySource(options, stream)


def _send_to_files(options: FileSinkOptions, batch: SinkBatch) -> None:
    from headwater.runtime.connectors.file_sink import write_sink_files

    write_sink_files(options, batch)


def _send_to_kafka(options: KafkaSinkOptions, batch: SinkBatch) -> None:
    from headwater.runtime.connectors.kafka.sink import send_messages

    send_messages(options, batch)


def _kafka_jars() -> Sequence[Path]:
    from headwater.runtime.spark.jars import fetch

    return fetch("connector")


_connectors: dict[str, ConnectorSpec] = {
    connector.kind.name: connector
    for connector in (
        ConnectorSpec(
            CONNECTOR_KINDS["files"],
            SourceSpec(FileOptions, file_options, _open_files),
            SinkSpec(FileSinkOptions, file_sink_options, _send_to_files),
        ),
        ConnectorSpec(
            CONNECTOR_KINDS["kafka"],
            SourceSpec(KafkaOptions, kafka_options, _open_kafka),
            SinkSpec(KafkaSinkOptions, kafka_sink_options, _send_to_kafka),
            jars=_kafka_jars,
        ),
        ConnectorSpec(
            CONNECTOR_KINDS["rate"],
            SourceSpec(RateOptions, rate_options, _open_rate, check_rate_columns),
        ),
        ConnectorSpec(
            CONNECTOR_KINDS["socket"], SourceSpec(SocketOptions, socket_options, _open_socket)
        ),
        ConnectorSpec(
            CONNECTOR_KINDS["replay"], SourceSpec(ReplayOptions, replay_options, _open_replay)
        ),
    )
}

CONNECTORS: Mapping[str, ConnectorSpec] = MappingProxyType(_connectors)
"""Every connector by the name of its kind."""


def register_connector(connector: ConnectorSpec) -> None:
    """Add a connector, which CQL accepts from then on; raises HeadwaterError if the name is taken."""
    add_connector_kind(connector.kind)
    _connectors[connector.kind.name] = connector


def unregister_connector(name: str) -> None:
    """Remove a connector; streams and queries that use it cannot be read until it is back."""
    remove_connector_kind(name)
    del _connectors[name]


# ---- what follows from the records


def source_spec(name: str) -> SourceSpec:
    """The source of a kind; raises InputError, naming those there are."""
    connector = CONNECTORS.get(name)
    if connector is None or connector.source is None:
        names = [each.kind.name for each in CONNECTORS.values() if each.source is not None]
        raise InputError(f"there is no source {name}; {suggest(name, names)}")
    return connector.source


def sink_spec(name: str) -> SinkSpec:
    """The sink of a kind; raises InputError, naming those there are."""
    connector = CONNECTORS.get(name)
    if connector is None or connector.sink is None:
        names = [each.kind.name for each in CONNECTORS.values() if each.sink is not None]
        raise InputError(f"there is no sink {name}; {suggest(name, names)}")
    return connector.sink


def source_options(source: Connector, stream: Stream) -> Any:
    """The options of a stream's source; raises InputError if they do not fit."""
    spec = source_spec(source.kind)
    options = spec.parse(source)
    spec.check_stream(stream)
    return options


def open_source(source: Connector, stream: Stream) -> Source:
    """The source of a stream as declared; raises InputError for options that do not fit."""
    return source_spec(source.kind).open(source_options(source, stream), stream)


def sink_options(sink: Connector) -> Any:
    """The options of a query's sink; raises InputError if they do not fit."""
    return sink_spec(sink.kind).parse(sink)


def send_batch(sink: Connector, batch: SinkBatch) -> None:
    """Send rows to a sink; raises InputError for options that do not fit, and what the sink raises."""
    sink_spec(sink.kind).send(sink_options(sink), batch)


def check_source(source: Connector | None, stream: Stream) -> None:
    """Raises InputError if a stream cannot be read from there."""
    if source is not None:
        source_options(source, stream)


def check_table(source: Connector) -> None:
    """Raises InputError if a table cannot be read from there."""
    if source.kind != "files":
        raise InputError(f"a table is read from files(..), not from {source.kind}(..)")
    file_options(source)


def check_sink(sink: Connector | None) -> None:
    """Raises InputError if results cannot be sent there."""
    if sink is not None and sink.kind != "none":
        sink_options(sink)


def required_jars(kinds: set[str]) -> list[Path]:
    """The Java libraries that connectors of these kinds need; raises RuntimeFailure."""
    used = [connector for name, connector in CONNECTORS.items() if name in kinds]
    return [path for each in used if each.jars is not None for path in each.jars()]


def option_names(options: type[OptionsClass]) -> list[str]:
    """The names of a kind's own options; those that it has in common with others are left out."""
    inherited = {
        name for base in options.__mro__[1:] for name in getattr(base, "__annotations__", ())
    }
    return [field.name for field in fields(options) if field.name not in inherited]
