"""The COSMOS thesis: one name for each of its figures, and for what we add to them."""

from __future__ import annotations

from headwater.reproduce.cosmos import coherency, deadlock
from headwater.reproduce.figure import Figure

COSMOS: dict[str, Figure] = {
    "cosmos-deadlock": Figure("COSMOS, theorem 4.2: locks of several trees", deadlock.locks, 4),
    "cosmos-coherency": Figure("COSMOS, section 4.1: when to forward", coherency.forwarding, 5),
}
