"""Rich tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """A console on standard output; lines are not folded unless it is a terminal."""
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else 100_000,
        highlight=False,
        markup=False,  # or a window such as [NOW] would be read as a style
        soft_wrap=False,
    )


def table(
    title: str, columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str | Text]]
) -> Table:
    """A Rich table; a column is its heading and whether it is numeric (right-aligned)."""
    result = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for heading, numeric in columns:
        result.add_column(Text(heading), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return result
