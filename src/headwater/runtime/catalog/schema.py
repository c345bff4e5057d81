"""The tables of the catalog for SQLAlchemy; `migrations` creates them.

Columns are in the order of the fields of the records in `records`, which are built by position.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote_to_bytes

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

from headwater.runtime.catalog.records import Json

metadata = MetaData()


class JsonText(TypeDecorator[Json]):
    """JSON in a text column, the same bytes on every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Json, _dialect: Dialect) -> str | None:
        if value is None:
            return None
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: Any, _dialect: Dialect) -> Json:
        return None if value is None else json.loads(value)


class NameList(JsonText):
    """A tuple of names."""

    cache_ok = True

    def process_result_value(self, value: Any, _dialect: Dialect) -> Json:
        return tuple(json.loads(value))


class SanitizedText(TypeDecorator[str]):
    """Text from outside, with characters replaced that a database rejects: NUL, lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        if value is None:
            return None
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class FileName(TypeDecorator[str]):
    """The path of a file, which need not be valid UTF-8: other bytes are stored as `%XX`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        if value is None:
            return None
        # First, or the % that stands for other bytes below would be replaced as well.
        text = value.replace("%", "%25")
        return "".join(f"%{ord(c) - 0xDC00:02X}" if "\udc80" <= c <= "\udcff" else c for c in text)

    def process_result_value(self, value: Any, _dialect: Dialect) -> str | None:
        return None if value is None else os.fsdecode(unquote_to_bytes(value))


def _key(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, primary_key=True)


meta = Table("meta", metadata, Column("version", Integer), Column("changes", BigInteger))

streams = Table(
    "streams",
    metadata,
    _key("name"),
    Column("spelled", Text),
    Column("definition", Text),
    Column("lateness", BigInteger),
    Column("keep", BigInteger),
    Column("ended", Boolean),
    Column("max_event_time", BigInteger),
    Column("malformed", BigInteger),
    Column("late", BigInteger),
    Column("created_at", Double),
    Column("reopens", Boolean),
    Column("closed_until", BigInteger),
    Column("source", Text),
)

tables = Table(
    "tables",
    metadata,
    _key("name"),
    Column("spelled", Text),
    Column("definition", Text),
    Column("version", BigInteger),
    Column("fingerprint", Text),
    Column("created_at", Double),
    Column("source", Text),
)

units = Table(
    "units",
    metadata,
    _key("id"),
    Column("digest", Text),
    Column("definition", Text),
    Column("inputs", NameList),
    Column("version", Integer),
    Column("state", Text),
    Column("retries", Integer),
    Column("not_before", Double),
    Column("error", SanitizedText),
    Column("created_at", Double),
)

queries = Table(
    "queries",
    metadata,
    _key("name"),
    Column("spelled", Text),
    Column("definition", Text),
    Column("digest", Text),
    Column("unit_id", Text),
    Column("state", Text),
    Column("start_at", BigInteger),
    Column("end_at", BigInteger),
    Column("columns", JsonText),
    Column("sink", JsonText),
    Column("error", SanitizedText),
    Column("accepted_at", Double),
    Column("lifetime", BigInteger),
    Column("result_key", Text),
    Column("keep", BigInteger),
)

members = Table("members", metadata, _key("unit_id"), _key("query"))

logs = Table(
    "logs",
    metadata,
    _key("log"),
    Column("next_seq", BigInteger),
    Column("watermark", BigInteger),
    Column("total_rows", BigInteger),
    Column("total_bytes", BigInteger),
)

segments = Table(
    "segments",
    metadata,
    _key("id", BigInteger),
    Column("log", Text),
    Column("first_seq", BigInteger),
    Column("seq", BigInteger),
    Column("path", Text),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("least_time", BigInteger),
    Column("largest_time", BigInteger),
    Column("watermark", BigInteger),
    Column("first_arrival", BigInteger),
    Column("keys", JsonText),
    Column("pieces", Integer),
    Column("compacted_into", BigInteger),
    Column("created_at", Double),
    Column("digest", BigInteger),
)

batches = Table("batches", metadata, _key("log"), _key("key"), Column("seq", BigInteger))

cursors = Table("cursors", metadata, _key("owner"), _key("input"), Column("position", JsonText))

leases = Table(
    "leases",
    metadata,
    _key("name"),
    Column("holder", Text),
    Column("token", BigInteger),
    Column("expires_at", Double),
)

sites = Table(
    "sites", metadata, _key("name"), Column("definition", JsonText), Column("seen_at", Double)
)

assignments = Table("assignments", metadata, _key("owner"), Column("site", Text))

routes = Table("routes", metadata, _key("log"), _key("site"), Column("origin", Text))

statistics = Table(
    "statistics",
    metadata,
    _key("owner"),
    _key("name"),
    Column("value", Double),
    Column("updated_at", Double),
)

profiles = Table(
    "profiles", metadata, _key("owner"), Column("profile", JsonText), Column("updated_at", Double)
)

events = Table(
    "events",
    metadata,
    _key("id", BigInteger),
    Column("at", Double),
    Column("kind", Text),
    Column("subject", Text),
    Column("detail", JsonText),
)

rejects = Table(
    "rejects",
    metadata,
    _key("id", BigInteger),
    Column("stream", Text),
    Column("at", Double),
    Column("reason", SanitizedText),
    Column("record", SanitizedText),
    Column("place", SanitizedText),
    Column("column", SanitizedText),
)

files = Table(
    "files",
    metadata,
    _key("stream"),
    _key("path", FileName),
    Column("number", BigInteger),
    Column("state", Text),
    Column("mark", JsonText),
)

options = Table("options", metadata, _key("name"), Column("value", Text))
