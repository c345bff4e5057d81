"""How far a unit has come in evaluating instants, as its cursor says."""

from __future__ import annotations

from typing import Any

INSTANTS = "instants"
"""The cursor of a unit with the last instant that was told for each set of slides, and whether others
are due that its last step had to leave to the next. (`instant` is the last one of all.)"""


def has_more_due(position: Any) -> bool:
    """Whether instants are due that the last step of a unit left to the next, by its cursor."""
    return position is not None and bool(position["more"])
