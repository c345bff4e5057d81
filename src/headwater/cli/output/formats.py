"""Output formats of the commands, and how JSON and counts are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

import typer


class Format(StrEnum):
    """Output of most commands: a table, or one JSON object per line."""

    table = "table"
    json = "json"


class RowFormat(StrEnum):
    """Output of `eval` and `results`."""

    table = "table"
    json = "json"
    csv = "csv"


class ListingKind(StrEnum):
    """What `show` lists."""

    streams = "streams"
    tables = "tables"
    queries = "queries"
    units = "units"
    segments = "segments"
    rejects = "rejects"
    sites = "sites"
    links = "links"
    events = "events"


def print_json(values: Mapping[str, object]) -> None:
    """Print one JSON object on one line."""
    typer.echo(json.dumps(values, ensure_ascii=False))


def pluralize(number: int, thing: str) -> str:
    """`1 query`, `2 queries`, `3,000 rows`."""
    plural = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"
