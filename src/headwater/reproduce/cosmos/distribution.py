"""Chapter 3 of COSMOS: the name of each of its figures on distribution, and of ours."""

from __future__ import annotations

from headwater.reproduce.cosmos import distribution_adaptive as adaptive
from headwater.reproduce.cosmos import distribution_initial as initial
from headwater.reproduce.figure import Figure

DISTRIBUTION: dict[str, Figure] = {
    "cosmos-wec-example": Figure("COSMOS, table 3.2: an example of WEC", initial.example, 1),
    "cosmos-fig3-8a": Figure("COSMOS, figure 3.8(a): cost by queries", initial.by_queries, 1),
    "cosmos-fig3-8b": Figure("COSMOS, figure 3.8(b): time by queries", initial.times, 1),
    "cosmos-fig3-9": Figure("COSMOS, figure 3.9: inaccurate statistics", adaptive.inaccurate, 1),
    "cosmos-fig3-10": Figure("COSMOS, figure 3.10: new queries", adaptive.arrivals, 1),
    "cosmos-fig3-11": Figure("COSMOS, figure 3.11: size of clusters", adaptive.cluster_sizes, 1),
    "cosmos-fig3-12": Figure("COSMOS, figure 3.12: changes of rates", adaptive.rate_changes, 1),
    "cosmos-objective": Figure("Ours: WEC or traffic as objective", initial.objectives, 1),
    "cosmos-sensitivity": Figure(
        "Ours: what the order of figure 3.8(a) depends on", initial.sensitivity, 1
    ),
}
