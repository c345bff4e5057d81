"""Worker processes that a test can kill or stop at any moment, and start again in no time.

A session of Spark takes seconds to start, so one JVM is kept for all workers: each is a process of
its own, forked from one that has everything imported, that attaches to the JVM and runs the engine.
Killing it leaves the JVM in the middle of whatever it was asked to do.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

LOGGED_CHARACTERS = 20_000
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@dataclass(frozen=True)
class Order:
    """What a worker does: run a state, for ever or until idle, up to a named point.

    At the n-th meeting of `point` it kills itself, or stops (`signal`) until it is continued.
    `careless` has it commit in two transactions: "cursors" before "segments", or the reverse; or
    leave files "unsynced". `by_tasks` has Spark's tasks write what the driver would.
    `restless` has units change what they read all the time.
    """

    state: str
    catalog: str | None = None
    until_idle: bool = False
    point: str = ""
    nth: int = 1
    signal: int = signal.SIGKILL
    lease_seconds: float = 60.0
    at_once: int = 4
    tidy: bool = True
    careless: str = ""
    by_tasks: bool = False
    restless: bool = False


class Workers:
    """The forking process, seen from the test."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._logged_before: dict[int, int] = {}

    def start(self, order: Order) -> int:
        """The process id of a new worker."""
        before = self._log.stat().st_size
        pid = int(self._ask({"start": asdict(order)}))
        self._logged_before[pid] = before
        return pid

    def wait(self, pid: int) -> int:
        """How a worker ended: its exit status, or minus the number of a signal."""
        return int(self._ask({"wait": pid}))

    def poll(self, pid: int) -> int | None:
        """The same if it has ended, else None."""
        found = self._ask({"poll": pid})
        return None if found is None else int(found)

    def expect(self, pid: int, status: int) -> None:
        """Wait for a worker; raises AssertionError with its log unless it ends in this way."""
        ended = self.wait(pid)
        assert ended == status, f"worker {pid} ended with {ended}, not {status}\n{self.log(pid)}"

    def run(self, order: Order, status: int = 0) -> None:
        """Run a worker to its end, which has to be this one."""
        self.expect(self.start(order), status)

    def kill(self, pid: int, or_ended: bool = False) -> None:
        """Kill a worker, which must not have ended by itself unless it may."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if or_ended:
            self.wait(pid)
        else:
            self.expect(pid, -signal.SIGKILL)

    def log(self, pid: int) -> str:
        """The end of what all workers and the JVM have logged since this one was started."""
        with self._log.open("rb") as file:
            file.seek(self._logged_before[pid])
            return file.read().decode(errors="replace")[-LOGGED_CHARACTERS:]

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the workers' parent died"
        return json.loads(answer)


@contextmanager
def workers(log: Path) -> Iterator[Workers]:
    """A JVM, and a process that forks workers for it; what they print goes to a file."""
    with (
        log.open("a") as output,
        _java(output) as gateway,
        subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env={**os.environ, **gateway},
        ) as process,
    ):
        yield Workers(process, log)


@contextmanager
def _java(output: IO[str]) -> Iterator[dict[str, str]]:
    """Spark's gateway for Python, as environment variables by which PySpark finds it.

    It never learns that a worker was killed and keeps what that one held, hence the memory.
    """
    from pyspark.find_spark_home import _find_spark_home

    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder, "gateway")
        process = subprocess.Popen(
            [f"{_find_spark_home()}/bin/spark-submit", "--driver-memory", "3g", "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
        )
        try:
            deadline = time.monotonic() + 180
            while not info.exists():
                assert process.poll() is None and time.monotonic() < deadline, "no JVM"
                time.sleep(0.05)
            data = info.read_bytes()
            port, length = struct.unpack_from(">ii", data)
            yield {PORT: str(port), SECRET: data[8 : 8 + length].decode()}
        finally:
            assert process.stdin is not None
            process.stdin.close()  # its sign to end
            process.wait(30)


# ---- in the forking process


def serve() -> None:
    """Answer questions until there are no more; workers that are left are killed."""
    import headwater.runtime.api
    import headwater.runtime.engine.engine  # noqa: F401

    left: dict[int, int | None] = {}
    for line in sys.stdin:
        match json.loads(line):
            case {"start": order}:
                pid = os.fork()
                if pid == 0:
                    _child(Order(**order))
                left[pid] = None
                answer: int | None = pid
            case {"wait": int(pid)}:
                _reap(left, pid, 0)
                answer = left.pop(pid)
            case {"poll": int(pid)}:
                answer = _reap(left, pid, os.WNOHANG)
            case other:
                raise AssertionError(other)
        print(json.dumps(answer), flush=True)
    for pid in left:
        if _reap(left, pid, os.WNOHANG) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _reap(left: dict[int, int | None], pid: int, how: int) -> int | None:
    if left[pid] is None:
        found, status = os.waitpid(pid, how)
        if found:
            left[pid] = os.waitstatus_to_exitcode(status)
    return left[pid]


def _child(order: Order) -> None:
    """Nothing of the parent's is closed or flushed: the end is as sudden as a kill."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        work(order)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def work(order: Order) -> None:
    """Run the engine as the order says."""
    from headwater.runtime.api import open_state
    from headwater.runtime.catalog import log as catalog_log
    from headwater.runtime.engine import engine as engines
    from headwater.runtime.maintenance import stream_logs
    from headwater.runtime.storage import segment_files

    if order.by_tasks:
        segment_files.SMALL_ROWS = 0
    if order.tidy:
        engines.TIDY_SECONDS = 0.0
        stream_logs.MIN_COMPACTED_SEGMENTS, stream_logs.MAX_COMPACTED_ROWS = 3, 40
    with open_state(order.state, catalog=order.catalog) as headwater:
        between = headwater.catalog._database._hold_write_lock
        at_point = stop_at(order.point, order.nth, order.signal, between)
        if order.careless == "unsynced":
            catalog_log.make_durable = lambda paths: None
        elif order.careless:
            _make_careless(headwater.catalog, order.careless, at_point)
        limits = engines.Settings(
            lease_seconds=order.lease_seconds, backoff=0.05, max_concurrency=order.at_once
        )
        engine = engines.Engine(
            headwater.catalog, headwater.state, attached(), limits, at_point=at_point
        )
        if order.restless:
            from headwater.runtime.submit.revisit import Revisit

            engines.REVISIT_SECONDS = 0.0
            revisit = Revisit(
                headwater.catalog,
                headwater.definitions,
                headwater.engine.move_queries,
                every_change,
                1,
                0.0,
            )
            engine.revisit = revisit.look
        engine.run(order.until_idle, interval=0.05)
        engine.release()


