"""`headwater run` as a process with Spark: it resumes after being interrupted, terminated or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import Run

from headwater.runtime.api import open_state

pytestmark = pytest.mark.spark

TEXT = """
CREATE STREAM s (item INT NOT NULL, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts LATENESS 1 DAY
  FROM files(path => 'in', format => 'json', files_per_step => 1);
CREATE QUERY q AS SELECT item FROM s;
"""


class Place:
    """A folder with a CQL file, its input and its state."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.file = folder / "test.cql"
        self.file.write_text(TEXT)
        (folder / "in").mkdir()
        self.put: list[int] = []

    def feed(self) -> None:
        """A file with one more item."""
        number = len(self.put)
        record = {"item": number, "ts": f"2026-01-01T00:00:{number:02}Z"}
        hidden = self.folder / "in" / ".new"
        hidden.write_text(json.dumps(record))
        hidden.rename(self.folder / "in" / f"{number:03}.json")
        self.put.append(number)

    def items(self) -> list[int]:
        if not (self.state / "catalog.sqlite").exists():
            return []
        with open_state(self.state) as headwater:
            if not headwater.catalog.queries():
                return []
            found = [row["item"] for row in headwater.query("q").results()]
            return sorted(item for item in found if isinstance(item, int))

    @contextmanager
    def run(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`headwater run` in a process group of its own, ended with the block."""
        code = "from headwater.cli import main; main()"
        options = ["--state", str(self.state), "--master", "local[2]", *words]
        process = subprocess.Popen(
            [sys.executable, "-c", code, "run", str(self.file), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def ctrl_c(pid: int) -> None:
    """What a terminal does: all processes of the group get the signal, Java too."""
    os.killpg(pid, signal.SIGINT)


def terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def terminate_all(pid: int) -> None:
    """What a service manager does."""
    os.killpg(pid, signal.SIGTERM)


@pytest.mark.parametrize(
    "stop", [ctrl_c, terminate_all, pytest.param(terminate, marks=pytest.mark.slow)]
)
def test_a_run_that_is_stopped_goes_on(
    tmp_path: Path, run: Run, stop: Callable[[int], None]
) -> None:
    place = Place(tmp_path)
    place.feed()
    with place.run("--interval", "3600") as process:
        until(lambda: place.items() == place.put)
        stop(process.pid)
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert "stopping after this step" in err and "Traceback" not in err
    assert "resume with headwater run" in out
    with open_state(place.state) as headwater:
        assert headwater.catalog.leases() == []
    assert "not running" in run("status", "--state", place.state).out
    place.feed()
    with place.run("--until-idle") as process:
        out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, "")
    assert place.items() == place.put


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_may_be_stopped_while_spark_starts(tmp_path: Path, number: int) -> None:
    place = Place(tmp_path)
    with place.run() as process:
        assert process.stdout is not None
        while "starting Spark" not in process.stdout.readline():
            assert process.poll() is None
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "stopped; resume with headwater run" in err and "Traceback" not in err
    with open_state(place.state) as headwater:
        assert headwater.catalog.leases() == []


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(False, id="process", marks=pytest.mark.slow),
        pytest.param(True, id="process and Java"),
    ],
)
def test_a_run_that_is_killed_goes_on_at_once(tmp_path: Path, run: Run, whole: bool) -> None:
    """The leases of the dead process, valid for a minute, block nobody."""
    place = Place(tmp_path)
    place.feed()
    with place.run("--interval", "0.05") as process:
        until(lambda: place.items() == place.put)
        place.feed()
        (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)
        process.communicate(timeout=180)
    with open_state(place.state) as headwater:
        assert headwater.catalog.leases()
    place.feed()
    with place.run("--until-idle") as process:
        out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, ""), out
    assert place.items() == place.put
    said = run("clean", "--older-than", "0", "--state", place.state)
    assert said.status == 0
    log = place.state.resolve() / "log"
    with open_state(place.state) as headwater:
        assert {str(path) for path in log.glob("*/*/*")} == headwater.catalog.all_paths()


def test_spark_that_ends_is_started_again_and_nothing_lost(tmp_path: Path, run: Run) -> None:
    """Java is killed, as a system without memory does; and a file cannot be read."""
    place = Place(tmp_path)
    place.feed()
    with place.run("--interval", "0.05") as process:
        until(lambda: place.items() == place.put)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        place.feed()
        until(lambda: place.items() == place.put)
        # PySpark takes over this signal when it starts; the second start must leave it to the run.
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    assert "stopping after this step" in err and "stopped after" in out, out + err
    assert children and process.returncode == 0, out + err
    assert "Spark has ended" in err and "it is started again" in err and "Traceback" not in err
    assert "not running" in run("status", "--state", place.state).out
    bad = tmp_path / "in" / "bad.json.gz"
    bad.write_bytes(b"no gzip")
    with place.run("--until-idle") as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 2, out + err
    assert place.items() == place.put
    assert f"stream s stays open: {bad} cannot be read; repair or remove it" in err
    assert str(bad) in run("show", "rejects", "--state", place.state).out
