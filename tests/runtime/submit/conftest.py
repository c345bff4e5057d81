"""A catalog with streams, for the tests of the rules by which queries join units."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from joining_worlds import DECLARED, World

from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.submit import scripts


@pytest.fixture(scope="session")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with the streams, to be copied: making its tables takes longer than most tests here."""
    path = tmp_path_factory.mktemp("declared") / "catalog.sqlite"
    with Catalog.open(str(path)) as catalog:
        scripts.execute(catalog, Definitions(catalog), DECLARED)
    return path


@pytest.fixture
def world(tmp_path: Path, declared: Path) -> Iterator[World]:
    with Catalog.open(shutil.copy(declared, tmp_path)) as catalog:
        yield World(catalog, Definitions(catalog))
