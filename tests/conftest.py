"""Options, the seeds of random tests, where tests keep their files, and the Spark session that all share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import is_hypothesis_test, settings

# Landing a change must not depend on luck: the same examples every time, unless asked otherwise.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HEADWATER_SEEDS", "fixed"))

# Thousands of collected tests and the modules they load stay until the end. Looking through them for
# garbage as often as Python does by default is a noticeable part of the work of short tests.
gc.set_threshold(50_000, 20, 20)

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""

ROOM = 4 << 30
"""Bytes that have to be free there: several times what the tests keep at once."""

# Every commit of a catalog waits for the disk, and the tests commit many thousand times: on a disk that
# takes milliseconds for each, this is a large part of the time of the fast tests. None of them cuts the
# power of the machine, so what they write may as well be in memory.
if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Typer makes all commands from their functions for each one that is run, which takes longer than most
# of them work.
typer.testing._get_command = cache(typer.testing._get_command)

MOST_EXAMPLES = int(os.environ.get("HEADWATER_EXAMPLES", "0"))
"""How many examples a random test may try, whatever it asks for itself; 0: as many as it asks for."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Lower the number of examples to the limit, also where a test states a number of its own."""
    test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    if MOST_EXAMPLES and is_hypothesis_test(test):
        asked = test._hypothesis_internal_use_settings
        if asked.max_examples > MOST_EXAMPLES:
            test._hypothesis_internal_use_settings = settings(asked, max_examples=MOST_EXAMPLES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files again instead of comparing with them",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """The one Spark session of a test run; with the Kafka connector where that was fetched."""
    from headwater.runtime.spark.jars import list_jars, missing_from_spark
    from headwater.runtime.spark.session import open_session

    settings = {"spark.driver.memory": "2g"}
    if found := missing_from_spark(list_jars("connector")):
        settings["spark.jars"] = ",".join(str(path) for path in found)
    session = open_session("local[2]", "headwater tests", settings)
    yield session
    session.stop()
