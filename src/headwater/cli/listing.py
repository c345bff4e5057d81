"""`headwater show`, `status` and `health`: listings and summaries read from the catalog.

A listing has one record per item. JSON output has all keys of the record; a table has selected columns,
formatted for people. JSON keys are an interface for programs: table headings may change, keys do not.
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

if TYPE_CHECKING:
    from headwater.plan.placement.loads import Load

Record = dict[str, Any]

FOLLOW_SECONDS = 0.5


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


def format_clock_time(at: float) -> str:
    """A clock time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_load(used: dict[str, float | None]) -> str:
    """The amount used, and the capacity if there is one."""
    amount, limit = used["used"] or 0.0, used["limit"]
    return f"{amount:,.3g}" if limit is None else f"{amount:,.3g} of {limit:,.3g}"


def format_instant(micros: int | None) -> str | None:
    return None if micros is None else format_timestamp(micros)


@dataclass(frozen=True)
class ListingColumn:
    """A column of a table: the key of the record, whether it is numeric, how a value is formatted, and the
    heading if it is not the key."""

    key: str
    numeric: bool = False
    format: Callable[[Any], str] = format_value
    heading: str = ""


SITE_STATES = {"there": "up", "away": "down"}
"""How tables show the states of sites; the keys are JSON values that programs read."""

