"""Sites with what they can do, and the links between them; read from a TOML file.

    [[site]]
    name = "edge"
    cpu = 2e6             # instructions a second
    memory = 1e9          # bytes
    bandwidth_in = 1e8    # bytes a second
    bandwidth_out = 1e8

    [[link]]
    from = "edge"
    to = "core"
    bandwidth = 1e7
    latency = 0.06        # seconds

What is not said is not limited. Links go both ways unless `one_way = true`. A file without any link
has every site connected with every other; one with links has these alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headwater.errors import InputError, nearest
from headwater.tomltext import Section, read_toml


@dataclass(frozen=True)
class Site:
    """A place that runs operators: instructions a second, bytes, and bytes a second in and out."""

    name: str
    cpu: float = math.inf
    memory: float = math.inf
    bandwidth_in: float = math.inf
    bandwidth_out: float = math.inf


@dataclass(frozen=True)
class Link:
    """A way from one site to another: bytes a second, and seconds."""

    source: str
    target: str
    bandwidth: float = math.inf
    latency: float = 0.0


@dataclass(frozen=True)
class Sites:
    """Sites and links; sites that no link connects can send each other nothing."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if not self.sites:
            raise InputError("there must be at least one site")
        names = [site.name for site in self.sites]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two sites are called {name}; rename one")
        seen = set()
        for link in self.links:
            for name in (link.source, link.target):
                if name not in names:
                    raise InputError(f"a link names the site {name}; {nearest(name, names)}")
            if link.source == link.target:
                raise InputError(f"a link leads from {link.source} to itself")
            if (link.source, link.target) in seen:
                raise InputError(f"two links lead from {link.source} to {link.target}")
            seen.add((link.source, link.target))

    @cached_property
    def _by_ends(self) -> dict[tuple[str, str], Link]:
        return {(link.source, link.target): link for link in self.links}

    def link(self, source: str, target: str) -> Link | None:
        """The link between two sites, or None."""
        return self._by_ends.get((source, target))

    def place(self, name: str) -> int:
        """The number of a site; raises InputError, naming what there is."""
        names = [site.name for site in self.sites]
        if name not in names:
            raise InputError(f"no site {name}; {nearest(name, names)}")
        return names.index(name)


def connected(sites: tuple[Site, ...], bandwidth: float = math.inf, latency: float = 0.0) -> Sites:
    """All sites linked with one another by links that are alike."""
    links = tuple(
        Link(a.name, b.name, bandwidth, latency) for a in sites for b in sites if a.name != b.name
    )
    return Sites(sites, links)


def read_sites(path: Path) -> Sites:
    """The sites and links of a file; raises InputError with the line of a mistake."""
    top = read_toml(path)
    top.only("site", "link")
    sites = tuple(_site(section) for section in top.sections("site"))
    if not sites:
        top.refuse("site", "there is no [[site]]; write one for each place that runs operators")
    links = [link for section in top.sections("link") for link in _links(section, sites)]
    if not links:
        return connected(_distinct(top, sites))
    seen: set[tuple[str, str]] = set()
    for section in top.sections("link"):
        for link in _links(section, sites):
            if (link.source, link.target) in seen:
                section.refuse("from", f"a second link leads from {link.source} to {link.target}")
            seen.add((link.source, link.target))
    return Sites(_distinct(top, sites), tuple(links))


def _site(section: Section) -> Site:
    section.only("name", "cpu", "memory", "bandwidth_in", "bandwidth_out")
    return Site(
        section.string("name"),
        section.number("cpu", math.inf),
        section.number("memory", math.inf),
        section.number("bandwidth_in", math.inf),
        section.number("bandwidth_out", math.inf),
    )


def _distinct(top: Section, sites: tuple[Site, ...]) -> tuple[Site, ...]:
    seen: set[str] = set()
    for section, site in zip(top.sections("site"), sites, strict=True):
        if site.name in seen:
            section.refuse("name", f"a second site is called {site.name}; rename one")
        seen.add(site.name)
    return sites


def _links(section: Section, sites: tuple[Site, ...]) -> tuple[Link, ...]:
    section.only("from", "to", "bandwidth", "latency", "one_way")
    names = [site.name for site in sites]
    ends = [section.string("from"), section.string("to")]
    for key, name in zip(("from", "to"), ends, strict=True):
        if name not in names:
            section.refuse(key, f"no site {name}; {nearest(name, names)}")
    if ends[0] == ends[1]:
        section.refuse("to", f"a link leads from {ends[0]} to itself")
    one_way = section.values.get("one_way", False)
    if not isinstance(one_way, bool):
        section.refuse("one_way", f"one_way is true or false, not {one_way!r}")
    bandwidth, latency = section.number("bandwidth", math.inf), section.number("latency", 0.0)
    there = Link(ends[0], ends[1], bandwidth, latency)
    return (there,) if one_way else (there, Link(ends[1], ends[0], bandwidth, latency))
