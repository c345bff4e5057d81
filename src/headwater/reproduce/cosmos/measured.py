"""What was measured, for the figures of both chapters: latencies between hosts, and rates of parts of real streams.

A day of trades of a stock is a stream, cut by price and by size into cells of about as many values, as a provider would cut what it
exports. Some cells have hundreds of times the rate of others, which no uniform draw has.
"""

from __future__ import annotations

import csv
import io
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwater.errors import SimulationError
from headwater.federation.distribution.model import Floats
from headwater.network import Routes, load_latencies, shortest_routes

LATENCIES = Path("latency") / "PlanetLabData_1"
TICKS = "ticks"

CELLS = 16
"""Parts of each of the two columns: 256 cells of a stream."""


@cache
def measured_routes(data: Path) -> Routes:
    """The paths between hosts whose latencies were measured."""
    path = data / LATENCIES
    if not path.exists():
        raise SimulationError(f"{path} is not there; --data names the folder above it")
    return shortest_routes(load_latencies(path))


def trade_files(data: Path | None) -> list[Path]:
    """The files of trades of a day, one for each stock."""
    if data is None:
        raise SimulationError(f"this needs {TICKS}/*.zip; name the folder with --data")
    files = sorted((data / TICKS).glob("*.zip"))
    if not files:
        raise SimulationError(f"no {TICKS}/*.zip in {data}")
    return files


@cache
def cell_rates(data: Path) -> Floats:
    """Bytes a second of each cell of each stream of trades that has any."""
    return np.concatenate([_rates_of(file) for file in trade_files(data)])


def _rates_of(file: Path) -> Floats:
    rows = _read_lines(file)
    times, prices, sizes = np.array([[float(row[at]) for at in (0, 1, 2)] for row in rows]).T
    # A line as it is in the file, with its commas and its end.
    length = np.array([sum(map(len, row)) + len(row) for row in rows], np.float64)
    cell = CELLS * _part(prices) + _part(sizes)
    seconds = (times[-1] - times[0]) / 1000.0
    rates: Floats = np.bincount(cell, length, CELLS * CELLS) / seconds
    return rates[rates > 0]


def _read_lines(file: Path) -> list[list[str]]:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as member:
            return list(csv.reader(io.TextIOWrapper(member)))
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise SimulationError(f"{file} is not a zip of trades: {error}") from error


def _part(values: Floats) -> NDArray[np.intp]:
    """For each value in which of the parts it is: boundaries are between values, so parts may be empty."""
    bounds = np.quantile(values, np.arange(1, CELLS) / CELLS)
    return np.searchsorted(bounds, values, side="right")
