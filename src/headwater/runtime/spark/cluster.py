"""Spark on a cluster: valid masters, the driver's address for executors, and waiting for executors.

Spark itself waits forever for executors that cannot reach the driver, and says so only in its log.
Here everything that keeps a cluster from working becomes an error that says what to check.
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
"""Seconds without an executor after which that is reported."""

GIVE_UP_SECONDS = 120.0
"""Seconds without an executor after which that is an error."""

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
    """Whether Spark runs on this machine, without a cluster."""
    return _LOCAL.fullmatch(master) is not None


def check_master(master: str) -> None:
    """Raise RuntimeFailure if a master is invalid or cannot be reached."""
    problem = master_problem(master)
    if problem:
        raise RuntimeFailure(problem)


def master_problem(master: str) -> str | None:
    """Why Spark cannot run on a master; None if no problem is known."""
    if is_local(master) or master == "yarn" or master.startswith("k8s://"):
        return None
    if master.startswith("sc://"):
        return (
            f"{master} is a Spark Connect server, on which Headwater does not run yet: name the "
            "cluster itself, spark://HOST:PORT"
        )
    if not master.startswith("spark://"):
        return f"{master} is not a master: write local[2], spark://HOST:PORT, yarn or k8s://URL"
    reasons = []
    for address in _master_addresses(master):
        try:
            socket.create_connection(address, CONNECT_SECONDS).close()
            return None
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    return f"{master} cannot be reached: {'; '.join(reasons)}; start it, or name another master"


def _master_addresses(master: str) -> list[tuple[str, int]]:
    """The host and port of each master of a standalone cluster."""
    addresses = []
    for server in master.removeprefix("spark://").split(","):
        host, colon, port = server.rpartition(":")
        if not colon:
            host, port = server, str(MASTER_PORT)
        addresses.append((host.strip("[]"), int(port) if port.isdecimal() else -1))
    return addresses


# ---- settings


def check_settings(settings: Mapping[str, str], fixed: Collection[str]) -> None:
    """Raise RuntimeFailure for settings that a user must not choose, such as `fixed` ones."""
    for key in settings:
        if not key.startswith("spark."):
            raise RuntimeFailure(f"{key} is not a Spark setting: their names begin with spark.")
        if key in ("spark.master", "spark.submit.deployMode"):
            raise RuntimeFailure(f"{key} cannot be set here: name the master with --master")
        if key == SECRET:
            raise RuntimeFailure(
                f"{SECRET} would be visible to everybody who lists processes: put the secret into a "
                f"file and set {SECRET_FILE}=/path"
            )
        if key in fixed:
            raise RuntimeFailure(f"{key} cannot be set: the results of queries rely on it")


def cluster_settings(master: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that a session needs beside the user's: the driver's address and authentication.

    The driver listens only on the address that leads to the master. If the user gave an address
    that is not one of this machine's (of a router, say), it listens on all.
    """
    if is_local(master):
        # No other machine has to reach the driver.
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
    """The address from which this machine reaches a master; None if the master has no address."""
    url = re.sub(r"^k8s://(https?://)?", "spark://", master)
    if not url.startswith("spark://"):
        return None
    host, port = _master_addresses(url.rstrip("/"))[0]
    with contextlib.suppress(OSError):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, max(port, 1)))  # UDP: selects the route without sending anything
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
    """The secret that a standalone cluster shares with its applications, read from its file.

    None where Spark creates its own or needs none. Raises RuntimeFailure if there is no such file.
    """
    is_needed = settings.get(AUTHENTICATE, "false") == "true" and SECRET not in settings
    if not master.startswith("spark://") or not is_needed:
        return None
    file = settings.get(SECRET_FILE)
    if file is None:
        raise RuntimeFailure(
            f"a standalone cluster shares a secret with its applications: set {SECRET_FILE}=/path "
            f"(--conf) to the file that holds it, not only {AUTHENTICATE}"
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
    """Start a session on a cluster; raises RuntimeFailure if the cluster does not accept it."""
    message = (
        f"{master} did not accept this application: check that both have {AUTHENTICATE} on with the "
        f"same secret ({SECRET_FILE}), or off, and the same version of Spark"
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
    """Wait until a session has an executor, then watch in the background that it keeps one.

    Logs what may be missing if it takes long, and raises RuntimeFailure in the end.
    """
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
    """Log when a cluster has had no executor for a while, as Spark then waits silently.

    Ends with the session.
    """
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
        except Exception:  # the session or Java has ended
            return


def _run_with_timeout(seconds: float, start: Callable[[], Answer], timeout_message: str) -> Answer:
    """What a call returns or raises; raises RuntimeFailure if it takes longer.

    The call cannot be interrupted; its daemon thread is abandoned.
    """
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
        f"{master} started no executor within {seconds:.0f} s; {_describe_workers(spark, master)}. "
        "Check that its workers have the requested cores and memory (spark.cores.max, "
        "spark.executor.memory) and the same version of Spark, and that they reach this machine at "
        f"{host} (spark.driver.host) on any port (spark.driver.port and spark.blockManager.port "
        "choose two)"
    )


def count_executors(spark: SparkSession) -> int:
    """How many executors a session has."""
    context: Any = spark.sparkContext._jsc
    # The driver is listed too, as it stores blocks.
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def _describe_workers(spark: SparkSession, master: str) -> str:
    """The workers of a standalone cluster and their free resources, from its master."""
    if not master.startswith("spark://"):
        return "its number of workers is unknown"
    try:
        workers = [
            w
            for w in _fetch_workers(spark, *_master_addresses(master)[0])
            if str(w.state()) == "ALIVE"
        ]
    except Exception:  # it uses internals of Spark, which may change
        return "its number of workers is unknown"
    cores, free = sum(w.cores() for w in workers), sum(w.coresFree() for w in workers)
    memory = sum(w.memoryFree() for w in workers)
    return (
        f"it has {len(workers)} worker{'' if len(workers) == 1 else 's'}, {free} of {cores} cores "
        f"free, {memory} MB of memory free"
    )


def _fetch_workers(spark: SparkSession, host: str, port: int) -> list[Any]:
    """Ask a master for its workers, with the message that its web page uses.

    No public interface returns them; classes with a $ in their names are reached by reflection, as
    Py4J cannot name them.
    """
    jvm: Any = spark._jvm
    messages = "org.apache.spark.deploy.DeployMessages"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    request = loader.loadClass(f"{messages}$RequestMasterState$").getField("MODULE$").get(None)
    response = loader.loadClass(f"{messages}$MasterStateResponse")
    class_tag = jvm.scala.reflect.ClassTag.apply(response)
    address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
    context: Any = spark.sparkContext._jsc
    environment = context.sc().schedulerBackend().rpcEnv()
    master = environment.setupEndpointRef(address, "Master")
    return list(master.askSync(request, class_tag).workers())


def check_cluster(spark: SparkSession, folder: Path) -> None:
    """Wait for an executor and check that it can read a folder of this machine.

    Raises RuntimeFailure if it cannot, or if there is no executor.
    """
    master = spark.sparkContext.master or ""
    if is_local(master):
        return
    await_executor(spark)
    probe = folder / f"probe-{uuid.uuid4().hex}.txt"  # not hidden: Spark skips such files
    probe.write_text("seen")
    try:
        spark.read.text(f"file://{probe}").collect()
    except Exception as error:
        raise RuntimeFailure(
            f"the executors of {master} cannot read {folder}: a cluster needs the state, and the "
            "files of streams and tables, in a file system that is mounted at the same path on all "
            "of its machines"
        ) from error
    finally:
        probe.unlink(missing_ok=True)
