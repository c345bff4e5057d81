"""The COSMOS thesis: one name for each of its figures, and for what we add to them."""

from __future__ import annotations

from headwater.reproduce.cosmos import (
    coherency,
    deadlock,
    dissemination,
    dissemination_objects,
    representative,
    tree,
)
from headwater.reproduce.cosmos.distribution import DISTRIBUTION
from headwater.reproduce.figure import Figure

COSMOS: dict[str, Figure] = {
    **DISTRIBUTION,
    "cosmos-deadlock": Figure("COSMOS, theorem 4.2: locks of several trees", deadlock.locks, 4),
    "cosmos-coherency": Figure("COSMOS, section 4.1: when to forward", coherency.forwarding, 5),
    "cosmos-fig4-2": Figure(
        "COSMOS, figure 4.2: how often to adapt", dissemination.adaptation_period, 1
    ),
    "cosmos-fig4-3a": Figure("COSMOS, figure 4.3(a): trees by load", dissemination.by_load, 3),
    "cosmos-fig4-3b": Figure("COSMOS, figure 4.3(b): trees over time", dissemination.by_time, 3),
    "cosmos-fig4-3c": Figure("COSMOS, figure 4.3(c): trees by rate", dissemination.by_rate, 3),
    "cosmos-fig4-4": Figure("COSMOS, figure 4.4: a change", dissemination.after_a_change, 3),
    "cosmos-model": Figure("COSMOS: model and simulation", dissemination.model_accuracy, 3),
    "cosmos-fig4-5a": Figure(
        "COSMOS, figure 4.5(a): many objects by load", dissemination_objects.by_load, 2
    ),
    "cosmos-fig4-5b": Figure(
        "COSMOS, figure 4.5(b): many objects over time", dissemination_objects.by_time, 2
    ),
    "cosmos-fig4-5c": Figure(
        "COSMOS, figure 4.5(c): up to 500 objects", dissemination_objects.by_objects, 2
    ),
    "cosmos-fig4-6": Figure(
        "COSMOS, figure 4.6: one tree or many", dissemination_objects.multi_by_load, 2
    ),
    "cosmos-fig4-7": Figure(
        "COSMOS, figure 4.7: degree of interest", dissemination_objects.multi_by_interest, 2
    ),
    "cosmos-fig4-8": Figure(
        "COSMOS, figure 4.8: time to build a tree", dissemination_objects.running_time, 2
    ),
    "cosmos-fig4-9": Figure(
        "COSMOS, figure 4.9: a change, many objects", dissemination_objects.after_a_change, 2
    ),
    "cosmos-ticks": Figure("COSMOS: trees on real trades", dissemination_objects.real_trades, 2),
    "cosmos-tree": Figure(
        "COSMOS, section 3.3.3: the tree of coordinators", tree.coordinator_trees, 3
    ),
    "cosmos-representative": Figure(
        "COSMOS, figure 3.3, table 3.1: one result stream for two queries",
        representative.result_streams,
        3,
    ),
}
