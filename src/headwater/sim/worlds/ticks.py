"""Price traces from files of trades, one line for each: a time and a price."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np

from headwater.errors import InputError
from headwater.sim.worlds.model import PriceTrace

MILLISECOND, CENT_OF_CENT = 1e-3, 1e-4


def read_ticks(path: Path, second: float = MILLISECOND, price: float = CENT_OF_CENT) -> PriceTrace:
    """The trace of a file of trades: CSV, or a zip that holds one, of a time and a price a line.

    `second` and `price` are what one unit of the two columns is. Times begin at 0 with the first.
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
    return PriceTrace(name, np.array(times) - times[0], np.array(values))


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
