"""Helpers for tests of queries: a clock to set, streams that pause and end, states that remove
themselves, and the rows that a query must emit.

Only the engine needs Spark: statements, pushed tuples and expected rows do not.
"""

from __future__ import annotations

from headwater.testing.clock import ManualClock
from headwater.testing.expected import check_results, expected_results
from headwater.testing.states import spark_session, temporary_state
from headwater.testing.streams import END, PAUSE, ScriptedStream

__all__ = [
    "END",
    "PAUSE",
    "ManualClock",
    "ScriptedStream",
    "check_results",
    "expected_results",
    "spark_session",
    "temporary_state",
]
