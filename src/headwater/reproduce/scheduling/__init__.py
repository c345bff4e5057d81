"""The evaluation of the scheduling paper (AQSIOS): one name for each of its figures and tables.

Beyond them: the same claims on a real trace and under saturated bursts, and our own policy on
seeds that it was not tuned on.
"""

from __future__ import annotations

from headwater.reproduce.figure import Figure, FigureSettings, Report
from headwater.reproduce.scheduling import beyond, cheap, examples, joins, loads

PARTS: dict[str, Figure] = {
    "scheduling-table1": Figure("Table 1: two queries under HR and HNR", examples.table1, 1),
    "scheduling-average": Figure("Fig. 5: average slowdown by load", loads.average, 10),
    "scheduling-response": Figure("Fig. 6: average response by load", loads.response, 10),
    "scheduling-maximum": Figure("Fig. 7: maximum slowdown by load", loads.maximum, 10),
    "scheduling-tradeoff": Figure("Fig. 8, 9: average against maximum", loads.tradeoff, 10),
    "scheduling-l2": Figure("Fig. 10: l2 norm of slowdowns by load", loads.l2, 10),
    "scheduling-classes": Figure("Fig. 11: slowdown by class of queries", loads.classes, 10),
    "scheduling-multistream": Figure("Fig. 12: window joins over two streams", joins.by_load, 5),
    "scheduling-clusters": Figure("Fig. 13: BSD over clusters", cheap.by_clusters, 10),
    "scheduling-implementation": Figure(
        "Fig. 14: BSD made cheap, step by step", cheap.implementation_steps, 5
    ),
    "scheduling-table2": Figure("Table 2: shared operators", examples.table2, 10),
    "scheduling-trace": Figure("The claims on a trace of web requests", beyond.trace, 3),
    "scheduling-bursts": Figure("The claims under saturated bursts", beyond.bursts, 10),
    "scheduling-ours": Figure("BSD with a head start, on new seeds", beyond.head_start, 20),
}


def all_parts(settings: FigureSettings) -> Report:
    """All the parts, one after the other; the trace only where there is one."""
    reports = [
        figure.run(settings)
        for name, figure in PARTS.items()
        if name != "scheduling-trace" or settings.data is not None
    ]
    return Report(
        tuple(table for report in reports for table in report.tables),
        tuple(claim for report in reports for claim in report.claims),
        tuple(plot for report in reports for plot in report.plots),
    )


SCHEDULING: dict[str, Figure] = {
    **PARTS,
    "scheduling": Figure("All of the scheduling paper", all_parts, 5),
}
