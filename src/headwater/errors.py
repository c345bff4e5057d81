"""The errors Headwater raises on purpose.

HeadwaterError
├── AlgebraError       a logical query that makes no sense: unknown column, types that do not meet
├── CqlError           a text that is not CQL, or says something impossible; has a position
│   └── CqlErrors      several of them, from one file
├── InputError         data that cannot be read or does not fit its schema
│   └── DamagedFile       a file of the state that is not what was written
│       └── MissingFile   one that is gone
├── NetworkError       sites and links that make no network, or a way that does not exist
├── EvaluationError    a query that the reference evaluator cannot run
├── PlanError          a planning problem that makes no sense, or has no answer
├── QueryRefused       a query that does not fit on the sites there are
├── RuntimeFailure     Spark that cannot be started or reached
│   └── SparkEnded     Spark that was there and ended
├── ScheduleError      a policy that does not exist, or measurements that make no sense
├── SimulationError    a simulation that cannot be set up or run
└── CatalogError       a catalog that cannot be read, or a change that it refuses
    ├── CatalogNotFound       there is none yet, and it was not to be made
    ├── CatalogUnavailable    locked, full or out of reach: the same call may succeed later
    ├── CommitConflict        another commit came first: read again what it was based on
    └── LeaseLost             another holds the lease, or nobody: the work must not be kept
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence


class HeadwaterError(Exception):
    """Base of every error that is meant to be read by a user."""


class AlgebraError(HeadwaterError):
    """A node or expression that was refused when it was built."""


class InputError(HeadwaterError):
    """Input data that cannot be read, with the file and what was wrong."""


class DamagedFile(InputError):
    """A file of the state whose size or checksum is not the one that the catalog has."""


class MissingFile(DamagedFile, FileNotFoundError):
    """A file of the state that the catalog names and that is not there."""


class NetworkError(HeadwaterError):
    """A site, link or network that was refused, or a question it has no answer to."""


class EvaluationError(HeadwaterError):
    """A query outside what the reference evaluator runs."""


class PlanError(HeadwaterError):
    """A planning problem that was refused when it was built, or that nothing can answer."""


class QueryRefused(HeadwaterError):
    """A query that the sites cannot take beside what they run, with what is short."""


class CatalogError(HeadwaterError):
    """A catalog that cannot be opened or read, or a change that it refuses."""


class CatalogNotFound(CatalogError):
    """There is no catalog in that place."""


class CatalogUnavailable(CatalogError):
    """A catalog that cannot answer now; trying again may help.

    If the connection broke while a commit was being confirmed, the change may have been kept.
    """


class CommitConflict(CatalogError):
    """A commit based on what another has changed meanwhile: nothing was changed."""


class LeaseLost(CatalogError):
    """A commit or renewal under a lease that is no longer its holder's: nothing was changed."""


class RuntimeFailure(HeadwaterError):
    """Spark cannot be had, with what to do about it."""


class SparkEnded(RuntimeFailure):
    """Spark, or the Java it runs in, ended while it was at work."""


class ScheduleError(HeadwaterError):
    """A policy or a measurement that was refused, with what is possible."""


class SimulationError(HeadwaterError):
    """A simulation that was refused when it was set up, or that was asked for the impossible."""


class CqlError(HeadwaterError):
    """A mistake in a CQL text, at a line and column (both from 1).

    `str()` shows the message, the line of text with a caret below the place, and the hint.
    """

    def __init__(
        self, message: str, text: str, offset: int, length: int = 1, hint: str = ""
    ) -> None:
        self.message = message
        self.text = text
        self.offset = min(max(offset, 0), len(text))
        self.length = max(length, 1)
        self.hint = hint
        before = text[: self.offset]
        self.line = before.count("\n") + 1
        self.column = self.offset - (before.rfind("\n") + 1) + 1
        super().__init__(message)

    def __str__(self) -> str:
        lines = self.text.split("\n")
        shown = lines[self.line - 1].replace("\t", " ").rstrip("\r")
        width = max(1, min(self.length, len(shown) - self.column + 1))
        start = max(0, self.column - 80)
        window = shown[start : start + 160]
        parts = [
            f"line {self.line}, column {self.column}: {self.message}",
            f"  {window}",
            "  " + " " * (self.column - 1 - start) + "^" * min(width, 160),
        ]
        if self.hint:
            parts.append(f"  {self.hint}")
        return "\n".join(parts)


class CqlErrors(CqlError):
    """All the mistakes found in one text, in the order of their places."""

    def __init__(self, errors: Sequence[CqlError]) -> None:
        self.errors = tuple(sorted(errors, key=lambda e: e.offset))
        first = self.errors[0]
        super().__init__(first.message, first.text, first.offset, first.length, first.hint)

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors)


def is_url(path: object) -> bool:
    """Whether a path is in no file system of this machine; as a pathlib.Path it has lost a slash."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)) is not None


def remote_state_message(state: object) -> str:
    """Why a state cannot be at a URL."""
    return (
        f"a state is kept in a folder of this machine, not at {state}: name one with --state; for a "
        "cluster, one in a file system that all of its machines have mounted"
    )


def suggest(name: str, candidates: Iterable[str]) -> str:
    """A hint that names the closest known name, or lists what there is."""
    names = sorted(set(candidates))
    if not names:
        return "there is none here"
    by_lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    listing = ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
    if close:
        return f"did you mean {by_lower[close[0]]}? there is: {listing}"
    return f"there is: {listing}"
