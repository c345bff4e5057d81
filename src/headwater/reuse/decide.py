"""Where a new query goes: to an operator as it is, to one that is relaxed for it, or to a new one.

Each choice is priced by the seconds of work that it adds in a second, of one core (`load`). The
cheapest choice wins; a query stays with its operator afterwards, so assignments do not oscillate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.reuse.describe import describe_changes
from headwater.reuse.load import SharingCosts, estimate_load
from headwater.reuse.operator import (
    Containment,
    Operator,
    classify_containment,
    minimal_operator,
    relax,
)
from headwater.reuse.signature import QuerySignature, SharingKind

LANE_STEP_SHARE = 0.3
"""What a lane more costs in each step whatever it joins, as a part of what a unit more would cost."""


@dataclass(frozen=True)
class SharingChoice:
    """What a query is to the operator of that name (None: a new one), which then is `operator`.

    `added_load` is the work per second that it adds, `standalone_load` that of an operator of its own.
    """

    name: str | None
    containment: Containment | None
    operator: Operator
    changes: tuple[str, ...]
    added_load: float
    standalone_load: float


def choose_operator(
    signature: QuerySignature, running: Iterable[tuple[str, Operator]], costs: SharingCosts
) -> SharingChoice:
    """The cheapest way to serve a query, of those that the operators with its sharing key offer;
    the first that adds nothing ends the search."""
    own_operator = minimal_operator(signature)
    standalone_load = estimate_load(own_operator, costs)
    best = SharingChoice(None, None, own_operator, (), standalone_load, standalone_load)
    for name, operator in running:
        after = relax(operator, signature)
        added = (
            _relaxing_load(operator, after, own_operator, costs) if after is not operator else 0.0
        )
        # At equal load a running operator wins over a new one, and an earlier candidate over a
        # later.
        if added < best.added_load or (added == best.added_load and best.name is None):
            change_texts = tuple(describe_changes(operator, after)) if after is not operator else ()
            best = SharingChoice(
                name,
                classify_containment(signature, operator),
                after,
                change_texts,
                added,
                standalone_load,
            )
            if added <= 0.0:
                break
    return best


def _relaxing_load(before: Operator, after: Operator, own: Operator, costs: SharingCosts) -> float:
    """What relaxing an operator for a query adds: a join that would grow by more than the query's own
    pairs computes them in a lane of its own (`reuse.lanes`)."""
    grown = estimate_load(after, costs) - estimate_load(before, costs)
    if after.kind is not SharingKind.JOIN or len(after.scans) < 2:
        return grown
    saved = (1 - LANE_STEP_SHARE) * costs.steps_per_second * costs.step_seconds
    return min(grown, estimate_load(own, costs) - saved)
