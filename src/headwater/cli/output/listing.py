"""`headwater show`, `status` and `health`: listings and summaries read from the catalog.

A listing has one record per item. JSON output has all keys of the record; a table has selected columns,
formatted for people. JSON keys are an interface for programs: table headings may change, keys do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headwater.cli.cql_files import fail
from headwater.cli.output.formats import Format, ListingKind, pluralize, print_json
from headwater.cli.output.plain_tables import print_rows
from headwater.runtime.catalog import Catalog
from headwater.runtime.inspect.events import EventFilter, EventView, read_events
from headwater.runtime.inspect.health import check_health
from headwater.runtime.inspect.listing import UnknownObject, list_views
from headwater.runtime.inspect.summary import StatusSummary, summarize
from headwater.runtime.inspect.views import format_clock_time
from headwater.runtime.metrics.registry import MetricSubject, MetricUnit, metrics_of

# ---- formatting


def format_count(number: int) -> str:
    return f"{number:,}"


def format_size(number: int) -> str:
    """A number of bytes, such as `1.5 MB`."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def format_seconds(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f} s"


def format_factor(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f}x"


def format_rate(number: float) -> str:
    """Rows per second."""
    return f"{number:,.0f}/s"


def format_value(value: object) -> str:
    return "" if value is None else str(value)


