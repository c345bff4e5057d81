"""Worlds of a user's own: a network with providers, streams and queries, simulated under several policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

if TYPE_CHECKING:
    from headwater.sim.worlds.model import SimulatedWorld
    from headwater.sim.worlds.read import parse_world, read_world
    from headwater.sim.worlds.simulate import simulate_world

__all__ = ["SimulatedWorld", "parse_world", "read_world", "simulate_world"]

__getattr__ = lazy_exports(
    __name__,
    {
        "SimulatedWorld": "headwater.sim.worlds.model",
        "parse_world": "headwater.sim.worlds.read",
        "read_world": "headwater.sim.worlds.read",
        "simulate_world": "headwater.sim.worlds.simulate",
    },
)
