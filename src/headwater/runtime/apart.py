"""Which queries of a unit make its steps fail: found by steps with some of them alone.

Such a step is tried and not kept: it reads what the next step of the unit would read, and writes files
that are removed again. What it would have committed is pretended, so that what comes after it (a unit
whose queries have changed first makes what it keeps anew) can be tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headwater.errors import CatalogUnavailable, LeaseLost, Overtaken
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    NewSegment,
    NewUnit,
    QueryRow,
    Segment,
    UnitRow,
)
from headwater.runtime.durability import make_durable
from headwater.runtime.stepping import Step, Stepper, Unit
from headwater.runtime.subscribers import MEMBERS

MOST_TRIALS = 60
"""After so many steps on trial, queries that fail together are blamed together."""

Fails = Callable[[Sequence[str]], str | None]
"""Why a step with these alone fails; None if it does not."""


def culprits(names: Sequence[str], fails: Fails, most: int = MOST_TRIALS) -> dict[str, str]:
    """Of names that fail together those that fail by themselves, and why.

    There is none if they fail only together. It takes about log2(n) trials for each one found.
    """
    left = most

    def tried(some: Sequence[str]) -> str | None:
        nonlocal left
        left -= 1
        return fails(some)

    def found(some: Sequence[str], why: str | None) -> dict[str, str]:
        """The culprits among some that failed for a reason, or are expected to without one."""
        if len(some) == 1 and why is None and left > 0:
            why = tried(some)
            return {} if why is None else {some[0]: why}
        if len(some) == 1 or left <= 0:
            return dict.fromkeys(some, why or "it fails together with others")
        first, rest = some[: len(some) // 2], some[len(some) // 2 :]
        why = tried(first)
        if why is None:
            return found(rest, None)
        in_rest = tried(rest)
        return found(first, why) | ({} if in_rest is None else found(rest, in_rest))

    return found(names, None)


# ---- steps on trial


class Pretended(Catalog):
    """A catalog as it would be if steps had been committed; nothing is written to it."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog._database)
        self._kept = _Kept()

    def pretend(self, step: Step) -> None:
        """Have a step count as committed."""
        gone = {segment.id for segment in step.removed}
        self._kept.removed |= gone
        self._kept.added = [s for s in self._kept.added if s.id not in gone]
        for (owner, input), position in step.cursors.items():
            self._kept.cursors.setdefault(owner, {})[input] = position
        for segment in step.segments:
            same = [s.seq for s in self._kept.added if s.log == segment.log]
            last = max(self.log_ends()[segment.log].seq, *same, 0)
            self._kept.added.append(_registered(segment, -1 - len(self._kept.paths), last + 1))
            self._kept.paths.append(segment.path)

    @property
    def paths(self) -> list[str]:
        """The files that steps have written."""
        return self._kept.paths

    def cursors(self, owner: str) -> dict[str, Any]:
        return super().cursors(owner) | self._kept.cursors.get(owner, {})

    def segments(
        self,
        log: str,
        after_seq: int = 0,
        up_to: int | None = None,
        overlapping: tuple[int, int] | None = None,
    ) -> list[Segment]:
        known = super().segments(log, after_seq, up_to, overlapping)
        added = [
            s
            for s in self._kept.added
            if s.log == log and s.seq > after_seq and (up_to is None or s.seq <= up_to)
        ]
        return [s for s in known if s.id not in self._kept.removed] + added


@dataclass
class _Kept:
    """What is pretended."""

    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)
    added: list[Segment] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)


def _registered(new: NewSegment, id: int, seq: int) -> Segment:
    there = {f.name for f in fields(Segment)}
    known: dict[str, Any] = {name: value for name, value in asdict(new).items() if name in there}
    known |= {"id": id, "first_seq": seq, "seq": seq, "pieces": 0, "compacted_into": None}
    return Segment(**known, created_at=0.0)


def try_step(stepper: Stepper, unit: Unit) -> None:
    """Do the next step of a unit and keep nothing of it; raises what the step raises."""
    catalog = Pretended(stepper.catalog)
    trial = replace(stepper, catalog=catalog)
    try:
        while (step := trial.step(unit)) is not None:
            catalog.pretend(step)
            if (unit.row.id, MEMBERS) not in step.cursors:
                break
        if (merged := trial.merge(unit)) is not None:
            catalog.pretend(merged)
    finally:
        for path in catalog.paths:
            files.remove(path)


# ---- units that fail


@dataclass(frozen=True)
class Apart:
    """Finds the queries that make a unit fail, and moves queries to units of their own."""

    catalog: Catalog
    store: Path
    stepper: Callable[[], Stepper]
    planned: Callable[[UnitRow, Sequence[QueryRow]], Unit]
    """A unit with some of its queries alone."""
    survived: Callable[[Exception], str]
    """What is wrong with a step, in words; raises if that is nothing of its own."""

    def blamed(
        self, unit: UnitRow, queries: Sequence[QueryRow], why: str | None
    ) -> dict[str, str] | None:
        """The digests of the queries that make a unit fail by themselves, and the reasons; none if
        queries fail only together; None if they do not fail. `why` is known of them all together."""
        digests = sorted({query.digest for query in queries})
        other = replace(unit, version=unit.version + 1, definition="")  # that of the chosen

        def fails(some: Sequence[str]) -> str | None:
            try:
                chosen = [query for query in queries if query.digest in some]
                try_step(self.stepper(), self.planned(other, chosen))
            except (CatalogUnavailable, LeaseLost, Overtaken):
                raise
            except Exception as error:
                return self.survived(error)
            return None

        if len(digests) == 1:
            return {digests[0]: why or ""}
        if why is None and fails(digests) is None:
            return None
        return culprits(digests, fails)

    def moved(self, lease: Lease, unit: UnitRow, names: Sequence[str]) -> str:
        """Move queries to a new unit that stands where theirs does; returns its id."""
        new = NewUnit(unit.digest, "", unit.inputs, unit.version + 1)
        paths = {
            s.id: files.linked(s, self.store / "log" / _KINDS[s.log.partition(":")[0]] / new.id)
            for s in self.catalog.segments_of_unit(unit.id)
            if s.path
        }
        make_durable(paths.values())
        self.catalog.move_queries(lease, unit, new, names, paths)
        return new.id


_KINDS = {"unit": "units", "panes": "panes", "members": "members"}
"""The folders of the logs that a unit writes."""
