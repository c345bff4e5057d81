"""The policies: what each of them ranks by.

Every policy is a static priority of each candidate, which changes only when measurements do, and a
rule for what time adds to it: nothing (SRPT, HR, HNR), the wait of the oldest pending tuple as a
factor (FCFS, LSF, BSD), or turns (RR). This split makes them cheap: candidates can be kept in
the order of their static priority.

BSD-EARLY is ours: under BSD a tuple that has just arrived ranks zero, even if running it at once would
delay the others very little; so here every tuple starts as if it had waited for a hundred ideal times already.

S, C and T are the results per tuple, the expected cost and the ideal time of a segment, W the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from headwater.errors import ScheduleError, suggest
from headwater.schedule.estimates import WorkEstimate
from headwater.schedule.sharing import PriorityTree, SharingRule, max_tree, priority_defining_tree


@dataclass(frozen=True)
class Candidate:
    """A candidate: a unit or operator with pending tuples.

    `since` is when its oldest pending tuple arrived. A shared one has a segment for each query, all of
    which begin with what costs `shared_cost`. `last_served` says when its query last ran: any
    number that rises, 0 for one that never did.
    """

    name: str
    since: float
    segments: tuple[WorkEstimate, ...]
    pending: int = 1
    shared_cost: float = 0.0
    query: str = ""
    last_served: float = 0.0

    def __post_init__(self) -> None:
        if not self.segments:
            raise ScheduleError(f"{self.name} has no segment; give what has been measured of it")
        if self.pending < 1:
            raise ScheduleError(f"{self.name} has nothing pending; leave it out")

    def wait(self, now: float) -> float:
        """How long the oldest pending tuple has waited."""
        return max(0.0, now - self.since)

    def slowdown(self, now: float) -> float:
        """The wait by the ideal time, of the segment that feels it most."""
        return self.wait(now) / min(segment.ideal for segment in self.segments)


class Growth(Enum):
    """What time does to the rank of a candidate."""

    none = "none"
    wait = "wait"
    turns = "turns"


@dataclass(frozen=True)
class Policy:
    """A way to rank candidates: the highest rank runs next, ties in the order of the candidates.

    `gain` is what running a segment is good for; `by_cost` divides it by the expected cost, and then
    segments that share an operator count together as `sharing` says. `head_start` is the wait that every
    tuple begins with, in ideal times.
    """

    name: str
    title: str
    optimises: str
    formula: str
    gain: Callable[[WorkEstimate], float]
    by_cost: bool = False
    growth: Growth = Growth.none
    head_start: float = 0.0
    sharing: SharingRule = priority_defining_tree

    def tree(self, candidate: Candidate) -> PriorityTree:
        """The static priority of a candidate, and which of its segments run with it."""
        gains = [self.gain(segment) for segment in candidate.segments]
        costs = [segment.cost for segment in candidate.segments]
        if self.by_cost:
            return self.sharing(gains, costs, candidate.shared_cost)
        # Policies that ignore cost have nothing to divide by: with unit costs a shared operator is
        # as urgent as the most urgent of its segments.
        return max_tree(gains, [1.0] * len(gains), 0.0)

    def static_priority(self, candidate: Candidate) -> float:
        """The part of the rank that time does not change."""
        return self.tree(candidate).priority

    def initial_wait(self, candidate: Candidate) -> float:
        """The wait that a candidate is given in advance."""
        return self.head_start * min(segment.ideal for segment in candidate.segments)

    def rank(self, candidate: Candidate, now: float) -> tuple[float, float]:
        """The rank, and a second number that decides where the first is equal."""
        priority = self.static_priority(candidate)
        if self.growth is Growth.turns:
            # Served longest ago first; the rate decides only between operators of one query.
            return -candidate.last_served, priority
        if self.growth is Growth.wait:
            # The second number matters at a wait of zero, where all products are equal.
            return priority * (now - (candidate.since - self.initial_wait(candidate))), priority
        return priority, 0.0

    def with_sharing(self, sharing: SharingRule) -> Policy:
        """The policy with another way to rank shared operators."""
        return replace(self, sharing=sharing)


def _constant_gain(segment: WorkEstimate) -> float:
    return 1.0


def _result_gain(segment: WorkEstimate) -> float:
    return segment.selectivity


def _normalised_gain(segment: WorkEstimate) -> float:
    return segment.selectivity / segment.ideal


# BSD minimises the l2 norm of slowdowns: S/(C T) is HNR, times the slowdown so far, W/T. W is
# multiplied in by `rank`, which leaves S/T^2 as the gain before division by C.
def _balanced_gain(segment: WorkEstimate) -> float:
    return segment.selectivity / (segment.ideal * segment.ideal)


def _speed_gain(segment: WorkEstimate) -> float:
    return 1.0 / segment.ideal


FCFS = Policy(
    "fcfs", "first come, first served", "the longest wait", "W", _constant_gain, growth=Growth.wait
)
RR = Policy(
    "rr",
    "round robin over queries, the highest rate within one",
    "nothing: every query gets its turn",
    "the query served longest ago, then S/C",
    _result_gain,
    by_cost=True,
    growth=Growth.turns,
)
SRPT = Policy("srpt", "shortest processing time", "response, if all pass", "1/T", _speed_gain)
HR = Policy("hr", "highest rate", "average response", "S/C", _result_gain, by_cost=True)
HNR = Policy(
    "hnr", "highest normalised rate", "average slowdown", "S/(C T)", _normalised_gain, by_cost=True
)
LSF = Policy(
    "lsf", "longest stretch first", "maximum slowdown", "W/T", _speed_gain, growth=Growth.wait
)
BSD = Policy(
    "bsd",
    "balanced slowdown",
    "l2 norm of slowdowns",
    "S/(C T) * W/T",
    _balanced_gain,
    by_cost=True,
    growth=Growth.wait,
)

BSD_EARLY = replace(
    BSD,
    name="bsd-early",
    title="balanced slowdown with a head start",
    optimises="l2 norm and average slowdown",
    formula="S/(C T) * (W/T + 100)",
    head_start=100.0,
)

_policies: dict[str, Policy] = {
    policy.name: policy for policy in (FCFS, RR, SRPT, HR, HNR, LSF, BSD, BSD_EARLY)
}

# A read-only view, so that policies are only added through `register_policy`, which checks names.
POLICIES: Mapping[str, Policy] = MappingProxyType(_policies)
"""Every policy by its name."""


def register_policy(policy: Policy) -> None:
    """Add a policy; raises ScheduleError if its name is taken, or not in small letters."""
    if policy.name in _policies:
        raise ScheduleError(f"there is a policy {policy.name!r} already")
    if policy.name != policy.name.lower():
        raise ScheduleError(f"a policy is named in small letters: {policy.name!r}")
    _policies[policy.name] = policy


def unregister_policy(name: str) -> None:
    """Remove a policy; raises ScheduleError if there is none of that name."""
    del _policies[find_policy(name).name]


def find_policy(name: str) -> Policy:
    """The policy of a name, in whatever case. Raises ScheduleError for a name that is none."""
    policy = POLICIES.get(name.lower())
    if policy is None:
        raise ScheduleError(f"there is no policy {name!r}; {suggest(name, POLICIES)}")
    return policy
