"""Under which names a unit keeps what its ROWS windows hold, so that later steps need not read all tuples again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.reuse.relation_subscribers import RelationSubscribers
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.windows import window_name

CARRIED = "carried:"
"""What the cursors begin with that say up to when what a window holds is kept."""


def checkpoint_names(plan: Plan) -> dict[str, str]:
    """Under which name what a window holds is kept for later steps: the same whichever of its queries a unit
    has; by alias."""
    if isinstance(plan.subscribers, RelationSubscribers):
        return {alias: alias for alias in plan.feeds}
    # A query that runs alone is evaluated at the instants of one set of slides.
    slides = next(iter(plan.slide_sets), frozenset[int]())
    return {alias: window_name(scan, slides) for alias, scan in plan.scans}


def checkpoint_of(cursors: Mapping[str, Any], name: str, alias: str) -> int | None:
    """Up to when what a ROWS window holds is kept; states made by earlier versions say so by alias."""
    mark: int | None = cursors.get(f"{CARRIED}{name}", cursors.get(f"{CARRIED}{alias}"))
    return mark