COLUMNS: dict[ListingKind, tuple[ListingColumn, ...]] = {
    ListingKind.streams: (
        ListingColumn("stream"),
        ListingColumn("rows", True, format_count),
        ListingColumn("rate", True, format_rate),
        ListingColumn("pending", True, format_count, "backlog"),
        ListingColumn("watermark"),
        ListingColumn("lag", True, format_seconds),
        ListingColumn("late", True, format_count),
        ListingColumn("malformed", True, format_count),
        ListingColumn("state"),
        ListingColumn("waits_for", False, format_names, "waiting for"),
        ListingColumn("source"),
    ),
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
    ListingKind.units: (
        ListingColumn("unit"),
        ListingColumn("state"),
        ListingColumn("queries", False, format_names),
        ListingColumn("pending", True, format_count, "backlog"),
        ListingColumn("lag", True, format_seconds),
        ListingColumn("rows", True, format_count),
        ListingColumn("bytes", True, format_size),
        ListingColumn("steps", True, format_count),
        ListingColumn("step", True, format_seconds, "step time"),
        ListingColumn("wait", True, format_seconds),
        ListingColumn("slowdown", True, format_factor),
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
    columns = COLUMNS[what]
    rows = [[column.format(record[column.key]) for column in columns] for record in records]
    print_rows([(column.heading or column.key, column.numeric) for column in columns], rows)


# ---- records


def stream_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    views = Observer(catalog).overview(queries=False).streams
    _check_name("stream", name, [view.row.spelled for view in views])
    for view in views:
        if _matches(name, view.row.name):
            yield {
                "stream": view.row.spelled,
                "rows": view.rows,
                "bytes": view.bytes,
                "pending": view.backlog,
                "watermark": format_instant(view.row.watermark),
                "lag": view.lag / 1e6,
                "rate": view.rate,
                "bytes_rate": view.bytes_rate,
                "late": view.row.late,
                "malformed": view.row.malformed,
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
                "pending": view.backlog,
                "lag": view.lag / 1e6,
                "rows": view.rows,
                "bytes": view.bytes,
                "steps": view.steps,
                "step": view.step_seconds,
                "last_step": view.last_seconds,
                "wait": view.wait,
                "wait_slowdown": view.slowdown,
                "slowdown": view.mean_slowdown,
                "inputs": list(view.row.inputs),
                "digest": view.row.digest,
                "error": view.row.error or None,
                "definition": view.row.definition,
            }


def segment_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    logs = {row.name: stream_log(row.name) for row in catalog.streams()}
    logs |= {row.id: unit_log(row.id) for row in catalog.units()}
    # A query has no log of its own: its results are in the log of its unit.
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
            # The newest last, where a terminal shows them.
            for reject in reversed(catalog.rejects(row.name)):
                yield {
                    "stream": row.spelled,
                    "at": format_clock_time(reject.at),
                    "place": reject.place,
                    "column": reject.column,
                    "reason": reject.reason,
                    "record": reject.record,
                }


def site_records(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    # Here, because it loads the planner, which is slow.
    from headwater.runtime.inspect.sites import site_views

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
    # JSON has no infinity.
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


def _matches(name: str | None, candidate: str) -> bool:
    # Names of the language are case-insensitive.
    return name is None or name.lower() == candidate.lower()


def _check_name(kind: str, name: str | None, available: Sequence[str] | dict[str, str]) -> None:
    if name is not None and name.lower() not in {k.lower() for k in available}:
        fail(f"there is no {kind} {name}; {suggest(name, available)}")


def _source_text(row: StreamRow | TableRow) -> str:
    """A short description of the source of a stream or table."""
    if row.source is not None:  # NULL in the catalogs of earlier releases
        return row.source
    from headwater.cql import CreateStream, CreateTable, parse  # here, because it is slow to load
    from headwater.runtime.submit.statements import describe_source

    (statement,) = parse(row.definition)
    assert isinstance(statement, CreateStream | CreateTable)
    return describe_source(statement)


# ---- events


@dataclass(frozen=True)
class EventFilter:
    """Which events to show: a kind, a stream, query or unit, the last `seconds`, the latest `limit`."""

    kind: str | None = None
    name: str | None = None
    seconds: float | None = None
    limit: int = 100


def show_events(catalog: Catalog, event_filter: EventFilter, follow: bool, format: Format) -> None:
    """Print events; with `follow`, new ones too until interrupted."""
    subjects = None if event_filter.name is None else _event_subjects(catalog, event_filter.name)
    since = None if event_filter.seconds is None else time.time() - event_filter.seconds
    events = catalog.events(
        kind=event_filter.kind, subjects=subjects, since=since, limit=event_filter.limit
    )
    last = catalog.events(limit=1)  # of any kind: the position to follow from if no event matches
    if not events and not follow and format is Format.table:
        typer.echo("there are no events")
    while True:
        for event in events:
            _print_event(event, format)
        if not follow:
            return
        last = events[-1:] or last
        time.sleep(FOLLOW_SECONDS)
        # By number, not by time: clocks of several processes differ, and two events may share a time.
        after = last[0].id if last else 0
        events = catalog.events(after, kind=event_filter.kind, subjects=subjects)


def _event_subjects(catalog: Catalog, name: str) -> set[str]:
    """The subjects of events about a name: for a query its unit too."""
    query = catalog.query(name)
    return {name.lower(), *([query.unit_id] if query is not None else [])}


def _print_event(event: EventRow, format: Format) -> None:
    record = _event_record(event)
    if format is Format.json:
        print_json(record)
    else:
        typer.echo(f"{record['at']}  {_format_event(record)}")


def _format_event(event: Record) -> str:
    """`stream unread: s (error: ..)`; details without a value are left out."""
    detail = ", ".join(
        f"{key}: {'; '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in event["detail"].items()
        if value not in (None, "", [])
    )
    return f"{event['kind']}: {event['subject']}" + (f" ({detail})" if detail else "")


# ---- health and status


def show_health(catalog: Catalog, format: Format) -> int:
    """Print whether the state is healthy, and the reasons if not; returns the exit status."""
    report = check_health(catalog)
    if format is Format.json:
        names = {0: "healthy", 1: "failing", 2: "not running"}
        print_json({"health": names[report.status], **asdict(report)})
    else:
        for reason in report.reasons:
            typer.echo(reason)
        if not report.reasons:
            typer.echo(f"healthy: run by {', '.join(report.engine)}")
    return report.status


def show_status(catalog: Catalog, state: Path, format: Format) -> int:
    """Print a status summary; returns the exit status, 1 if something is parked or failing."""
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
        for label, text in _status_lines(record, overview):
            typer.echo(f"{label:<10}{text}")
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
    yield "engine", f"running as {engine}" if engine else "not running"
    dropped = f"{format_count(record['late'])} late, {format_count(record['malformed'])} malformed"
    yield (
        "streams",
        f"{record['streams']}: {pluralize(record['rows_in'], 'row')} ingested, {dropped}",
    )
    yield "tables", str(record["tables"])
    yield (
        "queries",
        f"{format_states(record['queries'])}: {pluralize(record['rows_out'], 'row')} emitted",
    )
    yield (
        "units",
        f"{format_states(record['units'])}: backlog {pluralize(record['pending'], 'row')}",
    )
    if record["steps"]:
        slowest = f"{format_seconds(record['step'])} per step in the slowest unit"
        yield "steps", f"{format_count(record['steps'])}, {slowest}"
    for stream, queries in record["waits"].items():
        yield "waiting", f"{stream}, until {format_names(queries)} catches up"
    if any(view.row.sink is not None for view in overview.queries):
        yield "sinks", f"{pluralize(record['undelivered'], 'row')} not delivered yet"
    for reason in record["failing"]:
        yield "failing", reason
    for reason in record["warnings"]:
        yield "warning", reason
    for event in record["events"]:
        yield "event", f"{event['at']} {_format_event(event)}"


def format_states(counts: Counter[str]) -> str:
    """`3 running, 1 paused`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none"
