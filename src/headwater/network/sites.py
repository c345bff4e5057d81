"""Networks in TOML files: sites with what they can do, and the links between them.

    [[site]]
    name = "edge"
    cpu = 2e6             # instructions a second
    memory = 1e9          # bytes
    bandwidth_in = 1e8    # bytes a second
    bandwidth_out = 1e8

    [[link]]
    from = "edge"
    to = "core"
    bandwidth = 1e7       # bytes a second, each way
    latency = 0.06        # seconds

What is not said is not limited. A file without any link has every site connected with every other;
one with links has these alone.
"""

from __future__ import annotations

import math
from pathlib import Path

from headwater.errors import nearest
from headwater.network.model import Link, Network, Site
from headwater.tomltext import Section, read_toml


def connected(
    sites: tuple[Site, ...], bandwidth: float = math.inf, latency: float = 0.0
) -> Network:
    """All sites linked with one another by links that are alike."""
    links = tuple(
        Link(a, b, latency, bandwidth=bandwidth) for b in range(len(sites)) for a in range(b)
    )
    return Network(sites, links)


def read_sites(path: Path, whole: bool = False) -> Network:
    """The network of a file; raises InputError with the line of a mistake.

    If it has to be `whole`, a site to which no way leads from the first one is a mistake.
    """
    top = read_toml(path)
    top.only("site", "link")
    names: list[str] = []
    sites = tuple(_site(section, names) for section in top.sections("site"))
    if not sites:
        top.refuse("site", "there is no [[site]]; write one for each place that runs operators")
    links = tuple(_link(section, names) for section in top.sections("link"))
    network = Network(sites, links) if links else connected(sites)
    if whole:
        _reached(network, list(top.sections("site")))
    return network


def _reached(network: Network, sections: list[Section]) -> None:
    """Refuse a site that no way leads to."""
    seen, waiting = {0}, [0]
    while waiting:
        place = waiting.pop()
        for link in network.links:
            if place in (link.a, link.b):
                waiting += {link.a, link.b} - seen
                seen |= {link.a, link.b}
    for place, section in enumerate(sections):
        if place not in seen:
            first, name = network.sites[0].name, network.sites[place].name
            section.refuse("name", f"no link leads from {first} to {name}; add a [[link]]")


def _site(section: Section, names: list[str]) -> Site:
    """The site of a section, whose name is added to those taken."""
    section.only("name", "cpu", "memory", "bandwidth_in", "bandwidth_out")
    name = section.string("name")
    if name in names:
        section.refuse("name", f"a second site is called {name}; rename one")
    names.append(name)
    return Site(
        name,
        cpu=section.number("cpu", math.inf),
        memory=section.number("memory", math.inf),
        bandwidth_in=section.number("bandwidth_in", math.inf),
        bandwidth_out=section.number("bandwidth_out", math.inf),
    )


def _link(section: Section, names: list[str]) -> Link:
    section.only("from", "to", "bandwidth", "latency")
    ends = []
    for key in ("from", "to"):
        name = section.string(key)
        if name not in names:
            section.refuse(key, f"no site {name}; {nearest(name, names)}")
        ends.append(names.index(name))
    if ends[0] == ends[1]:
        section.refuse("to", f"a link leads from {names[ends[0]]} to itself")
    bandwidth = section.number("bandwidth", math.inf)
    if bandwidth == 0:
        section.refuse("bandwidth", "a link of bandwidth 0 is none; leave it out")
    latency = section.number("latency", 0.0)
    if latency == math.inf:
        section.refuse("latency", "the latency of a link is finite")
    return Link(ends[0], ends[1], latency, bandwidth=bandwidth)
