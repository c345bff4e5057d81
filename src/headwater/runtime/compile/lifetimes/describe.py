"""What a step of a query by lifetimes reads, in words: what of it is not incremental, and why."""

from __future__ import annotations

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Aggregate, Output, walk_relations
from headwater.runtime.compile.lifetimes.aggregate import follows_from_before
from headwater.runtime.compile.lifetimes.partition import Part
from headwater.runtime.compile.lifetimes.plan import Lifetimes


def describe_steps(plan: Lifetimes) -> list[str]:
    """A line for each part that is read by what changes, or for why windows are read whole; and one for each
    group whose values do not follow from those before."""
    lines = [_describe_part(plan, part) for part in plan.parts]
    if not lines:
        whole = plan.query.output is Output.RSTREAM
        reason = "RSTREAM emits all of them" if whole else "no equality ties all that it reads"
        lines = [f"a step reads the tuples of its windows: {reason}"]
    groups = [node for node in walk_relations(plan.query.root) if isinstance(node, Aggregate)]
    for group in groups:
        if not follows_from_before(group):
            calls = ", ".join(dict.fromkeys(call.name for call in group.calls))
            lines.append(f"a group is added up again whenever it changes: {calls}")
    return lines


def _describe_part(plan: Lifetimes, part: Part) -> str:
    streams = {alias: scan.stream for alias, scan in plan.scans}
    columns = [f"{streams[a]}.{c.name}" for a, c in part.columns.items() if isinstance(c, Column)]
    if not columns:
        return "a step reads the tuples that enter or leave a window"
    equal = " = ".join(dict.fromkeys(columns))
    return f"a step reads the tuples with the {equal} of one that enters or leaves a window"
