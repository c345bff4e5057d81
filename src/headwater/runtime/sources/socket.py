"""Lines that a TCP server sends, buffered until a batch of them is taken in.

A reader in the background connects, and connects again when the server goes away. When the buffer
is full it stops reading, so that the server has to wait. A socket cannot be read twice: what
was received and not yet committed is lost with the process. A batch that was not committed while the
process lives is given again.
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
from headwater.runtime.catalog import Refused
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import SocketOptions
from headwater.runtime.sources.base import Batch, Position, Tuples
from headwater.runtime.sources.parse import LINE, read_lines

LONGEST_LINE = 1 << 20
BUFFERED_BYTES = 64 << 20
CONNECT_SECONDS = 3.0
AGAIN_SECONDS = 1.0
"""How long to wait before connecting again."""


@dataclass(frozen=True)
class Line:
    """What stood before a line feed; not `whole` if there was none, or it came too late."""

    text: str
    whole: bool = True


class Reader:
    """Fills a buffer of bounded size with lines from a server."""

    def __init__(self, host: str, port: int, most: int = BUFFERED_BYTES) -> None:
        self.address = (host, port)
        self.most = most
        self.trouble = ""
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._changed = Condition()
        self._closed = False
        self._connection: socket.socket | None = None
        Thread(target=self._run, name=f"socket {host}:{port}", daemon=True).start()

    @property
    def buffered(self) -> int:
        """How much is waiting to be taken."""
        return self._bytes

    def take(self, count: int) -> list[Line]:
        """Up to so many lines, which leave the buffer."""
        with self._changed:
            taken = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._bytes -= sum(len(line.text) for line in taken)
            self._changed.notify()
            return taken

    def close(self) -> None:
        """Disconnect; the thread ends by itself."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        host, port = self.address
        while not self._closed:
            try:
                with socket.create_connection(self.address, CONNECT_SECONDS) as connection:
                    connection.settimeout(None)
                    self._connection = connection
                    self.trouble = ""
                    with connection.makefile("rb") as file:
                        self._read(file)
                self.trouble = f"the server at {host}:{port} closed the connection"
            except OSError as error:
                self.trouble = f"no lines from {host}:{port}: {error}"
            with self._changed:
                self._changed.wait_for(lambda: self._closed, AGAIN_SECONDS)

    def _read(self, file: BinaryIO) -> None:
        while not self._closed:
            raw = file.readline(LONGEST_LINE)
            if not raw:
                return
            whole = raw.endswith(b"\n")
            if raw.strip():
                self._put(Line(raw.decode("utf-8", "surrogateescape").rstrip("\r\n"), whole))
            while not whole and raw:
                raw = file.readline(LONGEST_LINE)
                whole = raw.endswith(b"\n")

    def _put(self, line: Line) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < self.most)
            self._lines.append(line)
            self._bytes += len(line.text)


@dataclass
class Socket:
    """Lines of a server, one record each."""

    options: SocketOptions
    schema: Schema
    finite: bool = False
    waits: bool = False
    _reader: Reader | None = field(default=None, repr=False)
    _given: list[Line] = field(default_factory=list, repr=False)
    _given_from: int = 0

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        if self._reader is None:
            self._reader = Reader(self.options.host, self.options.port)
        done = int(position.get("lines", 0))
        if done != self._given_from or not self._given:
            self._given = self._reader.take(self.options.rows_per_step)
            self._given_from = done
        if self._given:
            after = {"lines": done + len(self._given)}
            return Batch([self._tuples(self._given, done)], after, _place)
        if self._reader.trouble:
            raise InputError(self._reader.trouble)
        return None

    def _tuples(self, lines: Sequence[Line], first: int) -> Tuples:
        whole = [n for n, line in enumerate(lines) if line.whole]
        cut = [
            Refused("ends without a line feed, or is too long", line.text, _place(first + n))
            for n, line in enumerate(lines)
            if not line.whole
        ]
        texts = [lines[n].text.encode("utf-8", "surrogateescape") for n in whole]
        piece = read_lines(texts, self.options.format, self.schema, self.options.timestamp_unit)
        places = [first + whole[n] for n in piece.table[LINE].to_pylist()]
        table = piece.table.drop_columns([LINE])
        refused = [
            Refused(m.why, m.record, _place(first + whole[m.line]), m.column) for m in piece.misfits
        ]
        return Tuples(table.append_column(ARRIVAL, pa.array(places, pa.int64())), [*refused, *cut])

    def close(self) -> None:
        """Disconnect; lines in the buffer are lost."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._given = None, []


def _place(arrival: int) -> str:
    return f"line {arrival + 1} received"
