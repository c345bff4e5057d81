"""What a source or sink says of itself, checked when it is declared and not when it is first used.

Each kind has a frozen dataclass whose fields are its options, and a function that reads them from the
statement and raises InputError with what would have been possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from headwater.algebra.catalog import Stream
from headwater.algebra.times import TIMESTAMP_UNITS
from headwater.cql.statements import Connector
from headwater.errors import InputError, is_url, suggest
from headwater.runtime.connectors.kafka_access import KafkaAccess, parse_access, refuse_secrets

FORMATS = ("json", "csv", "parquet")
LINE_FORMATS = ("json", "csv")
STARTS = ("earliest", "latest")
ISOLATIONS = ("read_committed", "read_uncommitted")
ROWS_PER_STEP = 100_000
MAX_LINE_BYTES = 1 << 30
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class FileOptions:
    """Where the files of a stream or table are, and how they are read."""

    path: str
    format: str
    files_per_step: int = 64
    timestamp_unit: str | None = None
    max_line_bytes: int | None = None
    """The bytes that a record may have; None for what holds where nothing is said."""


@dataclass(frozen=True)
class KafkaOptions(KafkaAccess):
    """A topic, the form of its messages, where to begin in it, and whether messages of transactions
    that are open or were aborted are read."""

    servers: str
    topic: str
    format: str = "json"
    start: str = "earliest"
    rows_per_step: int = ROWS_PER_STEP
    timestamp_unit: str | None = None
    isolation: str = "read_committed"


@dataclass(frozen=True)
class RateOptions:
    """How many tuples are made in a second."""

    rows_per_second: int
    rows_per_step: int = ROWS_PER_STEP


@dataclass(frozen=True)
class SocketOptions:
    """A server that sends lines, and their form."""

    host: str
    port: int
    format: str = "json"
    rows_per_step: int = ROWS_PER_STEP
    timestamp_unit: str | None = None


@dataclass(frozen=True)
class ReplayOptions:
    """Files with all of the input, and how much faster than it happened they are fed."""

    path: str
    format: str
    speed: float = 1.0
    rows_per_step: int = ROWS_PER_STEP
    timestamp_unit: str | None = None
    max_line_bytes: int | None = None


@dataclass(frozen=True)
class FileSinkOptions:
    """The folder that results are written to, and their form."""

    path: str
    format: str = "json"


@dataclass(frozen=True)
class KafkaSinkOptions(KafkaAccess):
    """The topic that results are sent to."""

    servers: str
    topic: str


SourceOptions = FileOptions | KafkaOptions | RateOptions | SocketOptions | ReplayOptions
SinkOptions = FileSinkOptions | KafkaSinkOptions

EXAMPLES: dict[type, str] = {
    FileOptions: "files(path => 'in/flights', format => 'json')",
    KafkaOptions: "kafka(servers => 'localhost:9092', topic => 'flights', format => 'json')",
    RateOptions: "rate(rows_per_second => 10)",
    SocketOptions: "socket(host => 'localhost', port => 9999, format => 'json')",
    ReplayOptions: "replay(path => 'in/flights.csv', speed => 10)",
    FileSinkOptions: "files(path => 'out/gates', format => 'json')",
    KafkaSinkOptions: "kafka(servers => 'localhost:9092', topic => 'gates')",
}


# ---- reading options


@dataclass(frozen=True)
class _OptionReader:
    """The options of a connector as they were written, read one by one."""

    kind: str
    values: dict[str, Any]
    target: type

    @classmethod
    def of(cls, connector: Connector, target: type) -> _OptionReader:
        """Raises InputError for an option that is unknown, or needed and not there."""
        values = dict(connector.options)
        refuse_secrets(values)
        names = [field.name for field in fields(target)]
        for name in values:
            if name not in names:
                raise InputError(f"{connector.kind} has no option {name}; {suggest(name, names)}")
        return cls(connector.kind, values, target)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            what = name if name.endswith("s") else f"a {name}"
            raise InputError(f"{self.kind} needs {what}: {EXAMPLES[self.target]}")
        return value

    def path(self) -> str:
        value = self.text("path")
        if is_url(value):
            raise InputError(
                f"the path of {self.kind} is in a folder of this machine, not {value}: mount that, "
                "and name the folder"
            )
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        chosen = str(self.values.get(name, default)).lower()
        if chosen not in allowed:
            verb = "cannot read" if name == "format" else f"has no {name}"
            raise InputError(f"{self.kind} {verb} {chosen}; {suggest(chosen, allowed)}")
        return chosen

    def timestamp_unit(self) -> str | None:
        value = self.values.get("timestamp_unit")
        return None if value is None else self.choice("timestamp_unit", tuple(TIMESTAMP_UNITS), "")

    def whole_number(self, name: str, largest: int | None = None) -> int:
        default = next(field.default for field in fields(self.target) if field.name == name)
        value = self.values.get(name, None if default is MISSING else default)
        if value is None:
            raise InputError(f"{self.kind} needs {name}: {EXAMPLES[self.target]}")
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not fits or (largest is not None and value > largest):
            to = f" to {largest}" if largest is not None else " on"
            raise InputError(f"{name} is a whole number from 1{to}, not {value!r}")
        return int(value)

    def max_line_bytes(self) -> int | None:
        name = "max_line_bytes"
        return self.whole_number(name, MAX_LINE_BYTES) if name in self.values else None

    def positive_number(self, name: str) -> float:
        value = self.values.get(name, 1)
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool) or value <= 0:
            raise InputError(f"{name} is a number above 0, not {value!r}")
        return float(value)

    def servers(self) -> str:
        value = self.text("servers")
        for server in value.split(","):
            parse_server(server)
        return value.replace(" ", "")

    def topic(self) -> str:
        value = self.text("topic")
        if not TOPIC.fullmatch(value) or value in (".", ".."):
            raise InputError(f"{value!r} is no topic: letters, digits, dots, dashes, underscores")
        return value


def parse_server(server: str) -> tuple[str, int]:
    """Host and port of `host:port`; raises InputError."""
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InputError(f"servers are named host:port, with commas between them, not {server!r}")
    return host.strip("[]"), int(port)


def _guess_format(path: str) -> str:
    """The format that the name of a file speaks of; JSON lines if it says nothing."""
    suffix = Path(path).suffix.lstrip(".").replace("jsonl", "json")
    return suffix if suffix in FORMATS else "json"


# ---- sources


def file_options(source: Connector) -> FileOptions:
    """The options of a `files(..)`; raises InputError, naming what there is."""
    reader = _OptionReader.of(source, FileOptions)
    path = reader.path()
    format = reader.choice("format", FORMATS, _guess_format(path))
    per_step, max_line_bytes = reader.whole_number("files_per_step"), reader.max_line_bytes()
    return FileOptions(path, format, per_step, reader.timestamp_unit(), max_line_bytes)


def _kafka_options(source: Connector) -> KafkaOptions:
    reader = _OptionReader.of(source, KafkaOptions)
    return KafkaOptions(
        reader.servers(),
        reader.topic(),
        reader.choice("format", LINE_FORMATS, "json"),
        reader.choice("start", STARTS, "earliest"),
        reader.whole_number("rows_per_step"),
        reader.timestamp_unit(),
        reader.choice("isolation", ISOLATIONS, "read_committed"),
        **vars(parse_access(reader.values)),
    )


def _rate_options(source: Connector) -> RateOptions:
    reader = _OptionReader.of(source, RateOptions)
    return RateOptions(
        reader.whole_number("rows_per_second", 1_000_000), reader.whole_number("rows_per_step")
    )


def _socket_options(source: Connector) -> SocketOptions:
    reader = _OptionReader.of(source, SocketOptions)
    return SocketOptions(
        reader.text("host"),
        reader.whole_number("port", 65535),
        reader.choice("format", LINE_FORMATS, "json"),
        reader.whole_number("rows_per_step"),
        reader.timestamp_unit(),
    )


def _replay_options(source: Connector) -> ReplayOptions:
    reader = _OptionReader.of(source, ReplayOptions)
    path = reader.path()
    format = reader.choice("format", FORMATS, _guess_format(path))
    rows, unit = reader.whole_number("rows_per_step"), reader.timestamp_unit()
    max_line_bytes = reader.max_line_bytes()
    return ReplayOptions(path, format, reader.positive_number("speed"), rows, unit, max_line_bytes)


_SOURCE_PARSERS: dict[str, Callable[[Connector], SourceOptions]] = {
    "files": file_options,
    "kafka": _kafka_options,
    "rate": _rate_options,
    "socket": _socket_options,
    "replay": _replay_options,
}


def source_options(source: Connector, stream: Stream) -> SourceOptions:
    """The options of a stream's source; raises InputError if they do not fit."""
    if source.kind not in _SOURCE_PARSERS:
        raise InputError(
            f"there is no source {source.kind}; {suggest(source.kind, _SOURCE_PARSERS)}"
        )
    options = _SOURCE_PARSERS[source.kind](source)
    if isinstance(options, RateOptions):
        _check_rate_columns(stream)
    return options


