"""The evaluation of COSMOS, chapters 3 and 4 of the thesis: one name for each figure, and what it leaves open."""

from __future__ import annotations

from headwater.reproduce.cosmos import representative, tree
from headwater.reproduce.figure import Figure

COSMOS_FIGURES: dict[str, Figure] = {
    "cosmos-tree": Figure("Section 3.3.3: the tree of coordinators", tree.coordinator_trees, 3),
    "cosmos-representative": Figure(
        "Figure 3.3, Table 3.1: one result stream for two queries", representative.result_streams, 3
    ),
}
