"""Coherency: how far a copy may be from its original, and which updates a provider must forward.

A provider is in tolerance while the divergence of its copy from the source is at most its
requirement. A parent's copy may itself be off by the parent's requirement, so a child gets an
update as soon as it is off by more than what is left: its requirement less its parent's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwater.jit import cached_njit

Floats = NDArray[np.float64]

# Four roundings lie between a requirement and the two differences that it is compared with.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Reading:
    """One update of an object: its number at the source, when it was emitted there, and the value."""

    number: int
    time: float
    value: float


@dataclass(frozen=True)
class Divergence:
    """How far a reading is behind a newer one.

    `measure(newer, older)` must be at least 0, be 0 for the same reading, and satisfy the triangle inequality:
    otherwise the bound of `forwarding_bound` guarantees nothing.
    """

    name: str
    measure: Callable[[Reading, Reading], float]
    exact: bool = False
    """Whether it measures whole numbers, which need no margin for rounding."""


DIFFERENCE = Divergence("difference", lambda newer, older: abs(newer.value - older.value))
CHANGES = Divergence("changes", lambda newer, older: abs(newer.number - older.number), exact=True)
AGE = Divergence("age", lambda newer, older: abs(newer.time - older.time))
DIVERGENCES = {one.name: one for one in (DIFFERENCE, CHANGES, AGE)}


def effective_requirements(
    parents: Mapping[int, int | None], requirements: Mapping[int, float]
) -> dict[int, float]:
    """The strictest requirement in the subtree of every provider; 0 for the source, which has no parent.

    `parents` lists parents before their children. A provider without a requirement of its own
    only passes updates on.
    """
    strictest = {provider: requirements.get(provider, np.inf) for provider in parents}
    for provider, parent in reversed(list(parents.items())):
        if parent is None:
            strictest[provider] = 0.0
        else:
            strictest[parent] = min(strictest[parent], strictest[provider])
    return strictest


def forwarding_bound(child: float, parent: float, exact: bool = False) -> float:
    """How far a child may be behind its parent, by the effective requirements of both.

    Slightly less than the difference, so that the sum of two rounded divergences stays within the child's requirement.
    """
    if child == np.inf:
        return np.inf
    return max(0.0, child - parent - (0.0 if exact else _ROUNDING * child))


def printed_bound(child: float, parent: float, exact: bool = False) -> float:
    """The obvious reading of the thesis, which leaves children out of tolerance: the child's requirement alone."""
    return child


@dataclass
class Forwarder:
    """What one provider does with the updates of one object: it sends each child what it must have."""

    requirement: float
    """The effective requirement of this provider; 0 at the source."""
    children: dict[int, float] = field(default_factory=dict)
    divergence: Divergence = DIFFERENCE
    bound: Callable[[float, float, bool], float] = forwarding_bound
    current: Reading | None = None
    _sent: dict[int, Reading] = field(default_factory=dict)

    def receive(self, reading: Reading) -> list[int]:
        """The children that the update has to be sent to."""
        self.current = reading
        return self.due_children()

    def due_children(self) -> list[int]:
        """The children that must get the current value; also after a change of requirements."""
        if self.current is None:
            return []
        due = [child for child in self.children if self._is_due(child, self.current)]
        self._sent.update(dict.fromkeys(due, self.current))
        return due

    def adopt(self, child: int, requirement: float) -> list[int]:
        """Take on a child, whose copy is unknown: the current value is due. Returns as `due_children`."""
        self.children[child] = requirement
        self._sent.pop(child, None)
        return self.due_children()

    def drop(self, child: int) -> None:
        """Forget a child."""
        self.children.pop(child, None)
        self._sent.pop(child, None)

    def _is_due(self, child: int, reading: Reading) -> bool:
        if child not in self._sent:
            return True
        slack = self.bound(self.children[child], self.requirement, self.divergence.exact)
        return self.divergence.measure(reading, self._sent[child]) > slack


@dataclass
class UpdateTagger:
    """The alternative that sends less: the source decides for every distinct requirement.

    An update has a tag, the largest requirement that it violates; it goes to all providers whose
    requirement is at most the tag. Whatever a child must get its parent gets too, as the parent's
    effective requirement is not larger. The source must know all requirements.
    """

    requirements: Sequence[float]
    divergence: Divergence = DIFFERENCE
    _sent: dict[float, Reading] = field(default_factory=dict)

    def tag(self, reading: Reading) -> float | None:
        """The tag of an update; None if no provider needs it."""
        ordered = sorted(set(self.requirements))
        violated = [one for one in ordered if self._is_violated(one, reading)]
        if not violated:
            return None
        tag = violated[-1]
        # A requirement below the tag gets the update too, violated or not: its copies are now this
        # one.
        for one in ordered[: bisect_left(ordered, tag) + 1]:
            self._sent[one] = reading
        return tag

    def _is_violated(self, requirement: float, reading: Reading) -> bool:
        sent = self._sent.get(requirement)
        return sent is None or self.divergence.measure(reading, sent) > requirement


@cached_njit
def forwarded_updates(values: Floats, bound: float) -> NDArray[np.bool_]:
    """Which of a parent's values, in order, a child with this bound gets (divergence: difference)."""
    chosen = np.zeros(len(values), np.bool_)
    last = np.nan
    for at in range(len(values)):
        # The first is always sent: nothing compares as at most the bound with NaN.
        if not abs(values[at] - last) <= bound:
            chosen[at] = True
            last = values[at]
    return chosen


@dataclass(frozen=True)
class ValueHistory:
    """The values of an object at one provider, each from its time on; times ascend."""

    times: Floats
    values: Floats


def fidelity(source: ValueHistory, copy: ValueHistory, requirement: float, end: float) -> float:
    """The share of the time from the source's first value to the end in which a copy is in tolerance.

    A provider without any value is out of tolerance.
    """
    start = float(source.times[0])
    inside = copy.times < end
    # Between two changes of either value the divergence stays as it is.
    times = np.unique(np.concatenate([source.times[source.times < end], copy.times[inside]]))
    times = times[times >= start]
    lengths = np.diff(np.append(times, end))
    original = _values_at(source, times)
    held = _values_at(copy, times)
    # Without a value the difference is NaN, which is not in tolerance.
    within = np.abs(original - held) <= requirement
    return float(lengths[within].sum() / (end - start))


def _values_at(copy: ValueHistory, times: Floats) -> Floats:
    """The values that hold at the times; NaN before the first."""
    positions = np.searchsorted(copy.times, times, side="right")
    return np.concatenate([[np.nan], copy.values])[positions]
