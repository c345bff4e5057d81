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

REACH_SECONDS = 5.0
LOOK_SECONDS = 0.2
MASTER_PORT = 7077
LOOPBACK = "127.0.0.1"
ANYWHERE = "0.0.0.0"

AUTHENTICATE, SECRET = "spark.authenticate", "spark.authenticate.secret"
SECRET_FILE = f"{SECRET}.file"
HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|local-cluster\[.*\]")
Answer = TypeVar("Answer")
log = logging.getLogger("headwater")


def is_local(master: str) -> bool:
    """Whether Spark runs in this process's own Java."""
    return _LOCAL.fullmatch(master) is not None


def check_master(master: str) -> None:
    """Raises RuntimeFailure if there is no such master, or it cannot be reached."""
    wrong = master_trouble(master)
    if wrong:
        raise RuntimeFailure(wrong)


def master_trouble(master: str) -> str | None:
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
    for address in _addresses(master):
        try:
            socket.create_connection(address, REACH_SECONDS).close()
            return None
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    return f"{master} cannot be reached: {'; '.join(reasons)}; start it, or name another master"


def _addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each of a standalone cluster's masters."""
    found = []
    for one in master.removeprefix("spark://").split(","):
        host, colon, port = one.rpartition(":")
        if not colon:
            host, port = one, str(MASTER_PORT)
        found.append((host.strip("[]"), int(port) if port.isdecimal() else -1))
    return found


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


def cluster_settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """What a session on a master needs beside what was given: the driver's address, and that a
    secret is asked for where one is given.

    The address is that on the way to the master, and no other is listened on. A driver that was
    given another one, which is not this machine's own, listens on all.
    """
    if is_local(master):
        return {HOST: LOOPBACK, BIND: LOOPBACK}
    found = {AUTHENTICATE: "true"} if SECRET_FILE in given else {}
    host = given.get(HOST) or _own_address(master)
    if host is not None:
        found |= {HOST: host, BIND: host if _is_ours(host) else ANYWHERE}
    return found


def _own_address(master: str) -> str | None:
    """This machine's address on the way to a master; None if that says nothing of where it is."""
    where = re.sub(r"^k8s://(https?://)?", "spark://", master)
    if not where.startswith("spark://"):
        return None
    host, port = _addresses(where.rstrip("/"))[0]
    with contextlib.suppress(OSError):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((host, max(port, 1)))  # sends nothing, and finds the route
            return str(asked.getsockname()[0])
    return None


def _is_ours(host: str) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.bind(address)
        return True
    except OSError:
        return False


def secret_of(master: str, settings: Mapping[str, str]) -> str | None:
    """The secret that a standalone cluster shares with its applications, from its file; None where
    Spark makes its own or needs none. Raises RuntimeFailure."""
    asked = settings.get(AUTHENTICATE, "false") == "true" and SECRET not in settings
    if not master.startswith("spark://") or not asked:
        return None
    file = settings.get(SECRET_FILE)
    if file is None:
        raise RuntimeFailure(
            f"a standalone cluster shares a secret with its applications: set {SECRET_FILE}=/path "
            f"(--conf) to the file that has it, and not {AUTHENTICATE} alone"
        )
    try:
        found = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeFailure(f"{SECRET_FILE} {file} cannot be read: {error}") from error
    if not found:
        raise RuntimeFailure(f"{SECRET_FILE} {file} is empty")
    return found


# ---- starting


def start_on(master: str, start: Callable[[], SparkSession]) -> SparkSession:
    """The session of a cluster that has accepted it; raises RuntimeFailure if it does not."""
    refused = (
        f"{master} did not accept this application: check that both have {AUTHENTICATE} on with one "
        f"secret ({SECRET_FILE}), or off, and one version of Spark"
    )
    try:
        return _within(GIVE_UP_SECONDS, start, refused)
    except RuntimeFailure:
        raise
    except Exception as error:
        raise RuntimeFailure(f"{refused} ({str(error).splitlines()[0]})") from error


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
    begun = time.monotonic()
    reported = False
    while not executors(spark):
        waited = time.monotonic() - begun
        if waited > give_up_after:
            raise RuntimeFailure(_no_executor(spark, master, give_up_after))
        if waited > report_after and not reported:
            log.warning("%s; waiting", _no_executor(spark, master, report_after))
            reported = True
        time.sleep(LOOK_SECONDS)
    threading.Thread(
        target=_watch, args=(spark, master, report_after), name="headwater executors", daemon=True
    ).start()


def _watch(spark: SparkSession, master: str, seconds: float) -> None:
    """Report when a cluster has had no executor for a while, as Spark then waits in silence; ends
    with the session."""
    last = time.monotonic()
    reported = False
    while True:
        time.sleep(seconds / 3)
        try:
            if executors(spark):
                last, reported = time.monotonic(), False
            elif time.monotonic() - last > seconds / 2 and not reported:
                log.warning("%s; waiting", _no_executor(spark, master, seconds))
                reported = True
        except Exception:  # the session has ended, or Java has
            return


def _within(seconds: float, start: Callable[[], Answer], late: str) -> Answer:
    """What a call returns or raises; raises RuntimeFailure if it takes longer, and leaves it."""
    found: list[Answer] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            found.append(start())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call, name="headwater starts Spark", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise RuntimeFailure(late)
    return found[0]


def _no_executor(spark: SparkSession, master: str, seconds: float) -> str:
    host = spark.sparkContext.getConf().get(HOST)
    return (
        f"{master} gave no executor within {seconds:.0f} s; {_supply(spark, master)}. Check that its "
        "workers have the cores and memory that are asked for (spark.cores.max, "
        "spark.executor.memory) and the same version of Spark, and that they reach this machine at "
        f"{host} (spark.driver.host) on any port (spark.driver.port and spark.blockManager.port "
        "choose two)"
    )


def executors(spark: SparkSession) -> int:
    """How many executors a session has; the driver keeps blocks too, and is none."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def _supply(spark: SparkSession, master: str) -> str:
    """The workers of a standalone cluster and what they have left, as its master says."""
    if not master.startswith("spark://"):
        return "how many workers it has is not known"
    try:
        workers = [
            w for w in _master_state(spark, *_addresses(master)[0]) if str(w.state()) == "ALIVE"
        ]
    except Exception:  # the internals of Spark that this asks may change
        return "how many workers it has is not known"
    cores, free = sum(w.cores() for w in workers), sum(w.coresFree() for w in workers)
    memory = sum(w.memoryFree() for w in workers)
    return (
        f"it has {len(workers)} worker{'' if len(workers) == 1 else 's'}, {free} of {cores} cores "
        f"free, {memory} MB of memory free"
    )


def _master_state(spark: SparkSession, host: str, port: int) -> list[Any]:
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
