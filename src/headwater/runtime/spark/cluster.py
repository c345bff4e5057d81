"""Spark on a cluster: which masters there are, the address that executors call back, and whether any
executor comes.

Spark itself waits for ever for executors that cannot reach the driver, and says so only in its log.
Here everything that keeps a cluster from working is an error with what to check, within seconds.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import RuntimeFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTOR_SECONDS = 30.0
"""After so long without an executor it is reported,"""

GIVE_UP_SECONDS = 120.0
"""and after so long it is an error."""

CONNECT_SECONDS = 5.0
POLL_SECONDS = 0.2
MASTER_PORT = 7077
LOOPBACK = "127.0.0.1"
ALL_INTERFACES = "0.0.0.0"

AUTHENTICATE, SECRET = "spark.authenticate", "spark.authenticate.secret"
SECRET_FILE = f"{SECRET}.file"
DRIVER_HOST, DRIVER_BIND = "spark.driver.host", "spark.driver.bindAddress"

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|local-cluster\[.*\]")
Answer = TypeVar("Answer")
log = logging.getLogger("headwater")


def is_local(master: str) -> bool:
    """Whether Spark runs in this process's own Java."""
    return _LOCAL.fullmatch(master) is not None


def check_master(master: str) -> None:
    """Raises RuntimeFailure if there is no such master, or it cannot be reached."""
    problem = master_problem(master)
    if problem:
        raise RuntimeFailure(problem)


def master_problem(master: str) -> str | None:
    """Why Spark cannot run on a master; None if nothing speaks against it."""
    if is_local(master) or master == "yarn" or master.startswith("k8s://"):
        return None
    if master.startswith("sc://"):
        return (
            f"{master} is a server of Spark Connect, on which Headwater does not run yet: name the "
            "cluster itself, spark://HOST:PORT"
        )
    if not master.startswith("spark://"):
        return f"{master} is no master: write local[2], spark://HOST:PORT, yarn or k8s://URL"
    reasons = []
    for address in _master_addresses(master):
        try:
            socket.create_connection(address, CONNECT_SECONDS).close()
            return None
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    return f"{master} cannot be reached: {'; '.join(reasons)}; start it, or name another master"


def _master_addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each of a standalone cluster's masters."""
    addresses = []
    for server in master.removeprefix("spark://").split(","):
        host, colon, port = server.rpartition(":")
        if not colon:
            host, port = server, str(MASTER_PORT)
        addresses.append((host.strip("[]"), int(port) if port.isdecimal() else -1))
    return addresses


# ---- settings


def check_settings(settings: Mapping[str, str], fixed: Collection[str]) -> None:
    """Raises RuntimeFailure for settings that are not the user's to choose."""
    for key in settings:
        if not key.startswith("spark."):
            raise RuntimeFailure(f"{key} is no setting of Spark: their names begin with spark.")
        if key in ("spark.master", "spark.submit.deployMode"):
            raise RuntimeFailure(f"{key} cannot be set so: name the master with --master")
        if key == SECRET:
            raise RuntimeFailure(
                f"{SECRET} would be seen by everybody who lists processes: put the secret into a "
                f"file and set {SECRET_FILE}=/path"
            )
        if key in fixed:
            raise RuntimeFailure(f"{key} cannot be set: the results of queries rely on it")


def cluster_settings(master: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    """What a session on a master needs beside what was given: the driver's address, and that a
    secret is asked for where one is given.

    The address is that on the way to the master, and no other is listened on. A driver that was
    given another one, which is not this machine's own, listens on all.
    """
    if is_local(master):
        return {DRIVER_HOST: LOOPBACK, DRIVER_BIND: LOOPBACK}
    settings = {AUTHENTICATE: "true"} if SECRET_FILE in user_settings else {}
    host = user_settings.get(DRIVER_HOST) or _own_address(master)
    if host is not None:
        settings |= {
            DRIVER_HOST: host,
            DRIVER_BIND: host if _is_local_address(host) else ALL_INTERFACES,
        }
    return settings


def _own_address(master: str) -> str | None:
    """This machine's address on the way to a master; None if that says nothing of where it is."""
    url = re.sub(r"^k8s://(https?://)?", "spark://", master)
    if not url.startswith("spark://"):
        return None
    host, port = _master_addresses(url.rstrip("/"))[0]
    with contextlib.suppress(OSError):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, max(port, 1)))  # sends nothing, and finds the route
            return str(probe.getsockname()[0])
    return None


def _is_local_address(host: str) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
        return True
    except OSError:
        return False


def read_secret(master: str, settings: Mapping[str, str]) -> str | None:
    """The secret that a standalone cluster shares with its applications, from its file; None where
    Spark makes its own or needs none. Raises RuntimeFailure."""
    is_needed = settings.get(AUTHENTICATE, "false") == "true" and SECRET not in settings
    if not master.startswith("spark://") or not is_needed:
        return None
    file = settings.get(SECRET_FILE)
    if file is None:
        raise RuntimeFailure(
            f"a standalone cluster shares a secret with its applications: set {SECRET_FILE}=/path "
            f"(--conf) to the file that has it, and not {AUTHENTICATE} alone"
        )
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeFailure(f"{SECRET_FILE} {file} cannot be read: {error}") from error
    if not secret:
        raise RuntimeFailure(f"{SECRET_FILE} {file} is empty")
    return secret


