"""The COSMOS thesis: one name for each of its figures, and for what we add to them."""

from __future__ import annotations

from headwater.reproduce.cosmos.distribution import DISTRIBUTION
from headwater.reproduce.figure import Figure

COSMOS: dict[str, Figure] = {
    **DISTRIBUTION,
}
