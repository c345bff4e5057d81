"""What is measured of steps and streams, and how it is reported."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import declare, expected, feed, opened, result_rows, settle, submit
from hypothesis import given
from hypothesis import strategies as st
from sample_queries import KINDS, TABLES, sample

from headwater.cql import parse_query
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Statistic, plan_owner, stream_log
from headwater.runtime.inspect.explain_analyze import analyze_query, format_analysis, quantile
from headwater.runtime.metrics.rates import RATE_SECONDS, arrival_statistics, current_rate
from headwater.runtime.metrics.step_meter import (
    RECENT_STEPS,
    STEP_PARTS,
    StepMeter,
    StepReport,
    Stopwatch,
    smooth,
)
from headwater.runtime.storage import segment_files
from strategies import SOURCES

# ---- clocks and means


def test_the_parts_of_a_watch_are_all_that_passed() -> None:
    watch = Stopwatch()
    begun = watch._lap_started_at
    for part in ("build", "run", "build"):
        watch.lap(part)
    assert set(watch.parts) == {"build", "run"}
    assert sum(watch.parts.values()) == pytest.approx(watch._lap_started_at - begun)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_smoothed_value_stays_among_those_it_is_of(values: list[float]) -> None:
    mean = None
    for value in values:
        mean = smooth(mean, value)
    assert mean is not None
    assert min(values) <= mean * (1 + 1e-9) and mean <= max(values) * (1 + 1e-9)


def test_a_smoothed_value_follows_a_change() -> None:
    mean = smooth(None, 1.0)
    for _ in range(30):
        mean = smooth(mean, 5.0)
    assert mean == pytest.approx(5.0, abs=0.01)


def test_a_steady_stream_has_its_rate_and_a_silent_one_none() -> None:
    known: dict[str, Statistic] = {}
    now = 0.0
    for _ in range(200):
        now += 0.5
        values = arrival_statistics(known, rows=50, size=4_000, now=now)
        known = {name: Statistic(value, now) for name, value in values.items()}
    assert known["rows_rate"].value == pytest.approx(100, rel=0.05)
    assert known["bytes_rate"].value == pytest.approx(8_000, rel=0.05)
    assert known["batches"].value == 200
    assert current_rate(known["rows_rate"], now + RATE_SECONDS) == pytest.approx(
        known["rows_rate"].value / math.e
    )
    assert current_rate(None, now) == 0


@given(st.lists(st.floats(0, 1e3), min_size=1), st.floats(0.01, 1))
def test_quantiles(values: list[float], part: float) -> None:
    found = quantile(values, part)
    assert found is not None
    assert sum(value <= found for value in values) >= part * len(values) - 1e-9
    assert sum(value < found for value in values) < part * len(values) + 1e-9


def test_no_values_have_no_quantile() -> None:
    assert quantile([], 0.5) is None


# ---- in the catalog

TEXT = """
CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY q AS SELECT v FROM s;
CREATE QUERY same AS SELECT v FROM s [RANGE UNBOUNDED];
CREATE QUERY other AS SELECT v FROM s [ROWS 1];
"""


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
        yield headwater


def take(
    headwater: Headwater, meter: StepMeter, rows_in: int, rows_out: int, seconds: float
) -> None:
    """A step that took so long, committed."""
    unit = headwater.query("q").row.unit_id
    report = StepReport({"run": seconds}, rows_in, rows_out)
    measured = meter.record_step(unit, report)
    headwater.catalog.commit(None, statistics=measured.statistics, profiles=measured.profiles)
    meter.record_commit(unit, 0.001)


def test_steps_add_up_and_a_new_process_goes_on(headwater: Headwater) -> None:
    for number in range(6):
        meter = StepMeter(headwater.catalog)
        take(headwater, meter, 10, 2, float(number))
        take(headwater, meter, 0, 0, float(number))
    found = headwater.query("q").analysis()
    assert (found.steps, found.rows_in, found.rows_out) == (12, 60, 12)
    assert found.latency.of_steps == 12
    assert found.latency.median == pytest.approx(2, abs=1)
    assert found.latency.p95 == pytest.approx(5, abs=1)
    assert set(found.seconds) == set(STEP_PARTS)
    assert found.shared_with == ("same",)


def test_what_is_kept_of_a_unit_is_bounded(headwater: Headwater) -> None:
    meter = StepMeter(headwater.catalog)
    take(headwater, meter, 1, 1, 0.1)
    names = set(headwater.catalog.statistics(headwater.query("q").row.unit_id))
    for _ in range(RECENT_STEPS + 5):
        take(headwater, meter, 1, 1, 0.1)
    unit = headwater.query("q").row.unit_id
    assert set(headwater.catalog.statistics(unit)) == names
    profile = headwater.catalog.profile(unit)
    assert profile is not None and len(profile.value["recent"]) == RECENT_STEPS


def test_every_so_many_steps_are_sampled(headwater: Headwater) -> None:
    meter = StepMeter(headwater.catalog, sampled_every=3)
    unit = headwater.query("q").row.unit_id
    assert meter.is_sample_due(unit), (
        "a first step without anything to measure leaves it to the next"
    )
    take(headwater, meter, 1, 1, 0.1)
    assert meter.is_sample_due(unit)


def test_a_step_without_a_sample_keeps_the_plan_of_the_last(headwater: Headwater) -> None:
    unit = headwater.query("q").row.unit_id
    plan = {"step": 1, "jobs": [{"operators": [], "stages": []}]}
    headwater.catalog.commit(None, profiles={plan_owner(unit): plan})
    take(headwater, StepMeter(headwater.catalog), 1, 1, 0.1)
    assert headwater.query("q").analysis().as_json()["plan"] == plan


def test_all_goes_with_the_unit_and_the_stream(headwater: Headwater) -> None:
    unit = headwater.query("q").row.unit_id
    headwater.push("s", [(1, 1)], timestamp_unit="us")
    take(headwater, StepMeter(headwater.catalog), 1, 1, 0.1)
    headwater.catalog.commit(None, profiles={plan_owner(unit): {}})
    assert headwater.catalog.statistics(stream_log("s"))["batches"].value == 1
    headwater.execute("DROP QUERY q; DROP QUERY same; DROP QUERY other")
    assert headwater.catalog.statistics(unit) == {}
    assert headwater.catalog.profile(unit) is None
    assert headwater.catalog.profile(plan_owner(unit)) is None
    headwater.execute("DROP STREAM s")
    assert headwater.catalog.all_statistics() == {}


# ---- for people


def operator(kind: str, label: str, rows: int, *inputs: Any) -> dict[str, Any]:
    rows_in = sum(one["rows_out"] for one in inputs) if inputs else None
    return {
        "kind": kind,
        "label": label,
        "rows_in": rows_in,
        "rows_out": rows,
        "selectivity": rows / rows_in if rows_in else None,
        "seconds": 0.25 if kind == "scan" else None,
        "stage": 1,
        "inputs": list(inputs),
    }


def test_an_analysis_is_printed_as_a_tree(headwater: Headwater) -> None:
    take(headwater, StepMeter(headwater.catalog), 1_000, 10, 0.5)
    scans = [operator("scan", "Scan s", 600), operator("scan", "Scan t", 400)]
    job = {
        "operators": [operator("join", "Join a = b", 10, *scans)],
        "stages": [{"stage": 1, "seconds": 0.75}],
    }
    plan = {"step": 1, "jobs": [job]}
    row = headwater.query("q").row
    headwater.catalog.commit(None, profiles={plan_owner(row.unit_id): plan})
    text = headwater.query("q").explain(analyze=True)
    assert text == "\n".join(format_analysis(analyze_query(headwater.catalog, row)))
    assert text.splitlines() == [
        f"q: running, in unit {row.unit_id}, shared with same",
        *(f"  {line}" for line in headwater.query("q").analysis().tree),
        "  steps     1: 1,000 rows in, 10 rows out",
        "  latency   median 0.500 s, p95 0.500 s of the last 1",
        "  of which  build 0.000 s, run 0.500 s, write 0.000 s, commit 0.000 s",
        "",
        "  measured in step 1",
        "  rows in  rows out  selectivity     time  stage  operator",
        "    1,000        10         0.01               1  Join a = b",
        "                600               0.250 s      1  ├─ Scan s",
        "                400               0.250 s      1  └─ Scan t",
        "  task seconds by stage: 1: 0.750 s",
    ]


def test_each_job_of_a_step_is_reported(headwater: Headwater) -> None:
    take(headwater, StepMeter(headwater.catalog), 5, 1, 0.1)
    jobs = [
        {"operators": [operator("scan", name, 5)], "stages": [{"stage": 1, "seconds": 0.5}]}
        for name in ("Scan s", "Scan panes")
    ]
    unit = headwater.query("q").row.unit_id
    headwater.catalog.commit(None, profiles={plan_owner(unit): {"step": 1, "jobs": jobs}})
    text = headwater.query("q").explain(analyze=True)
    assert text.index("Scan s") < text.index("Scan panes")
    assert text.endswith(
        "  task seconds by stage of job 1: 1: 0.500 s\n  task seconds by stage of job 2: 1: 0.500 s"
    )


def test_before_the_first_step_it_is_said_how(headwater: Headwater) -> None:
    text = headwater.query("q").explain(analyze=True)
    assert "no step has run yet" in text
    assert headwater.query("q").analysis().plan is None
    take(headwater, StepMeter(headwater.catalog), 5, 0, 0.1)
    assert "no operator was measured" in headwater.query("q").explain(analyze=True)


# ---- on Spark


def flat(operators: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in operators:
        yield one
        yield from flat(one["inputs"])


@pytest.mark.spark
@pytest.mark.parametrize("way", ["collected", "written"])
def test_operators_are_measured(
    spark: Any, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step over everything: what the operators say can be counted in the data."""
    if way == "written":
        monkeypatch.setattr(segment_files, "SMALL_ROWS", 0)
    data = sample(8)
    kinds = ("select", "join", "aggregate")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in kinds}
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in found.items():
            submit(headwater, name, query)
        for name, rows in data.items():
            headwater.push(name, rows, timestamp_unit="us")
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name, query in found.items():
            wanted = expected(query, data, TABLES)
            assert result_rows(headwater, name, query) == wanted
            measured = headwater.query(name).analysis().as_json()
            read = sum(len(data[s]) for s in data if s.lower() in KINDS[name])
            assert (measured["rows_in"], measured["rows_out"]) == (read, len(wanted)), name
            assert json.loads(json.dumps(measured)) == measured
            assert all(seconds is not None for seconds in measured["seconds"].values())
            jobs = measured["plan"]["jobs"]
            top = jobs[-1]["operators"][0]
            assert top["rows_out"] == len(wanted), name
            operators = [o for job in jobs for o in flat(job["operators"])]
            kinds_seen = {one["kind"] for one in operators}
            assert {"scan", "filter"} <= kinds_seen
            assert name == "select" or name in kinds_seen
            scanned = [o for o in operators if o["label"].startswith("Scan bids")]
            assert {o["rows_out"] for o in scanned} == {len(data["Bids"])}
            for one in operators:
                if one["selectivity"] is not None:
                    possible = math.prod(below["rows_out"] for below in one["inputs"])
                    assert one["selectivity"] == one["rows_out"] / possible
            assert headwater.query(name).explain(analyze=True).count("Scan bids")
        (filtered,) = [
            o
            for o in flat(
                headwater.query("select").analysis().as_json()["plan"]["jobs"][0]["operators"]
            )
            if o["kind"] == "filter"
        ]
        kept = [row for row in data["Bids"] if row[0] > 0]
        assert (filtered["rows_in"], filtered["rows_out"]) == (len(data["Bids"]), len(kept))


@pytest.mark.spark
def test_measuring_changes_no_result(spark: Any, tmp_path: Path) -> None:
    """Every step is sampled, collected or written as it comes."""
    data = sample(12)
    kinds = ("sliding join", "changes", "outer", "union")
    found = {kind: parse_query(KINDS[kind], SOURCES) for kind in kinds}
    with opened(tmp_path / "state", spark) as headwater:
        headwater.engine.meter.sampled_every = 1
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in found.items():
            submit(headwater, name, query)
        feed(headwater, random.Random(3), data)
        unions: list[dict[str, Any]] = []
        for name, query in found.items():
            assert result_rows(headwater, name, query) == expected(query, data, TABLES), name
            measured = headwater.query(name).analysis()
            assert measured.plan is not None and 1 < measured.plan.step <= measured.steps
            unions += [
                o
                for job in measured.as_json()["plan"]["jobs"]
                for o in flat(job["operators"])
                if o["kind"] == "union"
            ]
        assert unions
        for union in unions:
            assert union["rows_out"] == union["rows_in"]