# ---- starting


def start_session(master: str, start: Callable[[], SparkSession]) -> SparkSession:
    """The session of a cluster that has accepted it; raises RuntimeFailure if it does not."""
    message = (
        f"{master} did not accept this application: check that both have {AUTHENTICATE} on with one "
        f"secret ({SECRET_FILE}), or off, and one version of Spark"
    )
    try:
        return _run_with_timeout(GIVE_UP_SECONDS, start, message)
    except RuntimeFailure:
        raise
    except Exception as error:
        raise RuntimeFailure(f"{message} ({str(error).splitlines()[0]})") from error


def await_executor(
    spark: SparkSession,
    report_after: float = EXECUTOR_SECONDS,
    give_up_after: float = GIVE_UP_SECONDS,
) -> None:
    """Returns when a cluster has given an executor, and watches that it keeps one; reports what is
    missing when it takes long, and raises RuntimeFailure in the end."""
    master = spark.sparkContext.master or ""
    if is_local(master):
        return
    started = time.monotonic()
    reported = False
    while not count_executors(spark):
        waited = time.monotonic() - started
        if waited > give_up_after:
            raise RuntimeFailure(_no_executor_message(spark, master, give_up_after))
        if waited > report_after and not reported:
            log.warning("%s; waiting", _no_executor_message(spark, master, report_after))
            reported = True
        time.sleep(POLL_SECONDS)
    threading.Thread(
        target=_watch_executors,
        args=(spark, master, report_after),
        name="headwater executors",
        daemon=True,
    ).start()


def _watch_executors(spark: SparkSession, master: str, seconds: float) -> None:
    """Report when a cluster has had no executor for a while, as Spark then waits in silence; ends
    with the session."""
    last = time.monotonic()
    reported = False
    while True:
        time.sleep(seconds / 3)
        try:
            if count_executors(spark):
                last, reported = time.monotonic(), False
            elif time.monotonic() - last > seconds / 2 and not reported:
                log.warning("%s; waiting", _no_executor_message(spark, master, seconds))
                reported = True
        except Exception:  # the session has ended, or Java has
            return


def _run_with_timeout(seconds: float, start: Callable[[], Answer], timeout_message: str) -> Answer:
    """What a call returns or raises; raises RuntimeFailure if it takes longer, and leaves it."""
    results: list[Answer] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(start())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, name="headwater starts Spark", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise RuntimeFailure(timeout_message)
    return results[0]


def _no_executor_message(spark: SparkSession, master: str, seconds: float) -> str:
    host = spark.sparkContext.getConf().get(DRIVER_HOST)
    return (
        f"{master} gave no executor within {seconds:.0f} s; {_describe_workers(spark, master)}. Check that its "
        "workers have the cores and memory that are asked for (spark.cores.max, "
        "spark.executor.memory) and the same version of Spark, and that they reach this machine at "
        f"{host} (spark.driver.host) on any port (spark.driver.port and spark.blockManager.port "
        "choose two)"
    )


def count_executors(spark: SparkSession) -> int:
    """How many executors a session has; the driver keeps blocks too, and is none."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def _describe_workers(spark: SparkSession, master: str) -> str:
    """The workers of a standalone cluster and what they have left, as its master says."""
    if not master.startswith("spark://"):
        return "how many workers it has is not known"
    try:
        workers = [
            w
            for w in _fetch_workers(spark, *_master_addresses(master)[0])
            if str(w.state()) == "ALIVE"
        ]
    except Exception:  # the internals of Spark that this asks may change
        return "how many workers it has is not known"
    cores, free = sum(w.cores() for w in workers), sum(w.coresFree() for w in workers)
    memory = sum(w.memoryFree() for w in workers)
    return (
        f"it has {len(workers)} worker{'' if len(workers) == 1 else 's'}, {free} of {cores} cores "
        f"free, {memory} MB of memory free"
    )


def _fetch_workers(spark: SparkSession, host: str, port: int) -> list[Any]:
    jvm: Any = spark._jvm
    messages = "org.apache.spark.deploy.DeployMessages"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    question = loader.loadClass(f"{messages}$RequestMasterState$").getField("MODULE$").get(None)
    answer = loader.loadClass(f"{messages}$MasterStateResponse")
    kind = jvm.scala.reflect.ClassTag.apply(answer)
    address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
    context: Any = spark.sparkContext._jsc
    environment = context.sc().schedulerBackend().rpcEnv()
    master = environment.setupEndpointRef(address, "Master")
    return list(master.askSync(question, kind).workers())


def check_cluster(spark: SparkSession, folder: Path) -> None:
    """Returns when a session has an executor that sees a folder of this machine; raises
    RuntimeFailure if there is none."""
    master = spark.sparkContext.master or ""
    if is_local(master):
        return
    await_executor(spark)
    probe = folder / f"probe-{uuid.uuid4().hex}.txt"  # Spark reads no hidden files
    probe.write_text("seen")
    try:
        spark.read.text(f"file://{probe}").collect()
    except Exception as error:
        raise RuntimeFailure(
            f"the executors of {master} do not see {folder}: a cluster needs the "
            "state, and the files of streams and tables, in a file system that is mounted at the "
            "same path on all of its machines"
        ) from error
    finally:
        probe.unlink(missing_ok=True)
