"""What happened to a state: `headwater show events`, as it was recorded in the catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.runtime.catalog import Catalog, EventRow, Json
from headwater.runtime.inspect.views import JsonRecord, format_clock_time

FOLLOW_SECONDS = 0.5
"""Seconds between two looks for new events."""


@dataclass(frozen=True)
class EventFilter:
    """Which events: of a kind, about a stream, query or unit, of the last `seconds`; at most the
    latest `limit`."""

    kind: str | None = None
    name: str | None = None
    seconds: float | None = None
    limit: int = 100


@dataclass(frozen=True)
class EventView:
    """Something that happened: when, what kind, to what, and the details that its kind has."""

    at: float
    kind: str
    subject: str
    detail: Json

    def as_json(self) -> JsonRecord:
        return {
            "at": format_clock_time(self.at),
            "kind": self.kind,
            "subject": self.subject,
            "detail": self.detail,
        }


def event_view(event: EventRow) -> EventView:
    return EventView(event.at, event.kind, event.subject, event.detail)


def read_events(
    catalog: Catalog, event_filter: EventFilter, follow: bool = False
) -> Iterator[EventView]:
    """The events of a filter; with `follow` also those to come, without end."""
    subjects = None if event_filter.name is None else _event_subjects(catalog, event_filter.name)
    since = None if event_filter.seconds is None else time.time() - event_filter.seconds
    kind = event_filter.kind
    # Read before the events: what comes in between is then found by the next look.
    newest = catalog.events(limit=1)
    events = catalog.events(kind=kind, subjects=subjects, since=since, limit=event_filter.limit)
    while True:
        yield from map(event_view, events)
        if not follow:
            return
        newest = events[-1:] or newest
        time.sleep(FOLLOW_SECONDS)
        after = newest[0].id if newest else 0
        events = catalog.events(after, kind=kind, subjects=subjects)


def _event_subjects(catalog: Catalog, name: str) -> set[str]:
    """The subjects of events about a name: for a query, also its unit."""
    query = catalog.query(name)
    return {name.lower(), *([query.unit_id] if query is not None else [])}
