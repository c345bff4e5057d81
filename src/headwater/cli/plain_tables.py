"""Listings, which may be long: as `tables` prints them, but line by line and without Rich.

Rich takes a good second for a thousand rows, as it looks for the best width of each column, and longer to
load than most listings take. Where output is a terminal and the listing is short, it is Rich that folds what
does not fit.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence

GAP = "   "
FOLDED_ROWS = 200
"""Listings of up to so many rows are folded to the width of a terminal."""


def print_rows(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; a column is its heading and whether it holds numbers, which stand to the right."""
    if sys.stdout.isatty() and len(rows) <= FOLDED_ROWS:
        from headwater.cli.tables import console, table  # only now, as Rich takes long to load

        console().print(table("", columns, rows))
        return
    sys.stdout.write("\n".join(format_table(columns, rows)) + "\n")


def format_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> list[str]:
    """The heading, a rule and the rows; a cell is one line of text, or several."""
    headings = [heading for heading, _ in columns]
    split = [part for row in rows for part in _row_lines(row)]
    widths = [max(map(_width, column)) for column in zip(headings, *split, strict=True)]
    rule = "─" * (sum(widths) + len(GAP) * (len(widths) - 1))

    def line(cells: Sequence[str]) -> str:
        padded = (
            _pad(cell, width, numeric)
            for cell, width, (_, numeric) in zip(cells, widths, columns, strict=True)
        )
        return GAP.join(padded)

    return [line(headings), rule, *map(line, split)]


def _row_lines(row: Sequence[str]) -> list[Sequence[str]]:
    """The lines of a row, more than one if a cell has a line feed in it."""
    if not any("\n" in cell for cell in row):
        return [row]
    cells = [cell.split("\n") for cell in row]
    height = max(map(len, cells))
    return [[cell[at] if at < len(cell) else "" for cell in cells] for at in range(height)]


def _pad(cell: str, width: int, numeric: bool) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if numeric else cell + blank


def _width(cell: str) -> int:
    """How many places of a terminal a text takes."""
    if cell.isascii():
        return len(cell)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in cell)
    marks = sum(unicodedata.combining(character) > 0 for character in cell)
    return len(cell) + wide - marks
