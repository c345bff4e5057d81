"""How much memory Java may use: what was asked for, or what suits the machine."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headwater.errors import RuntimeFailure

MIN_DEFAULT, MAX_DEFAULT = 1 << 30, 8 << 30
"""A quarter of the machine's memory, in bytes, is the default if it is between these."""

MIN_MEMORY = 512 << 20
"""With less, Spark does not start."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def memory_setting(amount: str | None = None) -> dict[str, str]:
    """The setting of Spark for an amount of memory such as `2g`, or for the default.

    Raises RuntimeFailure if that is no amount, or too little.
    """
    return {
        "spark.driver.memory": f"{(default_memory() if amount is None else parse_memory(amount)) >> 20}m"
    }


def parse_memory(amount: str) -> int:
    """An amount of memory in bytes; raises RuntimeFailure."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", amount.strip().lower())
    if not match:
        raise RuntimeFailure(f"{amount!r} is not an amount of memory: write 2g, or 1500m")
    size = int(match[1]) * _UNITS[match[2]]
    if size < MIN_MEMORY:
        raise RuntimeFailure(f"{amount} of memory is too little for Spark: give it at least 512m")
    return size


def default_memory(available: int | None = None) -> int:
    """A quarter of what the machine has, or of what its container may use, within bounds."""
    if available is None:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # "max" if there is no limit
            available = min(available, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(MIN_DEFAULT, min(available // 4, MAX_DEFAULT))
