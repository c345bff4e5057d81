"""Ruin and recreate: take some queries away when one does not fit, and place all of them anew.

First the new query and then the others; if that fails, the others alone, and what comes out is kept if it
takes less than before. So even where the query has to be refused, the plan has been improved for the
next one. Half of the time those taken away are related to the query, half of the time anybody.
"""

from __future__ import annotations

import random

import numpy as np

from headwater.plan.placement.dynamic import Place, Taste
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.planner import Clock

ROUNDS = 20
SIZE = 12
WORTH = 1e-6
"""The least saving for which queries are moved, as a share of all there is."""


def recreate(
    ledger: Ledger, stream: int, taste: Taste, place: Place, dice: random.Random, clock: Clock
) -> bool:
    """Make room for a stream; whether it is served now. Nobody else loses anything.

    `place` is how streams are placed one by one.
    """
    problem = ledger.problem
    base = [s for s in problem.scope(stream).streams if problem.streams[s].sites]
    related, everybody = ledger.related(base), sorted(ledger.served)
    for number in range(ROUNDS):
        if clock.left < 0:
            break
        gone = _some(related if number % 2 else [], everybody, dice)
        largest_first = sorted(gone, key=lambda s: -len(problem.scope(s).streams))
        before = load(ledger)
        with ledger.attempt() as kept:
            for one in gone:
                ledger.take_away(one)
            with ledger.attempt() as with_it:
                together = [stream, *largest_first]
                with_it.append(all(place(ledger, one, taste) for one in together))
            if any(with_it):
                kept.append(True)
                return True
            dice.shuffle(gone)
            again = all(place(ledger, one, taste) for one in gone)
            if again and load(ledger) < before - WORTH:
                kept.append(True)
                if place(ledger, stream, taste):
                    return True
    return False


def load(ledger: Ledger) -> float:
    """The shares of all CPU and of all bandwidth that are in use."""
    found = 0.0
    for resource in (0, 3):
        capacity, free = ledger.capacity[resource], ledger.free[resource]
        limited = np.isfinite(capacity)
        if limited.any():
            found += 1.0 - float(free[limited].sum() / max(capacity[limited].sum(), 1e-300))
    return found


def _some(related: list[int], everybody: list[int], dice: random.Random) -> list[int]:
    """Related ones as far as there are any, and others."""
    chosen = dice.sample(related, min(SIZE, len(related)))
    while len(chosen) < min(SIZE, len(everybody)):
        one = dice.choice(everybody)
        if one not in chosen:
            chosen.append(one)
    return chosen
