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


def in_parallel(title: str, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of the jobs in their order; the jobs are run by threads."""
    shown = Console(file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        waiting = [threads.submit(job) for job in jobs]
        bar = track(waiting, title, console=shown, transient=True, disable=not shown.is_terminal)
        return [future.result() for future in bar]
