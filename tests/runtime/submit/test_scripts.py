"""Texts of several statements: all are carried out, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.runtime.api import Headwater, open_state

TEXT = """
CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY one AS SELECT a FROM s [NOW];
CREATE QUERY other AS SELECT MAX(a) AS a FROM s;
"""
NEW = "CREATE QUERY more AS SELECT a FROM s [NOW] WHERE a > 1;"


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as opened:
        opened.execute(TEXT)
        yield opened


@pytest.mark.parametrize(
    "before",
    ["", "DROP QUERY one;", f"DROP QUERY one; DROP QUERY other; {TEXT.splitlines()[2]}"],
    ids=["read", "one left", "created again"],
)
def test_a_stream_that_is_read_cannot_be_dropped_and_nothing_is_done(
    headwater: Headwater, before: str
) -> None:
    with pytest.raises(HeadwaterError, match=r"s is read by .*: drop what reads it first"):
        headwater.execute(f"SET interval = 2; {NEW} {before} DROP STREAM s;")
    assert {query.name for query in headwater.catalog.queries()} == {"one", "other"}
    assert headwater.catalog.options() == {}


def test_a_stream_goes_with_the_queries_that_read_it(headwater: Headwater) -> None:
    headwater.execute("DROP QUERY one; DROP QUERY other; DROP STREAM s;")
    assert headwater.catalog.streams() == []
