"""Worlds from TOML files; all mistakes of a file are reported in one run, each with its line.

    seeds = [1, 2, 3]                       # a run for each

    [network]
    generator = "transit-stub"              # or gml = "FILE", latencies = "FILE", sites = "FILE"

    [providers]
    count = 16                              # drawn among the hosts; or names = ["a", "b"]

    [streams]
    substreams = 400

    [queries]
    count = 200

    [distribution]
    policies = ["naive", "hierarchical"]

    [dissemination]
    policies = ["greedy", "random + adaptive"]

    [[failures]]
    at = 300                                # seconds
    event = "dies"
    providers = 2                           # so many, drawn; or provider = "a"

Files are looked for from the folder of the world. docs/federation.md lists all keys.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np

from headwater.errors import InputError, NetworkError, suggest
from headwater.network.gml import load_gml
from headwater.network.matrix import load_latencies
from headwater.network.model import Network
from headwater.network.paths import shortest_routes
from headwater.network.sites import read_network
from headwater.network.transit_stubs import (
    COSMOS,
    COSMOS_DISSEMINATION,
    STREAMREUSE,
    TransitStubShape,
)
from headwater.sim.worlds.model import (
    DISTRIBUTION_POLICIES,
    OBJECTIVES,
    TREE_POLICIES,
    DisseminationSettings,
    DistributionSettings,
    NetworkSource,
    PriceTrace,
    ProviderSettings,
    QuerySettings,
    SimulatedWorld,
    StreamSettings,
)
from headwater.sim.worlds.read_failures import FailureReader, one_of
from headwater.sim.worlds.ticks import (
    CENT_OF_CENT,
    MILLISECOND,
    begin_together,
    read_ticks,
)
from headwater.tomltext import Mistakes, SectionReader, parse_toml, read_toml

SHAPES = {
    "cosmos": COSMOS,
    "cosmos-dissemination": COSMOS_DISSEMINATION,
    "streamreuse": STREAMREUSE,
}
GENERATORS = ("transit-stub",)
SOURCES = ("gml", "latencies", "sites", "generator")
SHAPE_KEYS = ("shape", "domains", "transit", "stubs", "hosts", "density")
MOST = 10_000_000
"""Of queries, substreams or objects: beyond, the arrays of a run do not fit into memory."""

MOST_HOSTS = 20_000
"""The ways between all of them take eight bytes for each two."""

SECTIONS = ("network", "providers", "streams", "queries", "distribution", "dissemination")


def read_world(path: Path) -> SimulatedWorld:
    """The world of a file; raises InputError with a line for each mistake."""
    return _parse(SectionReader(read_toml(path), Mistakes()), path.parent)


def parse_world(text: str, name: str = "<text>", folder: Path = Path()) -> SimulatedWorld:
    """The world of a text; `name` is what messages call it, `folder` is where its files are."""
    return _parse(SectionReader(parse_toml(text, name), Mistakes()), folder)


def _parse(top: SectionReader, folder: Path) -> SimulatedWorld:
    top.check_keys(*SECTIONS, "failures", "seed", "seeds")
    if "distribution" not in top and "dissemination" not in top:
        top.note("", "nothing to simulate: add [distribution] or [dissemination]")
    seeds = _seeds(top)
    network = _network(top, folder)
    # Without a network there are no hosts to compare names with; other mistakes are still found.
    hosts = network.host_names if network else None
    providers = _providers(top.section_of("providers"), hosts)
    streams = queries = distribution = dissemination = None
    if "streams" in top:
        streams = _streams(top.section_of("streams"), hosts)
    if "queries" in top:
        queries = _queries(top.section_of("queries"), streams)
    if "distribution" in top:
        for needed in ("streams", "queries"):
            if needed not in top:
                top.note("distribution", f"a distribution needs [{needed}]")
        distribution = _distribution(top.section_of("distribution"))
    if "dissemination" in top:
        dissemination = _dissemination(top.section_of("dissemination"), hosts, folder)
    source = dissemination.source if dissemination else None
    ends = [part.duration for part in (distribution, dissemination) if part is not None]
    failures = FailureReader(providers, hosts, max(ends, default=0.0), streams, source)
    happens = failures.read_all(top.sections_of("failures"))
    top.mistakes.refuse_if_any()
    assert network is not None
    ordered = tuple(sorted(happens, key=lambda failure: failure.at))
    return SimulatedWorld(
        network, providers, streams, queries, distribution, dissemination, ordered, seeds
    )


def _seeds(top: SectionReader) -> tuple[int, ...]:
    if "seeds" not in top:
        return (top.whole_number("seed", 1),)
    if "seed" in top:
        top.note("seed", "seed and seeds cannot be used together")
    seeds = top.section.values["seeds"]
    if (
        not isinstance(seeds, list)
        or not seeds
        or not all(isinstance(seed, int) and seed >= 0 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        top.note("seeds", f"seeds takes a list of different whole numbers, not {seeds!r}")
        # Any would do: the file is refused in the end, and other mistakes are still looked for.
        return (1,)
    return tuple(seeds)


# ---- the network


def _network(top: SectionReader, folder: Path) -> NetworkSource | None:
    if "network" not in top:
        top.note("network", "there is no [network]; say where it comes from: " + one_of(SOURCES))
        return None
    if not isinstance(top.section.values["network"], dict):
        top.note("network", "network must be a table: [network]")
        return None
    section = top.section_of("network")
    section.check_keys(*SOURCES, *SHAPE_KEYS, "unknown_latency", "seed", "mean_latency")
    given = [source for source in SOURCES if source in section]
    if len(given) != 1:
        last = max(given, key=section.section.line, default="")
        section.note(last, f"[network] takes one of {one_of(SOURCES)}")
        return None
    before = len(section.mistakes.noted)
    for key in (*SHAPE_KEYS, "seed"):
        if key in section and given != ["generator"]:
            section.note(key, f"{key} is for a generator, not for a network from a file")
    if "unknown_latency" in section and given != ["gml"]:
        section.note("unknown_latency", "unknown_latency is for links of a gml file")
    mean = section.positive("mean_latency") if "mean_latency" in section else None
    if given == ["generator"]:
        section.choice("generator", GENERATORS, GENERATORS[0])
        seed = section.whole_number("seed") if "seed" in section else None
        source = NetworkSource(None, _shape(section), seed, mean)
    else:
        fixed = _network_file(section, given[0], folder)
        source = NetworkSource(fixed, None, None, mean)
        if fixed is not None:
            _check_connected(section, given[0], fixed)
    return source if len(section.mistakes.noted) == before else None


def _network_file(section: SectionReader, source: str, folder: Path) -> Network | None:
    path = folder / section.string(source)
    unknown = section.number("unknown_latency") if "unknown_latency" in section else None
    try:
        if source == "gml":
            return load_gml(path, unknown)
        return load_latencies(path) if source == "latencies" else read_network(path)
    except (InputError, NetworkError) as error:
        section.note(source, str(error))
        return None


def _check_connected(section: SectionReader, source: str, network: Network) -> None:
    reached = np.isfinite(shortest_routes(network).distance[0])
    if not reached.all():
        first, other = network.sites[0].name, network.sites[int(np.argmin(reached))].name
        section.note(source, f"no way leads from {first} to {other}; all sites must be connected")
    if len(network.hosts) < 2:
        section.note(source, "the network has fewer than two hosts")


def _shape(section: SectionReader) -> TransitStubShape:
    if "shape" in section:
        for key in SHAPE_KEYS[1:]:
            if key in section:
                section.note(key, f"{key} and shape cannot be used together")
        return SHAPES[section.choice("shape", tuple(SHAPES), "cosmos")]
    shape = TransitStubShape(
        section.whole_number("domains", 1, least=1),
        section.whole_number("transit", 4, least=1),
        section.whole_number("stubs", 4, least=1),
        section.whole_number("hosts", 8, least=1),
        section.number("density", 0.4, most=1.0),
    )
    hosts = shape.domains * shape.transit * shape.stubs * shape.hosts
    if hosts > MOST_HOSTS:
        section.note("generator", f"there would be {hosts:,} hosts, of at most {MOST_HOSTS:,}")
    return shape


# ---- providers, streams and queries


NO_CAPABILITY = "no provider can run a query: at least one needs a capability above 0"


def _providers(section: SectionReader, hosts: tuple[str, ...] | None) -> ProviderSettings:
    section.check_keys("count", "names", "capability")
    count = None
    names = section.strings("names", hosts, "host")
    if "count" in section:
        count = section.whole_number("count", least=1)
        if names:
            section.note("count", "count and names cannot be used together")
        elif hosts is not None and count > len(hosts):
            section.note("count", f"count is {count}, but the network has {len(hosts)} hosts")
    if not isinstance(section.section.values.get("capability"), dict):
        span = section.span("capability", (1.0, 1.0))
        if span[1] == 0:
            section.note("capability", NO_CAPABILITY)
        return ProviderSettings(names, count, span)
    given = _capabilities(section, names, hosts)
    everybody = names or hosts or ()
    if everybody and not any(given.get(name, 1.0) for name in everybody):
        section.note("capability", NO_CAPABILITY)
    return ProviderSettings(names, count, capabilities=given)


def _capabilities(
    section: SectionReader, names: tuple[str, ...], hosts: tuple[str, ...] | None
) -> dict[str, float]:
    given = section.section.values["capability"]
    if "count" in section:
        section.note("capability", "providers that are drawn have no capability by name")
    for name, value in given.items():
        if hosts is not None and name not in (names or hosts):
            section.note("capability", f"no provider {name}; {suggest(name, names or hosts)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            section.note(
                "capability", f"the capability of {name} is a number of at least 0, not {value!r}"
            )
    return {name: float(value) for name, value in given.items() if isinstance(value, int | float)}


def _streams(section: SectionReader, hosts: tuple[str, ...] | None) -> StreamSettings:
    section.check_keys("substreams", "rate", "origins", "groups", "zipf")
    origins: int | tuple[str, ...]
    if isinstance(section.section.values.get("origins"), list):
        origins = section.strings("origins", hosts, "host")
    else:
        origins = section.whole_number("origins", 1, least=1)
        if hosts is not None and origins > len(hosts):
            section.note("origins", f"origins is {origins}, but there are {len(hosts)} hosts")
    return StreamSettings(
        section.whole_number("substreams", least=1, most=MOST),
        section.span("rate", (1.0, 10.0)),
        origins,
        section.whole_number("groups", 20, least=1),
        section.number("zipf", 0.8),
    )


def _queries(section: SectionReader, streams: StreamSettings | None) -> QuerySettings:
    section.check_keys("count", "substreams", "result_share", "arrivals", "load")
    least, largest = section.span("substreams", (100.0, 200.0), least=1)
    if least != int(least) or largest != int(largest):
        section.note("substreams", "a query has a whole number of substreams")
    elif streams is not None and largest > streams.substreams:
        section.note(
            "substreams",
            f"a query has up to {largest:g} substreams, but there are {streams.substreams}; "
            "write substreams = [least, largest]",
        )
    return QuerySettings(
        section.whole_number("count", least=1, most=MOST),
        (least, largest),
        section.number("result_share", 0.1),
        section.number("arrivals", 0.0),
        section.positive("load", 1.0),
    )


# ---- what is simulated


def _policies(section: SectionReader, allowed: tuple[str, ...]) -> tuple[str, ...]:
    if not section.section.values.get("policies"):
        section.note(
            "policies",
            f'{section.section.header} needs policies = a list, such as ["{allowed[0]}"]',
        )
        return ()
    return section.strings("policies", allowed, "policy")


def _distribution(section: SectionReader) -> DistributionSettings:
    section.check_keys("policies", "objective", "k", "alpha", "rounds", "period")
    return DistributionSettings(
        _policies(section, DISTRIBUTION_POLICIES),
        section.choice("objective", OBJECTIVES, "traffic"),
        section.whole_number("k", 4, least=2),
        section.number("alpha", 0.1),
        section.whole_number("rounds", 5, least=1),
        section.positive("period", 200.0),
    )


def _dissemination(
    section: SectionReader, hosts: tuple[str, ...] | None, folder: Path
) -> DisseminationSettings:
    section.check_keys(
        "policies",
        "objects",
        "rate",
        "ticks",
        "tick_seconds",
        "tick_price",
        "tick_start",
        "interest",
        "tolerance",
        "tp",
        "tc",
        "source",
        "period",
        "duration",
    )
    source = section.string("source") if "source" in section else None
    if source is not None and hosts is not None and source not in hosts:
        section.note("source", f"no host {source}; {suggest(source, hosts)}")
    traces = _traces(section, folder)
    if "ticks" in section:
        for key in ("rate", "objects"):
            if key in section:
                section.note(key, f"{key} and ticks cannot be used together")
    else:
        for key in ("tick_seconds", "tick_price", "tick_start"):
            if key in section:
                section.note(key, f"{key} is for ticks, and there are none")
    tolerance = None
    if traces or "tolerance" in section:
        tolerance = section.span("tolerance", (0.01, 0.1))
        if "rate" in section and "ticks" not in section:
            section.note("rate", "rate and tolerance cannot be used together")
    period = section.positive("period", 200.0)
    interest = section.number("interest", 1.0, most=1.0)
    if section.section.values.get("interest") == 0:
        section.note("interest", "interest is 0: nobody would want anything")
    return DisseminationSettings(
        _policies(section, TREE_POLICIES),
        len(traces) or section.whole_number("objects", 1, least=1, most=MOST),
        section.span("rate", (0.5, 1.5)),
        traces,
        interest,
        tolerance,
        section.span("tp", (0.001, 0.009)),
        section.span("tc", (0.000125, 0.001875)),
        source,
        period,
        section.number("duration", 10 * period, least=period),
    )


def _traces(section: SectionReader, folder: Path) -> tuple[PriceTrace, ...]:
    second = section.positive("tick_seconds", MILLISECOND)
    price = section.positive("tick_price", CENT_OF_CENT)
    traces = []
    for name in section.strings("ticks"):
        try:
            traces.append(read_ticks(folder / name, second, price))
        except InputError as error:
            section.note("ticks", str(error))
    begin = section.number("tick_start", 0.0) if "tick_start" in section else None
    try:
        return tuple(begin_together(traces, begin))
    except InputError as error:
        section.note("tick_start", str(error))
        return tuple(traces)
