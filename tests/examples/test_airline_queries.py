"""The queries of the airline benchmarks: what they are as CQL and as SQL has the same results."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, CreateStream, parse
from headwater.reference import evaluate
from headwater.reference.data import load_rows

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def airline() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return __import__("_airline")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_sql_says_what_cql_says(airline: ModuleType, tmp_path: Path) -> None:
    flights = airline.flights_for(0, least=16)
    assert airline.write_streams(tmp_path, flights, 1, seed=3) > 1_000
    everyday = airline.everyday(400, flights)
    asked = [one for one in everyday if one.kind == "monitoring"]
    asked += [next(one for one in everyday if one.kind == kind) for kind in ("gate", "terminal")]
    text = airline.declarations(tmp_path) + "\n".join(airline.cql(one) for one in asked)
    statements = parse(text)
    streams = {
        s.stream.name: load_rows(
            tmp_path / s.stream.name, "000000", s.stream.schema, time=s.stream.time
        )
        for s in statements
        if isinstance(s, CreateStream)
    }
    database = airline.database(tmp_path)
    queries = [s.query for s in statements if isinstance(s, CreateQuery)]
    for one, query in zip(asked, queries, strict=True):
        found = Counter(database.execute(airline.sql(one)).fetchall())
        wanted = Counter((*row.values, row.tau // 60_000_000) for row in evaluate(query, streams))
        assert wanted or one.kind == "monitoring", one.name
        assert found == wanted, one.name


def test_the_mix_is_that_of_the_paper(airline: ModuleType, tmp_path: Path) -> None:
    asked = airline.everyday(100, airline.flights_for(0, least=100))
    assert Counter(one.kind for one in asked) == {"gate": 80, "terminal": 15, "monitoring": 5}
    text = airline.declarations(tmp_path) + "\n".join(airline.cql(one) for one in asked)
    queries = [s.query for s in parse(text) if isinstance(s, CreateQuery)]
    assert len({canonicalize(query).digest for query in queries}) == len(asked)
