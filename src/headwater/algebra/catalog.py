"""The streams and tables that a query may name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.types import TIMESTAMP, Schema
from headwater.algebra.windows import UNITS, Window
from headwater.errors import AlgebraError, suggest


@dataclass(frozen=True)
class Stream:
    """A stream as declared: its schema, event time, lateness bound and history (microseconds).

    `ahead` and `behind` bound how far an event may be from the clock when it arrives; None: no
    bound.
    """

    name: str
    schema: Schema
    time: str
    lateness: int = 0
    keep: int = UNITS["HOUR"]
    ahead: int | None = None
    behind: int | None = None

    def __post_init__(self) -> None:
        if self.schema[self.time].type != TIMESTAMP:
            raise AlgebraError(
                f"TIMESTAMP BY {self.time}: that is {self.schema[self.time].type}, not TIMESTAMP"
            )
        if self.lateness < 0 or self.keep < 0:
            raise AlgebraError("LATENESS and KEEP cannot be negative")
        if min(self.ahead or 0, self.behind or 0) < 0:
            raise AlgebraError("AHEAD and BEHIND cannot be negative")

    def scan(self, window: Window, alias: str = "") -> Scan:
        return Scan(self.name, self.schema, self.time, window, alias or self.name)


@dataclass(frozen=True)
class Table:
    """A stored table as declared."""

    name: str
    schema: Schema

    def scan(self, alias: str = "") -> TableScan:
        return TableScan(self.name, self.schema, alias or self.name)


# Compared by identity: a namespace changes, and `cql.templates` keeps what it knows of each by weak
# reference.
@dataclass(eq=False)
class Namespace:
    """Streams and tables by name; case does not matter, and a name is used once.

    `version` grows with every change, so that caches of bound queries notice that they are stale.
    """

    _by_name: dict[str, Stream | Table] = field(default_factory=dict)
    version: int = 0

    @classmethod
    def of(cls, sources: Iterable[Stream | Table]) -> Namespace:
        namespace = cls()
        for source in sources:
            namespace.add(source)
        return namespace

    def copy(self) -> Namespace:
        return Namespace(dict(self._by_name))

    def add(self, source: Stream | Table) -> None:
        """Declare it; raises AlgebraError if the name is taken."""
        if source.name.lower() in self._by_name:
            raise AlgebraError(f"{source.name} exists already")
        self._by_name[source.name.lower()] = source
        self.version += 1

    def remove(self, name: str) -> None:
        del self._by_name[self[name].name.lower()]
        self.version += 1

    def get(self, name: str) -> Stream | Table | None:
        return self._by_name.get(name.lower())

    def __getitem__(self, name: str) -> Stream | Table:
        source = self.get(name)
        if source is None:
            raise AlgebraError(f"no stream or table {name}; {suggest(name, self.names)}")
        return source

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(source.name for source in self._by_name.values())
