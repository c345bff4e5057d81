"""What was measured to pass conditions on a stream, and what that says of other conditions.

A condition that covers another passes at least as much, so every measurement bounds the estimates of
all conditions that cover it or that it covers. Estimates within these bounds never shrink when a
condition is widened, whatever was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headwater.algebra.conditions.domain import Domain
from headwater.cost.provenance import Estimate


@dataclass(frozen=True)
class SourceCondition:
    """A condition on the columns of one source: the values of terms, and terms that must be true,
    by their texts."""

    domains: Mapping[str, Domain] = field(default_factory=dict)
    terms: frozenset[str] = frozenset()

    def covers(self, other: SourceCondition) -> bool:
        """Whether it passes all that the other one does, as far as their texts say."""
        return self.terms <= other.terms and all(
            term in other.domains and other.domains[term] <= domain
            for term, domain in self.domains.items()
        )


@dataclass(frozen=True)
class MeasuredShare:
    """The share of a stream's tuples that was measured to meet a condition."""

    condition: SourceCondition
    share: Estimate


def bounded_share(
    condition: SourceCondition, assumed: Estimate, measured: Iterable[MeasuredShare]
) -> Estimate:
    """The share of a condition: as it was measured, or as assumed but within what was measured of
    conditions that it covers and that cover it."""
    share = assumed.value
    seen = list(measured)
    below = [one.share for one in seen if condition.covers(one.condition)]
    above = [one.share for one in seen if one.condition.covers(condition)]
    if below:
        share = max(share, *(one.value for one in below))
    # Last, so that of measurements that contradict each other all take the same one.
    if above:
        share = min(share, *(one.value for one in above))
    exact = [one for one in below if one in above]
    if exact:
        return replace(max(exact, key=lambda one: one.confidence), value=share)
    return replace(assumed, value=share)
