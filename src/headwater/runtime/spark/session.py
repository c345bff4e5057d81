"""The Spark session that Headwater runs on, or a sentence that says why there is none."""

from __future__ import annotations

import functools
import os
import re
import secrets
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headwater.errors import RuntimeFailure
from headwater.runtime.spark.cluster import (
    SECRET,
    SECRET_FILE,
    check_master,
    check_settings,
    cluster_settings,
    is_local,
    read_secret,
    start_session,
)
from headwater.runtime.spark.memory import memory_setting

JAVA_OPTIONS = "-XX:-DontCompileHugeMethods -XX:+ExitOnOutOfMemoryError"
"""Java leaves long methods to its interpreter, and what Spark generates for a shared join is long.
Java that runs out of memory ends, as what is left of it may answer and do nothing."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Spark remembers every file that it ever listed, up to 250 MB; no segment is listed twice.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.buffer.pageSize": "2m",
    "spark.cleaner.referenceTracking.blocking": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
}
"""What every session of Headwater has; steps are small, so plans are kept simple."""


APPENDED_SETTINGS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
"""Those of a user are added."""

USER_SETTING_PREFIXES = ("spark.ui.", "spark.sql.ui.", "spark.authenticate", *APPENDED_SETTINGS)
"""What of these a user may change all the same: nothing that a query gives depends on it."""

JAVA_EXIT_SECONDS = 10.0
"""Seconds that Java has to end."""

MIN_JAVA = 17
_JAVA_ADVICE = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def open_session(
    master: str = "local[*]", name: str = "headwater", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with Headwater's settings; raises RuntimeFailure where Spark cannot start, or a
    cluster gives no executor."""
    check_master(master)
    _check_java()
    user_settings = dict(settings or {})
    for key in APPENDED_SETTINGS:
        if key in user_settings:
            user_settings[key] = f"{SETTINGS[key]} {user_settings[key]}"
    cores = os.cpu_count() or 2
    merged = {"spark.sql.shuffle.partitions": str(cores), **memory_setting(), **SETTINGS}
    merged |= {**cluster_settings(master, user_settings), **user_settings}
    merged = authentication_settings(master, merged) | merged
    secret = read_secret(master, merged)
    merged.pop(SECRET_FILE, None)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in merged.items():
        builder = builder.config(key, value)
    try:
        if is_local(master):
            session = builder.getOrCreate()
        else:
            _start_java(master, merged, secret)
            session = start_session(master, builder.getOrCreate)
    except RuntimeFailure:
        raise
    except Exception as error:
        raise RuntimeFailure(f"Spark did not start on {master}: {error}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def discard_session(spark: SparkSession) -> None:
    """End what is left of a session whose Java has ended, so that another can be opened here."""
    gateway = SparkContext._gateway
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark.stop()
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    derive_session.cache_clear()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    process.stdin.close()  # its sign to end
    try:
        process.wait(JAVA_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(Exception):
        gateway.shutdown()


def authentication_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with which the parts of Spark answer nobody who does not know their secret.

    In one process Spark makes the secret itself. The processes of a cluster have to be given one, so
    there it is on if there is one: a cluster that was started without would refuse every session.
    """
    if master.startswith("local-cluster["):
        return {"spark.authenticate": "true", SECRET: secrets.token_hex(32)}
    if master.startswith("local") or SECRET in settings:
        return {"spark.authenticate": "true"}
    return {}


def check_user_settings(settings: Mapping[str, str]) -> None:
    """Raises RuntimeFailure for settings that a user must not choose."""
    check_settings(settings, {key for key in SETTINGS if not key.startswith(USER_SETTING_PREFIXES)})


def _start_java(master: str, settings: Mapping[str, str], secret: str | None) -> None:
    """Java with its settings, but for the secret: all can see the command line of a process."""
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    if secret is not None:
        SparkContext.setSystemProperty(SECRET, secret)


NO_CODEGEN = ("spark.sql.codegen.wholeStage", "false")
"""For few rows it takes longer to generate code than to do without."""


@functools.cache
def derive_session(spark: SparkSession, name: str, value: str) -> SparkSession:
    """The same session with one setting that is different."""
    other = spark.newSession()
    for key in SETTINGS:
        if key.startswith("spark.sql.") and other.conf.isModifiable(key):
            other.conf.set(key, SETTINGS[key])
    other.conf.set(name, value)
    return other


def _check_java() -> None:
    """Raises RuntimeFailure if there is no Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not java or not Path(java).exists():
        where = f" in JAVA_HOME, which is {home}" if home else ""
        raise RuntimeFailure(f"Spark needs Java and there is none{where}: {_JAVA_ADVICE}")
    try:
        completed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeFailure(f"{java} cannot be run: {error.strerror}; {_JAVA_ADVICE}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', completed.stderr)
    if completed.returncode or not version:
        message = (completed.stderr.strip() or f"it ends with {completed.returncode}").splitlines()[
            0
        ]
        raise RuntimeFailure(f"{java} does not work: {message}; {_JAVA_ADVICE}")
    if int(version[1]) < MIN_JAVA:
        raise RuntimeFailure(
            f"Spark needs Java {MIN_JAVA} or later, {java} is {version[1]}: {_JAVA_ADVICE}"
        )
