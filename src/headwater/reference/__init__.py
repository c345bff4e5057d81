"""The slow, obvious evaluator: what every query means, computed by the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

if TYPE_CHECKING:
    from headwater.reference.evaluator import evaluate
    from headwater.reference.values import Result, Row

__all__ = ["Result", "Row", "evaluate"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Result": "headwater.reference.values",
        "Row": "headwater.reference.values",
        "evaluate": "headwater.reference.evaluator",
    },
)
