"""Many independent computations, on all processors, with a bar on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Result = TypeVar("Result")


def run_in_parallel(title: str, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of the jobs in their order; the jobs are run by threads."""
    console = Console(file=sys.stderr)
    # Threads, because the compiled simulators release the interpreter lock.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        futures = [threads.submit(job) for job in jobs]
        bar = track(
            futures, title, console=console, transient=True, disable=not console.is_terminal
        )
        return [future.result() for future in bar]
