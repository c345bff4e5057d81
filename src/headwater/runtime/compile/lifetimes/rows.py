"""Rows with lifetimes: what every rule of the algebra reads and writes.

A relation that changes over time is a bag of rows `(_from, _to, _id, columns)`: such a row is in R(t) for all
t with `_from` <= t < `_to`. A rule maps relations with lifetimes to one with lifetimes so that at every t the
result is what SQL's operator makes of its inputs at t. Nothing is copied for each instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.algebra.expressions import Column
from headwater.runtime.compile.windows import FOREVER, least_sql, next_multiple_sql
from headwater.runtime.spark.sql import quote_identifier

FROM, TO = "_from", "_to"
"""The lifetime of a row: it is there from the one on, until before the other."""
ID = "_id"
"""What makes two rows the same row: the tuples that a row is made of, or its values."""
BAND = "_band"
"""The stretch of time that a row was cut into; rows of different bands never meet."""


@dataclass(frozen=True)
class Bands:
    """The time of a step cut into stretches of equal length."""

    length: int
    count: int


@dataclass(frozen=True)
class Timeline:
    """The instants of a step: those later than `before`, the last one evaluated, up to `last`.

    Lifetimes are known between `start` and `last`: a row that was there before begins at `start`, and one
    that stays ends at FOREVER.
    """

    slides: frozenset[int]
    before: int | None
    first: int
    last: int
    bands: Bands | None = None
    is_narrow: bool = False
    """Whether only the parts of the query are computed that change."""

    @property
    def start(self) -> int:
        return self.first if self.before is None else self.before

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns in which rows that meet have to agree, besides those of their condition."""
        return () if self.bands is None else (BAND,)

    def slide_up_sql(self, time: str) -> str:
        """SQL of the first instant at or after a time; the time itself without slides, where a time
        between two instants does no harm: nothing is emitted there."""
        if not self.slides:
            return time
        return least_sql([next_multiple_sql(time, slide) for slide in sorted(self.slides)])

    def band_rows_sql(self, columns: str, rows: str) -> str:
        """SQL of the rows, each copied to the bands that its lifetime meets and cut to them."""
        if self.bands is None:
            return f"(SELECT {FROM}, {TO}, {columns} FROM {rows})"
        length, last = self.bands.length, self.bands.count - 1
        first_band = f"({FROM} - {self.start}L) div {length}L"
        last_band = f"least(({TO} - 1L - {self.start}L) div {length}L, {last}L)"
        begin = f"{self.start}L + {BAND} * {length}L"
        end = f"IF({BAND} = {last}L, {TO}, least({TO}, {begin} + {length}L))"
        copies = f"SELECT *, explode(sequence({first_band}, {last_band})) AS {BAND} FROM {rows}"
        return f"(SELECT {BAND}, greatest({FROM}, {begin}) AS {FROM}, {end} AS {TO}, {columns} FROM ({copies}))"

    def whole_sql(self, columns: str) -> str:
        """SQL of one row that is there all the time."""
        row = f"(SELECT {self.start}L AS {FROM}, {FOREVER}L AS {TO})"
        return self.band_rows_sql(columns, row)

    def select(self, columns: Iterable[str], alias: str = "") -> str:
        """The list of a SELECT: the keys of the timeline, then these columns."""
        prefix = f"{alias}." if alias else ""
        return ", ".join([*(f"{prefix}{key}" for key in self.keys), *columns])

    def same(self, left: str, right: str) -> list[str]:
        """Conditions that two rows are in the same band."""
        return [f"{left}.{key} = {right}.{key}" for key in self.keys]


def flat_name(column: Column) -> str:
    """A column of a relation, by a name that no other relation has."""
    return quote_identifier(f"{column.relation}.{column.name}")


def flat_names(columns: Sequence[Column], alias: str = "") -> list[str]:
    prefix = f"{alias}." if alias else ""
    return [f"{prefix}{flat_name(column)}" for column in columns]


def overlap_sql(left: str, right: str) -> str:
    """Condition that the lifetimes of two rows have an instant in common."""
    return f"{left}.{FROM} < {right}.{TO} AND {right}.{FROM} < {left}.{TO}"


def value_id_sql(columns: Sequence[Column]) -> str:
    """The identity of rows that are compared by value."""
    return f"to_json(struct({', '.join(flat_names(columns))}))"
