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

What is left out is not limited. A file without any link has every site connected with every other;
one with links has these alone. For sites that run (`headwater up`), a file may say more:

    [[site]]
    master = "local[2]"   # where its Spark runs
    store = "stores/edge" # its segments, from the state directory; none: with those of the state

    [[stream]]
    name = "flights"
    sites = ["edge"]      # where it can be ingested; the first of these that runs does so
    rate = 200            # tuples a second to count with until enough came to measure
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import is_url, suggest
from headwater.network.model import Link, Network, Site
from headwater.tomltext import Section, read_toml

DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True)
class Worker:
    """How a site runs: its Spark, and the folder of its segments if that is not the state's."""

    master: str = DEFAULT_MASTER
    store: str | None = None


@dataclass(frozen=True)
class StreamEntry:
    """Where a stream can be ingested (anywhere if no site is given), and its expected rate."""

    sites: tuple[str, ...] = ()
    rate: float | None = None


@dataclass(frozen=True)
class Deployment:
    """A network of sites that run, each with its worker, and what is said of streams by name."""

    network: Network
    workers: tuple[Worker, ...]
    streams: Mapping[str, StreamEntry] = field(default_factory=dict)

    def worker(self, site: str) -> Worker:
        """How a site runs; raises NetworkError if there is none of that name."""
        return self.workers[self.network.position_of(site)]

    def as_data(self) -> dict[str, Any]:
        """The deployment as JSON has it; what is not limited is left out."""
        limited = [_drop_infinite(asdict(site)) for site in self.network.sites]
        return {
            "sites": limited,
            "links": [_drop_infinite(asdict(link)) for link in self.network.links],
            "workers": [asdict(worker) for worker in self.workers],
            "streams": {name: asdict(entry) for name, entry in self.streams.items()},
        }


def deployment_from_data(data: Mapping[str, Any]) -> Deployment:
    """The deployment that `as_data` gave."""
    return Deployment(
        Network(
            tuple(Site(**site) for site in data["sites"]),
            tuple(Link(**link) for link in data["links"]),
        ),
        tuple(Worker(**worker) for worker in data["workers"]),
        {
            name: StreamEntry(tuple(entry["sites"]), entry["rate"])
            for name, entry in data["streams"].items()
        },
    )


# JSON has no infinity: an absent value gets the default, which is infinite.
def _drop_infinite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != math.inf}


def fully_connected(
    sites: tuple[Site, ...], bandwidth: float = math.inf, latency: float = 0.0
) -> Network:
    """All sites linked with one another by links that are alike."""
    links = tuple(
        Link(a, b, latency, bandwidth=bandwidth) for b in range(len(sites)) for a in range(b)
    )
    return Network(sites, links)


def read_network(path: Path, must_be_connected: bool = False) -> Network:
    """The network of a file; raises InputError with the line of a mistake.

    With `must_be_connected`, a site that cannot be reached from the first one is a mistake.
    """
    return _read_file(path, must_be_connected).network


def read_deployment(
    path: Path, check_master: Callable[[str], str | None] | None = None
) -> Deployment:
    """The sites of a file with how they run; raises InputError with the line of a mistake.

    `check_master` returns what is wrong with a master, or None.
    """
    deployment = _read_file(path, must_be_connected=True)
    for section in read_toml(path).sections("site"):
        problem = check_master(section.string("master", DEFAULT_MASTER)) if check_master else None
        if problem:
            section.refuse("master", problem)
    return deployment


def _read_file(path: Path, must_be_connected: bool) -> Deployment:
    top = read_toml(path)
    top.check_keys("site", "link", "stream")
    names: list[str] = []
    sites = tuple(_parse_site(section, names) for section in top.sections("site"))
    if not sites:
        top.refuse("site", "there is no [[site]]; write one for each place that runs operators")
    links = tuple(_parse_link(section, names) for section in top.sections("link"))
    network = Network(sites, links) if links else fully_connected(sites)
    if must_be_connected:
        _refuse_unreachable(network, list(top.sections("site")))
    workers = tuple(_parse_worker(section) for section in top.sections("site"))
    streams: dict[str, StreamEntry] = {}
    for section in top.sections("stream"):
        # Names of streams are case-insensitive in CQL.
        name = section.string("name").lower()
        if name in streams:
            section.refuse("name", f"{name} is listed twice; write one [[stream]] for it")
        streams[name] = _parse_stream(section, names)
    return Deployment(network, workers, streams)


def _parse_worker(section: Section) -> Worker:
    store = section.string("store", "") or None
    if store is not None and is_url(store):
        section.refuse("store", f"a store is a folder, not {store}")
    return Worker(section.string("master", DEFAULT_MASTER), store)


def _parse_stream(section: Section, names: list[str]) -> StreamEntry:
    section.check_keys("name", "sites", "rate")
    sites = section.values.get("sites", [])
    if not isinstance(sites, list):
        section.refuse("sites", f"sites takes a list of names, not {sites!r}")
    for site in sites:
        if site not in names:
            section.refuse("sites", f"no site {site}; {suggest(str(site), names)}")
    rate = section.number("rate") if "rate" in section.values else None
    if rate == math.inf:
        section.refuse("rate", "the rate of a stream is finite")
    return StreamEntry(tuple(sites), rate)


def _refuse_unreachable(network: Network, sections: list[Section]) -> None:
    """Refuse a site that cannot be reached."""
    seen, pending = {0}, [0]
    while pending:
        position = pending.pop()
        for link in network.links:
            if position in (link.a, link.b):
                pending += {link.a, link.b} - seen
                seen |= {link.a, link.b}
    for position, section in enumerate(sections):
        if position not in seen:
            first, name = network.sites[0].name, network.sites[position].name
            section.refuse("name", f"no link leads from {first} to {name}; add a [[link]]")


def _parse_site(section: Section, names: list[str]) -> Site:
    """The site of a section, whose name is added to those taken."""
    section.check_keys("name", "cpu", "memory", "bandwidth_in", "bandwidth_out", "master", "store")
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


def _parse_link(section: Section, names: list[str]) -> Link:
    section.check_keys("from", "to", "bandwidth", "latency")
    ends = []
    for key in ("from", "to"):
        name = section.string(key)
        if name not in names:
            section.refuse(key, f"no site {name}; {suggest(name, names)}")
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
