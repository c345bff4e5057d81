"""A query as the Spark SQL of its steps.

There are three ways to run a query, and one for many. A select-project-join whose results are known from the tuples
alone (`Delta`) joins only what is new. Where it is grouped, or told when it leaves or all at once,
what is new is kept as panes, and told from them when the watermark has passed (`Panes`); panes over
windows by rows are made anew. Everything else (`Instants`) evaluates its windows at each instant.
Several joins that overlap run as one (`Shared`), and so do grouped queries (`SharedPanes`).
"""

from __future__ import annotations

from headwater.algebra.canonical import Block, CanonicalQuery
from headwater.algebra.nodes import Output, Scan, TableScan
from headwater.algebra.windows import Range
from headwater.runtime.compile.delta_join import DeltaJoin
from headwater.runtime.compile.instants import InstantEvaluation
from headwater.runtime.compile.panes import Panes
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.shared_join import SharedJoin
from headwater.runtime.compile.shared_panes import SharedPanes
from headwater.runtime.compile.windows import FOREVER, window_start
from headwater.runtime.storage.columns import ARRIVAL, TIME

__all__ = [
    "ARRIVAL",
    "FOREVER",
    "TIME",
    "DeltaJoin",
    "InstantEvaluation",
    "Panes",
    "Plan",
    "SharedJoin",
    "SharedPanes",
    "compile_query",
    "window_start",
]


def compile_query(canonical: CanonicalQuery) -> Plan:
    """The way to run a canonical query."""
    body = canonical.body
    if not isinstance(body, Block) or not _is_simple(body):
        return InstantEvaluation(canonical.query)
    by_time = all(isinstance(s.window, Range) for s in body.sources if isinstance(s, Scan))
    is_plain = body.group is None and not body.distinct
    if canonical.output is Output.ISTREAM and is_plain and by_time:
        return DeltaJoin(body)
    return Panes(body, canonical.output)


def _is_simple(body: Block) -> bool:
    """Whether combinations of tuples and rows of tables are all that a block is made of."""
    return (
        not body.semis
        and not (body.group is not None and body.distinct)
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
        and any(isinstance(source, Scan) for source in body.sources)
    )
