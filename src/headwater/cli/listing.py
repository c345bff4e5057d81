"""`headwater show` and `headwater status`: how everything stands, read from the catalog.

A listing is one record for each thing. Programs get all of the record as JSON; people get the
columns of a table, chosen and worded for them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.algebra.times import format_timestamp
from headwater.cli.cql_files import fail
from headwater.cli.formats import Format, ListingKind, pluralize, print_json
from headwater.cli.plain_tables import print_rows
from headwater.errors import suggest
from headwater.runtime.catalog import (
    Catalog,
    EventRow,
    StreamRow,
    TableRow,
    describe_connector,
    stream_log,
    unit_log,
)
from headwater.runtime.inspect.health import check_health
from headwater.runtime.inspect.status import Observer, Overview
from headwater.runtime.leases import lease_holders
from headwater.runtime.metrics.registry import (
    MetricSubject,
    MetricUnit,
    metric_values,
    metrics_of,
)

if TYPE_CHECKING:
    from headwater.plan.placement.loads import Load

Record = dict[str, Any]

FOLLOW_SECONDS = 0.5


# ---- words for people


def format_count(number: int) -> str:
    return f"{number:,}"


def format_size(number: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
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
    """Rows in a second."""
    return f"{number:,.0f}/s"


def format_value(value: object) -> str:
    return "" if value is None else str(value)


def format_names(values: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(values[:3])
    return f"{shown} and {len(values) - 3} more" if len(values) > 3 else shown


def format_clock_time(at: float) -> str:
    """A time of the clock."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_load(used: dict[str, float | None]) -> str:
    """How much is used, and of how much."""
    amount, limit = used["used"] or 0.0, used["limit"]
    return f"{amount:,.3g}" if limit is None else f"{amount:,.3g} of {limit:,.3g}"


def format_instant(micros: int | None) -> str | None:
    return None if micros is None else format_timestamp(micros)


@dataclass(frozen=True)
class ListingColumn:
    """A column of a table: the key of the record, whether it holds numbers, and how to word it."""

    key: str
    numeric: bool = False
    format: Callable[[Any], str] = format_value


METRIC_FORMATS: dict[MetricUnit, Callable[[Any], str]] = {
    MetricUnit.COUNT: format_count,
    MetricUnit.BYTES: format_size,
    MetricUnit.SECONDS: format_seconds,
    MetricUnit.ROWS_PER_SECOND: format_rate,
    MetricUnit.BYTES_PER_SECOND: lambda value: f"{format_size(round(value))}/s",
    MetricUnit.FACTOR: format_factor,
}

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
        ListingColumn("least"),
        ListingColumn("largest"),
        ListingColumn("path"),
    ),
    ListingKind.rejects: (
        ListingColumn("stream"),
        ListingColumn("at"),
        ListingColumn("place"),
        ListingColumn("column"),
        ListingColumn("reason"),
        ListingColumn("record"),
    ),
    ListingKind.sites: (
        ListingColumn("site"),
        ListingColumn("state"),
        ListingColumn("streams", False, format_names),
        ListingColumn("units", True, lambda units: format_count(len(units))),
        ListingColumn("queries", True, format_count),
        ListingColumn("cpu", True, format_load),
        ListingColumn("memory", True, format_load),
        ListingColumn("in", True, format_load),
        ListingColumn("out", True, format_load),
        ListingColumn("master"),
    ),
    ListingKind.links: (
        ListingColumn("link"),
        ListingColumn("carries", False, format_names),
        ListingColumn("planned", True, format_load),
        ListingColumn("rate", True, lambda value: f"{format_size(value)}/s"),
        ListingColumn("bytes", True, format_size),
    ),
}


