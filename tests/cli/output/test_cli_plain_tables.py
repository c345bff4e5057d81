"""Listings look as Rich prints them, without Rich."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headwater.cli.output.plain_tables import format_table
from headwater.cli.output.tables import table

CELLS = st.text("ab 1,.é漢-", max_size=6).map(str.strip)


@given(
    st.lists(st.booleans(), min_size=1, max_size=4).flatmap(
        lambda numeric: st.tuples(
            st.just([(f"column{n}"[: 3 + 2 * n], one) for n, one in enumerate(numeric)]),
            st.lists(st.lists(CELLS, min_size=len(numeric), max_size=len(numeric)), max_size=5),
        )
    )
)
def test_lines_are_those_of_rich(made: tuple[list[tuple[str, bool]], list[list[str]]]) -> None:
    columns, rows = made
    out = io.StringIO()
    Console(file=out, width=100_000, highlight=False, markup=False).print(table("", columns, rows))
    found = "\n".join(line.rstrip() for line in format_table(columns, rows))
    assert found == "\n".join(line.rstrip() for line in out.getvalue().splitlines())
