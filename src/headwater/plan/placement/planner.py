"""What all planners have in common: they take a ledger and queries, and return a decision for each.

The ledger always holds a valid plan, the best so far, so a planner can be stopped at any time. Decisions
that are limited by effort rather than by the clock are the same in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.plan.placement.check import Violation
from headwater.plan.placement.ledger import Ledger


@dataclass(frozen=True)
class Budget:
    """How many seconds a query may take, and the seed of what is chosen by chance."""

    seconds: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Decision:
    """Whether a query is admitted, and by which step of a planner.

    A refusal is `proven` if no plan exists that keeps what is outside of the query's scope as it is;
    `shortages` says what is missing, by the plan that comes nearest.
    """

    query: int
    admitted: bool
    step: str
    proven: bool = False
    shortages: tuple[Violation, ...] = ()
    # Not compared, so that two runs with the same decisions are equal.
    seconds: float = field(default=0.0, compare=False)


Planner = Callable[[Ledger, Sequence[int], Budget], Iterator[Decision]]


class BudgetClock:
    """Seconds since its creation, and how many of a budget are left."""

    def __init__(self, budget: Budget) -> None:
        self._started = time.perf_counter()
        self._seconds = budget.seconds

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._started

    @property
    def remaining(self) -> float:
        return self._seconds - self.elapsed


def admit_duplicate(ledger: Ledger, query: int) -> Decision | None:
    """Admit a query whose stream is served already; None if it is not."""
    if ledger.problem.queries[query].stream not in ledger.served:
        return None
    ledger.ask(query)
    ledger.commit()
    return Decision(query, True, "duplicate")


def remove_queries(ledger: Ledger, queries: Sequence[int]) -> None:
    """Remove queries, and release what no other query needs."""
    for query in queries:
        if query in ledger.admitted:
            ledger.withdraw(query)
    ledger.commit()
