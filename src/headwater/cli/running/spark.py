"""Starting Spark for a command, with the output of Java sent to a file of the state."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.cli.running.run import SPARK_LOG
from headwater.errors import RuntimeFailure
from headwater.runtime.durability import owner_only_opener
from headwater.runtime.spark.cluster import check_cluster
from headwater.runtime.spark.session import open_session


def start_spark(state: Path, master: str, settings: Callable[[], Mapping[str, str]]) -> Any:
    """Start a session; raises RuntimeFailure, which names the file with Spark's own output."""
    log = state / SPARK_LOG
    try:
        with _redirect_output(log), _keep_interrupt_handler():
            spark = open_session(master, settings=settings())
    except OSError as error:
        raise RuntimeFailure(
            f"{log} cannot be written: {error.strerror}; give this user permission to write in "
            f"{state}, or name another directory with --state"
        ) from error
    except RuntimeFailure as error:
        raise RuntimeFailure(f"{str(error).splitlines()[0]} (Spark's output: {log})") from error
    # Outside of the redirection: what it prints while it waits for executors is for the terminal.
    check_cluster(spark, state)
    return spark


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which PySpark replaces by its own in the main thread.

    Without this, Ctrl-C would end a run at once and without a word after Spark was started again.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _redirect_output(path: Path) -> Iterator[None]:
    """Redirect standard output and error to a file, for child processes too.

    Java inherits the file descriptors, so replacing sys.stdout would not reach it.
    """
    # What Python still holds back would come out in the file.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with open(path, "ab", opener=owner_only_opener) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for target, saved_descriptor in enumerate(saved, 1):
            os.dup2(saved_descriptor, target)
            os.close(saved_descriptor)
