"""Windows: which tuples of a stream a query sees at an instant.

All lengths are whole microseconds. A window that slides is evaluated at the multiples of its slide
since the epoch; one that does not slide changes at every event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headwater.errors import AlgebraError

UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}


@dataclass(frozen=True, slots=True)
class Range:
    """The tuples of the last `size` microseconds, both ends included (None: all tuples so far)."""

    size: int | None
    slide: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 0:
            raise AlgebraError(f"a RANGE cannot be negative, this is {self.size} microseconds")
        if self.slide is not None and self.slide <= 0:
            raise AlgebraError(f"a SLIDE must be longer than 0, this is {self.slide} microseconds")

    def __str__(self) -> str:
        if self == NOW:
            return "[NOW]"
        size = "UNBOUNDED" if self.size is None else format_duration(self.size)
        return (
            f"[RANGE {size}]"
            if self.slide is None
            else f"[RANGE {size} SLIDE {format_duration(self.slide)}]"
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The `count` latest tuples, of each group where `partition_by` names columns."""

    count: int
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise AlgebraError(f"a ROWS window holds at least 1 tuple, this says {self.count}")
        if len({name.lower() for name in self.partition_by}) < len(self.partition_by):
            raise AlgebraError("PARTITION BY names a column twice")

    def __str__(self) -> str:
        keys = ", ".join(
            f"`{name}`" if not name.isidentifier() else name for name in self.partition_by
        )
        return f"[PARTITION BY {keys} ROWS {self.count}]" if keys else f"[ROWS {self.count}]"


Window = Range | Rows

UNBOUNDED = Range(None)
NOW = Range(0)


@lru_cache(maxsize=1024)
def format_duration(microseconds: int) -> str:
    """The shortest exact text of a length of time: 300000000 -> '5 MINUTES'."""
    if microseconds == 0:
        return "0 SECONDS"
    name, size = next(
        (name, size) for name, size in reversed(UNITS.items()) if microseconds % size == 0
    )
    count = microseconds // size
    return f"{count} {name}" + ("" if count == 1 else "S")
