"""Networks from measured latencies: a square of numbers, one line for each site, with blanks or commas between them.

Every two sites are linked. What was measured is a round trip in milliseconds; a link takes half of
the mean of both directions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InputError
from headwater.network.model import Link, Network, Site


def load_latencies(path: Path, cost: float = 1.0, bandwidth: float = math.inf) -> Network:
    """The network of a file of round-trip times; its sites are called h0, h1, ..

    Raises InputError, with the line, for what is not a square of numbers that are not negative.
    """
    round_trips = _read_square(path)
    # The mean of both directions, half of it, in seconds.
    one_way = (round_trips + round_trips.T) / 2 / 2 / 1000
    count = len(round_trips)
    links = tuple(
        Link(a, b, float(one_way[a, b]), cost, bandwidth) for b in range(count) for a in range(b)
    )
    return Network(tuple(Site(f"h{position}") for position in range(count)), links)


def _read_square(path: Path) -> NDArray[np.float64]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error
    rows = [
        (line_number, line.replace(",", " ").split())
        for line_number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not rows:
        raise InputError(f"{path} has no numbers in it")
    result = np.empty((len(rows), len(rows)))
    for position, (line_number, cells) in enumerate(rows):
        if len(cells) != len(rows):
            _refuse(path, line_number, f"{len(cells)} numbers, but {len(rows)} lines: not a square")
        result[position] = [_parse_time(path, line_number, cell) for cell in cells]
    return result


def _parse_time(path: Path, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        _refuse(path, line, f"{cell!r} is not a number")
    if not 0 <= value < math.inf:
        _refuse(path, line, f"{cell} is not a time")
    return value


def _refuse(path: Path, line: int, reason: str) -> NoReturn:
    raise InputError(f"{path}, line {line}: {reason}")
