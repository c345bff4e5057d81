"""Profiles: what is read, what it makes of queries, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cost.operators import CostTable
from headwater.cql import parse
from headwater.cql.statements import CreateQuery
from headwater.errors import InputError
from headwater.network.model import Site
from headwater.network.sites import fully_connected
from headwater.plan.throughput.model import OperatorKind, ThroughputProblem
from headwater.plan.throughput.profile import build_problem, read_profile

TEXT = """\
CREATE STREAM ab (a INT, b INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM bc (b INT, c INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY one AS SELECT l.a FROM ab [RANGE 5 SECONDS] l, bc [ROWS 7] r
  WHERE l.b = r.b AND l.a = 3 AND r.c > 5;
CREATE QUERY two AS SELECT b, count(*) AS n FROM bc [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY b;
"""
PROFILE = """\
latency = 1.5
[streams.ab]
rate = 100
site = "core"
distinct = { a = 50, b = 20 }
[streams.bc]
rate = 10
distinct = { b = 40 }
[selectivity]
"bc.c > 5" = 0.25
[[point]]
bc = 90
"""
SITES = fully_connected((Site("edge"), Site("core")))


def problem(tmp_path: Path, profile: str = PROFILE, copies: int = 1) -> ThroughputProblem:
    file = tmp_path / "profile.toml"
    file.write_text(profile)
    queries = [s.query for s in parse(TEXT) if isinstance(s, CreateQuery)]
    return build_problem(queries, read_profile(file), SITES, CostTable(), copies)[0]


def test_queries_become_operators_with_what_is_known(tmp_path: Path) -> None:
    made = problem(tmp_path)
    known = {o.name: o for o in made.operators}
    assert known["join on l.b = r.b"].selectivity == pytest.approx(1 / 40)
    assert known["l.a = 3"].selectivity == pytest.approx(1 / 50)
    assert known["r.c > 5"].selectivity == 0.25
    assert known["l"].window == 5.0
    assert (known["r"].rows, known["r"].window) == (7.0, None)
    (count,) = (o for o in made.operators if o.kind is OperatorKind.AGGREGATE)
    assert (count.rows, count.period) == (40.0, 10.0)
    assert made.points == ({"ab": 100.0, "bc": 10.0}, {"ab": 100.0, "bc": 90.0})
    assert made.latency == 1.5
    assert len(made.outputs) == 2


def test_streams_come_in_where_the_profile_says_and_operators_run_anywhere(tmp_path: Path) -> None:
    made = problem(tmp_path, copies=2)
    options = {o.name: made.options[place] for place, o in enumerate(made.operators)}
    assert options["l"] == ((1,),)
    assert options["r"] == ((0,),)
    assert options["l.a = 3"] == ((0,), (1,), (0, 1))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rate = 100", "rate = 0", ":3: rate is 0, it must be more"),
        ("rate = 100", "", ":2: [streams.ab] needs rate = a number"),
        ('"bc.c > 5" = 0.25', '"bc.c > 5" = 2', ":10: a share is at most 1"),
        ('"bc.c > 5"', '"bc.c > 6"', "a condition that no query has: bc.c>6"),
        ("bc = 90", "cd = 90", ":12: no stream cd"),
        ("[streams.bc]\nrate = 10\ndistinct = { b = 40 }\n", "", "no stream bc"),
        ("latency = 1.5", "latencies = 1.5", ":1: unknown key latencies"),
        ("{ a = 50, b = 20 }", "{ a = 0 }", ":2: a is 0, it must be at least 1"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        problem(tmp_path, PROFILE.replace(old, new, 1))
    assert says in str(refused.value)


def test_a_stream_without_a_rate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rate for the stream bc"):
        problem(tmp_path, "[streams.ab]\nrate = 1\n")
