"""Tables printed without Rich, for listings that may be long; they look like those of `tables`.

Rich needs more than a second for a thousand rows, because it optimises the width of each column, and longer
to load than most listings need to run. It is used only on a terminal and for short listings, to fold cells
that do not fit.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence

GAP = "   "
FOLDED_ROWS = 200
"""Maximum rows of a listing that is folded to the width of a terminal."""


def print_rows(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; a column is its heading and whether it is numeric (right-aligned)."""
    if sys.stdout.isatty() and len(rows) <= FOLDED_ROWS:
        from headwater.cli.output.tables import console, table  # here, because Rich is slow to load

        console().print(table("", columns, rows))
        return
    sys.stdout.write("\n".join(format_table(columns, rows)) + "\n")


def format_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: heading, rule, rows. A cell may have several lines."""
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
    """The lines of a row; more than one if a cell contains a line feed."""
    if not any("\n" in cell for cell in row):
        return [row]
    cells = [cell.split("\n") for cell in row]
    height = max(map(len, cells))
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(height)]


def _pad(cell: str, width: int, numeric: bool) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if numeric else cell + blank


def _width(cell: str) -> int:
    """The number of terminal columns that a text takes."""
    if cell.isascii():
        return len(cell)
    # East Asian characters take two columns of a terminal, combining marks none.
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in cell)
    marks = sum(unicodedata.combining(character) > 0 for character in cell)
    return len(cell) + wide - marks
