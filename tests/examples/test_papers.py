"""The queries of the papers give the rows that were worked out by hand (examples/papers/README.md)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from example_rows import EXAMPLES, Row, assert_same_rows, read_rows, rows_by_query

PAPERS = EXAMPLES / "papers"
EXPECTED = sorted(PAPERS.glob("*/expected/*.jsonl"))


@cache
def _rows(paper: Path) -> dict[str, list[Row]]:
    return rows_by_query(paper)


@pytest.mark.parametrize("path", EXPECTED, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_rows_are_those_worked_out_by_hand(path: Path) -> None:
    assert_same_rows(_rows(path.parents[1])[path.stem], read_rows(path))


@pytest.mark.parametrize("paper", sorted(PAPERS.glob("*/")), ids=lambda p: p.name)
def test_every_query_has_rows_worked_out(paper: Path) -> None:
    assert set(_rows(paper)) == {path.stem for path in paper.glob("expected/*.jsonl")}
