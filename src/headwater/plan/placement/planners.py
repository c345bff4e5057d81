"""All planners by name; each call of an entry makes one that has seen nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.plan.placement.flows import sqpr
from headwater.plan.placement.heuristic import heuristic
from headwater.plan.placement.ladder import LadderPlanner
from headwater.plan.placement.planner import Planner
from headwater.plan.placement.regions import RegionPlacer
from headwater.plan.placement.soda import soda

PLANNERS: Mapping[str, Callable[[], Planner]] = {
    "headwater": LadderPlanner,
    "regions": lambda: LadderPlanner(placer=RegionPlacer()),
    "dynamic": lambda: LadderPlanner(steps=("dynamic",)),
    "exact": lambda: LadderPlanner(steps=("exact",)),
    "sqpr": lambda: sqpr,
    "heuristic": lambda: heuristic,
    "soda": lambda: soda,
}
