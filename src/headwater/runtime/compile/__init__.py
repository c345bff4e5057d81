"""A query as the Spark SQL of its steps.

A query runs in one of three ways. A select-project-join whose results follow from the tuples alone
(`DeltaJoin`) joins only new tuples, and emits on arrival. One that is grouped, or emits rows that leave
or all rows, keeps new tuples as panes and emits from them when the watermark has passed (`Panes`); panes
over ROWS windows are built again at each step. Everything else (`Lifetimes`) reads its windows, and says
of each row from when until when it is there. Several joins that overlap run as one (`SharedJoin`), and so do grouped queries
(`SharedPanes`), and all others that read the same sources (`SharedLifetimes`). `plan` has the protocol that all of them follow.
"""

from __future__ import annotations

from headwater.algebra.canonical import Block, CanonicalQuery
from headwater.algebra.nodes import Output, Scan, TableScan
from headwater.algebra.windows import Range
from headwater.runtime.compile.delta_join import DeltaJoin
from headwater.runtime.compile.lifetimes import Lifetimes
from headwater.runtime.compile.panes import Panes
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.shared_join import SharedJoin
from headwater.runtime.compile.shared_lifetimes import SharedLifetimes
from headwater.runtime.compile.shared_panes import SharedPanes
from headwater.runtime.compile.windows import FOREVER, window_start
from headwater.runtime.storage.columns import ARRIVAL, TIME

__all__ = [
    "ARRIVAL",
    "FOREVER",
    "TIME",
    "DeltaJoin",
    "Lifetimes",
    "Panes",
    "Plan",
    "SharedJoin",
    "SharedLifetimes",
    "SharedPanes",
    "compile_query",
    "window_start",
]


def compile_query(canonical: CanonicalQuery) -> Plan:
    """The plan of a canonical query that runs alone."""
    body = canonical.body
    if not isinstance(body, Block) or not _is_simple(body):
        return Lifetimes(canonical.query)
    by_time = all(isinstance(s.window, Range) for s in body.sources if isinstance(s, Scan))
    is_plain = body.group is None and not body.distinct
    # Only here does a row follow from its tuples alone, for good: what leaves (DSTREAM), what is
    # there (RSTREAM), duplicates, groups and ROWS windows all depend on tuples that are yet to
    # come.
    if canonical.output is Output.ISTREAM and is_plain and by_time:
        return DeltaJoin(body)
    return Panes(body, canonical.output)


def _is_simple(body: Block) -> bool:
    """Whether a block is made of combinations of tuples and rows of tables alone."""
    return (
        not body.semis
        and not (body.group is not None and body.distinct)
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
        and any(isinstance(source, Scan) for source in body.sources)
    )
