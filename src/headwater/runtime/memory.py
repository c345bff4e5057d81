"""How much memory Java may use: what was asked for, or what suits the machine."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headwater.errors import RuntimeFailure

LEAST, LARGEST = 1 << 30, 8 << 30
"""A quarter of the machine's memory, in bytes, is the default if it is between these."""

LEAST_GIVEN = 512 << 20
"""With less, Spark does not start."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def memory_setting(given: str | None = None) -> dict[str, str]:
    """The setting of Spark for an amount of memory such as `2g`, or for the default.

    Raises RuntimeFailure if that is no amount, or too little.
    """
    return {"spark.driver.memory": f"{(default() if given is None else parsed(given)) >> 20}m"}


def parsed(given: str) -> int:
    """An amount of memory in bytes; raises RuntimeFailure."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", given.strip().lower())
    if not found:
        raise RuntimeFailure(f"{given!r} is not an amount of memory: write 2g, or 1500m")
    size = int(found[1]) * _UNITS[found[2]]
    if size < LEAST_GIVEN:
        raise RuntimeFailure(f"{given} of memory is too little for Spark: give it at least 512m")
    return size


def default(machine: int | None = None) -> int:
    """A quarter of what the machine has, or of what its container may use, within bounds."""
    if machine is None:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # "max" if there is no limit
            machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(LEAST, min(machine // 4, LARGEST))
