"""Lines from a TCP server as a source, buffered until they are ingested.

A background thread connects, and reconnects when the server goes away. When the buffer is full it
stops reading, so that the server has to wait. A socket cannot be read twice: lines that were
received but not committed are lost with the process. While the process lives, an uncommitted batch
is returned again.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.algebra.types import Schema
from headwater.errors import InputError
from headwater.runtime.catalog import RejectedRecord
from headwater.runtime.connectors.base import Batch, Position, TupleChunk
from headwater.runtime.connectors.options import SocketOptions
from headwater.runtime.connectors.record_parser import LINE, read_lines
from headwater.runtime.storage.columns import ARRIVAL

MAX_LINE_BYTES = 1 << 20
MAX_BUFFERED_BYTES = 64 << 20
CONNECT_SECONDS = 3.0
RETRY_SECONDS = 1.0
"""Pause before reconnecting."""


@dataclass(frozen=True)
class SocketLine:
    """A received line; not `is_complete` if it had no line feed or was too long."""

    text: str
    is_complete: bool = True


class LineReader:
    """A thread that fills a bounded buffer with lines from a server."""

    def __init__(self, host: str, port: int, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self.address = (host, port)
        self.max_bytes = max_bytes
        self.error = ""
        self._lines: deque[SocketLine] = deque()
        self._bytes = 0
        self._condition = Condition()
        self._closed = False
        self._connection: socket.socket | None = None
        # A daemon, as it may wait for a line for ever while the process is to end.
        Thread(target=self._run, name=f"socket {host}:{port}", daemon=True).start()

    @property
    def buffered_bytes(self) -> int:
        """The size of the lines in the buffer."""
        return self._bytes

    def take(self, count: int) -> list[SocketLine]:
        """Remove up to `count` lines from the buffer and return them."""
        with self._condition:
            lines = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._bytes -= sum(len(line.text) for line in lines)
            self._condition.notify()
            return lines

    def close(self) -> None:
        """Disconnect; the thread ends by itself."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            if self._connection is not None:
                with suppress(OSError):  # close() alone would not wake a thread blocked in recv
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        host, port = self.address
        while not self._closed:
            try:
                with socket.create_connection(self.address, CONNECT_SECONDS) as connection:
                    # The timeout is for connecting: a server may have nothing to say for hours.
                    connection.settimeout(None)
                    self._connection = connection
                    self.error = ""
                    with connection.makefile("rb") as file:
                        self._read(file)
                self.error = f"the server at {host}:{port} closed the connection"
            except OSError as error:
                self.error = f"no lines from {host}:{port}: {error}"
            with self._condition:
                self._condition.wait_for(lambda: self._closed, RETRY_SECONDS)

    def _read(self, file: BinaryIO) -> None:
        while not self._closed:
            raw = file.readline(MAX_LINE_BYTES)
            if not raw:
                return
            is_complete = raw.endswith(b"\n")
            if raw.strip():
                self._put(
                    # Bytes that are no UTF-8 come to the parser as they are, so that it rejects
                    # their line alone.
                    SocketLine(raw.decode("utf-8", "surrogateescape").rstrip("\r\n"), is_complete)
                )
            while not is_complete and raw:  # skip the rest of a line that is too long
                raw = file.readline(MAX_LINE_BYTES)
                is_complete = raw.endswith(b"\n")

    def _put(self, line: SocketLine) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._bytes < self.max_bytes)
            self._lines.append(line)
            self._bytes += len(line.text)


@dataclass
class SocketSource:
    """The lines of a server, one record each."""

    options: SocketOptions
    schema: Schema
    finite: bool = False
    expects_more: bool = False
    _reader: LineReader | None = field(default=None, repr=False)
    _pending: list[SocketLine] = field(default_factory=list, repr=False)
    _pending_start: int = 0

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        if self._reader is None:
            self._reader = LineReader(self.options.host, self.options.port)
        done = int(position.get("lines", 0))
        # The position has not moved: the last batch was not committed, and is returned again.
        if done != self._pending_start or not self._pending:
            self._pending = self._reader.take(self.options.rows_per_step)
            self._pending_start = done
        if self._pending:
            after = {"lines": done + len(self._pending)}
            return Batch([self._build_chunk(self._pending, done)], after, _describe_location)
        # Only when the buffer is empty: what came before the error is ingested first.
        if self._reader.error:
            raise InputError(self._reader.error)
        return None

    def _build_chunk(self, lines: Sequence[SocketLine], first: int) -> TupleChunk:
        complete = [n for n, line in enumerate(lines) if line.is_complete]
        incomplete = [
            RejectedRecord(
                "ends without a line feed, or is too long", line.text, _describe_location(first + n)
            )
            for n, line in enumerate(lines)
            if not line.is_complete
        ]
        texts = [lines[n].text.encode("utf-8", "surrogateescape") for n in complete]
        chunk = read_lines(texts, self.options.format, self.schema, self.options.timestamp_unit)
        arrivals = [first + complete[n] for n in chunk.table[LINE].to_pylist()]
        table = chunk.table.drop_columns([LINE])
        malformed = [
            RejectedRecord(
                m.reason, m.record, _describe_location(first + complete[m.line]), m.column
            )
            for m in chunk.malformed
        ]
        return TupleChunk(
            table.append_column(ARRIVAL, pa.array(arrivals, pa.int64())), [*malformed, *incomplete]
        )

    def close(self) -> None:
        """Disconnect; lines in the buffer are lost."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._pending = None, []


def _describe_location(arrival: int) -> str:
    return f"line {arrival + 1} received"