MEASURED_COLUMNS: dict[ListingKind, tuple[MetricSubject, tuple[ListingColumn, ...]]] = {
    ListingKind.streams: (
        MetricSubject.STREAM,
        (
            ListingColumn("stream"),
            ListingColumn("state"),
            ListingColumn("watermark"),
            ListingColumn("waits_for", False, format_names),
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
        metric.name: ListingColumn(metric.name, True, format_metric(metric.unit))
        for metric in metrics_of(subject)
        if metric.shown
    }
    further = [key for key in columns if key not in LAYOUT[what]]
    return [columns[key] for key in (*LAYOUT[what], *further)]


def show_listing(catalog: Catalog, what: ListingKind, name: str | None, format: Format) -> None:
    """Print a listing; `name` narrows it to one stream, table, query, unit or site."""
    records = list(RECORDS[what](catalog, name))
    if format is Format.json:
        for record in records:
            print_json(record)
        return
    if not records:
        typer.echo(f"there are no {what.value}")
        return
    columns = listing_columns(what)
    rows = [[column.format(record[column.key]) for column in columns] for record in records]
    print_rows([(column.key, column.numeric) for column in columns], rows)


# ---- records


def stream_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    views = Observer(catalog).overview(queries=False).streams
    _check_name("stream", name, [view.row.spelled for view in views])
    for view in views:
        if _matches(name, view.row.name):
            yield {
                "stream": view.row.spelled,
                **metric_values(MetricSubject.STREAM, view),
                "watermark": format_instant(view.row.watermark),
                "state": view.state,
                "waits_for": list(view.waits_for),
                "source": _source_text(view.row),
                "definition": view.row.definition,
            }


def table_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.tables()
    _check_name("table", name, [row.spelled for row in rows])
    for row in rows:
        if _matches(name, row.name):
            yield {
                "table": row.spelled,
                "version": row.version,
                "source": _source_text(row),
                "definition": row.definition,
            }


def query_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.queries()
    _check_name("query", name, [row.spelled for row in rows])
    chosen = [row for row in rows if _matches(name, row.name)]
    for view in Observer(catalog).query_views(chosen):
        row = view.row
        yield {
            "query": row.spelled,
            "state": view.state,
            "rows": view.rows,
            "unit": row.unit_id,
            "digest": row.digest,
            "start": format_instant(row.start_at),
            "end": format_instant(row.end_at),
            "sink": None
            if row.sink is None
            else describe_connector(row.sink["kind"], row.sink["options"]),
            "undelivered": view.undelivered,
            "error": view.error or None,
            "definition": row.definition,
        }


def unit_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    views = Observer(catalog).overview(queries=False).units
    _check_name("unit", name, [view.row.id for view in views])
    for view in views:
        if _matches(name, view.row.id):
            yield {
                "unit": view.row.id,
                "state": view.state,
                "queries": list(view.queries),
                **metric_values(MetricSubject.UNIT, view),
                "inputs": list(view.row.inputs),
                "digest": view.row.digest,
                "error": view.row.error or None,
                "definition": view.row.definition,
            }


def segment_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    logs = {row.name: stream_log(row.name) for row in catalog.streams()}
    logs |= {row.id: unit_log(row.id) for row in catalog.units()}
    if name is not None and (query := catalog.query(name)) is not None:
        logs[query.name] = unit_log(query.unit_id)
    _check_name("stream, query or unit", name, logs)
    listed_logs = list(logs.values()) if name is None else [logs[name.lower()]]
    for log in listed_logs:
        for segment in catalog.segments(log):
            yield {
                "log": segment.log,
                "seq": segment.seq,
                "first_seq": segment.first_seq,
                "rows": segment.rows,
                "bytes": segment.bytes,
                "least": format_instant(segment.least_time),
                "largest": format_instant(segment.largest_time),
                "watermark": format_instant(segment.watermark),
                "path": segment.path,
            }


def reject_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.streams()
    _check_name("stream", name, [row.spelled for row in rows])
    for row in rows:
        if _matches(name, row.name):
            for refused in reversed(catalog.rejects(row.name)):
                yield {
                    "stream": row.spelled,
                    "at": format_clock_time(refused.at),
                    "place": refused.place,
                    "column": refused.column,
                    "reason": refused.reason,
                    "record": refused.record,
                }


def site_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    from headwater.runtime.inspect.sites import (
        site_views,  # brings the planner, which takes a while
    )

    views = list(site_views(catalog))
    _check_name("site", name, [view.name for view in views])
    for view in views:
        if _matches(name, view.name):
            yield {
                "site": view.name,
                "state": "there" if view.is_alive else "away",
                "streams": list(view.streams),
                "units": list(view.units),
                "queries": view.queries,
                "cpu": _load_record(view.cpu),
                "memory": _load_record(view.memory),
                "in": _load_record(view.bandwidth_in),
                "out": _load_record(view.bandwidth_out),
                "master": view.master,
                "store": view.store,
            }


def link_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    from headwater.runtime.inspect.sites import link_views

    views = list(link_views(catalog))
    _check_name("site with a link", name, [end for v in views for end in (v.origin, v.target)])
    for view in views:
        if name is None or _matches(name, view.origin) or _matches(name, view.target):
            yield {
                "link": f"{view.origin} -> {view.target}",
                "carries": list(view.logs),
                "planned": _load_record(view.planned),
                "rate": view.rate,
                "bytes": view.bytes,
            }


def _load_record(load: Load) -> dict[str, float | None]:
    limit = None if math.isinf(load.capacity) else load.capacity
    return {"used": load.used, "limit": limit}


RECORDS: dict[ListingKind, Callable[[Catalog, str | None], Iterator[Record]]] = {
    ListingKind.streams: stream_records,
    ListingKind.tables: table_records,
    ListingKind.queries: query_records,
    ListingKind.units: unit_records,
    ListingKind.segments: segment_records,
    ListingKind.rejects: reject_records,
    ListingKind.sites: site_records,
    ListingKind.links: link_records,
}


def _matches(name: str | None, this: str) -> bool:
    return name is None or name.lower() == this.lower()


def _check_name(kind: str, name: str | None, available: Sequence[str] | dict[str, str]) -> None:
    if name is not None and name.lower() not in {k.lower() for k in available}:
        fail(f"there is no {kind} {name}; {suggest(name, available)}")


def _source_text(row: StreamRow | TableRow) -> str:
    """Where a stream or table reads from, in a few words."""
    if row.source is not None:
        return row.source
    from headwater.cql import CreateStream, CreateTable, parse  # which takes longer than the rest
    from headwater.runtime.submit.statements import describe_source

    (statement,) = parse(row.definition)
    assert isinstance(statement, CreateStream | CreateTable)
    return describe_source(statement)


# ---- events


@dataclass(frozen=True)
class EventFilter:
    """Which events: of a kind, about a stream, query or unit, since so many seconds; the latest so many."""

    kind: str | None = None
    name: str | None = None
    seconds: float | None = None
    limit: int = 100


def show_events(catalog: Catalog, event_filter: EventFilter, follow: bool, format: Format) -> None:
    """Print what happened, and if asked what happens from now on."""
    subjects = None if event_filter.name is None else _event_subjects(catalog, event_filter.name)
    since = None if event_filter.seconds is None else time.time() - event_filter.seconds
    events = catalog.events(
        kind=event_filter.kind, subjects=subjects, since=since, limit=event_filter.limit
    )
    last = catalog.events(limit=1)
    if not events and not follow and format is Format.table:
        typer.echo("there are no events")
    while True:
        for event in events:
            _print_event(event, format)
        if not follow:
            return
        last = events[-1:] or last
        time.sleep(FOLLOW_SECONDS)
        after = last[0].id if last else 0
        events = catalog.events(after, kind=event_filter.kind, subjects=subjects)


def _event_subjects(catalog: Catalog, name: str) -> set[str]:
    """Whom events about a name are about: also the unit of a query."""
    query = catalog.query(name)
    return {name.lower(), *([query.unit_id] if query is not None else [])}


def _print_event(event: EventRow, format: Format) -> None:
    record = _event_record(event)
    if format is Format.json:
        print_json(record)
    else:
        typer.echo(f"{record['at']}  {_format_event(record)}")


def _format_event(event: Record) -> str:
    detail = ", ".join(f"{key}: {value}" for key, value in event["detail"].items())
    return f"{event['kind']} {event['subject']} {detail}".rstrip()


# ---- health and status


def show_health(catalog: Catalog, format: Format) -> int:
    """Print whether all is well, and what is not; returns the exit status."""
    report = check_health(catalog)
    if format is Format.json:
        words = {0: "healthy", 1: "failing", 2: "not running"}
        print_json({"health": words[report.status], **asdict(report)})
    else:
        for reason in report.reasons:
            typer.echo(reason)
        if not report.reasons:
            typer.echo(f"all is well: {', '.join(report.engine)} runs this state")
    return report.status


def show_status(catalog: Catalog, state: Path, format: Format) -> int:
    """Print the state of all in a few lines; returns the exit status, 1 if something is parked or
    fails."""
    overview = Observer(catalog).overview()
    running = lease_holders(catalog.leases())
    report = check_health(catalog, overview)
    record = _status_record(catalog, state, overview, running) | {
        "failing": list(report.failing),
        "warnings": list(report.warnings),
    }
    if format is Format.json:
        print_json(record)
    else:
        for name, words in _status_lines(record, overview):
            typer.echo(f"{name:<10}{words}")
    return 1 if report.failing else 0


def _status_record(
    catalog: Catalog, state: Path, overview: Overview, running: dict[str, float]
) -> Record:
    return {
        "state": str(state),
        "catalog": catalog.name,
        "engine": sorted(running),
        "streams": len(overview.streams),
        "rows_in": sum(view.rows for view in overview.streams),
        "late": sum(view.row.late for view in overview.streams),
        "malformed": sum(view.row.malformed for view in overview.streams),
        "tables": len(catalog.tables()),
        "queries": Counter(view.state for view in overview.queries),
        "units": Counter(view.state for view in overview.units),
        "pending": overview.backlog,
        "rate": sum(view.rate for view in overview.streams),
        "lag": max((view.lag / 1e6 for view in overview.streams), default=0.0),
        "waits": {v.row.spelled: list(v.waits_for) for v in overview.streams if v.waits_for},
        "steps": sum(view.steps for view in overview.units),
        "step": max((view.step_seconds or 0.0 for view in overview.units), default=0.0),
        "rows_out": sum(view.rows for view in overview.queries),
        "undelivered": overview.undelivered,
        "bytes": sum(v.bytes for v in overview.streams) + sum(v.bytes for v in overview.units),
        "events": [_event_record(event) for event in catalog.events(limit=5)],
    }


def _event_record(event: EventRow) -> Record:
    return {
        "at": format_clock_time(event.at),
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
    }


def _status_lines(record: Record, overview: Overview) -> Iterator[tuple[str, str]]:
    yield "state", f"{record['state']}, {format_size(record['bytes'])} of segments"
    engine = ", ".join(record["engine"])
    yield "engine", f"runs as {engine}" if engine else "does not run"
    refused = (
        f"{format_count(record['late'])} late and {format_count(record['malformed'])} malformed"
    )
    yield (
        "streams",
        f"{record['streams']}: {pluralize(record['rows_in'], 'row')}; {refused} refused",
    )
    yield "tables", str(record["tables"])
    yield "queries", f"{format_states(record['queries'])}: {pluralize(record['rows_out'], 'row')}"
    yield (
        "units",
        f"{format_states(record['units'])}: {pluralize(record['pending'], 'row')} to work on",
    )
    if record["steps"]:
        longest = f"in the slowest unit {format_seconds(record['step'])} each"
        yield "steps", f"{format_count(record['steps'])}, {longest}"
    for stream, waited_for in record["waits"].items():
        yield "waits", f"{stream}, until {format_names(waited_for)} caught up"
    if any(view.row.sink is not None for view in overview.queries):
        yield "sinks", f"{pluralize(record['undelivered'], 'row')} to deliver"
    for reason in record["failing"]:
        yield "failing", reason
    for reason in record["warnings"]:
        yield "warning", reason
    for event in record["events"]:
        yield "event", f"{event['at']} {_format_event(event)}"


def format_states(counts: Counter[str]) -> str:
    """`3 running, 1 paused`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none"
