"""Choosing what runs next, and saying why.

Whatever the policy, nothing waits forever: a candidate whose oldest tuple has waited longer than the
bound is overdue, and overdue candidates run before all others, the oldest first. So once a tuple is
overdue, only what arrived before it runs before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headwater.errors import ScheduleError
from headwater.schedule.policies import Candidate, Policy


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate with its rank at the time of the choice."""

    name: str
    rank: float
    wait: float
    slowdown: float
    pending: int
    overdue: bool


@dataclass(frozen=True)
class Choice:
    """What runs next, by which policy, and the ranking of all candidates, best first."""

    name: str
    policy: str
    formula: str
    at: float
    bound: float | None
    ranking: tuple[RankedCandidate, ...]

    @property
    def why(self) -> str:
        """The reason in a sentence."""
        first = self.ranking[0]
        if first.overdue:
            return (
                f"{self.name} has waited {first.wait:.3g} s, longer than the bound of "
                f"{self.bound or 0:.3g} s, and of those that have it is the oldest"
            )
        if len(self.ranking) == 1:
            return f"{self.name} is the only one with something pending"
        second = self.ranking[1]
        if first.rank == second.rank:
            return f"{self.name} and {second.name} rank equal by {self.formula}: {first.rank:.4g}"
        return (
            f"{self.name} ranks highest by {self.formula}: {first.rank:.4g}, "
            f"before {second.name} with {second.rank:.4g}"
        )

    def as_data(self) -> dict[str, object]:
        """The choice and its reasons, for JSON."""
        return {**asdict(self), "why": self.why}


def choose(
    policy: Policy, candidates: Sequence[Candidate], now: float, bound: float | None = None
) -> Choice:
    """The candidate that runs next. Ties are decided by the order in which candidates are given.

    Raises ScheduleError if there is no candidate, or if the bound is not a positive time.
    """
    if not candidates:
        raise ScheduleError("there is nothing to choose from; ask when something is pending")
    # Written as `not bound > 0` so that NaN, which compares false with everything, is refused too.
    if bound is not None and not bound > 0:
        raise ScheduleError(f"the bound is a time above 0, not {bound}")
    ranks = _rank_candidates(policy, candidates, now, bound)
    ranking = tuple(rank.to_ranked(now) for rank in sorted(ranks, key=_CandidateRank.sort_key))
    return Choice(ranking[0].name, policy.name, policy.formula, now, bound, ranking)


def next_candidate(
    policy: Policy, candidates: Sequence[Candidate], now: float, bound: float | None = None
) -> Candidate:
    """The candidate that `choose` names, found without the reasons."""
    return min(
        _rank_candidates(policy, candidates, now, bound), key=_CandidateRank.sort_key
    ).candidate


def _rank_candidates(
    policy: Policy, candidates: Sequence[Candidate], now: float, bound: float | None
) -> list[_CandidateRank]:
    return [
        _CandidateRank(
            policy.rank(candidate, now),
            candidate,
            bound is not None and candidate.wait(now) > bound,
        )
        for candidate in candidates
    ]


@dataclass(frozen=True)
class _CandidateRank:
    """A candidate with its rank."""

    rank: tuple[float, float]
    candidate: Candidate
    overdue: bool

    def sort_key(self) -> tuple[bool, float, float]:
        """What sorts the candidates, the next one first."""
        if self.overdue:
            # False sorts before True, so every overdue candidate precedes every other. Among
            # overdue ones the policy no longer counts: oldest first is what bounds the wait of
            # each.
            return False, self.candidate.since, 0.0
        return True, -self.rank[0], -self.rank[1]

    def to_ranked(self, now: float) -> RankedCandidate:
        candidate = self.candidate
        wait, slowdown = candidate.wait(now), candidate.slowdown(now)
        return RankedCandidate(
            candidate.name, self.rank[0], wait, slowdown, candidate.pending, self.overdue
        )
