"""The metrics of streams and units: each a field with a unit and a sentence.

`headwater show`, its JSON and the table in docs/runtime.md are made of these records; CONTRIBUTING.md says
how to add one. A value is read from the view of a stream or unit (`headwater.runtime.inspect.status`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.errors import HeadwaterError


class MetricUnit(Enum):
    """What a value counts."""

    COUNT = "number"
    BYTES = "bytes"
    SECONDS = "seconds"
    ROWS_PER_SECOND = "rows/s"
    BYTES_PER_SECOND = "bytes/s"
    FACTOR = "factor"


class MetricSubject(Enum):
    """What a metric is measured of."""

    STREAM = "stream"
    UNIT = "unit"


@dataclass(frozen=True)
class Metric:
    """A number that is known of every stream, or of every unit.

    `value` gets the view and returns None where nothing was measured yet. A metric that is not `shown`
    is in JSON alone.
    """

    subject: MetricSubject
    name: str
    unit: MetricUnit
    sentence: str
    value: Callable[[Any], float | None]
    shown: bool = True


_STREAM, _UNIT = MetricSubject.STREAM, MetricSubject.UNIT

_metrics: dict[tuple[MetricSubject, str], Metric] = {
    (metric.subject, metric.name): metric
    for metric in (
        Metric(
            _STREAM, "rows", MetricUnit.COUNT, "rows ingested so far", lambda stream: stream.rows
        ),
        Metric(
            _STREAM,
            "bytes",
            MetricUnit.BYTES,
            "size of the log as it is now",
            lambda stream: stream.bytes,
            shown=False,
        ),
        Metric(
            _STREAM,
            "rate",
            MetricUnit.ROWS_PER_SECOND,
            "rows ingested per second, over about the last ten seconds",
            lambda stream: stream.rate,
        ),
        Metric(
            _STREAM,
            "bytes_rate",
            MetricUnit.BYTES_PER_SECOND,
            "bytes ingested per second, over about the last ten seconds",
            lambda stream: stream.bytes_rate,
            shown=False,
        ),
        Metric(
            _STREAM,
            "pending",
            MetricUnit.COUNT,
            "rows that its slowest running unit has not read yet",
            lambda stream: stream.backlog,
        ),
        Metric(
            _STREAM,
            "lag",
            MetricUnit.SECONDS,
            "event time by which its slowest running unit is behind the watermark",
            lambda stream: stream.lag / 1e6,
        ),
        Metric(
            _STREAM,
            "late",
            MetricUnit.COUNT,
            "rows rejected because they were late",
            lambda stream: stream.row.late,
        ),
        Metric(
            _STREAM,
            "malformed",
            MetricUnit.COUNT,
            "records rejected because they do not fit the schema",
            lambda stream: stream.row.malformed,
        ),
        Metric(
            _UNIT,
            "pending",
            MetricUnit.COUNT,
            "rows of its streams that it has not read yet",
            lambda unit: unit.backlog,
        ),
        Metric(
            _UNIT,
            "lag",
            MetricUnit.SECONDS,
            "event time by which it is behind the watermark of the stream it is most behind",
            lambda unit: unit.lag / 1e6,
        ),
        Metric(_UNIT, "rows", MetricUnit.COUNT, "rows written to its log", lambda unit: unit.rows),
        Metric(
            _UNIT,
            "bytes",
            MetricUnit.BYTES,
            "size of its log as it is now",
            lambda unit: unit.bytes,
        ),
        Metric(_UNIT, "steps", MetricUnit.COUNT, "steps so far", lambda unit: unit.steps),
        Metric(
            _UNIT,
            "step",
            MetricUnit.SECONDS,
            "duration of a step, a mean in which recent steps weigh more",
            lambda unit: unit.step_seconds,
        ),
        Metric(
            _UNIT,
            "last_step",
            MetricUnit.SECONDS,
            "duration of the last step",
            lambda unit: unit.last_seconds,
            shown=False,
        ),
        Metric(
            _UNIT,
            "wait",
            MetricUnit.SECONDS,
            "how long the oldest pending segment has waited",
            lambda unit: unit.wait,
        ),
        Metric(
            _UNIT,
            "wait_slowdown",
            MetricUnit.FACTOR,
            "that wait, divided by the expected duration of a step",
            lambda unit: unit.slowdown,
            shown=False,
        ),
        Metric(
            _UNIT,
            "slowdown",
            MetricUnit.FACTOR,
            "mean response time of its results, divided by the expected duration of a step",
            lambda unit: unit.mean_slowdown,
        ),
    )
}


def metrics_of(subject: MetricSubject) -> list[Metric]:
    """The metrics of streams, or of units."""
    return [metric for metric in _metrics.values() if metric.subject is subject]


def metric_values(subject: MetricSubject, view: object) -> dict[str, float | None]:
    """Every metric of a stream or unit by its name."""
    return {metric.name: metric.value(view) for metric in metrics_of(subject)}


def register_metric(metric: Metric) -> None:
    """Add a metric; raises HeadwaterError if there is one of that name."""
    if (metric.subject, metric.name) in _metrics:
        raise HeadwaterError(f"there is a metric {metric.name} of a {metric.subject.value} already")
    _metrics[metric.subject, metric.name] = metric


def unregister_metric(subject: MetricSubject, name: str) -> None:
    """Remove a metric; raises HeadwaterError if there is none."""
    if _metrics.pop((subject, name), None) is None:
        raise HeadwaterError(f"there is no metric {name} of a {subject.value}")
