"""What all views have in common: one JSON form each, in which times are texts."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from headwater.algebra.times import format_timestamp

JsonRecord = dict[str, Any]


class View(Protocol):
    """Something that can be shown: a frozen dataclass with a JSON form."""

    def as_json(self) -> JsonRecord:
        """The view as `--format json` prints it. Programs read the keys, so they stay."""
        ...


def to_plain(value: Any) -> Any:
    """A value as JSON has it: records as objects, tuples as lists.

    `dataclasses.asdict` keeps tuples, so that its result would not equal what is read back.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def format_clock_time(at: float) -> str:
    """A time of the clock, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_instant(micros: int | None) -> str | None:
    """A time of events, to the microsecond."""
    return None if micros is None else format_timestamp(micros)
