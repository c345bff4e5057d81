"""State directories that last as long as a test, and the Spark session that tests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwater.runtime.api import Headwater, open_state


@contextmanager
def temporary_state(**options: Any) -> Iterator[Headwater]:
    """A new state in a temporary folder, closed and removed when the block ends.

    Options are those of `headwater.open`. With `spark=session`, tests share the session of
    `spark_session`, as starting one takes seconds.
    """
    with (
        TemporaryDirectory(prefix="headwater-test-") as folder,
        open_state(Path(folder) / "state", **options) as headwater,
    ):
        yield headwater


@contextmanager
def spark_session(
    master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A Spark session with the settings that the engine relies on, stopped when the block ends.

    Spark has one session in a process, so open it once for all tests: in a fixture with the scope
    `session`.
    """
    from headwater.runtime.spark.session import open_session  # PySpark takes a second to load

    session = open_session(master, "headwater tests", settings)
    try:
        yield session
    finally:
        session.stop()
