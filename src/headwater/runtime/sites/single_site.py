"""The site of a process that runs a state alone: all work is its own, and nothing travels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headwater.runtime.catalog import Lease, UnitRow


class ProcessSite(Protocol):
    """The part of the work that a process does, and where its files are."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> Path:
        """Where segments are written."""

    @property
    def has_others(self) -> bool:
        """Whether other sites run the same state, and may wait for what this one holds."""

    @property
    def ends_finite_streams(self) -> bool:
        """Whether streams end when their sources have no more, though the process goes on."""

    @property
    def housekeeping_owner(self) -> str:
        """The name of the lease under which its files are tidied."""

    @property
    def incoming_logs(self) -> Sequence[str]:
        """The logs of which it makes copies."""

    def refresh(self) -> bool:
        """Read what is assigned to it; returns whether that has changed."""

    def send_heartbeats(self) -> AbstractContextManager[None]:
        """Show that the site is alive, until the block ends."""

    def owns(self, owner: str) -> bool:
        """Whether that work is this site's, by the name of its lease."""

    def local_log(self, log: str) -> str:
        """The log to read here for a log: its copy, if there is one."""

    def has_inputs(self, unit: UnitRow) -> bool:
        """Whether all that a unit has read already can be read here."""

    def ship_log(self, log: str, lease: Lease, at_point: Callable[[str], None]) -> bool:
        """Copy the new segments of a log; returns whether there were any."""

    def adopt_segments(self, owner: str, log: str, lease: Lease, again: bool = False) -> None:
        """Copy what another site wrote to a log that is this site's now."""


@dataclass(frozen=True)
class SingleSite:
    """The only site of a state; its store is the state directory."""

    store: Path
    name: str = ""
    has_others: bool = False
    ends_finite_streams: bool = False
    housekeeping_owner: str = "housekeeping"
    incoming_logs: Sequence[str] = ()

    def refresh(self) -> bool:
        return False

    def send_heartbeats(self) -> AbstractContextManager[None]:
        return nullcontext()

    def owns(self, owner: str) -> bool:  # noqa: ARG002
        return True

    def local_log(self, log: str) -> str:
        return log

    def has_inputs(self, unit: UnitRow) -> bool:  # noqa: ARG002
        return True

    def ship_log(self, log: str, lease: Lease, at_point: Callable[[str], None]) -> bool:  # noqa: ARG002
        return False

    def adopt_segments(self, owner: str, log: str, lease: Lease, again: bool = False) -> None:
        """Nothing: all files are in the one store already."""
