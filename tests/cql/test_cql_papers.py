"""The queries of the papers are read as they were meant."""

from __future__ import annotations

import pytest

from golden import FIXTURES
from headwater.algebra.nodes import Aggregate, Join, Output, Project, Scan, Select, walk_relations
from headwater.algebra.windows import NOW, UNBOUNDED, UNITS, Range
from headwater.cql import CreateQuery, parse, unparse

STATEMENTS = parse((FIXTURES / "cql" / "papers.cql").read_text())
QUERIES = {s.name: s.query for s in STATEMENTS if isinstance(s, CreateQuery)}
MINUTE, HOUR = UNITS["MINUTE"], UNITS["HOUR"]

OUTPUTS = {
    "streamreuse_q1": "NUM GATE AREA STATUS FORECAST",
    "streamreuse_q2": "NUM STATUS VACANT_SEATS",
    "streamreuse_q3": "GATE BG_STATUS CI_STATUS",
    "traderbot_1": "name market price time",
    "traderbot_2": "Google_name Google_market Google_price Google_time"
    " Microsoft_name Microsoft_market Microsoft_price Microsoft_time",
    "traderbot_3": "name price",
    "cosmos_q1": "A C",
    "cosmos_q2": "A",
    "cosmos_q3": "itemID sellerID start_price timestamp",
    "cosmos_q4": "itemID O_timestamp buyerID C_timestamp",
    "cosmos_q5": "itemID sellerID start_price O_timestamp buyerID C_timestamp",
}
WINDOWS = {
    "streamreuse_q1": {
        "FLIGHTS": Range(5 * MINUTE),
        "WEATHER": Range(5 * MINUTE),
        "CHECK-INS": Range(MINUTE),
        "BAGGAGE": Range(MINUTE),
    },
    "streamreuse_q2": {"FLIGHTS": Range(5 * MINUTE), "CHECK-INS": Range(5 * MINUTE)},
    "streamreuse_q3": {"FL": Range(5 * MINUTE), "BG": Range(MINUTE), "CI": Range(MINUTE)},
    "traderbot_1": {"Quote": UNBOUNDED},
    "cosmos_q1": {"R": UNBOUNDED, "S": UNBOUNDED},
    "cosmos_q2": {"R": UNBOUNDED},
    "cosmos_q3": {"O": Range(3 * HOUR), "C": NOW},
    "cosmos_q4": {"O": Range(5 * HOUR), "C": NOW},
    "cosmos_q5": {"O": Range(5 * HOUR), "C": NOW},
}


def test_all_are_there() -> None:
    assert set(QUERIES) == set(OUTPUTS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_columns_of_the_results(name: str) -> None:
    assert " ".join(column.name for column in QUERIES[name].columns) == OUTPUTS[name]


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    scans = [node for node in walk_relations(QUERIES[name].root) if isinstance(node, Scan)]
    assert {scan.alias: scan.window for scan in scans} == WINDOWS[name]


@pytest.mark.parametrize("name", QUERIES)
def test_results_are_emitted_as_they_enter(name: str) -> None:
    assert QUERIES[name].output == Output.ISTREAM


def test_a_window_on_a_with_name_goes_to_its_stream() -> None:
    root = QUERIES["traderbot_3"].root
    scans = [node for node in walk_relations(root) if isinstance(node, Scan)]
    assert [(scan.stream, scan.window) for scan in scans] == [
        ("Quote", Range(20 * MINUTE)),
        ("Quote", NOW),
    ]
    assert isinstance(root, Project)
    assert isinstance(root.input, Select)
    assert isinstance(root.input.input, Aggregate)
    assert len(root.input.input.calls) == 2


def test_a_list_of_streams_is_one_join() -> None:
    root = QUERIES["streamreuse_q1"].root
    assert isinstance(root, Project)
    assert isinstance(root.input, Select)
    join = root.input.input
    assert isinstance(join, Join)
    assert len(join.inputs) == 4
    assert join.condition is None


def test_they_read_back_from_their_text() -> None:
    assert parse(";\n".join(map(unparse, STATEMENTS))) == STATEMENTS
