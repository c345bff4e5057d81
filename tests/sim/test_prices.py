"""Prices: walks by cents, real trades, and the rates at which tolerances let them through."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headwater.errors import SimulationError
from headwater.sim.prices import (
    BURST,
    BURST_SHARE,
    CALM,
    draw_tolerances,
    price_walks,
    trade_updates,
    wanted_rates,
)

DATA = Path(os.environ.get("HEADWATER_DATA") or Path(__file__).parents[2] / "../shared/data")


def test_walks_move_by_cents_at_about_the_stated_rate() -> None:
    updates = price_walks(50, 5000.0, np.random.default_rng(1))
    cents = np.array(updates.value) * 100
    assert cents == pytest.approx(np.round(cents), abs=1e-6)
    rate = len(updates.time) / 50 / 5000
    assert rate == pytest.approx(CALM + BURST_SHARE * (BURST - CALM), rel=0.1)
    again = price_walks(50, 5000.0, np.random.default_rng(1))
    assert again.time.tobytes() == updates.time.tobytes()


def test_bursts_crowd_the_updates() -> None:
    """More seconds with several updates nearby than a steady rate would give."""
    updates = price_walks(1, 200_000.0, np.random.default_rng(2))
    counts = np.histogram(updates.time, 2000)[0]
    assert counts.var() > 2 * counts.mean()


def test_a_stricter_tolerance_wants_more() -> None:
    updates = price_walks(2, 20_000.0, np.random.default_rng(3))
    tolerances = draw_tolerances(40, 2, 0.8, np.random.default_rng(4))
    rates = wanted_rates(updates, tolerances)
    wanted = ~np.isnan(tolerances.values)
    assert ((rates[1:] > 0) == wanted[1:]).all()
    assert (rates <= rates[0]).all()
    strict = np.nanargmin(tolerances.values[:, 0])
    loose = np.nanargmax(tolerances.values[:, 0])
    assert rates[strict, 0] > 1.5 * rates[loose, 0]


def test_real_trades() -> None:
    files = sorted((DATA / "ticks").glob("*.zip"))
    if not files:
        pytest.skip(f"{DATA}/ticks is not here; HEADWATER_DATA names the folder of the shared data")
    updates = trade_updates(files, 3600.0, np.random.default_rng(1))
    assert set(updates.item.tolist()) == set(range(len(files)))
    assert 10 < updates.start.min() < updates.start.max() < 200
    assert (np.abs(updates.value - updates.start[updates.item]) < 10).all()


def test_a_file_that_is_no_zip_of_trades_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("no")
    with pytest.raises(SimulationError, match=r"x\.zip"):
        trade_updates([tmp_path / "x.zip"], 10.0, np.random.default_rng(1))
