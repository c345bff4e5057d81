"""Lists of what a state has: `headwater show`, one view for each thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headwater.errors import HeadwaterError, suggest
from headwater.runtime.catalog import (
    Catalog,
    RejectRow,
    Segment,
    TableRow,
    stream_log,
    unit_log,
)
from headwater.runtime.inspect.status import Observer, declared_source
from headwater.runtime.inspect.views import JsonRecord, View, format_clock_time, format_instant


class UnknownObject(HeadwaterError):
    """A list was narrowed to a name that the state does not have; the message suggests others."""


@dataclass(frozen=True)
class TableView:
    """A table, its version and its source."""

    row: TableRow

    def as_json(self) -> JsonRecord:
        return {
            "table": self.row.spelled,
            "version": self.row.version,
            "source": declared_source(self.row),
            "definition": self.row.definition,
        }


@dataclass(frozen=True)
class SegmentView:
    """A segment of a log, with the range of its event times."""

    segment: Segment

    def as_json(self) -> JsonRecord:
        segment = self.segment
        return {
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


@dataclass(frozen=True)
class RejectView:
    """A record that a stream rejected, and why."""

    stream: str
    reject: RejectRow

    def as_json(self) -> JsonRecord:
        return {
            "stream": self.stream,
            "at": format_clock_time(self.reject.at),
            "place": self.reject.place,
            "column": self.reject.column,
            "reason": self.reject.reason,
            "record": self.reject.record,
        }


def list_views(catalog: Catalog, kind: str, name: str | None = None) -> list[View]:
    """The views of a kind, which is a key of LISTS; `name` narrows them to one stream, table, query,
    unit or site. Raises UnknownObject if the state does not have that."""
    return list(LISTS[kind](catalog, name))


def _streams(catalog: Catalog, name: str | None) -> Iterator[View]:
    views = Observer(catalog).overview(queries=False).streams
    _check_name("stream", name, [view.row.spelled for view in views])
    yield from (view for view in views if _matches(name, view.row.name))


def _tables(catalog: Catalog, name: str | None) -> Iterator[View]:
    rows = catalog.tables()
    _check_name("table", name, [row.spelled for row in rows])
    yield from (TableView(row) for row in rows if _matches(name, row.name))


def _queries(catalog: Catalog, name: str | None) -> Iterator[View]:
    rows = catalog.queries()
    _check_name("query", name, [row.spelled for row in rows])
    # Narrowed before their rows are counted, for which files may have to be read.
    yield from Observer(catalog).query_views(row for row in rows if _matches(name, row.name))


def _units(catalog: Catalog, name: str | None) -> Iterator[View]:
    views = Observer(catalog).overview(queries=False).units
    _check_name("unit", name, [view.row.id for view in views])
    yield from (view for view in views if _matches(name, view.row.id))


def _segments(catalog: Catalog, name: str | None) -> Iterator[View]:
    logs = {row.name: stream_log(row.name) for row in catalog.streams()}
    logs |= {row.id: unit_log(row.id) for row in catalog.units()}
    if name is not None and (query := catalog.query(name)) is not None:
        logs[query.name] = unit_log(query.unit_id)
    _check_name("stream, query or unit", name, list(logs))
    for log in logs.values() if name is None else [logs[name.lower()]]:
        yield from map(SegmentView, catalog.segments(log))


def _rejects(catalog: Catalog, name: str | None) -> Iterator[View]:
    rows = catalog.streams()
    _check_name("stream", name, [row.spelled for row in rows])
    for row in rows:
        if _matches(name, row.name):
            for reject in reversed(catalog.rejects(row.name)):
                yield RejectView(row.spelled, reject)


def _sites(catalog: Catalog, name: str | None) -> Iterator[View]:
    from headwater.runtime.inspect.sites import site_views  # loads the planner, which is slow

    views = list(site_views(catalog))
    _check_name("site", name, [view.name for view in views])
    yield from (view for view in views if _matches(name, view.name))


def _links(catalog: Catalog, name: str | None) -> Iterator[View]:
    from headwater.runtime.inspect.sites import link_views

    views = list(link_views(catalog))
    _check_name("site with a link", name, [end for v in views for end in (v.origin, v.target)])
    yield from (v for v in views if _matches(name, v.origin) or _matches(name, v.target))


LISTS: dict[str, Callable[[Catalog, str | None], Iterable[View]]] = {
    "streams": _streams,
    "tables": _tables,
    "queries": _queries,
    "units": _units,
    "segments": _segments,
    "rejects": _rejects,
    "sites": _sites,
    "links": _links,
}


def _matches(name: str | None, this: str) -> bool:
    return name is None or name.lower() == this.lower()


def _check_name(kind: str, name: str | None, available: list[str]) -> None:
    if name is not None and name.lower() not in {known.lower() for known in available}:
        raise UnknownObject(f"there is no {kind} {name}; {suggest(name, available)}")
