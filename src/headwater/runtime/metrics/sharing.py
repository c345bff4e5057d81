"""What sharing saves, as it was computed last and is kept in the catalog.

The numbers are computed by the engine (`sharing_loads`); whoever shows them parses no query.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.runtime.catalog import Catalog

SHARING = "sharing"
"""The owner of the profile that has the last of these summaries."""


@dataclass(frozen=True)
class CostlyQuery:
    """A query that makes its unit cost more, in cores, than it would cost alone."""

    query: str
    unit: str
    shared: float
    alone: float


@dataclass(frozen=True)
class SharingSummary:
    """Queries in units, cores and bytes a second that they take, and would if each ran alone; only
    units that were measured count."""

    queries: int = 0
    units: int = 0
    cores: float = 0.0
    cores_alone: float = 0.0
    bytes: float = 0.0
    bytes_alone: float = 0.0
    costly: tuple[CostlyQuery, ...] = ()

    @property
    def cores_saved(self) -> float:
        return self.cores_alone - self.cores


def store_sharing(catalog: Catalog, summary: SharingSummary) -> None:
    """Keep a summary as the last one."""
    record = {name: getattr(summary, name) for name in _NUMBERS}
    costly = [vars(query) for query in summary.costly]
    catalog.set_profile(SHARING, {**record, "costly": costly})


_NUMBERS = ("queries", "units", "cores", "cores_alone", "bytes", "bytes_alone")


def read_sharing(catalog: Catalog) -> SharingSummary | None:
    """The summary that was kept last, without queries that have left since; None if nothing has run."""
    profile = catalog.profile(SHARING)
    if profile is None:
        return None
    stored = profile.value
    kept = (CostlyQuery(**query) for query in stored["costly"])
    costly = tuple(query for query in kept if _is_there(catalog, query))
    return SharingSummary(**{name: stored[name] for name in _NUMBERS}, costly=costly)


def _is_there(catalog: Catalog, costly: CostlyQuery) -> bool:
    row = catalog.query(costly.query)
    # A query that was moved since has another price in its new unit.
    return row is not None and row.state != "dropped" and row.unit_id == costly.unit


def describe_sharing(summary: SharingSummary) -> list[str]:
    """The same in words; nothing where no query shares."""
    if summary.queries <= summary.units:
        return []
    saved, alone = summary.cores_saved, summary.cores_alone
    verb = "saved" if saved >= 0 else "lost"
    lines = [
        f"{summary.queries:,} queries in {summary.units:,} unit{'' if summary.units == 1 else 's'}; about {abs(saved):.2g} cores of "
        f"{alone:.2g} {verb}, {_bytes(summary.bytes)} a second moved instead of "
        f"{_bytes(summary.bytes_alone)}"
    ]
    lines += [
        f"{query.query} costs {query.shared:.2g} cores in unit {query.unit}, alone it would cost "
        f"{query.alone:.2g}"
        for query in summary.costly
    ]
    return lines


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:,.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} GB"
