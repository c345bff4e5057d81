"""Which queries of a unit make its steps fail.

They are found by trial steps with some of them alone, and moved to units of their own. A trial step reads what
the next step of the unit would read, and writes files that are removed again. Its commit is simulated, so
that the step after it can be tried as well: a unit whose queries have changed first rebuilds what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headwater.errors import CatalogUnavailable, CommitConflict, LeaseLost
from headwater.runtime.catalog import (
    Catalog,
    Json,
    Lease,
    NewSegment,
    NewUnit,
    QueryRow,
    Segment,
    UnitRow,
)
from headwater.runtime.engine.steps.step import Step
from headwater.runtime.engine.steps.stepper import Stepper
from headwater.runtime.engine.unit import Unit
from headwater.runtime.results.subscribers import SUBSCRIBERS
from headwater.runtime.storage import segment_files

MAX_TRIALS = 60
"""After this many trial steps, queries that fail together are blamed together."""

FailureTest = Callable[[Sequence[str]], str | None]
"""Why a step with these alone fails; None if it does not."""


def bisect_culprits(
    names: Sequence[str], fails: FailureTest, max_trials: int = MAX_TRIALS
) -> dict[str, str]:
    """Of names that fail together those that fail by themselves, and why.

    There is none if they fail only together. It takes about log2(n) trials for each culprit.
    """
    left = max_trials

    def try_names(some: Sequence[str]) -> str | None:
        nonlocal left
        left -= 1
        return fails(some)

    def search(some: Sequence[str], why: str | None) -> dict[str, str]:
        """The culprits among some that failed for a reason, or are expected to without one."""
        if len(some) == 1 and why is None and left > 0:
            why = try_names(some)
            return {} if why is None else {some[0]: why}
        if len(some) == 1 or left <= 0:
            return dict.fromkeys(some, why or "it fails together with others")
        first, rest = some[: len(some) // 2], some[len(some) // 2 :]
        why = try_names(first)
        if why is None:
            # That the rest fails follows, so no trial is spent on it.
            return search(rest, None)
        in_rest = try_names(rest)
        return search(first, why) | ({} if in_rest is None else search(rest, in_rest))

    return search(names, None)


# ---- trial steps


class TrialCatalog(Catalog):
    """A catalog as it would be if steps had been committed; nothing is written to it."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog._database)
        self._trial = _TrialState()

    def apply_step(self, step: Step) -> None:
        """Count a step as committed."""
        removed_ids = {segment.id for segment in step.removed}
        self._trial.removed |= removed_ids
        self._trial.added = [s for s in self._trial.added if s.id not in removed_ids]
        for (owner, input), position in step.cursors.items():
            self._trial.cursors.setdefault(owner, {})[input] = position
        for segment in step.segments:
            same = [s.seq for s in self._trial.added if s.log == segment.log]
            last = max(self.log_ends()[segment.log].seq, *same, 0)
            # Negative ids are never those of committed segments.
            self._trial.added.append(_as_segment(segment, -1 - len(self._trial.paths), last + 1))
            self._trial.paths.append(segment.path)

    @property
    def paths(self) -> list[str]:
        """The files that steps have written."""
        return self._trial.paths

    def cursors(self, owner: str) -> dict[str, Any]:
        return super().cursors(owner) | self._trial.cursors.get(owner, {})

    def segments(
        self,
        log: str,
        after_seq: int = 0,
        up_to: int | None = None,
        overlapping: tuple[int, int] | None = None,
    ) -> list[Segment]:
        committed = super().segments(log, after_seq, up_to, overlapping)
        added = [
            s
            for s in self._trial.added
            if s.log == log and s.seq > after_seq and (up_to is None or s.seq <= up_to)
        ]
        return [s for s in committed if s.id not in self._trial.removed] + added


@dataclass
class _TrialState:
    """What trial steps would have committed."""

    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)
    added: list[Segment] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)


def _as_segment(new: NewSegment, id: int, seq: int) -> Segment:
    field_names = {f.name for f in fields(Segment)}
    values: dict[str, Any] = {
        name: value for name, value in asdict(new).items() if name in field_names
    }
    values |= {"id": id, "first_seq": seq, "seq": seq, "pieces": 0, "compacted_into": None}
    return Segment(**values, created_at=0.0)


def try_step(stepper: Stepper, unit: Unit) -> None:
    """Make the next step of a unit and keep nothing of it; raises what the step raises."""
    catalog = TrialCatalog(stepper.catalog)
    trial = replace(stepper, catalog=catalog)
    try:
        while (step := trial.step(unit)) is not None:
            catalog.apply_step(step)
            if (unit.row.id, SUBSCRIBERS) not in step.cursors:
                break  # else it only brought the unit in line with its queries, and read nothing
        if (merged := trial.compact_panes(unit)) is not None:
            catalog.apply_step(merged)
    finally:
        for path in catalog.paths:
            segment_files.remove(path)


# ---- units that fail


@dataclass(frozen=True)
class CulpritFinder:
    """Finds the queries that make a unit fail."""

    stepper: Callable[[], Stepper]
    plan_unit: Callable[[UnitRow, Sequence[QueryRow]], Unit]
    """A unit with some of its queries alone."""
    describe_error: Callable[[Exception], str]
    """Why a step failed; raises if that is not the fault of its queries."""

    def find_culprits(
        self, unit: UnitRow, queries: Sequence[QueryRow], why: str | None
    ) -> dict[str, str] | None:
        """The digests of the queries that make a unit fail by themselves, and the reasons; none if
        queries fail only together; None if they do not fail. `why` is the
        reason if it is known that all fail together."""
        digests = sorted({query.digest for query in queries})
        other = replace(
            unit, version=unit.version + 1, definition=""
        )  # planned from the chosen alone

        def fails(some: Sequence[str]) -> str | None:
            try:
                chosen = [query for query in queries if query.digest in some]
                try_step(self.stepper(), self.plan_unit(other, chosen))
            except (CatalogUnavailable, LeaseLost, CommitConflict):
                raise
            except Exception as error:
                return self.describe_error(error)
            return None

        if len(digests) == 1:
            return {digests[0]: why or ""}
        if why is None and fails(digests) is None:
            return None
        return bisect_culprits(digests, fails)


def move_queries(
    catalog: Catalog,
    store: Path,
    lease: Lease,
    unit: UnitRow,
    names: Sequence[str],
    why: Mapping[str, Json] | None = None,
) -> str:
    """Move queries to a new unit that has the progress of theirs; returns its id."""
    new = NewUnit(unit.digest, "", unit.inputs, unit.version + 1)
    paths = {
        s.id: segment_files.link_file(
            s, store / "log" / _LOG_FOLDERS[s.log.partition(":")[0]] / new.id
        )
        for s in catalog.segments_of_unit(unit.id)
        if s.path
    }
    catalog.move_queries(lease, unit, new, names, paths, why)
    return new.id


_LOG_FOLDERS = {"unit": "units", "panes": "panes", "members": "members"}
"""The folders of the logs that a unit writes."""
