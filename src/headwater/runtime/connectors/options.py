"""The options of sources and sinks, checked when they are declared and not when they are first used.

Each kind has a frozen dataclass whose fields are its options, and a function that reads them from the
statement with an `OptionReader` and raises InputError with what would have been possible. Nothing here
loads pyarrow or pyspark: `submit` checks options without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Protocol

from headwater.algebra.catalog import Stream
from headwater.algebra.times import TIMESTAMP_UNITS
from headwater.cql.statements import Connector
from headwater.errors import InputError, is_url, suggest
from headwater.runtime.connectors.kafka.access import KafkaAccess, parse_access, refuse_secrets

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

    EXAMPLE: ClassVar[str] = "files(path => 'in/flights', format => 'json')"

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

    EXAMPLE: ClassVar[str] = (
        "kafka(servers => 'localhost:9092', topic => 'flights', format => 'json')"
    )

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

    EXAMPLE: ClassVar[str] = "rate(rows_per_second => 10)"

    rows_per_second: int
    rows_per_step: int = ROWS_PER_STEP


@dataclass(frozen=True)
class SocketOptions:
    """A server that sends lines, and their form."""

    EXAMPLE: ClassVar[str] = "socket(host => 'localhost', port => 9999, format => 'json')"

    host: str
    port: int
    format: str = "json"
    rows_per_step: int = ROWS_PER_STEP
    timestamp_unit: str | None = None


@dataclass(frozen=True)
class ReplayOptions:
    """Files with all of the input, and how much faster than it happened they are fed."""

    EXAMPLE: ClassVar[str] = "replay(path => 'in/flights.csv', speed => 10)"

    path: str
    format: str
    speed: float = 1.0
    rows_per_step: int = ROWS_PER_STEP
    timestamp_unit: str | None = None
    max_line_bytes: int | None = None


@dataclass(frozen=True)
class FileSinkOptions:
    """The folder that results are written to, and their form."""

    EXAMPLE: ClassVar[str] = "files(path => 'out/gates', format => 'json')"

    path: str
    format: str = "json"


@dataclass(frozen=True)
class KafkaSinkOptions(KafkaAccess):
    """The topic that results are sent to."""

    EXAMPLE: ClassVar[str] = "kafka(servers => 'localhost:9092', topic => 'gates')"

    servers: str
    topic: str


# ---- reading options


class OptionsClass(Protocol):
    """A frozen dataclass: its fields are the options, `EXAMPLE` is shown where one of them is missing."""

    EXAMPLE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class OptionReader:
    """The options of a connector as they were written, read one by one."""

    kind: str
    values: dict[str, Any]
    target: type[OptionsClass]

    @classmethod
    def of(cls, connector: Connector, target: type[OptionsClass]) -> OptionReader:
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
            raise InputError(f"{self.kind} needs {what}: {self.target.EXAMPLE}")
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
            can = "cannot write" if self.target is FileSinkOptions else "cannot read"
            verb = can if name == "format" else f"has no {name}"
            raise InputError(f"{self.kind} {verb} {chosen}; {suggest(chosen, allowed)}")
        return chosen

    def timestamp_unit(self) -> str | None:
        value = self.values.get("timestamp_unit")
        return None if value is None else self.choice("timestamp_unit", tuple(TIMESTAMP_UNITS), "")

    def whole_number(self, name: str, largest: int | None = None) -> int:
        default = next(field.default for field in fields(self.target) if field.name == name)
        value = self.values.get(name, None if default is MISSING else default)
        if value is None:
            raise InputError(f"{self.kind} needs {name}: {self.target.EXAMPLE}")
        # In Python TRUE is an int as well.
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
    # An IPv6 address is written in brackets, as it has colons itself.
    return host.strip("[]"), int(port)


def _guess_format(path: str) -> str:
    """The format that the name of a file speaks of; JSON lines if it says nothing."""
    suffix = Path(path).suffix.lstrip(".").replace("jsonl", "json")
    return suffix if suffix in FORMATS else "json"


# ---- sources


def file_options(source: Connector) -> FileOptions:
    """The options of a `files(..)`; raises InputError, naming what there is."""
    reader = OptionReader.of(source, FileOptions)
    path = reader.path()
    format = reader.choice("format", FORMATS, _guess_format(path))
    per_step, max_line_bytes = reader.whole_number("files_per_step"), reader.max_line_bytes()
    return FileOptions(path, format, per_step, reader.timestamp_unit(), max_line_bytes)


def kafka_options(source: Connector) -> KafkaOptions:
    """The options of a `kafka(..)`; raises InputError."""
    reader = OptionReader.of(source, KafkaOptions)
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


def rate_options(source: Connector) -> RateOptions:
    """The options of a `rate(..)`; raises InputError."""
    reader = OptionReader.of(source, RateOptions)
    return RateOptions(
        reader.whole_number("rows_per_second", 1_000_000), reader.whole_number("rows_per_step")
    )


def check_rate_columns(stream: Stream) -> None:
    """Raises InputError for a stream with columns that a `rate(..)` cannot make."""
    for column in stream.schema:
        if column.name.lower() != stream.time.lower() and column.type.name != "BIGINT":
            raise InputError(
                f"rate makes a time and numbers: {stream.name}.{column.name} is {column.type}, "
                "and can only be BIGINT"
            )


def socket_options(source: Connector) -> SocketOptions:
    """The options of a `socket(..)`; raises InputError."""
    reader = OptionReader.of(source, SocketOptions)
    return SocketOptions(
        reader.text("host"),
        reader.whole_number("port", 65535),
        reader.choice("format", LINE_FORMATS, "json"),
        reader.whole_number("rows_per_step"),
        reader.timestamp_unit(),
    )


def replay_options(source: Connector) -> ReplayOptions:
    """The options of a `replay(..)`; raises InputError."""
    reader = OptionReader.of(source, ReplayOptions)
    path = reader.path()
    format = reader.choice("format", FORMATS, _guess_format(path))
    rows, unit = reader.whole_number("rows_per_step"), reader.timestamp_unit()
    max_line_bytes = reader.max_line_bytes()
    return ReplayOptions(path, format, reader.positive_number("speed"), rows, unit, max_line_bytes)


# ---- sinks


def file_sink_options(sink: Connector) -> FileSinkOptions:
    """The options of a `TO files(..)`; raises InputError."""
    reader = OptionReader.of(sink, FileSinkOptions)
    return FileSinkOptions(reader.path(), reader.choice("format", FORMATS, "json"))


def kafka_sink_options(sink: Connector) -> KafkaSinkOptions:
    """The options of a `TO kafka(..)`; raises InputError."""
    reader = OptionReader.of(sink, KafkaSinkOptions)
    access = vars(parse_access(reader.values))
    return KafkaSinkOptions(reader.servers(), reader.topic(), **access)
