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
from headwater.cli.files import fail
from headwater.cli.formats import Format, What, counted, json_line
from headwater.cli.plain_tables import print_rows
from headwater.errors import nearest
from headwater.runtime.catalog import (
    Catalog,
    Event,
    StreamRow,
    TableRow,
    in_words,
    stream_log,
    unit_log,
)
from headwater.runtime.health import health
from headwater.runtime.overview import Observer, Overview, holders

if TYPE_CHECKING:
    from headwater.plan.placement.loads import Load

Record = dict[str, Any]

FOLLOW_SECONDS = 0.5


# ---- words for people


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def seconds(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f} s"


def times(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f}x"


def rate(number: float) -> str:
    """Rows in a second."""
    return f"{number:,.0f}/s"


def text(value: object) -> str:
    return "" if value is None else str(value)


def names(values: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(values[:3])
    return f"{shown} and {len(values) - 3} more" if len(values) > 3 else shown


def moment(at: float) -> str:
    """A time of the clock."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def load(used: dict[str, float | None]) -> str:
    """How much is used, and of how much."""
    taken, limit = used["used"] or 0.0, used["limit"]
    return f"{taken:,.3g}" if limit is None else f"{taken:,.3g} of {limit:,.3g}"


def instant(micros: int | None) -> str | None:
    return None if micros is None else format_timestamp(micros)


@dataclass(frozen=True)
class Shown:
    """A column of a table: the key of the record, whether it holds numbers, and how to word it."""

    key: str
    numeric: bool = False
    word: Callable[[Any], str] = text


COLUMNS: dict[What, tuple[Shown, ...]] = {
    What.streams: (
        Shown("stream"),
        Shown("rows", True, count),
        Shown("rate", True, rate),
        Shown("pending", True, count),
        Shown("watermark"),
        Shown("lag", True, seconds),
        Shown("late", True, count),
        Shown("malformed", True, count),
        Shown("state"),
        Shown("waits_for", False, names),
        Shown("source"),
    ),
    What.tables: (Shown("table"), Shown("version", True), Shown("source")),
    What.queries: (
        Shown("query"),
        Shown("state"),
        Shown("rows", True, count),
        Shown("unit"),
        Shown("start"),
        Shown("end"),
        Shown("error"),
    ),
    What.units: (
        Shown("unit"),
        Shown("state"),
        Shown("queries", False, names),
        Shown("pending", True, count),
        Shown("lag", True, seconds),
        Shown("rows", True, count),
        Shown("bytes", True, size),
        Shown("steps", True, count),
        Shown("step", True, seconds),
        Shown("wait", True, seconds),
        Shown("slowdown", True, times),
        Shown("error"),
    ),
    What.segments: (
        Shown("log"),
        Shown("seq", True),
        Shown("rows", True, count),
        Shown("bytes", True, size),
        Shown("least"),
        Shown("largest"),
        Shown("path"),
    ),
    What.rejects: (
        Shown("stream"),
        Shown("at"),
        Shown("place"),
        Shown("column"),
        Shown("reason"),
        Shown("record"),
    ),
    What.sites: (
        Shown("site"),
        Shown("state"),
        Shown("streams", False, names),
        Shown("units", True, lambda units: count(len(units))),
        Shown("queries", True, count),
        Shown("cpu", True, load),
        Shown("memory", True, load),
        Shown("in", True, load),
        Shown("out", True, load),
        Shown("master"),
    ),
    What.links: (
        Shown("link"),
        Shown("carries", False, names),
        Shown("planned", True, load),
        Shown("rate", True, lambda value: f"{size(value)}/s"),
        Shown("bytes", True, size),
    ),
}


def show(catalog: Catalog, what: What, name: str | None, format: Format) -> None:
    """Print a listing; `name` narrows it to one stream, table, query, unit or site."""
    records = list(RECORDS[what](catalog, name))
    if format is Format.json:
        for record in records:
            json_line(record)
        return
    if not records:
        typer.echo(f"there are no {what.value}")
        return
    columns = COLUMNS[what]
    rows = [[column.word(record[column.key]) for column in columns] for record in records]
    print_rows([(column.key, column.numeric) for column in columns], rows)


# ---- records


def streams(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    views = Observer(catalog).overview(queries=False).streams
    _check_name("stream", name, [view.row.spelled for view in views])
    for view in views:
        if _wanted(name, view.row.name):
            yield {
                "stream": view.row.spelled,
                "rows": view.rows,
                "bytes": view.bytes,
                "pending": view.pending,
                "watermark": instant(view.row.watermark),
                "lag": view.lag / 1e6,
                "rate": view.rate,
                "bytes_rate": view.bytes_rate,
                "late": view.row.late,
                "malformed": view.row.malformed,
                "state": view.state,
                "waits_for": list(view.waits_for),
                "source": _source(view.row),
                "definition": view.row.definition,
            }


def tables(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.tables()
    _check_name("table", name, [row.spelled for row in rows])
    for row in rows:
        if _wanted(name, row.name):
            yield {
                "table": row.spelled,
                "version": row.version,
                "source": _source(row),
                "definition": row.definition,
            }


def queries(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.queries()
    _check_name("query", name, [row.spelled for row in rows])
    chosen = [row for row in rows if _wanted(name, row.name)]
    for view in Observer(catalog).queries(chosen):
        row = view.row
        yield {
            "query": row.spelled,
            "state": view.state,
            "rows": view.rows,
            "unit": row.unit_id,
            "digest": row.digest,
            "start": instant(row.start_at),
            "end": instant(row.end_at),
            "sink": None if row.sink is None else in_words(row.sink["kind"], row.sink["options"]),
            "undelivered": view.undelivered,
            "error": view.error or None,
            "definition": row.definition,
        }


def units(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    views = Observer(catalog).overview(queries=False).units
    _check_name("unit", name, [view.row.id for view in views])
    for view in views:
        if _wanted(name, view.row.id):
            yield {
                "unit": view.row.id,
                "state": view.state,
                "queries": list(view.queries),
                "pending": view.pending,
                "lag": view.lag / 1e6,
                "rows": view.rows,
                "bytes": view.bytes,
                "steps": view.steps,
                "step": view.seconds,
                "last_step": view.last,
                "wait": view.wait,
                "wait_slowdown": view.slowdown,
                "slowdown": view.usual_slowdown,
                "inputs": list(view.row.inputs),
                "digest": view.row.digest,
                "error": view.row.error or None,
                "definition": view.row.definition,
            }


def segments(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    logs = {row.name: stream_log(row.name) for row in catalog.streams()}
    logs |= {row.id: unit_log(row.id) for row in catalog.units()}
    if name is not None and (query := catalog.query(name)) is not None:
        logs[query.name] = unit_log(query.unit_id)
    _check_name("stream, query or unit", name, logs)
    wanted = list(logs.values()) if name is None else [logs[name.lower()]]
    for log in wanted:
        for found in catalog.segments(log):
            yield {
                "log": found.log,
                "seq": found.seq,
                "first_seq": found.first_seq,
                "rows": found.rows,
                "bytes": found.bytes,
                "least": instant(found.least_time),
                "largest": instant(found.largest_time),
                "watermark": instant(found.watermark),
                "path": found.path,
            }


def rejects(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    rows = catalog.streams()
    _check_name("stream", name, [row.spelled for row in rows])
    for row in rows:
        if _wanted(name, row.name):
            for refused in reversed(catalog.rejects(row.name)):
                yield {
                    "stream": row.spelled,
                    "at": moment(refused.at),
                    "place": refused.place,
                    "column": refused.column,
                    "reason": refused.reason,
                    "record": refused.record,
                }


def sites(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    from headwater.runtime.sites.report import site_views  # brings the planner, which takes a while

    views = list(site_views(catalog))
    _check_name("site", name, [view.name for view in views])
    for view in views:
        if _wanted(name, view.name):
            yield {
                "site": view.name,
                "state": "there" if view.there else "away",
                "streams": list(view.streams),
                "units": list(view.units),
                "queries": view.queries,
                "cpu": _load(view.cpu),
                "memory": _load(view.memory),
                "in": _load(view.bandwidth_in),
                "out": _load(view.bandwidth_out),
                "master": view.master,
                "store": view.store,
            }


def links(catalog: Catalog, name: str | None = None) -> Iterator[Record]:
    from headwater.runtime.sites.report import link_views

    views = list(link_views(catalog))
    _check_name("site with a link", name, [end for v in views for end in (v.origin, v.target)])
    for view in views:
        if name is None or _wanted(name, view.origin) or _wanted(name, view.target):
            yield {
                "link": f"{view.origin} -> {view.target}",
                "carries": list(view.logs),
                "planned": _load(view.planned),
                "rate": view.rate,
                "bytes": view.bytes,
            }


def _load(found: Load) -> dict[str, float | None]:
    limit = None if math.isinf(found.capacity) else found.capacity
    return {"used": found.used, "limit": limit}


RECORDS: dict[What, Callable[[Catalog, str | None], Iterator[Record]]] = {
    What.streams: streams,
    What.tables: tables,
    What.queries: queries,
    What.units: units,
    What.segments: segments,
    What.rejects: rejects,
    What.sites: sites,
    What.links: links,
}


def _wanted(name: str | None, this: str) -> bool:
    return name is None or name.lower() == this.lower()


def _check_name(kind: str, name: str | None, known: Sequence[str] | dict[str, str]) -> None:
    if name is not None and name.lower() not in {k.lower() for k in known}:
        fail(f"there is no {kind} {name}; {nearest(name, known)}")


def _source(row: StreamRow | TableRow) -> str:
    """Where a stream or table reads from, in a few words."""
    if row.source is not None:
        return row.source
    from headwater.cql import CreateStream, CreateTable, parse  # which takes longer than the rest
    from headwater.runtime.submit import source_words

    (statement,) = parse(row.definition)
    assert isinstance(statement, CreateStream | CreateTable)
    return source_words(statement)


# ---- events


@dataclass(frozen=True)
class Wanted:
    """Which events: of a kind, about a stream, query or unit, since so many seconds; the latest so many."""

    kind: str | None = None
    name: str | None = None
    seconds: float | None = None
    most: int = 100


def show_events(catalog: Catalog, wanted: Wanted, follow: bool, format: Format) -> None:
    """Print what happened, and if asked what happens from now on."""
    subjects = None if wanted.name is None else _subjects(catalog, wanted.name)
    since = None if wanted.seconds is None else time.time() - wanted.seconds
    found = catalog.events(kind=wanted.kind, subjects=subjects, since=since, limit=wanted.most)
    last = catalog.events(limit=1)
    if not found and not follow and format is Format.table:
        typer.echo("there are no events")
    while True:
        for event in found:
            _print_event(event, format)
        if not follow:
            return
        last = found[-1:] or last
        time.sleep(FOLLOW_SECONDS)
        after = last[0].id if last else 0
        found = catalog.events(after, kind=wanted.kind, subjects=subjects)


def _subjects(catalog: Catalog, name: str) -> set[str]:
    """Whom events about a name are about: also the unit of a query."""
    query = catalog.query(name)
    return {name.lower(), *([query.unit_id] if query is not None else [])}


def _print_event(event: Event, format: Format) -> None:
    record = _event(event)
    if format is Format.json:
        json_line(record)
    else:
        typer.echo(f"{record['at']}  {_in_line(record)}")


def _in_line(event: Record) -> str:
    detail = ", ".join(f"{key}: {value}" for key, value in event["detail"].items())
    return f"{event['kind']} {event['subject']} {detail}".rstrip()


# ---- health and status


def show_health(catalog: Catalog, format: Format) -> int:
    """Print whether all is well, and what is not; returns the exit status."""
    found = health(catalog)
    if format is Format.json:
        words = {0: "healthy", 1: "failing", 2: "not running"}
        json_line({"health": words[found.status], **asdict(found)})
    else:
        for reason in found.reasons:
            typer.echo(reason)
        if not found.reasons:
            typer.echo(f"all is well: {', '.join(found.engine)} runs this state")
    return found.status


def status(catalog: Catalog, state: Path, format: Format) -> int:
    """Print the state of all in a few lines; returns the exit status, 1 if something is parked or
    fails."""
    overview = Observer(catalog).overview()
    running = holders(catalog.leases())
    found = health(catalog, overview)
    record = _status(catalog, state, overview, running) | {
        "failing": list(found.failing),
        "warnings": list(found.warnings),
    }
    if format is Format.json:
        json_line(record)
    else:
        for name, words in _in_words(record, overview):
            typer.echo(f"{name:<10}{words}")
    return 1 if found.failing else 0


def _status(catalog: Catalog, state: Path, overview: Overview, running: dict[str, float]) -> Record:
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
        "pending": overview.pending,
        "rate": sum(view.rate for view in overview.streams),
        "lag": max((view.lag / 1e6 for view in overview.streams), default=0.0),
        "waits": {v.row.spelled: list(v.waits_for) for v in overview.streams if v.waits_for},
        "steps": sum(view.steps for view in overview.units),
        "step": max((view.seconds or 0.0 for view in overview.units), default=0.0),
        "rows_out": sum(view.rows for view in overview.queries),
        "undelivered": overview.undelivered,
        "bytes": sum(v.bytes for v in overview.streams) + sum(v.bytes for v in overview.units),
        "events": [_event(event) for event in catalog.events(limit=5)],
    }


def _event(event: Event) -> Record:
    return {
        "at": moment(event.at),
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
    }


def _in_words(record: Record, overview: Overview) -> Iterator[tuple[str, str]]:
    yield "state", f"{record['state']}, {size(record['bytes'])} of segments"
    engine = ", ".join(record["engine"])
    yield "engine", f"runs as {engine}" if engine else "does not run"
    refused = f"{count(record['late'])} late and {count(record['malformed'])} malformed"
    yield "streams", f"{record['streams']}: {counted(record['rows_in'], 'row')}; {refused} refused"
    yield "tables", str(record["tables"])
    yield "queries", f"{states(record['queries'])}: {counted(record['rows_out'], 'row')}"
    yield "units", f"{states(record['units'])}: {counted(record['pending'], 'row')} to work on"
    if record["steps"]:
        longest = f"in the slowest unit {seconds(record['step'])} each"
        yield "steps", f"{count(record['steps'])}, {longest}"
    for stream, waited_for in record["waits"].items():
        yield "waits", f"{stream}, until {names(waited_for)} caught up"
    if any(view.row.sink is not None for view in overview.queries):
        yield "sinks", f"{counted(record['undelivered'], 'row')} to deliver"
    for reason in record["failing"]:
        yield "failing", reason
    for reason in record["warnings"]:
        yield "warning", reason
    for event in record["events"]:
        yield "event", f"{event['at']} {_in_line(event)}"


def states(counted: Counter[str]) -> str:
    """`3 running, 1 paused`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(counted.items())) or "none"