def every_change(running: Any, costs: Any) -> list[Any]:
    """For `Revisit`: all that is possible, whatever it saves or costs."""
    from headwater.runtime.submit.hand_overs import matching_part
    from headwater.runtime.submit.revisit import Change

    changes = []
    for unit in running:
        if unit.reads is not None:
            changes.append(Change("unshare", (unit.unit_id,), 0.0, "a test", unit.reads))
        for source in running if unit.reads is None and not unit.read_by else ():
            if source.reads is None and matching_part(unit.operator, source.operator) is not None:
                name = source.unit_id
                changes.append(Change("rewire", (unit.unit_id,), 0.0, "a test", name))
    return changes


def stop_at(
    point: str, nth: int, number: int, between: Callable[[], AbstractContextManager[None]]
) -> Callable[[str], None]:
    """For `Engine.at_point`: the signal for this process at the n-th meeting of the point.

    It is stopped `between` the changes that its other threads make: who stops in a change keeps
    an SQLite catalog locked, for all, until it goes on.
    """
    met: Counter[str] = Counter()

    def at_point(name: str) -> None:
        met[name] += 1
        if name == point and met[name] == nth:
            with between() if number == signal.SIGSTOP else nullcontext():
                os.kill(os.getpid(), number)

    return at_point


def _make_careless(catalog: Any, first: str, at_point: Callable[[str], None]) -> None:
    """Two transactions in the place of one."""
    commit = catalog.commit

    def careless(lease: Any, *, segments: Any = (), **rest: Any) -> None:
        parts = [{"segments": segments}, rest]
        for part in parts if first == "segments" else reversed(parts):
            commit(lease, **part)
            if segments:
                at_point("careless")

    catalog.commit = careless


def attached() -> Any:
    """A session in the JVM that is there, which may be in use by others."""
    from py4j.java_gateway import java_import
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    from headwater.runtime.spark.cluster import cluster_settings
    from headwater.runtime.spark.session import SETTINGS, open_session

    gateway = launch_gateway()
    java_import(gateway.jvm, "org.apache.spark.api.java.*")
    conf = SparkConf(_jvm=gateway.jvm).setMaster("local[2]").setAppName("workers")
    for key, value in {**SETTINGS, **cluster_settings("local[2]", {})}.items():
        conf.set(key, value)
    shared = gateway.jvm.org.apache.spark.SparkContext.getOrCreate(conf._jconf)
    SparkContext(gateway=gateway, jsc=gateway.jvm.JavaSparkContext(shared), conf=conf)
    return open_session("local[2]")


if __name__ == "__main__":
    serve()
