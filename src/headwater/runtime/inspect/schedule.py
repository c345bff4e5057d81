"""Which unit was chosen last, and why: `headwater explain --schedule`, read from the catalog alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.runtime.catalog import Catalog, Json
from headwater.runtime.engine.scheduler import SCHEDULE
from headwater.runtime.inspect.views import JsonRecord, format_clock_time, to_plain


@dataclass(frozen=True)
class RankedUnit:
    """A unit that competed for the step, in the order of the policy, with the queries that it serves."""

    name: str
    rank: float
    wait: float
    slowdown: float
    pending: int
    overdue: bool
    queries: tuple[str, ...]


@dataclass(frozen=True)
class ScheduleView:
    """The last choice of the engine: which unit, by which policy, when and why, and all that competed."""

    name: str
    policy: str
    formula: str
    at: float
    bound: float | None
    ranking: tuple[RankedUnit, ...]
    why: str

    def as_json(self) -> JsonRecord:
        record: JsonRecord = to_plain(self)
        return record | {"at": format_clock_time(self.at)}


def last_choice(catalog: Catalog) -> ScheduleView | None:
    """The last choice that an engine recorded; None if nothing has run on this state."""
    profile = catalog.profile(SCHEDULE)
    if profile is None:
        return None
    # Dropped units too: the choice may be older than the drop.
    queries = {
        row.id: [query.spelled for query in catalog.subscribers(row.id) if not query.is_hidden]
        for row in catalog.units(dropped=True)
    }
    stored = profile.value
    return ScheduleView(
        name=stored["name"],
        policy=stored["policy"],
        formula=stored["formula"],
        at=stored["at"],
        bound=stored["bound"],
        ranking=tuple(_read_ranked(unit, queries) for unit in stored["ranking"]),
        why=stored["why"],
    )


def _read_ranked(stored: Json, queries: Mapping[str, Sequence[str]]) -> RankedUnit:
    return RankedUnit(
        name=stored["name"],
        rank=stored["rank"],
        wait=stored["wait"],
        slowdown=stored["slowdown"],
        pending=stored["pending"],
        overdue=stored["overdue"],
        queries=tuple(queries.get(stored["name"], ())),
    )
