"""Errors of Spark steps: one line for people, and what kind of failure it is.

The kinds are those that are handled differently: a full disk is waited for, a damaged file is not
retried, and the end of Spark ends the engine.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from pyspark.sql import SparkSession

from headwater.errors import DamagedFile, MissingFile, SparkEnded

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_MAX_LENGTH = 500

_FATAL = (
    "OutOfMemoryError",
    "StackOverflowError",
    "SparkContext was shut down",
    "Py4JNetworkError",
)
_ENDING_SECONDS = 15.0
"""Seconds to wait for Java to end after one of these."""


def describe_error(error: BaseException) -> str:
    """One line for people; for an error of Java, its root cause."""
    if is_disk_full(error):
        return "the disk is full: free some space, and it continues by itself"
    java: Any = getattr(error, "java_exception", None)
    message = _root_cause(java) if java is not None else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_MAX_LENGTH]


def _root_cause(java: Any) -> str:
    try:
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.toString())
    except Exception:  # the connection to Java broke
        return ""


def is_damaged_file(error: BaseException) -> bool:
    """Whether a file of the state is damaged, so that retrying is useless.

    A missing file may only have been compacted into another since it was looked up.
    """
    return isinstance(error, DamagedFile) and not isinstance(error, MissingFile)


def is_disk_full(error: BaseException) -> bool:
    """Whether a disk is full: not the fault of a unit, and over when somebody frees space."""
    return getattr(error, "errno", None) in _DISK_FULL_ERRNOS or "No space left on device" in str(
        error
    )


def has_spark_ended(spark: SparkSession | None) -> bool:
    """Whether the Spark session has ended and cannot be used any more."""
    if spark is None:
        return False
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # Java does not answer
        return True


def raise_if_spark_ended(spark: SparkSession, error: Exception) -> None:
    """Raise SparkEnded if Spark has ended or is about to: then the step is not at fault."""
    # Java reports such an error some time before it ends.
    deadline = time.monotonic() + (_ENDING_SECONDS if _is_fatal(error) else 0.0)
    while not has_spark_ended(spark):
        if time.monotonic() >= deadline:
            return
        time.sleep(0.1)
    raise SparkEnded(
        f"Spark has ended ({describe_error(error)}); nothing is lost: run it again to go on"
    ) from error


def _is_fatal(error: Exception) -> bool:
    """Whether Java is likely to end because of an error, although it could still report it."""
    message = f"{type(error).__name__}: {error}"
    return any(word in message for word in _FATAL)
