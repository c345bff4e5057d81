"""The sources that a process holds open, one for each stream that has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.cql.statements import Connector, CreateStream
from headwater.runtime.connectors.base import Source
from headwater.runtime.connectors.files import list_files
from headwater.runtime.connectors.registry import open_source
from headwater.runtime.storage.paths import check_connector_paths, check_paths


def check_source_paths(source: Connector | None, roots: Sequence[Path]) -> None:
    """Raises InputError if a source, or a link among its files, leads out of the allowed roots."""
    check_connector_paths(source, roots)
    path = source.get("path") if source is not None else None
    if roots and isinstance(path, str):
        check_paths(list_files(path), roots)


@dataclass
class OpenSources:
    """The open sources by the name of their stream, as long as its declaration stays the same."""

    _open: dict[str, tuple[CreateStream, Source]] = field(default_factory=dict)

    def get(self, name: str, declaration: CreateStream) -> Source | None:
        """The source of a stream; None for one that clients push to."""
        if declaration.source is None:
            return None
        entry = self._open.get(name)
        # A stream may have been dropped and declared anew, with another source.
        if entry is None or entry[0] != declaration:
            if entry is not None:
                entry[1].close()
            entry = (declaration, open_source(declaration.source, declaration.stream))
            self._open[name] = entry
        return entry[1]

    def close_except(self, names: set[str]) -> None:
        """Close the sources of other streams."""
        for name in set(self._open) - names:
            self._open.pop(name)[1].close()

    def expects_more(self, names: set[str]) -> bool:
        """Whether one of these streams is sure to get more by itself."""
        return any(source.expects_more for name, (_, source) in self._open.items() if name in names)
