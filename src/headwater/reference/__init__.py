"""The slow, obvious evaluator: what every query means, computed by the definition."""

from headwater.reference.evaluate import Result, evaluate
from headwater.reference.values import Row

__all__ = ["Result", "Row", "evaluate"]