def format_names(values: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    shown = ", ".join(values[:3])
    return f"{shown} and {len(values) - 3} more" if len(values) > 3 else shown


def format_load(used: dict[str, float | None]) -> str:
    """The amount used, and the capacity if there is one."""
    amount, limit = used["used"] or 0.0, used["limit"]
    return f"{amount:,.3g}" if limit is None else f"{amount:,.3g} of {limit:,.3g}"


@dataclass(frozen=True)
class ListingColumn:
    """A column of a table: the key of the record, whether it is numeric, how a value is formatted, and the
    heading if it is not the key."""

    key: str
    numeric: bool = False
    format: Callable[[Any], str] = format_value
    heading: str = ""


METRIC_FORMATS: dict[MetricUnit, Callable[[Any], str]] = {
    MetricUnit.COUNT: format_count,
    MetricUnit.BYTES: format_size,
    MetricUnit.SECONDS: format_seconds,
    MetricUnit.ROWS_PER_SECOND: format_rate,
    MetricUnit.BYTES_PER_SECOND: lambda value: f"{format_size(round(value))}/s",
    MetricUnit.FACTOR: format_factor,
}

METRIC_HEADINGS = {"pending": "backlog", "step": "step time"}
"""Headings that differ from the JSON keys, which programs read."""

SITE_STATES = {"there": "up", "away": "down"}
"""How tables show the states of sites; the keys are JSON values that programs read."""

COLUMNS: dict[ListingKind, tuple[ListingColumn, ...]] = {
    ListingKind.tables: (
        ListingColumn("table"),
        ListingColumn("version", True),
        ListingColumn("source"),
    ),
    ListingKind.queries: (
        ListingColumn("query"),
        ListingColumn("state"),
        ListingColumn("rows", True, format_count),
        ListingColumn("unit"),
        ListingColumn("start"),
        ListingColumn("end"),
        ListingColumn("error"),
    ),
    ListingKind.segments: (
        ListingColumn("log"),
        ListingColumn("seq", True),
        ListingColumn("rows", True, format_count),
        ListingColumn("bytes", True, format_size),
        ListingColumn("least", heading="min time"),
        ListingColumn("largest", heading="max time"),
        ListingColumn("path"),
    ),
    ListingKind.rejects: (
        ListingColumn("stream"),
        ListingColumn("at", heading="rejected at"),
        ListingColumn("place", heading="location"),
        ListingColumn("column"),
        ListingColumn("reason"),
        ListingColumn("record"),
    ),
    ListingKind.sites: (
        ListingColumn("site"),
        ListingColumn("state", format=lambda state: SITE_STATES[state]),
        ListingColumn("streams", False, format_names),
        ListingColumn("units", True, lambda units: format_count(len(units))),
        ListingColumn("queries", True, format_count),
        ListingColumn("cpu", True, format_load),
        ListingColumn("memory", True, format_load),
        ListingColumn("in", True, format_load, "bytes/s in"),
        ListingColumn("out", True, format_load, "bytes/s out"),
        ListingColumn("master"),
    ),
    ListingKind.links: (
        ListingColumn("link"),
        ListingColumn("carries", False, format_names, "logs"),
        ListingColumn("planned", True, format_load, "planned bytes/s"),
        ListingColumn("rate", True, lambda value: f"{format_size(value)}/s"),
        ListingColumn("bytes", True, format_size, "sent"),
    ),
}


MEASURED_COLUMNS: dict[ListingKind, tuple[MetricSubject, tuple[ListingColumn, ...]]] = {
    ListingKind.streams: (
        MetricSubject.STREAM,
        (
            ListingColumn("stream"),
            ListingColumn("state"),
            ListingColumn("watermark"),
            ListingColumn("waits_for", False, format_names, "waiting for"),
            ListingColumn("source"),
        ),
    ),
    ListingKind.units: (
        MetricSubject.UNIT,
        (
            ListingColumn("unit"),
            ListingColumn("state"),
            ListingColumn("queries", False, format_names),
            ListingColumn("error"),
        ),
    ),
}
"""The columns of what is measured that are no metrics; `LAYOUT` says where metrics stand among them."""

LAYOUT: dict[ListingKind, tuple[str, ...]] = {
    ListingKind.streams: (
        *("stream", "rows", "rate", "pending", "watermark", "lag", "late", "malformed"),
        *("state", "waits_for", "source"),
    ),
    ListingKind.units: (
        *("unit", "state", "queries", "pending", "lag", "rows", "bytes", "steps", "step"),
        *("wait", "slowdown", "error"),
    ),
}


def format_metric(unit: MetricUnit) -> Callable[[Any], str]:
    """How values of a unit are worded; what was not measured yet is left out."""
    return lambda value: "" if value is None else METRIC_FORMATS[unit](value)


def listing_columns(what: ListingKind) -> list[ListingColumn]:
    """The columns of a listing; metrics that the layout does not name stand at the end."""
    if what not in MEASURED_COLUMNS:
        return list(COLUMNS[what])
    subject, others = MEASURED_COLUMNS[what]
    columns = {column.key: column for column in others}
    columns |= {
        metric.name: ListingColumn(
            metric.name, True, format_metric(metric.unit), METRIC_HEADINGS.get(metric.name, "")
        )
        for metric in metrics_of(subject)
        if metric.shown
    }
    further = [key for key in columns if key not in LAYOUT[what]]
    return [columns[key] for key in (*LAYOUT[what], *further)]


def show_listing(catalog: Catalog, what: ListingKind, name: str | None, format: Format) -> None:
    """Print a listing; `name` narrows it to one stream, table, query, unit or site."""
    try:
        records = [view.as_json() for view in list_views(catalog, what.value, name)]
    except UnknownObject as error:
        fail(str(error))
    if format is Format.json:
        for record in records:
            print_json(record)
        return
    if not records:
        typer.echo(f"there are no {what.value}")
        return
    columns = listing_columns(what)
    rows = [[column.format(record[column.key]) for column in columns] for record in records]
    print_rows([(column.heading or column.key, column.numeric) for column in columns], rows)


# ---- events


def show_events(catalog: Catalog, event_filter: EventFilter, follow: bool, format: Format) -> None:
    """Print events; with `follow`, new ones too until interrupted."""
    is_empty = True
    for event in read_events(catalog, event_filter, follow):
        is_empty = False
        if format is Format.json:
            print_json(event.as_json())
        else:
            typer.echo(f"{format_clock_time(event.at)}  {_format_event(event)}")
    if is_empty and format is Format.table:
        typer.echo("there are no events")


def _format_event(event: EventView) -> str:
    """`stream unread: s (error: ..)`; details without a value are left out."""
    detail = ", ".join(
        f"{key}: {'; '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in event.detail.items()
        if value not in (None, "", [])
    )
    return f"{event.kind}: {event.subject}" + (f" ({detail})" if detail else "")


# ---- health and status


def show_health(catalog: Catalog, format: Format) -> int:
    """Print whether the state is healthy, and the reasons if not; returns the exit status."""
    health = check_health(catalog)
    if format is Format.json:
        print_json(health.as_json())
    else:
        for reason in health.reasons:
            typer.echo(reason)
        if not health.reasons:
            typer.echo(f"healthy: run by {', '.join(health.engine)}")
    return health.status


def show_status(catalog: Catalog, state: Path, format: Format) -> int:
    """Print a status summary; returns the exit status, 1 if something is parked or failing."""
    summary = summarize(catalog, str(state))
    if format is Format.json:
        print_json(summary.as_json())
    else:
        for title, text in _status_lines(summary):
            typer.echo(f"{title:<10}{text}")
    return 1 if summary.failing else 0


def _status_lines(status: StatusSummary) -> Iterator[tuple[str, str]]:
    yield "state", f"{status.state}, {format_size(status.bytes)} of segments"
    engine = ", ".join(status.engine)
    yield "engine", f"running as {engine}" if engine else "not running"
    dropped = f"{format_count(status.late)} late, {format_count(status.malformed)} malformed"
    yield "streams", f"{status.streams}: {pluralize(status.rows_in, 'row')} ingested, {dropped}"
    yield "tables", str(status.tables)
    yield "queries", f"{format_states(status.queries)}: {pluralize(status.rows_out, 'row')} emitted"
    yield "units", f"{format_states(status.units)}: backlog {pluralize(status.backlog, 'row')}"
    for text in status.sharing_texts:
        yield "sharing", text
    if status.steps:
        slowest = f"{format_seconds(status.step)} per step in the slowest unit"
        yield "steps", f"{format_count(status.steps)}, {slowest}"
    for stream, queries in status.waits.items():
        yield "waiting", f"{stream}, until {format_names(queries)} catches up"
    if status.has_sinks:
        yield "sinks", f"{pluralize(status.undelivered, 'row')} not delivered yet"
    for reason in status.failing:
        yield "failing", reason
    for reason in status.warnings:
        yield "warning", reason
    for event in status.events:
        yield "event", f"{format_clock_time(event.at)} {_format_event(event)}"


def format_states(counts: Mapping[str, int]) -> str:
    """`3 running, 1 paused`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none"
