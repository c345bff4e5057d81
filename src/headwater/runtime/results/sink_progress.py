"""The progress of sinks, read from the catalog alone.

A sink has two cursors: the last segment of the unit's log that was sent, and the last failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.runtime.catalog import Catalog, QueryRow, unit_log

FAILURE = "failure"


def sink_owner(query: str) -> str:
    """The owner of the cursors and the lease of a query's sink."""
    return f"sink:{query}"


@dataclass(frozen=True)
class Delivery:
    """The last sequence number of the unit's log that was sent, and the last failure since."""

    query: QueryRow
    seq: int = 0
    failure: Mapping[str, Any] = field(default_factory=dict)

    def cursors_after_sending(self, seq: int) -> dict[tuple[str, str], Any]:
        """The cursors after sending up to a sequence number."""
        owner = sink_owner(self.query.name)
        position = {"seq": seq, "accepted": self.query.accepted_at}
        cursors: dict[tuple[str, str], Any] = {(owner, unit_log(self.query.unit_id)): position}
        # A cursor cannot be None: an empty failure is none. Most deliveries need not write it.
        if self.failure:
            cursors[owner, FAILURE] = {}
        return cursors

    def cursors_after_failure(
        self, message: str, retries: int, failed_at: float, not_before: float
    ) -> dict[tuple[str, str], Any]:
        """The cursors after a failure, with its time and that before which it is not to be retried."""
        failure = {
            "error": message,
            "retries": retries,
            "failed_at": failed_at,
            "not_before": not_before,
        }
        return {(sink_owner(self.query.name), FAILURE): failure}


def read_delivery(catalog: Catalog, query: QueryRow) -> Delivery:
    """The progress of a query's sink."""
    cursors = catalog.cursors(sink_owner(query.name))
    position = cursors.get(unit_log(query.unit_id)) or {}
    # The cursor may be of a dropped query of the same name: then nothing of this one was sent.
    seq = int(position["seq"]) if position.get("accepted") == query.accepted_at else 0
    return Delivery(query, seq, cursors.get(FAILURE) or {})


def pending_deliveries(catalog: Catalog) -> list[Delivery]:
    """The queries with results that their sinks have not received, except paused ones.

    A query whose end is unknown has no results yet.
    """
    queries = [
        query
        for query in catalog.queries(with_sink=True)
        if query.state != "paused" and not query.has_unknown_end
    ]
    ends = catalog.log_ends() if queries else {}
    deliveries = [
        read_delivery(catalog, query) for query in queries if unit_log(query.unit_id) in ends
    ]
    return [
        pending for pending in deliveries if pending.seq < ends[unit_log(pending.query.unit_id)].seq
    ]


def has_deliveries_to_await(catalog: Catalog, retries: int, since: float) -> bool:
    """Whether a sink has results to send and has not failed more often than `retries` in a row, the last
    time since then: what failed in an earlier run is tried once more."""
    return any(
        pending.failure.get("retries", 0) <= retries or pending.failure.get("failed_at", 0) < since
        for pending in pending_deliveries(catalog)
    )
