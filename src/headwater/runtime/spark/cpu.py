"""The CPU time of a step: of the threads that prepare it and of the tasks that Spark runs for it.

Elapsed time says nothing of that on a busy machine, where a step mostly waits for its turn. The tasks
of a step are found by its job group, so steps that run concurrently are told apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

JOB_GROUP = "spark.jobGroup.id"
"""The local property of a thread that names the group of the jobs that it runs."""

PATIENCE_MILLISECONDS = 500
"""How long Spark may take to count the tasks that have ended."""

_numbers = count()


@dataclass
class CpuWatch:
    """Counts the CPU seconds of what this thread does, and has Spark do, from now on."""

    spark: SparkSession
    _group: str = field(default_factory=lambda: f"step {next(_numbers)}")
    _python_started_at: float = field(default_factory=time.thread_time)
    _java_started_at: float | None = None

    def __post_init__(self) -> None:
        self.spark.sparkContext.setLocalProperty(JOB_GROUP, self._group)
        self._java_started_at = _known(self._java_seconds)

    def seconds(self) -> float | None:
        """The CPU seconds so far; None where Java or Spark does not report them."""
        started_at = self._java_started_at
        java, tasks = _known(self._java_seconds), _known(self._task_seconds)
        if started_at is None or java is None or tasks is None:
            return None
        return time.thread_time() - self._python_started_at + java - started_at + tasks

    def _java_seconds(self) -> float:
        """Of the thread of Java that serves this one: it plans what Spark runs."""
        java: Any = self.spark._jvm
        bean = java.java.lang.management.ManagementFactory.getThreadMXBean()
        return float(bean.getCurrentThreadCpuTime()) / 1e9

    def _task_seconds(self) -> float:
        context: Any = self.spark.sparkContext
        tracker, spark = context.statusTracker(), context._jsc.sc()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        if jobs:
            # Ends of tasks are counted by a thread of their own, a little later.
            spark.listenerBus().waitUntilEmpty(PATIENCE_MILLISECONDS)
        store = spark.statusStore()
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        seen = [store.lastStageAttempt(stage) for stage in stages]
        nanoseconds = [s.executorCpuTime() + s.executorDeserializeCpuTime() for s in seen]
        return float(sum(nanoseconds)) / 1e9


def _known(measure: Callable[[], float]) -> float | None:
    """What was measured; None if Java cannot say, which must not fail a step."""
    try:
        return measure()
    except Py4JError:
        return None
