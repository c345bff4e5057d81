"""Streams of arrivals: their means, their bursts, and that a seed fixes them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headwater.errors import SimulationError
from headwater.sim.arrivals import (
    CHUNK,
    Arrivals,
    FixedTimes,
    OnOff,
    Poisson,
    RequestTrace,
    mean_gap,
)
from headwater.sim.metrics import Floats

DATA = Path(os.environ.get("HEADWATER_DATA") or Path(__file__).parents[2] / "../shared/data")
EPA = DATA / "traces" / "epa-http-19950830-morning.txt"
KINDS = [Poisson(10_000, 0.5), OnOff(10_000), OnOff(9_000, sources=7, spacing=3.0)]


def times(arrivals: Arrivals, seed: int) -> Floats:
    return np.concatenate(list(arrivals.chunks(seed)))


@pytest.mark.parametrize("arrivals", KINDS, ids=str)
def test_as_many_as_asked_in_order_and_the_same_for_the_same_seed(
    arrivals: Poisson | OnOff,
) -> None:
    found = times(arrivals, 5)
    assert len(found) == arrivals.tuples
    assert (np.diff(found) >= 0).all()
    assert found.tobytes() == times(arrivals, 5).tobytes()
    assert found.tobytes() != times(arrivals, 6).tobytes()
    assert max(map(len, arrivals.chunks(5))) <= 4 * CHUNK


def test_poisson_gaps_have_their_mean_and_spread() -> None:
    gaps = np.diff(times(Poisson(40_000, 2.0), 1))
    assert gaps.mean() == pytest.approx(2.0, rel=0.03)
    assert gaps.std() == pytest.approx(2.0, rel=0.03)


def test_on_and_off_is_burstier_than_poisson_on_every_scale() -> None:
    """The variance of counts by their mean: 1 for Poisson, growing with the scale for bursts."""

    def dispersion(found: Floats, width: float) -> float:
        counts = np.bincount((found / width).astype(int))
        return counts.var() / counts.mean()

    smooth, bursty = times(Poisson(40_000), 1), times(OnOff(40_000), 1)
    for width in (10, 100):
        assert dispersion(bursty, width) > 3 * dispersion(smooth, width)
    assert dispersion(bursty, 100) > dispersion(bursty, 10)


def test_the_mean_gap_is_measured() -> None:
    assert mean_gap(FixedTimes((1.0, 2.0, 4.0)), 0) == 1.5
    assert mean_gap(Poisson(20_000, 3.0), 2) == pytest.approx(3.0, rel=0.03)
    with pytest.raises(SimulationError, match="fewer than two"):
        mean_gap(FixedTimes((1.0,)), 0)


def test_a_trace_spreads_the_requests_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = ["a [30:23:59:59] x", "b [31:00:00:01] x", "c [31:00:00:01] x", "d [31:00:00:00] x"]
    path.write_text("\n".join(lines))
    assert times(RequestTrace(path), 0).tolist() == [0.0, 1.0, 2.0, 2.5]
    assert times(RequestTrace(path, 2), 0).tolist() == [0.0, 1.0]


def test_a_trace_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="cannot be read"):
        times(RequestTrace(tmp_path / "none.txt"), 0)
    (tmp_path / "empty.txt").write_text("nothing here\n")
    with pytest.raises(SimulationError, match="no line with a time"):
        times(RequestTrace(tmp_path / "empty.txt"), 0)


@pytest.mark.skipif(not EPA.exists(), reason=f"{EPA} is not there")
def test_the_real_trace() -> None:
    found = times(RequestTrace(EPA), 0)
    assert len(found) == 15_754
    assert (np.diff(found) > 0).all()


def test_a_shape_without_a_mean_is_refused() -> None:
    with pytest.raises(SimulationError, match="shape above 1"):
        OnOff(10, shape=1.0)
