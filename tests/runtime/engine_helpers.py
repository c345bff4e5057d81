"""Running a query on the engine in a test: pushed in pieces, stepped, ended, read."""

from __future__ import annotations

import csv
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Query
from headwater.algebra.times import to_days, to_micros
from headwater.cql import Connector, CreateQuery, CreateStream, CreateTable, unparse
from headwater.reference import evaluate
from headwater.reference.formatting import to_json
from headwater.reference.values import normalize_row, row_order_key
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.engine.engine import Engine
from strategies import ASKS, BIDS, ITEMS

Rows = dict[str, list[Any]]
HOUR = 3_600_000_000


@contextmanager
def opened(
    state: Path, spark: Any, catalog: str | None = None, **options: Any
) -> Iterator[Headwater]:
    """A state directory whose engine uses the session of the tests."""
    with open_state(state, catalog=catalog) as headwater:
        headwater._engine = Engine(headwater.catalog, headwater.state, spark, **options)
        yield headwater


def declare(headwater: Headwater, folder: Path, tables: Rows) -> None:
    """The streams and tables of `strategies`; no tuple is late."""
    folder.mkdir(exist_ok=True)
    with (folder / "items.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(ITEMS.schema.names)
        writer.writerows(tables[ITEMS.name])
    source = Connector("files", (("path", str(folder)), ("format", "csv")))
    for statement in (
        CreateStream(replace(BIDS, lateness=HOUR), None),
        CreateStream(replace(ASKS, lateness=HOUR), None),
        CreateTable(ITEMS, source),
    ):
        headwater.execute(unparse(statement))


def submit(headwater: Headwater, name: str, query: Query) -> None:
    headwater.execute(unparse(CreateQuery(name, query)))


def pieces(rng: random.Random, streams: Rows) -> list[tuple[str, list[Any]]]:
    """The tuples of all streams cut at random, the order within each stream kept."""
    queues: dict[str, list[list[Any]]] = {}
    for name, rows in streams.items():
        cuts = sorted(rng.randint(0, len(rows)) for _ in range(rng.randint(0, 2)))
        bounds = [0, *cuts, len(rows)]
        queues[name] = [rows[a:b] for a, b in itertools.pairwise(bounds)]
    order = [name for name, queue in queues.items() for _ in queue]
    rng.shuffle(order)
    return [(name, queues[name].pop(0)) for name in order]


def settle(headwater: Headwater) -> None:
    """Step until nothing is left to do; a unit that failed fails the test."""
    while headwater.engine.tick():
        pass
    for unit in headwater.catalog.units():
        assert not unit.error, unit.error


def feed(headwater: Headwater, rng: random.Random, streams: Rows) -> None:
    """Push in pieces, stepping now and then, and end the streams."""
    for name, rows in pieces(rng, streams):
        headwater.push(name, rows, timestamp_unit="us")
        if rng.random() < 0.5:
            headwater.engine.tick()
    for name in streams:
        headwater.execute(f"END STREAM {name}")
    settle(headwater)


def catalog_trouble(headwater: Headwater) -> str:
    """What keeps the engine from its catalog, in the words of its log; empty if nothing does."""
    return str(headwater.engine.waiting_for.get("catalog", ""))


def result_rows(headwater: Headwater, name: str, query: Query) -> list[tuple[Any, ...]]:
    """The rows of a query's result, as the reference evaluator has them."""
    names = [column.name for column in query.columns]
    rows = (
        (plain_value(row["_tau"]), *normalize_row(tuple(plain_value(row[n]) for n in names)))
        for row in headwater.query(name).results()
    )
    return sorted(rows, key=row_order_key)


# The name by which the tests of engine and compile still import it.
told = result_rows


def expected(query: Query, streams: Rows, tables: Rows, **bounds: Any) -> list[tuple[Any, ...]]:
    found = evaluate(query, streams, tables, **bounds)
    return sorted(((r.tau, *normalize_row(r.values)) for r in found), key=row_order_key)


def plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    return to_days(value) if isinstance(value, date) else value


def as_csv_keeps(tables: Rows) -> Rows:
    """The tables as they come back from CSV, which has no empty text beside NULL."""
    return {
        name: [tuple(None if value == "" else value for value in row) for row in rows]
        for name, rows in tables.items()
    }


class Stop(BaseException):
    """A crash at a named point: nothing catches it."""


def stop_at(point: str, after: int) -> Callable[[str], None]:
    """For `Engine.at_point`: crash when the point is met for the n-th time."""
    left = [after]

    def at_point(met: str) -> None:
        if met == point:
            left[0] -= 1
            if left[0] == 0:
                raise Stop(point)

    return at_point


def json_lines(stream: Stream, rows: list[Any]) -> str:
    """The tuples of a stream as JSON lines."""
    return "".join(
        json.dumps(
            {
                column.name: to_json(value, column.type)
                for column, value in zip(stream.schema, row, strict=True)
            }
        )
        + "\n"
        for row in rows
    )


def tick_until(headwater: Headwater, done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Step until something is so; fails the test if it never is."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come to that"
        if not headwater.engine.tick():
            time.sleep(0.02)
