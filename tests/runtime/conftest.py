"""Fixtures of the runtime's tests: one suite over every database a catalog can live in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import kafka_broker
import postgres
import pytest
from catalog_helpers import Clock
from workers import Workers, workers

from headwater.runtime.catalog import Catalog


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgresql: starts a private PostgreSQL server")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Server]:
    """A server without regard for durability, which no test here can observe."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(postgres.server("fsync=off", "full_page_writes=off"))
        except postgres.Missing as reason:
            if os.environ.get(postgres.REQUIRED):
                pytest.fail(str(reason))
            pytest.skip(str(reason))
        yield started


@pytest.fixture(scope="session")
def kafka() -> Iterator[kafka_broker.Broker]:
    """A broker of its own; the connector has to be there before the Spark session."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(kafka_broker.broker())
        except kafka_broker.Missing as reason:
            if os.environ.get(kafka_broker.REQUIRED):
                pytest.fail(str(reason))
            pytest.skip(str(reason))
        yield started


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of a catalog that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "catalog.sqlite")
    server: postgres.Server = request.getfixturevalue("postgresql")
    return server.url()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(where: str, clock: Clock) -> Iterator[Catalog]:
    with Catalog.open(where, clock=clock) as opened:
        yield opened


@pytest.fixture
def stream(catalog: Catalog) -> Catalog:
    """The same, with a stream s."""
    catalog.declare_stream("s", "", lateness=2)
    return catalog


@pytest.fixture(scope="session")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers to kill, with one JVM for all of them."""
    log = tmp_path_factory.mktemp("workers") / "log"
    try:
        with workers(log) as started:
            yield started
    finally:
        print(log.read_text()[-20_000:])
