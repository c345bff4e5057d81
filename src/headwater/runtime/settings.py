"""How much the engine takes on: the options that `SET` and the flags of `headwater run` change.

A flag holds for one run, `SET` for the catalog until it is set anew; a running engine takes up what
is set with its next round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headwater.algebra.types import Value
from headwater.errors import HeadwaterError, suggest
from headwater.plan.placement.planners import DEFAULT_PLANNER, find_planner
from headwater.runtime.catalog.migrations import RENAMED_SETTINGS
from headwater.schedule import find_policy

JOIN_ORDER_MODES = ("throughput", "greedy", "written")
"""How the order of joins can be chosen."""

SettingValue = int | float | str


@dataclass(frozen=True)
class Settings:
    """How much one step may take on, and when the next is tried."""

    rows_per_step: int = 500_000
    """Rows that a step of a unit, or of taking in files, begins with; one segment or file of more
    is still taken whole."""
    instants_per_step: int = 2_000
    """Instants that a step evaluates."""
    pane_compaction_threshold: int = 12
    """So many segments of a unit's panes become one."""
    rows_window_checkpoint_rows: int = 50_000
    """After so many tuples a window by rows is written down."""
    max_concurrency: int = 4
    """Units that step, or streams that take in, at the same time."""
    max_backlog_rows: int = 5_000_000
    """Rows that a stream may be ahead of the slowest running unit that reads it; beyond, it waits."""
    retries: int = 5
    """Failures in a row after which a unit is parked."""
    backoff: float = 1.0
    """Seconds before a failed step is tried again; doubled with each failure."""
    lease_seconds: float = 60.0
    """How long a claim on a stream or unit holds when it is not renewed."""
    scheduler: str = "bsd-early"
    """The policy that says which unit steps next."""
    max_wait_seconds: float = 60.0
    """Seconds after which a unit that has something to take in steps before all that have not waited
    for so long, whatever the policy."""
    optimise: str = "throughput"
    """How the order of joins is chosen: throughput, greedy or written."""
    planner: str = DEFAULT_PLANNER
    """The planner that says which site runs a unit, where several do."""
    results_keep: float = 0.0
    """Seconds for which results are kept of queries that do not say KEEP; 0: for ever."""
    interval: float = 1.0
    """Seconds between two looks for input when there was none."""
    late_share: float = 0.1
    """An event says so when more than this part of what comes to a stream is late."""
    reject_share: float = 0.1
    """An event says so when more than this part of what comes to a stream is refused."""


SETTING_NAMES = tuple(field.name for field in fields(Settings) if field.name != "lease_seconds")
"""Those that can be set; for how long claims hold is settled when an engine starts."""

_SHARES = ("late_share", "reject_share")
_MINIMUM = {
    "retries": 0,
    "backoff": 0.0,
    "interval": 0.01,
    "results_keep": 0.0,
    "max_wait_seconds": 0.01,
}
_MINIMUM |= dict.fromkeys(_SHARES, 0.0)


def parse_setting(name: str, value: Value) -> SettingValue:
    """The value of an option; raises HeadwaterError for an unknown name or a value it cannot have."""
    if name in RENAMED_SETTINGS:
        raise HeadwaterError(f"{name} is now called {RENAMED_SETTINGS[name]}")
    if name not in SETTING_NAMES:
        raise HeadwaterError(f"there is no option {name}; {suggest(name, SETTING_NAMES)}")
    if name == "scheduler":
        return find_policy(str(value)).name
    if name == "planner":
        return find_planner(str(value)).name
    if name == "optimise":
        return _parse_join_order(str(value))
    kind: type[int] | type[float] = type(getattr(Settings(), name))
    least = _MINIMUM.get(name, 1)
    try:
        number = kind(str(value))
    except ValueError:
        number = -1
    if name in _SHARES and not 0 <= number <= 1:
        raise HeadwaterError(f"{name} is a part between 0 and 1, not {value}")
    if not least <= number < math.inf:
        what = "a whole number" if kind is int else "a number of seconds"
        raise HeadwaterError(f"{name} is {what} from {least} on, not {value}")
    return number


def _parse_join_order(value: str) -> str:
    if value.lower() not in JOIN_ORDER_MODES:
        raise HeadwaterError(
            f"optimise is {', '.join(JOIN_ORDER_MODES[:-1])} or {JOIN_ORDER_MODES[-1]}, not {value}"
        )
    return value.lower()


def effective_settings(
    base: Settings, options: Mapping[str, str], overrides: Mapping[str, SettingValue]
) -> Settings:
    """The base with what was set, and over that what was given for this run."""
    stored = {
        name: parse_setting(name, value) for name, value in options.items() if name in SETTING_NAMES
    }
    values: dict[str, Any] = {**stored, **overrides}
    return replace(base, **values)
