"""Networks in TOML files: sites with what they can do, the links between them, and how sites run.

    [[site]]
    name = "edge"
    cpu = 2e6             # instructions a second, or cores if costs are in seconds of a core
    memory = 1e9          # bytes
    bandwidth_in = 1e8    # bytes a second
    bandwidth_out = 1e8

    [[link]]
    from = "edge"
    to = "core"
    bandwidth = 1e7       # bytes a second, each way
    latency = 0.06        # seconds

What is not said is not limited. A file without any link has every site connected with every other;
one with links has these alone. For sites that run (`headwater up`), a file may say more:

    [[site]]
    master = "local[2]"   # where its Spark runs
    store = "stores/edge" # its segments, from the state directory; none: with those of the state

    [[stream]]
    name = "flights"
    sites = ["edge"]      # where it can be taken in; the first that is there does
    rate = 200            # tuples a second to count with until enough came to measure
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import is_url, nearest
from headwater.network.model import Link, Network, Site
from headwater.tomltext import Section, read_toml

MASTER = "local[*]"


@dataclass(frozen=True)
class Worker:
    """How a site runs: its Spark, and the folder of its segments if that is not the state's."""

    master: str = MASTER
    store: str | None = None


@dataclass(frozen=True)
class Entry:
    """Where a stream can be taken in, anywhere if nothing is said, and at which rate it may come."""

    sites: tuple[str, ...] = ()
    rate: float | None = None


@dataclass(frozen=True)
class Deployment:
    """A network of sites that run, each with its worker, and what is said of streams by name."""

    network: Network
    workers: tuple[Worker, ...]
    streams: Mapping[str, Entry] = field(default_factory=dict)

    def worker(self, site: str) -> Worker:
        """How a site runs; raises NetworkError if there is none of that name."""
        return self.workers[self.network.place(site)]

    def as_data(self) -> dict[str, Any]:
        """The deployment as JSON has it; what is not limited is left out."""
        limited = [_finite(asdict(one)) for one in self.network.sites]
        return {
            "sites": limited,
            "links": [_finite(asdict(link)) for link in self.network.links],
            "workers": [asdict(worker) for worker in self.workers],
            "streams": {name: asdict(entry) for name, entry in self.streams.items()},
        }


def deployment_of(data: Mapping[str, Any]) -> Deployment:
    """The deployment that `as_data` gave."""
    return Deployment(
        Network(
            tuple(Site(**site) for site in data["sites"]),
            tuple(Link(**link) for link in data["links"]),
        ),
        tuple(Worker(**worker) for worker in data["workers"]),
        {
            name: Entry(tuple(entry["sites"]), entry["rate"])
            for name, entry in data["streams"].items()
        },
    )


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != math.inf}


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
    return _read(path, whole).network


def read_deployment(path: Path, trouble: Callable[[str], str | None] | None = None) -> Deployment:
    """The sites of a file with how they run; raises InputError with the line of a mistake.

    `trouble` says what is wrong with a master, if anything is.
    """
    found = _read(path, whole=True)
    for section in read_toml(path).sections("site"):
        wrong = trouble(section.string("master", MASTER)) if trouble else None
        if wrong:
            section.refuse("master", wrong)
    return found


def _read(path: Path, whole: bool) -> Deployment:
    top = read_toml(path)
    top.only("site", "link", "stream")
    names: list[str] = []
    sites = tuple(_site(section, names) for section in top.sections("site"))
    if not sites:
        top.refuse("site", "there is no [[site]]; write one for each place that runs operators")
    links = tuple(_link(section, names) for section in top.sections("link"))
    network = Network(sites, links) if links else connected(sites)
    if whole:
        _reached(network, list(top.sections("site")))
    workers = tuple(_worker(section) for section in top.sections("site"))
    streams: dict[str, Entry] = {}
    for section in top.sections("stream"):
        name = section.string("name").lower()
        if name in streams:
            section.refuse("name", f"{name} is told of twice; write one [[stream]] for it")
        streams[name] = _entry(section, names)
    return Deployment(network, workers, streams)


def _worker(section: Section) -> Worker:
    store = section.string("store", "") or None
    if store is not None and is_url(store):
        section.refuse("store", f"a store is a folder, not {store}")
    return Worker(section.string("master", MASTER), store)


def _entry(section: Section, names: list[str]) -> Entry:
    section.only("name", "sites", "rate")
    sites = section.values.get("sites", [])
    if not isinstance(sites, list):
        section.refuse("sites", f"sites takes a list of names, not {sites!r}")
    for site in sites:
        if site not in names:
            section.refuse("sites", f"no site {site}; {nearest(str(site), names)}")
    rate = section.number("rate") if "rate" in section.values else None
    if rate == math.inf:
        section.refuse("rate", "the rate of a stream is finite")
    return Entry(tuple(sites), rate)


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
    section.only("name", "cpu", "memory", "bandwidth_in", "bandwidth_out", "master", "store")
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
