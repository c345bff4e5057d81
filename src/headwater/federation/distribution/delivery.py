"""Over which ways a substream reaches the places: for each origin the tree of its shortest paths.

A substream runs over each link once, however many places behind the link want it. Of a tree only the
places and the points where it branches are kept, so that 256 places in a network of thousands of nodes
make trees of a few hundred nodes. Where only latencies are known, every place has a way of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.network.paths import Routes


@dataclass(frozen=True, eq=False)
class DeliveryTrees:
    """A tree for each anchor: node 0 is the anchor itself, and a parent comes before its children.

    `length[a, n]` is the latency between node n and its parent, `node[a, k]` the node of place k.
    """

    parent: NDArray[np.int32]
    length: NDArray[np.float64]
    node: NDArray[np.int32]
    size: NDArray[np.int32]


def star_trees(anchor: NDArray[np.float64]) -> DeliveryTrees:
    """A way of its own from every anchor to every place."""
    anchors, places = anchor.shape
    length = np.zeros((anchors, places + 1))
    length[:, 1:] = anchor
    node = np.tile(np.arange(1, places + 1, dtype=np.int32), (anchors, 1))
    size = np.full(anchors, places + 1, np.int32)
    return DeliveryTrees(np.zeros((anchors, places + 1), np.int32), length, node, size)


def path_trees(routes: Routes, anchors: Sequence[int], places: Sequence[int]) -> DeliveryTrees:
    """The unions of shortest paths from sites that are anchors to sites that are places."""
    built = [_path_tree(routes, anchor, places) for anchor in anchors]
    width = max(len(parent) for parent, _, _ in built)
    parents = np.zeros((len(anchors), width), np.int32)
    lengths = np.zeros((len(anchors), width))
    for row, (parent, length, _) in enumerate(built):
        parents[row, : len(parent)] = parent
        lengths[row, : len(length)] = length
    nodes = np.array([node for _, _, node in built], np.int32)
    return DeliveryTrees(parents, lengths, nodes, np.array([len(p) for p, _, _ in built], np.int32))


def _path_tree(
    routes: Routes, anchor: int, places: Sequence[int]
) -> tuple[list[int], list[float], list[int]]:
    """Parent and length of the nodes that are kept, and the node of each place."""
    before = {anchor: anchor}
    branches: dict[int, int] = {}
    order = [anchor]
    for place in places:
        path = []
        site = place
        # The last links from an anchor form one tree: a way that meets an earlier one stays on it.
        while site not in before:
            path.append(site)
            link = routes.network.links[int(routes.last_link[anchor, site])]
            site = link.a if link.b == site else link.b
        for after in reversed(path):
            before[after] = site
            branches[site] = branches.get(site, 0) + 1
            site = after
        order += reversed(path)
    kept = dict.fromkeys(places, 0)
    number: dict[int, int] = {}
    parent: list[int] = []
    length: list[float] = []
    # The kept node at or above each site: contracted links add up to the difference of distances.
    above: dict[int, int] = {}
    for site in order:
        top = above.get(before[site], anchor)
        if site == anchor or site in kept or branches[site] > 1:
            number[site] = len(parent)
            parent.append(number[top] if site != anchor else 0)
            length.append(float(routes.distance[anchor, site] - routes.distance[anchor, top]))
            above[site] = site
        else:
            above[site] = top
    return parent, length, [number[place] for place in places]
