"""What a source says of itself, checked when it is declared and not when it is first read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.cql.statements import Connector
from headwater.errors import InputError, nearest

FORMATS = ("json", "csv", "parquet")
KINDS = ("files",)
"""The sources that the engine reads."""


@dataclass(frozen=True)
class FileOptions:
    """Where the files of a stream or table are, and how they are read."""

    path: str
    format: str
    files_per_step: int = 64


def file_options(source: Connector) -> FileOptions:
    """The options of a `files(..)`; raises InputError, naming what there is."""
    if source.kind not in KINDS:
        raise InputError(
            f"{source.kind}(..) cannot be read yet; {nearest(source.kind, KINDS)}; "
            "or declare the stream FROM CLIENT and push to it"
        )
    given = dict(source.options)
    known = tuple(FileOptions.__dataclass_fields__)
    for name in given:
        if name not in known:
            raise InputError(f"files has no option {name}; {nearest(name, known)}")
    path = given.get("path")
    if not isinstance(path, str):
        raise InputError("files needs a path: files(path => 'in/flights', format => 'json')")
    guessed = Path(path).suffix.lstrip(".").replace("jsonl", "json")
    chosen = str(given.get("format", guessed if guessed in FORMATS else "json")).lower()
    if chosen not in FORMATS:
        raise InputError(f"files cannot read {chosen}; {nearest(chosen, FORMATS)}")
    count = given.get("files_per_step", 64)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"files_per_step is a whole number from 1 on, not {count!r}")
    return FileOptions(path, chosen, count)


def check_sink(sink: Connector | None) -> None:
    """Raises InputError if results cannot be sent there."""
    if sink is not None and sink.kind != "none":
        raise InputError(
            f"TO {sink.kind}(..) cannot be written yet; leave it out and read the results"
        )
