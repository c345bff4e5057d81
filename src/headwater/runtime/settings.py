"""The settings of the engine, changed by `SET` and by flags of `headwater run`.

A flag applies to one run, `SET` to the catalog until it is changed; a running engine picks up a
change in its next round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headwater.algebra.types import Value
from headwater.errors import HeadwaterError, suggest
from headwater.plan.placement.planners.registry import DEFAULT_PLANNER, find_planner
from headwater.runtime.catalog.migrations import RENAMED_SETTINGS
from headwater.schedule import find_policy

JOIN_ORDER_MODES = ("throughput", "greedy", "written")
"""The ways to choose the order of joins."""

SHARING_MODES = ("all", "equal", "none")
"""Which running units a new query may join: every one that can serve it, that of an equal query, none."""

SettingValue = int | float | str


@dataclass(frozen=True)
class Settings:
    """How much one step may do, and when the next is tried."""

    rows_per_step: int = 500_000
    """Input rows of a step of a unit or of a batch of files; a single larger segment or file is
    still read whole."""
    instants_per_step: int = 2_000
    """Instants that one step evaluates at most, where its cost grows faster than their number."""
    pane_compaction_threshold: int = 12
    """Number of segments of a unit's panes, of similar size, at which they are compacted into one."""
    rows_window_checkpoint_rows: int = 50_000
    """Number of tuples after which the content of a ROWS window is checkpointed."""
    max_concurrency: int = 4
    """Units that step, or streams that ingest, concurrently."""
    max_backlog_rows: int = 5_000_000
    """Rows that a stream may be ahead of its slowest running reader; beyond, it waits."""
    retries: int = 5
    """Consecutive failures after which a unit is parked."""
    backoff: float = 1.0
    """Seconds before a failed step is tried again; doubled with each failure."""
    lease_seconds: float = 60.0
    """Time to live of a lease on a stream or unit that is not renewed."""
    scheduler: str = "bsd-early"
    """The policy that chooses which unit steps next."""
    max_wait_seconds: float = 60.0
    """Seconds after which a unit with pending input steps before all that have waited less,
    whatever the policy."""
    optimise: str = "throughput"
    """How the order of joins is chosen: throughput, greedy or written."""
    sharing: str = "all"
    """What a new query may share: all that it has in common with others, equal queries alone, or
    none."""
    planner: str = DEFAULT_PLANNER
    """The planner that says which site runs a unit, where several do."""
    results_keep: float = 0.0
    """Seconds to keep the results of queries without KEEP; 0: forever."""
    interval: float = 1.0
    """Seconds between two polls of the sources when there was no input."""
    late_share: float = 0.1
    """Share of late tuples of a stream above which an event reports it."""
    reject_share: float = 0.1
    """Share of rejected records of a stream above which an event reports it."""


SETTING_NAMES = tuple(field.name for field in fields(Settings) if field.name != "lease_seconds")
"""The settings that can be changed; the time to live of leases is fixed when an engine starts."""

_MODES = {"optimise": JOIN_ORDER_MODES, "sharing": SHARING_MODES}
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
    """The value of a setting; raises HeadwaterError for an unknown name or an invalid value."""
    if name in RENAMED_SETTINGS:
        raise HeadwaterError(f"{name} is now called {RENAMED_SETTINGS[name]}")
    if name not in SETTING_NAMES:
        raise HeadwaterError(f"there is no setting {name}; {suggest(name, SETTING_NAMES)}")
    if name == "scheduler":
        return find_policy(str(value)).name
    if name == "planner":
        return find_planner(str(value)).name
    if name in _MODES:
        return _parse_mode(name, str(value))
    kind: type[int] | type[float] = type(getattr(Settings(), name))
    least = _MINIMUM.get(name, 1)
    try:
        number = kind(str(value))
    except ValueError:
        number = -1
    if name in _SHARES and not 0 <= number <= 1:
        raise HeadwaterError(f"{name} must be a share between 0 and 1, not {value}")
    if not least <= number < math.inf:
        what = "a whole number" if kind is int else "a number of seconds"
        raise HeadwaterError(f"{name} must be {what} >= {least}, not {value}")
    return number


def _parse_mode(name: str, value: str) -> str:
    *first, last = _MODES[name]
    if value.lower() not in (*first, last):
        raise HeadwaterError(f"{name} is {', '.join(first)} or {last}, not {value}")
    return value.lower()


def effective_settings(
    base: Settings, options: Mapping[str, str], overrides: Mapping[str, SettingValue]
) -> Settings:
    """The base, overridden by the settings in the catalog, then by the flags of this run."""
    # The catalog also has options that are no settings, such as the allowed paths.
    stored = {
        name: parse_setting(name, value) for name, value in options.items() if name in SETTING_NAMES
    }
    values: dict[str, Any] = {**stored, **overrides}
    return replace(base, **values)
