"""Ruin and recreate: remove some queries when one does not fit, and place all of them again.

First the new query and then the others; if that fails, only the others, and the result is kept if it uses
less than before. So even if the query has to be refused, the plan has been improved for the next one. In
half of the rounds the removed queries are related to the new one, in the other half they are arbitrary.
"""

from __future__ import annotations

import random

import numpy as np

from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.planner import BudgetClock
from headwater.plan.placement.planners.dynamic import StreamPlacer, StreamPopularity

ROUNDS = 20
SIZE = 12
MIN_SAVING = 1e-6
"""The least saving for which queries are moved, as a fraction of all capacity."""


def ruin_and_recreate(
    ledger: Ledger,
    stream: int,
    popularity: StreamPopularity,
    placer: StreamPlacer,
    rng: random.Random,
    clock: BudgetClock,
) -> bool:
    """Make room for a stream; returns whether it is served now. No other stream is lost.

    `placer` places one stream.
    """
    problem = ledger.problem
    base = [s for s in problem.scope(stream).streams if problem.streams[s].sites]
    related, everybody = ledger.related_streams(base), sorted(ledger.served)
    for number in range(ROUNDS):
        if clock.remaining < 0:
            break
        removed = _pick_streams(related if number % 2 else [], everybody, rng)
        # Streams with the most possible sub-streams first: smaller ones can then reuse what they
        # made.
        largest_first = sorted(removed, key=lambda s: -len(problem.scope(s).streams))
        before = load_share(ledger)
        with ledger.attempt() as accepted:
            for one in removed:
                ledger.stop_serving(one)
            with ledger.attempt() as with_it:
                ordered = [stream, *largest_first]
                with_it.append(all(placer(ledger, one, popularity) for one in ordered))
            if any(with_it):
                accepted.append(True)
                return True
            rng.shuffle(removed)
            again = all(placer(ledger, one, popularity) for one in removed)
            # Kept even if the new query finds no place: rounds that keep only success admit fewer
            # in the end.
            if again and load_share(ledger) < before - MIN_SAVING:
                accepted.append(True)
                if placer(ledger, stream, popularity):
                    return True
    return False


def load_share(ledger: Ledger) -> float:
    """The shares of all CPU and of all bandwidth that are in use."""
    share = 0.0
    for resource in (0, 3):
        capacity, free = ledger.capacity[resource], ledger.free[resource]
        limited = np.isfinite(capacity)
        if limited.any():
            share += 1.0 - float(free[limited].sum() / max(capacity[limited].sum(), 1e-300))
    return share


def _pick_streams(related: list[int], everybody: list[int], rng: random.Random) -> list[int]:
    """Related streams as far as there are any, filled up with others."""
    chosen = rng.sample(related, min(SIZE, len(related)))
    while len(chosen) < min(SIZE, len(everybody)):
        candidate = rng.choice(everybody)
        if candidate not in chosen:
            chosen.append(candidate)
    return chosen
