"""The connector kinds of the language: `FROM kind(..)` and `TO kind(..)`.

The parser needs the names, and whether a kind's input ends, before anything of the runtime is loaded;
so the kinds that come with Headwater are listed here. What a kind does is in
`headwater.runtime.connectors.registry`, whose `register_connector` adds a kind to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headwater.errors import HeadwaterError


@dataclass(frozen=True)
class ConnectorKind:
    """A connector as CQL sees it.

    `summary` is its line in the documentation. The input of a `finite` source was written down and ends,
    so its events may be of any time; the events of another one happen as they arrive.
    """

    name: str
    summary: str
    is_source: bool = False
    is_sink: bool = False
    finite: bool = False

    def __post_init__(self) -> None:
        # The parser reads a kind as one word and compares it in lower case.
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise HeadwaterError(f"a connector is named by one word in small letters: {self.name}")
        if not (self.is_source or self.is_sink):
            raise HeadwaterError(f"connector {self.name} is neither a source nor a sink")


_kinds: dict[str, ConnectorKind] = {
    kind.name: kind
    for kind in (
        ConnectorKind("files", "files of a folder", is_source=True, is_sink=True, finite=True),
        ConnectorKind("kafka", "a topic of Kafka", is_source=True, is_sink=True),
        ConnectorKind("rate", "tuples made by the clock, for tests", is_source=True),
        ConnectorKind("socket", "lines that a TCP server sends", is_source=True),
        ConnectorKind("replay", "files, at a multiple of their speed", is_source=True, finite=True),
    )
}

CONNECTOR_KINDS: Mapping[str, ConnectorKind] = MappingProxyType(_kinds)
"""Every kind by its name."""


def add_connector_kind(kind: ConnectorKind) -> None:
    """Let the parser accept a kind; raises HeadwaterError if there is one of that name."""
    if kind.name in _kinds:
        raise HeadwaterError(f"there is a connector {kind.name} already")
    _kinds[kind.name] = kind


def remove_connector_kind(name: str) -> None:
    """Let the parser refuse a kind again; raises HeadwaterError if there is none."""
    if _kinds.pop(name, None) is None:
        raise HeadwaterError(f"there is no connector {name}")


def source_kinds() -> tuple[str, ...]:
    """The names that FROM accepts."""
    return tuple(kind.name for kind in _kinds.values() if kind.is_source)


def sink_kinds() -> tuple[str, ...]:
    """The names that TO accepts."""
    return tuple(kind.name for kind in _kinds.values() if kind.is_sink)


def is_finite(name: str) -> bool:
    """Whether the input of a kind ends. A kind that is not registered in this process counts as
    finite, so that its streams get no bounds on event times that nobody asked for."""
    return name not in _kinds or _kinds[name].finite