def _check_rate_columns(stream: Stream) -> None:
    for column in stream.schema:
        if column.name.lower() != stream.time.lower() and column.type.name != "BIGINT":
            raise InputError(
                f"rate makes a time and numbers: {stream.name}.{column.name} is {column.type}, "
                "and can only be BIGINT"
            )


def check_source(source: Connector | None, stream: Stream) -> None:
    """Raises InputError if a stream cannot be read from there."""
    if source is not None:
        source_options(source, stream)


def check_table(source: Connector) -> None:
    """Raises InputError if a table cannot be read from there."""
    if source.kind != "files":
        raise InputError(f"a table is read from files(..), not from {source.kind}(..)")
    file_options(source)


# ---- sinks


def sink_options(sink: Connector) -> SinkOptions:
    """The options of a query's sink; raises InputError if they do not fit."""
    match sink.kind:
        case "files":
            reader = _OptionReader.of(sink, FileSinkOptions)
            return FileSinkOptions(reader.path(), reader.choice("format", FORMATS, "json"))
        case "kafka":
            reader = _OptionReader.of(sink, KafkaSinkOptions)
            access = vars(parse_access(reader.values))
            return KafkaSinkOptions(reader.servers(), reader.topic(), **access)
    raise InputError(f"there is no sink {sink.kind}; {suggest(sink.kind, ('files', 'kafka'))}")


def check_sink(sink: Connector | None) -> None:
    """Raises InputError if results cannot be sent there."""
    if sink is not None and sink.kind != "none":
        sink_options(sink)
