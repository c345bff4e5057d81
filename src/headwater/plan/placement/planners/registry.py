"""All planners by name; CONTRIBUTING.md has the recipe for another one.

Loading this module loads no planner: each is imported when it is made, because some of them bring solvers
or compiled code that checking a name does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headwater.errors import PlanError, suggest

if TYPE_CHECKING:
    from headwater.plan.placement.planner import Planner

DEFAULT_PLANNER = "headwater"


@dataclass(frozen=True)
class PlannerSpec:
    """A planner as it is chosen; `make` returns one that has seen nothing yet."""

    name: str
    summary: str
    make: Callable[[], Planner]


# ---- the planners that come with Headwater


def _make_ladder() -> Planner:
    from headwater.plan.placement.planners.ladder import LadderPlanner

    return LadderPlanner()


def _make_dynamic() -> Planner:
    from headwater.plan.placement.planners.ladder import LadderPlanner

    return LadderPlanner(steps=("dynamic",))


def _make_exact() -> Planner:
    from headwater.plan.placement.planners.ladder import LadderPlanner

    return LadderPlanner(steps=("exact",))


def _make_regions() -> Planner:
    from headwater.plan.placement.planners.ladder import LadderPlanner
    from headwater.plan.placement.planners.regions import RegionPlacer

    return LadderPlanner(placer=RegionPlacer())


def _make_sqpr() -> Planner:
    from headwater.plan.placement.planners.flows import sqpr

    return sqpr


def _make_heuristic() -> Planner:
    from headwater.plan.placement.planners.heuristic import heuristic

    return heuristic


def _make_soda() -> Planner:
    from headwater.plan.placement.planners.soda import soda

    return soda


_planners: dict[str, PlannerSpec] = {
    planner.name: planner
    for planner in (
        PlannerSpec(
            DEFAULT_PLANNER, "dynamic program, ruin and recreate, then exact", _make_ladder
        ),
        PlannerSpec(
            "regions", "the same over regions, for a thousand sites and more", _make_regions
        ),
        PlannerSpec("dynamic", "the dynamic program alone", _make_dynamic),
        PlannerSpec("exact", "the exact program alone", _make_exact),
        PlannerSpec("sqpr", "the program of the SQPR paper", _make_sqpr),
        PlannerSpec("heuristic", "the heuristic baseline of the SQPR paper", _make_heuristic),
        PlannerSpec("soda", "SODA, the other baseline of the SQPR paper", _make_soda),
    )
}

PLANNERS: Mapping[str, PlannerSpec] = MappingProxyType(_planners)
"""Every planner by its name."""


def register_planner(planner: PlannerSpec) -> None:
    """Add a planner; raises PlanError if its name is taken, or not in small letters."""
    if planner.name in _planners:
        raise PlanError(f"there is a planner {planner.name} already")
    if planner.name != planner.name.lower():
        raise PlanError(f"a planner is named in small letters: {planner.name}")
    _planners[planner.name] = planner


def unregister_planner(name: str) -> None:
    """Remove a planner; raises PlanError if there is none of that name."""
    del _planners[find_planner(name).name]


def find_planner(name: str) -> PlannerSpec:
    """The planner of a name, in whatever case; raises PlanError, naming those there are."""
    planner = PLANNERS.get(name.lower())
    if planner is None:
        raise PlanError(f"there is no planner {name}; {suggest(name, PLANNERS)}")
    return planner


def make_planner(name: str = DEFAULT_PLANNER) -> Planner:
    """A planner of that name that has seen nothing yet; raises PlanError."""
    return find_planner(name).make()
