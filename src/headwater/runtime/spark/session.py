"""Opening the Spark session that Headwater runs on, with the settings that queries rely on.

Where Spark cannot start, the error says why and what to do.
"""

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
"""Options of Java. By default it does not compile long methods, and the code that Spark generates
for a shared join is long. When out of memory it has to exit: otherwise it may stay up, answer, and
do nothing."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Even without a UI Spark keeps the plans and tasks of past jobs in memory, and a run has
    # millions.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    # Above the threshold Spark lists files with a job of its own, which costs more than the
    # listing.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Spark caches every file listing, up to 250 MB; no segment is listed twice.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
    # Units step concurrently: with FIFO a long job would hold up the short ones behind it.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    # Expressions are total (see `sql`): without ANSI mode a failed cast is NULL and not an error.
    "spark.sql.ansi.enabled": "false",
    # It adds up the constants of v + 2147483647 + 1 beforehand, and then all of it is NULL; or, with -1 in
    # place of 1, never, though v + 2147483647 is.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
    ),
    "spark.sql.caseSensitive": "true",
    # A text literal of a query may contain ${..}, which Spark would replace.
    "spark.sql.variable.substitute": "false",
    # Planning between stages takes longer than it saves in steps this small.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A file may change between its verification (storage/integrity.py) and Spark's read.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Version 2 renames files as tasks finish. It is not atomic, but no reader looks at a folder
    # before the catalog names it.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.buffer.pageSize": "2m",
    "spark.cleaner.referenceTracking.blocking": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
}
"""The settings of every session; steps are small, so planning is kept cheap."""


APPENDED_SETTINGS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
"""Settings to which a user's value is appended."""

USER_SETTING_PREFIXES = ("spark.ui.", "spark.sql.ui.", "spark.authenticate", *APPENDED_SETTINGS)
"""The settings among these that a user may change: no result depends on them."""

JAVA_EXIT_SECONDS = 10.0
"""Seconds to wait for Java to exit before it is killed."""

MIN_JAVA = 17
_JAVA_ADVICE = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def open_session(
    master: str = "local[*]", name: str = "headwater", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Open a session with Headwater's settings and the user's.

    Raises RuntimeFailure if Spark cannot start or a cluster does not accept it.
    """
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
    """Clean up after a session whose Java has ended, so that another can be opened.

    PySpark keeps the session and its gateway in class attributes and would return them again.
    """
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
    process.stdin.close()  # Java exits at the end of its input
    try:
        process.wait(JAVA_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(Exception):
        gateway.shutdown()


def authentication_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that make Spark's processes require a shared secret.

    In one process Spark creates the secret itself. The processes of a cluster have to be given one,
    so there it is required only if there is one: a cluster started without would refuse every
    session.
    """
    if master.startswith("local-cluster["):
        return {"spark.authenticate": "true", SECRET: secrets.token_hex(32)}
    if master.startswith("local") or SECRET in settings:
        return {"spark.authenticate": "true"}
    return {}


def check_user_settings(settings: Mapping[str, str]) -> None:
    """Raise RuntimeFailure for settings that a user must not choose."""
    check_settings(settings, {key for key in SETTINGS if not key.startswith(USER_SETTING_PREFIXES)})


def _start_java(master: str, settings: Mapping[str, str], secret: str | None) -> None:
    """Start Java with its settings; the secret follows as a property.

    On the command line every user of the machine could read it.
    """
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    if secret is not None:
        SparkContext.setSystemProperty(SECRET, secret)


NO_CODEGEN = ("spark.sql.codegen.wholeStage", "false")
"""The setting that turns off code generation, which takes longer than it saves for few rows."""


@functools.cache
def derive_session(spark: SparkSession, name: str, value: str) -> SparkSession:
    """A session on the same context that differs in one setting."""
    # A new one copies the configuration of the context, not SQL settings that were made later.
    other = spark.newSession()
    for key in SETTINGS:
        if key.startswith("spark.sql.") and other.conf.isModifiable(key):
            other.conf.set(key, SETTINGS[key])
    other.conf.set(name, value)
    return other


def _check_java() -> None:
    """Raise RuntimeFailure if there is no Java that Spark can use."""
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
        output = completed.stderr.strip() or f"it exits with status {completed.returncode}"
        raise RuntimeFailure(f"{java} does not work: {output.splitlines()[0]}; {_JAVA_ADVICE}")
    if int(version[1]) < MIN_JAVA:
        raise RuntimeFailure(
            f"Spark needs Java {MIN_JAVA} or later, {java} is {version[1]}: {_JAVA_ADVICE}"
        )
