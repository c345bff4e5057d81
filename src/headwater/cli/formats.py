"""The formats in which commands print, and the one for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

import typer


class Format(StrEnum):
    """What a command prints: for people, or one JSON object per line."""

    table = "table"
    json = "json"


class RowFormat(StrEnum):
    """What `eval` prints."""

    table = "table"
    json = "json"
    csv = "csv"


def json_line(values: Mapping[str, object]) -> None:
    """One JSON object on one line of standard output."""
    typer.echo(json.dumps(values, ensure_ascii=False))
