"""What runs, as a graph of derived streams.

A node is known by what it computes: its sources and what joins them (the sharing key, which two queries
must have in common), and its bounds, which may be relaxed. A node may read other nodes; those that serve
one part of a query are found by a lattice. Which queries a node serves, and what each keeps of its rows,
follows from their signatures: a query's own bounds are the compensation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Generic, TypeVar

from headwater.algebra.nodes import Scan, TableScan
from headwater.reuse.lattice import ALL_REGIONS, Lattice
from headwater.reuse.operator import Operator
from headwater.reuse.signature import QuerySignature, source_name

Sources = frozenset[str]
"""Some of the sources of a query, by labels that are the same in all queries with its sharing key."""


def source_labels(sources: Iterable[Scan | TableScan]) -> dict[str, str]:
    """The label of each source by alias: its name, with the alias where the name occurs twice."""
    names = {source.alias: source_name(source) for source in sources}
    counts = Counter(names.values())
    return {
        alias: name if counts[name] == 1 else f"{name} {alias}" for alias, name in names.items()
    }


@dataclass(eq=False)
class Node:
    """A derived stream at a site, and the nodes that it reads instead of their sources.

    `until` is when the last of the queries that it serves leaves.
    """

    name: str
    operator: Operator
    site: int = 0
    inputs: tuple[Node, ...] = ()
    until: float = inf

    @cached_property
    def sources(self) -> Sources:
        # Relaxing keeps the sources: only their windows change.
        return frozenset(source_labels(self.operator.sources).values())

    @property
    def tree(self) -> Iterator[Node]:
        """Itself and all that feed it."""
        yield self
        for feeder in self.inputs:
            yield from feeder.tree


N = TypeVar("N", bound=Node)


class Graph(Generic[N]):
    """The nodes that run, by name; what could serve a part of a query is found by the lattice."""

    def __init__(self) -> None:
        self.lattice = Lattice()
        self._nodes: dict[str, N] = {}
        self._requests: Counter[Sources] = Counter()
        self._submitted = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def __getitem__(self, name: str) -> N:
        return self._nodes[name]

    def __iter__(self) -> Iterator[N]:
        return iter(self._nodes.values())

    def insert(self, node: N, regions: int = 1) -> None:
        """Add a node, or index it again after its operator has changed."""
        self._nodes[node.name] = node
        self.lattice.insert(node.name, node.operator, regions)

    def remove(self, name: str) -> None:
        del self._nodes[name]
        self.lattice.remove(name)

    def candidates(self, part: QuerySignature, regions: int = ALL_REGIONS) -> list[N]:
        """The nodes that can serve a part of a query, as they are or relaxed."""
        return [self._nodes[name] for name in self.lattice.candidates(part, regions)]

    def nearest(self, part: QuerySignature) -> Iterator[N]:
        """Those that serve a part as they are, then some that can when relaxed."""
        return (self._nodes[name] for name in self.lattice.nearest(part))

    # ---- what is asked for

    def count_request(self, joins: Iterable[Sources]) -> None:
        """Remember which joins of some of its sources a query could have shared."""
        self._requests.update(joins)
        self._submitted += 1

    def expected_requests(self, sources: Sources, running: int) -> float:
        """How many queries would have that join if those that run were as all that came so far."""
        return running * self._requests[sources] / max(1, self._submitted)


Changes = Mapping[N, Operator]
"""The nodes that are to compute something else, and what."""
