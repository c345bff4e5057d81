"""Networks from GML files, as the Internet Topology Zoo publishes them.

The latency of a link is the great-circle distance of its ends at the speed of light in glass. Where
an end has no location, that cannot be computed, and the caller has to give a latency for it.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from headwater.errors import InputError
from headwater.network.model import Link, Network, Site

EARTH_RADIUS = 6371.0
"""In km."""

# Two thirds of the speed of light in vacuum, by the refractive index of fibre.
SIGNAL_SPEED = 200_000.0
"""In km/s."""

_TOKEN = re.compile(
    r'\s*(?:#[^\n]*|(?P<string>"[^"]*")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])'
    r"|(?P<key>[A-Za-z]\w*)|(?P<sign>[\[\]])|(?P<bad>\S))"
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclass
class _Record:
    """The content of a pair of brackets: values by key, and nested records."""

    line: int
    values: dict[str, str | float] = field(default_factory=dict)
    records: list[tuple[str, _Record]] = field(default_factory=list)

    def records_named(self, key: str) -> list[_Record]:
        return [record for name, record in self.records if name == key]


def load_gml(
    path: Path,
    unknown_latency: float | None = None,
    cost: float = 1.0,
    bandwidth: float = math.inf,
) -> Network:
    """The network of a file; `cost` and `bandwidth` are for links of which it says nothing.

    A link with an end that is not located gets `unknown_latency`. Raises InputError, with the line,
    for text that is no GML, links to nowhere, and links of unknown length if None was given.
    """
    graph = _read_graph(path)
    nodes = graph.records_named("node")
    if not nodes:
        _refuse(path, graph.line, "the graph has no node")
    positions: dict[float, int] = {}
    for position, node in enumerate(nodes):
        id = _require_number(path, node, "id")
        if positions.setdefault(id, position) != position:
            _refuse(path, node.line, f"a second node has the id {id:g}")
    sites = _sites(path, nodes)
    links = []
    for edge in graph.records_named("edge"):
        ends = []
        for key in ("source", "target"):
            id = _require_number(path, edge, key)
            if id not in positions:
                _refuse(path, edge.line, f"the {key} of a link is {id:g}, and no node has that id")
            ends.append(positions[id])
        a, b = ends
        if a == b:
            _refuse(path, edge.line, f"a link leads from {sites[a].name} to itself")
        latency = _latency(sites[a], sites[b], unknown_latency)
        if latency is None:
            unlocated = next(site for site in (sites[a], sites[b]) if site.latitude is None)
            _refuse(
                path,
                edge.line,
                f"{unlocated.name} is not located, so the latency of this link is not known; "
                "say which one to assume (unknown_latency)",
            )
        links.append(Link(a, b, latency, cost, _bandwidth(edge, bandwidth)))
    return Network(tuple(sites), tuple(links))


def _sites(path: Path, nodes: list[_Record]) -> list[Site]:
    labels = [html.unescape(str(node.values.get("label", ""))).strip() for node in nodes]
    often = Counter(labels)
    sites = []
    for label, node in zip(labels, nodes, strict=True):
        id = f"{node.values['id']:g}"
        # Zoo files label several nodes alike or not at all, while names of sites have to be unique.
        name = id if not label else label if often[label] == 1 else f"{label} ({id})"
        sites.append(Site(name, False, *_location(path, node)))
    return sites


def _location(path: Path, node: _Record) -> tuple[float | None, float | None]:
    if "Latitude" not in node.values or "Longitude" not in node.values:
        return None, None
    latitude, longitude = (_require_number(path, node, key) for key in ("Latitude", "Longitude"))
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        _refuse(path, node.line, f"latitude {latitude:g}, longitude {longitude:g}: not on Earth")
    return latitude, longitude


def _latency(a: Site, b: Site, unknown: float | None) -> float | None:
    if a.latitude is None or a.longitude is None or b.latitude is None or b.longitude is None:
        return unknown
    return great_circle(a.latitude, a.longitude, b.latitude, b.longitude) / SIGNAL_SPEED


def _bandwidth(edge: _Record, default: float) -> float:
    """Bytes per second; the files give bits."""
    raw = edge.values.get("LinkSpeedRaw")
    return raw / 8 if isinstance(raw, float) and raw > 0 else default


def great_circle(latitude: float, longitude: float, latitude_2: float, longitude_2: float) -> float:
    """The distance in km of two points on Earth, given in degrees."""
    a, b = math.radians(latitude), math.radians(latitude_2)
    turned = math.radians(longitude_2 - longitude)
    chord = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turned / 2) ** 2
    # The haversine formula, which is accurate for near points too; rounding may exceed 1 at
    # antipodes.
    return 2 * EARTH_RADIUS * math.asin(math.sqrt(min(1.0, chord)))


# ---- the text


def _read_graph(path: Path) -> _Record:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error
    tokens = _tokenize(path, text)
    top = _parse_record(path, tokens, line=1, nested=False)
    graphs = top.records_named("graph")
    if len(graphs) != 1:
        _refuse(path, 1, f"a GML file has one graph [ .. ], this one has {len(graphs)}")
    return graphs[0]


def _tokenize(path: Path, text: str) -> Iterator[_Token]:
    line, position = 1, 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            start = match.start(kind)
            # From the last token on: counting from the beginning would take quadratic time.
            line += text.count("\n", position, start)
            position = start
            if kind == "bad":
                _refuse(path, line, f"{match[kind]!r} is not GML")
            yield _Token(kind, match[kind], line)


def _parse_record(path: Path, tokens: Iterator[_Token], line: int, nested: bool) -> _Record:
    """The keys and values up to the closing bracket, or to the end of the file."""
    record = _Record(line)
    for key in tokens:
        if nested and key.text == "]":
            return record
        if key.kind != "key":
            _refuse(path, key.line, f"a key is expected, not {key.text}")
        value = next(tokens, None)
        if value is None or value.kind == "key" or value.text == "]":
            _refuse(path, key.line, f"{key.text} has no value")
        if value.text == "[":
            record.records.append((key.text, _parse_record(path, tokens, value.line, nested=True)))
        elif value.kind == "number":
            record.values[key.text] = float(value.text)
        else:
            record.values[key.text] = value.text[1:-1]
    if nested:
        _refuse(path, line, "the bracket opened here is never closed")
    return record


def _require_number(path: Path, record: _Record, key: str) -> float:
    value = record.values.get(key)
    if not isinstance(value, float):
        problem = "there is none" if value is None else f"it is {value!r}"
        _refuse(path, record.line, f"{key} has to be a number, but {problem}")
    return value


def _refuse(path: Path, line: int, reason: str) -> NoReturn:
    raise InputError(f"{path}, line {line}: {reason}")
