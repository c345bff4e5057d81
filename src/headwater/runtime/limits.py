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
from headwater.errors import HeadwaterError, nearest
from headwater.schedule import policy_named

MODES = ("throughput", "greedy", "written")
"""How the order of joins can be chosen."""

Setting = int | float | str


@dataclass(frozen=True)
class Limits:
    """How much one step may take on, and when the next is tried."""

    rows_per_step: int = 500_000
    """Rows that a step of a unit, or of taking in files, begins with; one segment or file of more
    is still taken whole."""
    instants_per_step: int = 2_000
    """Instants that a step evaluates."""
    panes_merged_at: int = 12
    """So many segments of a unit's panes become one."""
    rows_carried_at: int = 50_000
    """After so many tuples a window by rows is written down."""
    at_once: int = 4
    """Units that step, or streams that take in, at the same time."""
    rows_ahead: int = 5_000_000
    """Rows that a stream may be ahead of the slowest running unit that reads it; beyond, it waits."""
    retries: int = 5
    """Failures in a row after which a unit is parked."""
    backoff: float = 1.0
    """Seconds before a failed step is tried again; doubled with each failure."""
    lease_seconds: float = 60.0
    """How long a claim on a stream or unit holds when it is not renewed."""
    scheduler: str = "bsd-early"
    """The policy that says which unit steps next."""
    longest_wait: float = 60.0
    """Seconds after which a unit that has something to take in steps before all that have not waited
    for so long, whatever the policy."""
    optimise: str = "throughput"
    """How the order of joins is chosen: throughput, greedy or written."""
    results_keep: float = 0.0
    """Seconds for which results are kept of queries that do not say KEEP; 0: for ever."""
    interval: float = 1.0
    """Seconds between two looks for input when there was none."""
    late_share: float = 0.1
    """An event says so when more than this part of what comes to a stream is late."""
    reject_share: float = 0.1
    """An event says so when more than this part of what comes to a stream is refused."""


NAMES = tuple(field.name for field in fields(Limits) if field.name != "lease_seconds")
"""Those that can be set; for how long claims hold is settled when an engine starts."""

_SHARES = ("late_share", "reject_share")
_LEAST = {"retries": 0, "backoff": 0.0, "interval": 0.01, "results_keep": 0.0, "longest_wait": 0.01}
_LEAST |= dict.fromkeys(_SHARES, 0.0)


def checked(name: str, value: Value) -> Setting:
    """The value of an option; raises HeadwaterError for an unknown name or a value it cannot have."""
    if name not in NAMES:
        raise HeadwaterError(f"there is no option {name}; {nearest(name, NAMES)}")
    if name == "scheduler":
        return policy_named(str(value)).name
    if name == "optimise":
        return _mode(str(value))
    kind: type[int] | type[float] = type(getattr(Limits(), name))
    least = _LEAST.get(name, 1)
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


def _mode(value: str) -> str:
    if value.lower() not in MODES:
        raise HeadwaterError(f"optimise is {', '.join(MODES[:-1])} or {MODES[-1]}, not {value}")
    return value.lower()


def effective(base: Limits, options: Mapping[str, str], given: Mapping[str, Setting]) -> Limits:
    """The base with what was set, and over that what was given for this run."""
    known = {name: checked(name, value) for name, value in options.items() if name in NAMES}
    values: dict[str, Any] = {**known, **given}
    return replace(base, **values)
