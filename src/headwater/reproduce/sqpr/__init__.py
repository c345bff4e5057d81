"""SQPR's evaluation: one name for each of its figures, and a sweep of our own."""

from __future__ import annotations

from headwater.reproduce.figure import Figure
from headwater.reproduce.sqpr import cluster, efficiency, scaling

SQPR: dict[str, Figure] = {
    "sqpr-fig4a": Figure("SQPR, figure 4a: submitted and admitted", efficiency.admissions, 1),
    "sqpr-fig4b": Figure("SQPR, figure 4b: batches of queries", efficiency.batches, 1),
    "sqpr-fig4c": Figure("SQPR, figure 4c: overlap of queries", efficiency.overlap, 1),
    "sqpr-fig5a": Figure("SQPR, figure 5a: number of hosts", scaling.hosts, 1),
    "sqpr-fig5b": Figure("SQPR, figure 5b: CPU of hosts", scaling.resources, 1),
    "sqpr-fig5c": Figure("SQPR, figure 5c: size of queries", scaling.complexity, 1),
    "sqpr-fig6a": Figure("SQPR, figure 6a: planning time by hosts", scaling.time_by_hosts, 1),
    "sqpr-fig6b": Figure("SQPR, figure 6b: planning time by size", scaling.time_by_ways, 1),
    "sqpr-fig7a": Figure("SQPR, figure 7a: admitted on the cluster", cluster.admissions, 1),
    "sqpr-fig7b": Figure("SQPR, figure 7b: CPU over the cluster", cluster.cpu, 1),
    "sqpr-fig7c": Figure("SQPR, figure 7c: network over the cluster", cluster.network, 1),
    "sqpr-sweep": Figure("Ours: admitted by host bandwidth", efficiency.sweep, 5),
}
