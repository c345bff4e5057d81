"""The memory of Spark's Java process: the requested amount, or a default that suits the machine."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headwater.errors import RuntimeFailure

MIN_DEFAULT, MAX_DEFAULT = 1 << 30, 8 << 30
"""Bounds in bytes of the default, which is a quarter of the machine's memory."""

MIN_MEMORY = 512 << 20
"""Spark does not start with less."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def memory_setting(amount: str | None = None) -> dict[str, str]:
    """The Spark setting for an amount of memory such as `2g`, or for the default.

    Raises RuntimeFailure if the amount is invalid or too small.
    """
    return {
        "spark.driver.memory": f"{(default_memory() if amount is None else parse_memory(amount)) >> 20}m"
    }


def parse_memory(amount: str) -> int:
    """An amount of memory in bytes; raises RuntimeFailure if it is invalid or too small."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", amount.strip().lower())
    if not match:
        raise RuntimeFailure(f"{amount!r} is not an amount of memory: write 2g, or 1500m")
    size = int(match[1]) * _UNITS[match[2]]
    if size < MIN_MEMORY:
        raise RuntimeFailure(f"{amount} of memory is too little for Spark: give it at least 512m")
    return size


def default_memory(available: int | None = None) -> int:
    """A quarter of the memory of the machine or of its container, within bounds."""
    if available is None:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # "max" if there is no limit
            available = min(available, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(MIN_DEFAULT, min(available // 4, MAX_DEFAULT))
