"""In which order a term of a delta join takes its sources in, from what joins were measured to do.

The delta comes first, then always the source that leaves the fewest rows: as many as it has, times
the selectivity that joining it by the same conditions had when a step was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.algebra.canonical import Block
from headwater.algebra.expressions import columns_of, conjuncts
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.predicate import to_expr
from headwater.runtime.catalog import Json
from headwater.runtime.compile.delta import PART

UNMEASURED = 0.01
"""The selectivity of a join that was not seen yet."""


@dataclass(frozen=True)
class Term:
    """A term as it is run: its sources in order, and how many rows are read of each stream."""

    block: Block
    order: tuple[str, ...]
    rows: Mapping[str, int]

    def joins(self) -> list[str]:
        """A name for each join of the term, the same for the same source and conditions."""
        links = _links(self.block)
        return [_join(a, self.order[: n + 1], links) for n, a in enumerate(self.order[1:])]


def term(
    block: Block,
    first: str,
    rows: Mapping[str, int],
    known: Mapping[str, float],
    part: frozenset[str] = frozenset(),
) -> Term:
    """The term of a delta of that source; a source is joined when a condition ties it to others.

    The sources of a part are one, as they were joined before.
    """
    links = [frozenset(PART if a in part else a for a in link) for link in _links(block)]
    order = [first]
    own = (s.alias for s in block.sources if isinstance(s, Scan | TableScan))
    aliases = [*([PART] if part else []), *(alias for alias in own if alias not in part)]
    left = [alias for alias in aliases if alias != first]

    def growth(alias: str) -> float:
        return rows.get(alias, 0) * known.get(_join(alias, order, links), UNMEASURED)

    while left:
        tied = [a for a in left if any(a in link and link & set(order) for link in links)]
        chosen = min(tied or left, key=growth)
        order.append(chosen)
        left.remove(chosen)
    return Term(block, tuple(order), rows)


def _links(block: Block) -> list[frozenset[str]]:
    """The sources that each condition speaks of."""
    parts = conjuncts(to_expr(block.where))
    return [frozenset(c.relation for c in columns_of(part)) for part in parts]


def _join(alias: str, before: Sequence[str], links: Sequence[frozenset[str]]) -> str:
    tied = {other for link in links if alias in link for other in link if other in before}
    return f"join {alias} to {', '.join(sorted(tied)) or 'all'}"


# ---- what was measured


def selectivities(operators: Sequence[Json], terms: Sequence[Term]) -> dict[str, float]:
    """Rows out per row before and row read, of each join of the terms of a plan that Spark ran."""
    chains = [chain for operator in operators for chain in _chains(operator)]
    found: dict[str, float] = {}
    if len(chains) != len(terms):
        return found
    for chain, ran in zip(chains, terms, strict=True):
        names = ran.joins()
        if len(chain) == len(names):
            for name, alias, join in zip(names, ran.order[1:], chain, strict=True):
                before, rows = join["inputs"][0]["rows_out"], ran.rows.get(alias, 0)
                if before and rows and join["rows_out"] is not None:
                    found[name] = join["rows_out"] / (before * rows)
    return found


def _chains(operator: Json) -> Iterator[list[Json]]:
    """The joins of each term, the first one first."""
    if operator["kind"] == "join":
        chain = []
        while operator["kind"] in ("join", "filter"):
            if operator["kind"] == "join":
                chain.append(operator)
            operator = operator["inputs"][0]
        yield chain[::-1]
        return
    for below in operator["inputs"]:
        yield from _chains(below)
