"""Whether a state is healthy, and if not, why: `headwater health`, and the failures in `status`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.runtime.catalog import Catalog, EventRow, stream_log
from headwater.runtime.catalog.deployment import alive_sites, current_deployment
from headwater.runtime.inspect.status import Observer, Overview
from headwater.runtime.inspect.views import JsonRecord, to_plain
from headwater.runtime.leases import lease_holders

RECENT_SECONDS = 600.0
"""Events about streams and files count as current problems for this many seconds."""

RECENT_EVENTS = {
    "stream unread": "stream {subject} cannot be read: {error}",
    "file set aside": "a file of stream {subject} was set aside: {path}: {error}",
    "late-share": "an unusual share of stream {subject} is late{share}",
    "reject-share": "an unusual share of stream {subject} is rejected{share}",
}
"""Kinds of events that count while they are recent, and the sentence for each."""

SHARE_EVENTS = ("late-share", "reject-share")
"""Kinds that are also statistics of a stream's log: 1 while the share is unusual."""


@dataclass(frozen=True)
class Health:
    """Which processes run the state, what has stopped or fails (`failing`), and what somebody should
    look at (`warnings`), a sentence each."""

    engine: tuple[str, ...]
    failing: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        stopped = () if self.engine else ("no engine runs this state: headwater run starts one",)
        return (*stopped, *self.failing, *self.warnings)

    @property
    def status(self) -> int:
        """The exit status: 0 if all is well, 1 if something is wrong, 2 if no engine runs."""
        return 2 if not self.engine else 1 if self.reasons else 0

    def as_json(self) -> JsonRecord:
        words = {0: "healthy", 1: "failing", 2: "not running"}
        return {"health": words[self.status], **to_plain(self)}


def check_health(
    catalog: Catalog, overview: Overview | None = None, now: float | None = None
) -> Health:
    """The health of a state; an `overview` that the caller has already is used."""
    at = time.time() if now is None else now
    overview = overview or Observer(catalog).overview()
    return Health(
        tuple(sorted(lease_holders(catalog.leases(), at))),
        tuple(_failing(catalog, overview)),
        tuple(_warnings(catalog, at)),
    )


def _failing(catalog: Catalog, overview: Overview) -> Iterator[str]:
    for view in overview.units:
        of = f"unit {view.row.id} ({_format_names(view.queries)})"
        if view.row.state == "parked":
            again = f"; headwater resume {view.queries[0]} tries again" if view.queries else ""
            yield f"{of} is parked: {view.row.error}{again}"
        elif view.row.error:
            yield f"{of} failed {view.row.retries} times and is tried again: {view.row.error}"
    for query in overview.queries:
        if query.row.state == "parked":
            name = query.row.spelled
            yield f"query {name} is parked: {query.row.error}; headwater resume {name} tries again"
        if query.sink_error:
            yield f"the sink of query {query.row.spelled} fails: {query.sink_error}"
    sites = current_deployment(catalog)
    if sites is not None:
        alive = alive_sites(catalog)
        for site in sites.network.sites:
            if site.name not in alive:
                yield f"site {site.name} is away"


def _warnings(catalog: Catalog, now: float) -> Iterator[str]:
    """The last event of each kind about each subject; an unusual share for as long as it lasts, however
    long ago it was reported."""
    last: dict[tuple[str, str], EventRow] = {}
    for kind in RECENT_EVENTS:
        for event in catalog.events(kind=kind, since=now - RECENT_SECONDS, limit=1_000):
            last[kind, event.subject] = event
    logs = {stream_log(row.name): row.name for row in catalog.streams()}
    # An alarm is raised once: without the statistic one that lasts would be forgotten as not
    # recent.
    for kind in SHARE_EVENTS:
        for log, raised in catalog.statistic_by_owner(logs, kind).items():
            for event in catalog.events(kind=kind, subject=logs[log], limit=1) if raised else ():
                last[kind, logs[log]] = event
    for (kind, subject), event in last.items():
        values = {"error": "", "path": "", **(event.detail or {}), "subject": subject}
        share = values.get("share")
        values["share"] = f": {share:.1%}" if isinstance(share, float) else ""
        yield RECENT_EVENTS[kind].format(**values)


def _format_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
