"""Prices that change: random walks by cents with bursts, or real trades, polled once a second.

Only polls at which the price differs from the one before are updates. The traces that the COSMOS thesis polled are lost; its figures
imply some updates a minute of a stock, and that is what the walks have.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headwater.errors import SimulationError
from headwater.federation.dissemination.model import SOURCE, Floats
from headwater.sim.dissemination import Flags, Tolerances, Updates

CALM, BURST = 0.005, 0.05
"""The probability that a price changes in a second, when nothing happens and when something does."""
BURST_SHARE, BURST_SECONDS = 0.1, 60.0
"""How much of the time is bursts, and how long one lasts on average."""
STOPS = 0.5
"""A change is one cent, and each time with this probability no cent more."""
OPENING = 34_200
"""When trading begins, in seconds since midnight."""


def price_walks(objects: int, seconds: float, random: np.random.Generator) -> Updates:
    """Updates of random walks, all starting at 20."""
    polls = int(seconds)
    paths = np.empty((objects, polls))
    for item in range(objects):
        bursting = _burst_times(polls, random)
        moved = random.random(polls) < np.where(bursting, BURST, CALM)
        cents = random.geometric(STOPS, polls) * random.choice((-1, 1), polls)
        paths[item] = 20.0 + np.cumsum(np.where(moved, cents, 0)) / 100.0
    return polled_updates(paths, 20.0 * np.ones(objects), random)


def _burst_times(polls: int, random: np.random.Generator) -> Flags:
    """By second whether there is a burst: a chain that enters and leaves bursts at random."""
    leave = 1.0 / BURST_SECONDS
    # In balance the chain enters as often as it leaves, and is in bursts for BURST_SHARE.
    enter = leave * BURST_SHARE / (1.0 - BURST_SHARE)
    draws, state = random.random(polls), random.random() < BURST_SHARE
    bursting = np.empty(polls, np.bool_)
    for poll in range(polls):
        state = draws[poll] >= leave if state else draws[poll] < enter
        bursting[poll] = state
    return bursting


def polled_updates(paths: Floats, start: Floats, random: np.random.Generator) -> Updates:
    """The changes of prices by object and second; each object is polled at its own moment of the second."""
    before = np.concatenate((start[:, None], paths[:, :-1]), axis=1)
    item, poll = np.nonzero(paths != before)
    times = poll + random.random(len(paths))[item]
    order = np.argsort(times, kind="stable")
    return Updates(
        times[order], item[order], paths[item, poll][order], float(paths.shape[1]), start
    )


def trade_updates(files: Sequence[Path], seconds: float, random: np.random.Generator) -> Updates:
    """Updates of real prices from the opening of the market, one object a file.

    A file is a zip of one CSV: milliseconds since midnight, then the price times 10,000.
    """
    paths, start = np.empty((len(files), int(seconds))), np.empty(len(files))
    for item, file in enumerate(files):
        trades = _read_trades(file)
        # From a second before the opening: that price is what all copies begin with.
        asked = (OPENING + np.arange(-1, int(seconds))) * 1000.0
        # Before its first trade a stock has the price of that trade.
        last = np.maximum(np.searchsorted(trades[:, 0], asked, side="right") - 1, 0)
        prices = trades[last, 1] / 10_000.0
        start[item], paths[item] = prices[0], prices[1:]
    return polled_updates(paths, start, random)


def _read_trades(file: Path) -> Floats:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as member:
            rows = [(float(row[0]), float(row[1])) for row in csv.reader(io.TextIOWrapper(member))]
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise SimulationError(f"{file} is not a zip of trades: {error}") from error
    return np.array(rows)


def wanted_rates(updates: Updates, tolerances: Tolerances) -> Floats:
    """By node and object the messages a second that keep a copy fed by the source itself in tolerance.

    Row SOURCE has the rates of the updates. An interest that saw no message counts as one in the whole time.
    """
    values, count = tolerances.values, np.zeros(tolerances.values.shape)
    held = np.tile(updates.start, (len(values), 1))
    strict = np.where(np.isnan(values), np.inf, values)
    strict[SOURCE] = 0.0
    for item, value in zip(updates.item.tolist(), updates.value.tolist(), strict=True):
        # As a source would send it: what a copy holds is the last value that it was sent.
        sent = np.abs(value - held[:, item]) > strict[:, item]
        held[sent, item] = value
        count[sent, item] += 1
    count = np.where(np.isnan(values), 0.0, np.maximum(count, 1.0))
    count[SOURCE] = np.maximum(np.bincount(updates.item, minlength=values.shape[1]), 1)
    return count / updates.seconds


def draw_tolerances(
    nodes: int, objects: int, interest: float, random: np.random.Generator
) -> Tolerances:
    """Each node wants each object with probability `interest`, to 1 to 10 cents."""
    values = random.uniform(0.01, 0.1, (nodes, objects))
    values[random.random((nodes, objects)) >= interest] = np.nan
    values[SOURCE] = np.nan
    return Tolerances(values)
