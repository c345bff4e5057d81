"""Price traces from files of trades, one line for each: a time and a price."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headwater.errors import InputError
from headwater.sim.worlds.model import PriceTrace

MILLISECOND, CENT_OF_CENT = 1e-3, 1e-4


def read_ticks(path: Path, second: float = MILLISECOND, price: float = CENT_OF_CENT) -> PriceTrace:
    """The trace of a file of trades: CSV, or a zip that holds one, of a time and a price a line.

    `second` and `price` are what one unit of the two columns is.
    """
    times, values = [], []
    for number, row in enumerate(csv.reader(io.StringIO(_csv_text(path))), start=1):
        try:
            times.append(float(row[0]) * second)
            values.append(float(row[1]) * price)
        except (IndexError, ValueError):
            raise InputError(f"{path}, line {number}: a time and a price are expected") from None
        if len(times) > 1 and times[-1] < times[-2]:
            raise InputError(f"{path}, line {number}: times have to ascend")
    if not times:
        raise InputError(f"{path} has no ticks")
    name = path.name.partition(".")[0]
    return PriceTrace(name, np.array(times), np.array(values))


def begin_together(traces: Sequence[PriceTrace], begin: float | None = None) -> list[PriceTrace]:
    """The traces from one moment of their common clock, which becomes 0: when all have a price, if none is said."""
    if not traces:
        return []
    moment = max(trace.times[0] for trace in traces) if begin is None else begin
    return [_from(trace, moment) for trace in traces]


def _from(trace: PriceTrace, moment: float) -> PriceTrace:
    if moment > trace.times[-1]:
        raise InputError(f"{trace.name} ends at {trace.times[-1]:g} seconds, before {moment:g}")
    # What holds at the moment is the last price before it.
    first = max(int(np.searchsorted(trace.times, moment, side="right")) - 1, 0)
    # The price that holds at the moment was paid before it, and holds from 0 on.
    times = np.maximum(trace.times[first:] - moment, 0.0)
    return PriceTrace(trace.name, times, trace.values[first:])


def _csv_text(path: Path) -> str:
    try:
        if not zipfile.is_zipfile(path):
            return path.read_text("utf-8")
        with zipfile.ZipFile(path) as archive:
            return archive.read(archive.namelist()[0]).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, zipfile.BadZipFile, IndexError):
        raise InputError(f"{path} is no text of ticks") from None
