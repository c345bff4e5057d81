"""Rounds, and who steps next in them: without Spark, with a catalog."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import opened as spark_opened
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from typer.testing import CliRunner

from headwater.cli.commands import app
from headwater.cost.model import CostModel
from headwater.errors import HeadwaterError
from headwater.reuse.load import operator_load
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.engine.round import Round
from headwater.runtime.engine.scheduler import SCHEDULE, Scheduler, StepPredictions, Turns
from headwater.runtime.inspect.status import Observer
from headwater.runtime.metrics.backlog import Backlog, unit_backlogs
from headwater.runtime.metrics.sharing_loads import unit_model
from headwater.runtime.metrics.step_estimates import (
    StepEstimate,
    average_estimate,
    estimate_step,
)
from headwater.runtime.metrics.step_meter import (
    StepMeter,
    StepReport,
    response_statistics,
    step_statistics,
)
from headwater.runtime.settings import Settings, parse_setting
from headwater.schedule import POLICIES, Candidate, WorkEstimate, find_policy

# ---- rounds


def test_everything_is_done_and_told_whether_it_was_worth_it() -> None:
    done: list[str] = []
    left = {"a": 2, "b": 1}

    def choose(units: Set[str]) -> str | None:
        return next((unit for unit in sorted(units) if left[unit]), None)

    def step(unit: str) -> bool:
        left[unit] -= 1
        done.append(unit)
        return True

    assert Round([lambda: False], set(left), choose, step).run(1)
    assert done == ["a", "a", "b"]
    assert not Round([lambda: False], set(left), choose, step).run(3)
    assert not Round().run(4)


def test_no_unit_steps_twice_at_the_same_time_and_several_do_at_once() -> None:
    lock, at_work, most = threading.Lock(), set[str](), 0
    left = dict.fromkeys("abc", 5)

    def choose(units: Set[str]) -> str | None:
        return next((unit for unit in sorted(units, key=left.__getitem__) if left[unit]), None)

    def step(unit: str) -> bool:
        nonlocal most
        with lock:
            assert unit not in at_work
            at_work.add(unit)
            left[unit] -= 1
            most = max(most, len(at_work))
        time.sleep(0.002)
        with lock:
            at_work.remove(unit)
        return True

    assert Round((), set(left), choose, step, 10.0).run(3)
    assert not any(left.values())
    assert most > 1


def test_a_round_ends_in_time_though_there_is_more() -> None:
    steps = []

    def step(unit: str) -> bool:
        steps.append(unit)
        time.sleep(0.01)
        return True

    assert Round((), {"a", "b"}, lambda units: min(units, default=None), step, 0.05).run(2)
    assert 2 <= len(steps) <= 30


def test_a_round_in_which_nothing_was_done_has_tried_everything() -> None:
    """However long the jobs take, and however many units have nothing to do."""
    tried: list[str] = []

    def choose(units: Set[str]) -> str | None:
        return next((unit for unit in sorted(units) if unit not in tried), None)

    def step(unit: str) -> bool:
        tried.append(unit)
        time.sleep(0.005)
        return unit == "z"

    def slow() -> bool:
        time.sleep(0.03)
        return False

    units = {*"abcdefgh", "z"}
    for threads in (1, 3):
        tried.clear()
        assert Round([slow], units, choose, step, 0.001).run(threads)
        assert sorted(tried) == sorted(units)


def test_a_slow_job_keeps_nobody_waiting() -> None:
    """Others go on while a job from before the end of the round is at work, and no longer."""
    through = threading.Event()
    steps = 0

    def slow() -> bool:
        assert through.wait(20)
        return True

    def step(unit: str) -> bool:
        nonlocal steps
        steps += 1
        if steps == 50:
            through.set()
        time.sleep(0.001)
        return True

    assert Round([slow], {"a"}, lambda units: min(units, default=None), step, 0.001).run(2)
    assert steps >= 50


def test_what_a_job_raises_is_raised_when_the_others_are_through() -> None:
    done = []

    def fails() -> bool:
        raise OSError("no")

    def works() -> bool:
        time.sleep(0.02)
        done.append(1)
        return True

    with pytest.raises(OSError, match="no"):
        Round([works, fails], {"a"}, lambda units: min(units, default=None), lambda u: True).run(2)
    assert done == [1]

    def unable(units: Set[str]) -> str | None:
        raise OSError("cannot choose")

    with pytest.raises(OSError, match="cannot choose"):
        Round([works], {"a"}, unable).run(2)


# ---- what is expected


def fitted(steps: list[tuple[int, int, float]]) -> StepEstimate:
    """What is expected after steps of so many rows in, rows out, and seconds."""
    values: dict[str, float] = {}
    for rows_in, rows_out, seconds in steps:
        report = StepReport({}, rows_in, rows_out)
        values = step_statistics(values, {"run": seconds}, report)
    found = estimate_step(values)
    assert found is not None
    return found


@given(
    st.floats(0.05, 2), st.floats(0, 1e-3), st.lists(st.integers(1, 5_000), min_size=2, max_size=30)
)
@settings(max_examples=60, deadline=None)
def test_steps_on_a_line_are_fitted_by_it(fixed: float, slope: float, rows: list[int]) -> None:
    found = fitted([(n, 3 * n, fixed + slope * n) for n in rows])
    assert found.selectivity == approx(3)
    usual = sum(rows) / len(rows)
    if max(rows) > 2 * min(rows) and fixed > slope * max(rows) / 4:
        assert found.fixed + found.per_row * usual == approx(fixed + slope * usual, rel=0.02)
    assert found.fixed > 0 and found.per_row >= 0
    assert found.as_batch(10).cost <= found.as_batch(20).cost


def test_steps_that_get_shorter_with_rows_and_steps_without_rows() -> None:
    assert fitted([(10, 0, 2.0), (1000, 0, 1.0)]).per_row == 0
    empty = fitted([(0, 0, 0.5), (0, 0, 0.5)])
    assert (empty.fixed, empty.per_row, empty.selectivity) == (0.5, 0, 0)
    assert empty.as_batch(100).selectivity > 0, "a unit that never told anything may still do so"
    assert estimate_step({}) is None


def test_the_unknown_are_as_the_others_on_average() -> None:
    assert average_estimate([]) == StepEstimate(CostModel().step_seconds(1))
    assert average_estimate([StepEstimate(1, 2, 3), StepEstimate(3, 4, 5)]) == StepEstimate(2, 3, 4)


def test_a_row_counts_once_for_each_query_that_it_is_told_to() -> None:
    """As the priority-defining tree says of segments that cost nothing more than what they share."""
    values = {"step_seconds": 0.5, "step_rows_in": 10.0, "step_rows_out": 20.0}
    ours = estimate_step({**values, "told_to": 2.5})
    assert ours is not None
    batch = ours.as_batch(10)
    shares = [1.0, 0.5, 0.75, 0.25]
    each = tuple(WorkEstimate(20 * share, batch.cost, batch.ideal) for share in shares)
    together = Candidate("u", 0.0, each, shared_cost=batch.cost)
    for policy in POLICIES.values():
        alone = Candidate("u", 0.0, (batch,))
        assert policy.static_priority(together) == approx(policy.static_priority(alone))


def test_responses_add_up() -> None:
    found = response_statistics({}, [(3, 90.0), (1, 80.0)], 8, 100.0)
    assert found == {
        "response_most": 20.0,
        "response_sum": approx(6 * 10 + 2 * 20),
        "response_squares": approx(6 * 100 + 2 * 400),
    }
    more = response_statistics(found, [(1, 99.0)], 1, 100.0)
    assert more["response_most"] == 20.0
    assert more["response_sum"] == approx(101)
    assert response_statistics(found, [(1, 99.0)], 0, 100.0) == {}
    assert response_statistics(found, [], 5, 100.0) == {}


# ---- what is pending, and who is next

TEXT = """
CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM t (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY one AS SELECT v FROM s;
CREATE QUERY two AS SELECT v FROM t;
CREATE QUERY both AS SELECT s.v FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.v = t.v;
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
        yield headwater


def unit(opened: Headwater, name: str) -> str:
    return opened.query(name).row.unit_id


def taken(opened: Headwater, name: str, log: str, seq: int) -> None:
    """A unit has taken in a log up to a number."""
    cursors = {(unit(opened, name), log): {"seq": seq, "watermark": 0}}
    opened.catalog.commit(None, cursors=cursors)


def waiting(opened: Headwater) -> dict[str, Backlog]:
    names = {unit(opened, name): name for name in ("one", "two", "both")}
    found = unit_backlogs(opened.catalog, opened.catalog.units())
    return {names[u]: one for u, one in found.items()}


def test_what_is_pending_and_since_when(opened: Headwater) -> None:
    assert waiting(opened) == {}
    begun = time.time()
    opened.push("s", [(1, 1), (2, 2)], timestamp_unit="us")
    between = time.time()
    opened.push("t", [(1, 1)], timestamp_unit="us")
    opened.push("s", [(3, 3)], timestamp_unit="us")
    found = waiting(opened)
    assert {name: one.rows for name, one in found.items()} == {"one": 3, "two": 1, "both": 4}
    assert begun <= found["one"].since <= between <= found["two"].since
    assert found["both"].since == found["one"].since
    taken(opened, "one", "stream:s", 2)
    taken(opened, "both", "stream:s", 1)
    found = waiting(opened)
    assert {name: one.rows for name, one in found.items()} == {"two": 1, "both": 2}
    assert found["both"].since == found["two"].since >= between


def turns(
    opened: Headwater, policy: str = "fcfs", bound: float = 1e9, **known: StepEstimate
) -> Turns:
    units = {unit(opened, name): one for name, one in known.items()}
    rows = {row.id: row for row in opened.catalog.units()}
    return Turns(Scheduler(opened.catalog), find_policy(policy), bound, rows, units.get)


def name_of(opened: Headwater, chosen: str | None) -> str | None:
    names = {unit(opened, name): name for name in ("one", "two", "both")}
    return None if chosen is None else names[chosen]


def test_every_unit_gets_a_turn_and_those_that_do_nothing_only_one(opened: Headwater) -> None:
    mine = turns(opened)
    units = set(mine.rows)
    assert {mine.choose(units) for _ in range(3)} == units
    assert mine.choose(units) is None
    opened.push("s", [(1, 1)], timestamp_unit="us")
    again = {mine.choose(units), mine.choose(units)}
    assert {name_of(opened, one) for one in again} == {"one", "both"}
    assert mine.choose(units) is None, "nothing new has come since they did nothing"
    opened.push("s", [(2, 2)], timestamp_unit="us")
    assert mine.choose({unit(opened, "two")}) is None
    assert name_of(opened, mine.choose({unit(opened, "one")})) == "one"


def test_a_unit_that_did_something_may_go_on(opened: Headwater) -> None:
    opened.push("t", [(1, 1)], timestamp_unit="us")
    mine = turns(opened)
    two = unit(opened, "two")
    assert mine.choose({two}) == two
    assert mine.choose({two}) is None
    mine.note_worked(two)
    assert mine.choose({two}) == two


READS_ANOTHER = """
CREATE STREAM u (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM v (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM w (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY pair AS SELECT u.k, v.ts FROM u [RANGE 1 MIN], v [RANGE 1 MIN] WHERE u.k = v.k AND u.k = 1;
CREATE QUERY triple AS SELECT u.k, v.ts FROM u [RANGE 1 MIN], v [RANGE 1 MIN], w [RANGE 1 MIN]
    WHERE u.k = v.k AND v.k = w.k AND u.k = 1;
"""


def test_a_unit_steps_after_the_one_that_it_reads(opened: Headwater) -> None:
    opened.execute(READS_ANOTHER)
    mine = turns(opened)
    pair, triple = unit(opened, "pair"), unit(opened, "triple")
    assert f"unit:{pair}" in mine.rows[triple].inputs
    for name in "uvw":
        opened.push(name, [(1, 1)], timestamp_unit="us")
    ticks = count(1)
    mine.scheduler.clock = lambda: float(next(ticks))
    assert mine.choose({triple}) is None, "the other steps now"
    assert mine.choose({pair, triple}) == pair
    assert mine.choose({triple}) is None, "the other still steps"
    mine.note_worked(pair)
    # The other has more to read, but had its turn.
    assert {mine.choose({pair, triple}) for _ in range(2)} == {pair, triple}


@pytest.mark.parametrize(
    ("policy", "first"),
    [("fcfs", "one"), ("srpt", "two"), ("hnr", "two"), ("hr", "one"), ("lsf", "two")],
)
def test_the_policy_decides(opened: Headwater, policy: str, first: str) -> None:
    """`one` came first and has many results for its cost; `two` is short."""
    opened.push("s", [(1, 1)] * 20, timestamp_unit="us")
    opened.push("t", [(1, 1)] * 20, timestamp_unit="us")
    taken(opened, "both", "stream:s", 9)
    taken(opened, "both", "stream:t", 9)
    known = {"one": StepEstimate(4.0, 0.0, 9.0), "two": StepEstimate(0.5, 0.0, 1.0)}
    mine = turns(opened, policy, **known)
    # Both have waited for an hour, and how long the pushes took does not matter.
    mine.scheduler.clock = lambda: time.time() + 3_600
    assert name_of(opened, mine.choose({unit(opened, "one"), unit(opened, "two")})) == first
    last = mine.scheduler.last_choice
    assert last is not None and last.policy == policy and len(last.ranking) == 2


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_nobody_starves(opened: Headwater, policy: str) -> None:
    """One that no policy but the first likes waits no longer than the bound and what came before."""
    now = time.time()
    scheduler = Scheduler(opened.catalog)
    known = {"long": StepEstimate(50.0, 0.0, 0.0), "short": StepEstimate(0.1, 0.0, 100.0)}
    found = {"long": Backlog(1, now - 7), "short": Backlog(1_000, now - 1e-3)}
    assert scheduler.choose(find_policy(policy), 5.0, found, known) == "long"
    if policy not in ("fcfs", "rr"):
        fresh = {**found, "long": replace(found["long"], since=now - 1e-3)}
        assert scheduler.choose(find_policy(policy), 5.0, fresh, known) == "short"


def test_round_robin_takes_turns(opened: Headwater) -> None:
    scheduler = Scheduler(opened.catalog)
    found = {name: Backlog(1, 1.0) for name in "abc"}
    chosen = [scheduler.choose(find_policy("rr"), 1e12, found, {}) for _ in range(6)]
    assert sorted(chosen[:3]) == ["a", "b", "c"]
    assert chosen[3:] == chosen[:3]
    assert all(one != two for one, two in pairwise(chosen))


# ---- as an option


def test_the_scheduler_is_an_option(opened: Headwater) -> None:
    assert parse_setting("scheduler", "HNR") == "hnr"
    assert Settings().scheduler in POLICIES
    opened.execute("SET SCHEDULER = 'lsf'; SET max_wait_seconds = 5;")
    assert opened.catalog.options() == {"scheduler": "lsf", "max_wait_seconds": "5.0"}
    with pytest.raises(HeadwaterError, match="no policy 'bsdd'; did you mean bsd"):
        opened.execute("SET SCHEDULER = 'bsdd'")
    with pytest.raises(HeadwaterError, match="max_wait_seconds must be a number of seconds"):
        opened.execute("SET max_wait_seconds = 'soon'")


def test_units_show_how_long_they_wait(opened: Headwater) -> None:
    meter = StepMeter(opened.catalog)
    opened.push("s", [(1, 1)], timestamp_unit="us")
    measured = meter.record_step(
        unit(opened, "one"),
        StepReport({"run": 0.5}, 4, 2, arrivals=[(4, time.time() - 2)]),
        subscribers_per_row=3,
    )
    opened.catalog.commit(None, statistics=measured.statistics)
    views = {view.queries[0]: view for view in Observer(opened.catalog).overview().units}
    one, two = views["one"], views["two"]
    assert two.wait is None and two.slowdown is None and two.mean_slowdown is None
    assert one.wait is not None and 0 <= one.wait < 60
    assert one.slowdown == approx(one.wait / 0.5)
    assert one.mean_slowdown == approx(2 / 0.5, rel=0.05)
    assert meter.estimate(unit(opened, "one")) == StepEstimate(0.5, 0.0, 1.5)


def test_a_unit_that_has_not_stepped_is_as_the_cost_model_says(opened: Headwater) -> None:
    planner = UnitPlanner(opened.definitions)
    predictions = StepPredictions(opened.catalog, planner)
    row = opened.catalog.unit(unit(opened, "one"))
    assert row is not None
    operator = planner.operator(row)
    assert operator is not None
    log = stream_log(operator.scans[0].stream)
    opened.catalog.set_statistics({(log, "rows_rate"): 50.0, (log, "batches"): 9.0})
    model = unit_model(opened.catalog, planner, row)
    load = operator_load(operator, model)
    predicted = predictions.predict(row.id)
    assert predicted is not None
    assert predicted.fixed == approx(model.step_seconds(1))
    # What a second brings takes what the load of a second is, but for the steps of that second.
    rows = 50 * len(operator.scans)
    assert predicted.per_row * rows == approx(load.cpu - load.steps)
    assert predicted.selectivity * rows == approx(load.result.rate)
    assert predictions.predict("no such unit") is None
    shown = opened.query("one").placement().load
    assert shown is not None and shown.step.known == "default"
    assert (shown.step.fixed, shown.step.per_row) == (predicted.fixed, predicted.per_row)


def cli(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, done.output
    return done.output


def test_why_the_last_choice_was_made(opened: Headwater) -> None:
    said = cli("explain", "--schedule", "--state", str(opened.state), code=2)
    assert "no unit has been scheduled yet" in said
    opened.push("s", [(1, 1)], timestamp_unit="us")
    mine = turns(opened, "hnr", one=StepEstimate(2.0, 0.0, 1.0), both=StepEstimate(1.0, 0.0, 1.0))
    units = {unit(opened, "one"), unit(opened, "both")}
    assert name_of(opened, mine.choose(units)) == "both"
    assert mine.scheduler.last_choice is not None
    opened.catalog.set_profile(SCHEDULE, mine.scheduler.last_choice.as_data())
    said = cli("explain", "--schedule", "--state", str(opened.state))
    assert "by hnr (highest S/(C T) first)" in said
    assert f"{unit(opened, 'both')} ranks highest by S/(C T)" in said
    assert "both" in said and "one" in said
    found = json.loads(
        cli("explain", "--schedule", "--format", "json", "--state", str(opened.state))
    )
    assert found["name"] == unit(opened, "both")
    assert [one["queries"] for one in found["ranking"]] == [["both"], ["one"]]
    assert "give a file of queries" in cli("explain", code=2)


# ---- on Spark


@pytest.mark.spark
def test_results_are_the_same_under_every_policy(spark: Any, tmp_path: Path) -> None:
    """One unit at a time, so that the policy decides; the batches come out differently."""
    rows = [(n % 5, n) for n in range(60)]
    found = []
    for policy in ("fcfs", "hnr", "bsd"):
        with spark_opened(tmp_path / policy, spark) as headwater:
            headwater.execute(TEXT)
            headwater.execute(f"SET SCHEDULER = '{policy}'; SET max_concurrency = 1")
            for start in range(0, 60, 20):
                for name in "st":
                    headwater.push(name, rows[start : start + 20], timestamp_unit="us")
                headwater.engine.tick()
            headwater.run(until_idle=True)
            last = headwater.catalog.profile(SCHEDULE)
            assert last is not None and last.value["policy"] == policy
            results = {name: headwater.query(name).results() for name in ("one", "two", "both")}
            found.append(
                {
                    name: sorted((row["v"], row["_tau"]) for row in got)
                    for name, got in results.items()
                }
            )
            values = headwater.catalog.statistics(headwater.query("one").row.unit_id)
            assert values["response_most"].value > 0 and values["told_to"].value == 1
    assert found[0] == found[1] == found[2]
    assert len(found[0]["one"]) == 60 and len(found[0]["both"]) == 60 * 12
