"""The cursor that records which instants a unit has evaluated."""

from __future__ import annotations

from typing import Any

INSTANTS = "instants"
"""The input name of that cursor: the last instant emitted for each set of slides, and whether the
last step left due instants to the next. (The cursor `instant` is the last one of all.)"""


def has_more_due(position: Any) -> bool:
    """Whether the last step of a unit left due instants to the next, by its cursor."""
    return position is not None and bool(position["more"])
