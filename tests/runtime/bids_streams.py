"""Streams of bids from any source, as the tests of all connectors declare them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from engine_helpers import HOUR

from headwater.cql import Connector, CreateStream, unparse
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import stream_log
from strategies import BIDS


def sample(seed: int, size: int = 60) -> list[Any]:
    """Bids out of order by some seconds."""
    rng = random.Random(seed)
    return [
        (rng.randrange(4), rng.choice([1, 2, None]), rng.choice([0.5, 2.0]), f"n{n}", 10**6 * n)
        for n in (max(0, n + rng.randint(-3, 3)) for n in range(size))
    ]


def declare_bids(headwater: Headwater, kind: str, **options: Any) -> None:
    """Bids from that source."""
    source = Connector(kind, tuple(options.items()))
    headwater.execute(unparse(CreateStream(replace(BIDS, lateness=HOUR), source)))


def ingested_rows(headwater: Headwater, name: str = "bids") -> int:
    return headwater.catalog.log_stats(stream_log(name)).total_rows
