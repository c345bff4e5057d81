"""A state in a few numbers: `headwater status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.runtime.catalog import Catalog
from headwater.runtime.inspect.events import EventView, event_view
from headwater.runtime.inspect.health import check_health
from headwater.runtime.inspect.status import Observer
from headwater.runtime.inspect.views import JsonRecord, to_plain
from headwater.runtime.metrics.sharing import SharingSummary, describe_sharing, read_sharing

LAST_EVENTS = 5


@dataclass(frozen=True)
class StatusSummary:
    """A state in numbers, with what fails, what warns, and the last events.

    `sharing` is what sharing saved when that was last computed. `queries` and `units` are counted by state; `waits` names for each stream that ingests nothing the
    queries that it waits for. `lag` is in seconds of event time, `step` are the usual seconds of a
    step of the slowest unit.
    """

    state: str
    catalog: str
    engine: tuple[str, ...]
    streams: int
    rows_in: int
    late: int
    malformed: int
    tables: int
    queries: Mapping[str, int]
    units: Mapping[str, int]
    backlog: int
    rate: float
    lag: float
    waits: Mapping[str, tuple[str, ...]]
    steps: int
    step: float
    rows_out: int
    has_sinks: bool
    undelivered: int
    bytes: int
    events: tuple[EventView, ...]
    failing: tuple[str, ...]
    warnings: tuple[str, ...]
    sharing: SharingSummary | None = None

    @property
    def sharing_texts(self) -> list[str]:
        """What sharing saves, in words; nothing where no query shares."""
        return [] if self.sharing is None else describe_sharing(self.sharing)

    def as_json(self) -> JsonRecord:
        return {
            "state": self.state,
            "catalog": self.catalog,
            "engine": list(self.engine),
            "streams": self.streams,
            "rows_in": self.rows_in,
            "late": self.late,
            "malformed": self.malformed,
            "tables": self.tables,
            "queries": dict(self.queries),
            "units": dict(self.units),
            "pending": self.backlog,
            "rate": self.rate,
            "lag": self.lag,
            "waits": {stream: list(queries) for stream, queries in self.waits.items()},
            "steps": self.steps,
            "step": self.step,
            "rows_out": self.rows_out,
            "undelivered": self.undelivered,
            "bytes": self.bytes,
            "events": [event.as_json() for event in self.events],
            "failing": list(self.failing),
            "warnings": list(self.warnings),
            "sharing": to_plain(self.sharing),
        }


def summarize(catalog: Catalog, state: str) -> StatusSummary:
    """The summary of a state, which the caller calls `state`."""
    overview = Observer(catalog).overview()
    health = check_health(catalog, overview)
    streams, units, queries = overview.streams, overview.units, overview.queries
    return StatusSummary(
        state=state,
        catalog=catalog.name,
        engine=health.engine,
        streams=len(streams),
        rows_in=sum(view.rows for view in streams),
        late=sum(view.row.late for view in streams),
        malformed=sum(view.row.malformed for view in streams),
        tables=len(catalog.tables()),
        queries=Counter(view.state for view in queries),
        units=Counter(view.state for view in units),
        backlog=overview.backlog,
        rate=sum(view.rate for view in streams),
        lag=max((view.lag / 1e6 for view in streams), default=0.0),
        waits={view.row.spelled: view.waits_for for view in streams if view.waits_for},
        steps=sum(view.steps for view in units),
        step=max((view.step_seconds or 0.0 for view in units), default=0.0),
        rows_out=sum(view.rows for view in queries),
        has_sinks=any(view.row.sink is not None for view in queries),
        undelivered=overview.undelivered,
        bytes=sum(view.bytes for view in streams) + sum(view.bytes for view in units),
        events=tuple(map(event_view, catalog.events(limit=LAST_EVENTS))),
        failing=health.failing,
        warnings=health.warnings,
        sharing=read_sharing(catalog),
    )
