"""What was decided for a query, and what it costs to relax an operator that runs.

Each choice is priced by the seconds of work that it adds in a second, of one core (`load`). A query stays
with its operator afterwards, so assignments do not oscillate.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.reuse.load import OperatorLoad
from headwater.reuse.operator import Containment, Operator
from headwater.reuse.signature import SharingKind

LANE_STEP_SHARE = 0.3
"""What a lane more costs in each step whatever it joins, as a part of what a unit more would cost."""


@dataclass(frozen=True)
class Alternative:
    """What else could have been done with a query, in a few words, and the work that it would add."""

    plan: str
    load: float


@dataclass(frozen=True)
class SharingChoice:
    """What a query is to the operator of that name (None: a new one), which then is `operator`.

    `added_load` is the work per second that it adds, `standalone_load` that of an operator of its own.
    `alternatives` are dearer plans; `revisit` says that rates were not known.
    """

    name: str | None
    containment: Containment | None
    operator: Operator
    changes: tuple[str, ...]
    added_load: float
    standalone_load: float
    alternatives: tuple[Alternative, ...] = ()
    revisit: bool = False


def relaxing_load(before: float, after: float, own: OperatorLoad | None) -> float:
    """What relaxing an operator for a query adds, by the loads of the operator before and after it. A join
    that would grow by more than the query's `own` pairs computes them in a lane of its own
    (`reuse.lanes`), with a part of the steps of a unit more; None where it cannot have one."""
    grown = after - before
    return grown if own is None else min(grown, own.cpu - (1 - LANE_STEP_SHARE) * own.steps)


def has_lanes(operator: Operator) -> bool:
    """Whether an operator can be computed as few joins, each for some of its queries."""
    return operator.kind is SharingKind.JOIN and len(operator.scans) > 1
