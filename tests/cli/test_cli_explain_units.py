"""`headwater explain NAME`: where a query runs, with whom and why; nothing here needs Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run

from headwater.runtime.api import open_state
from headwater.runtime.inspect import explain
from headwater.runtime.inspect.listing import LISTS, UnknownObject

TEXT = """\
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP NOT NULL) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY nine AS SELECT b.price FROM bids [RANGE 1 MIN] b, asks [NOW] a
  WHERE b.item = a.item AND b.price > 9;
CREATE QUERY five AS SELECT b.price FROM bids [RANGE 2 MIN] b, asks [NOW] a
  WHERE b.item = a.item AND b.price > 5;
CREATE QUERY fifty AS SELECT b.price FROM bids [RANGE 2 MIN] b, asks [NOW] a
  WHERE b.item = a.item AND 50 < b.price;
CREATE QUERY total AS SELECT SUM(price) AS sum FROM bids [RANGE 1 MIN SLIDE 1 MIN];
CREATE QUERY latest AS SELECT item FROM bids [ROWS 3];
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(TEXT)
    return tmp_path / "state"


def unit(state: Path, name: str) -> str:
    with open_state(state) as headwater:
        return headwater.query(name).row.unit_id


def explained(run: Run, name: str, state: Path) -> dict[str, object]:
    done = run("explain", name, "--format", "json", "--state", state)
    assert done.status == 0
    found: dict[str, object] = json.loads(done.out)
    return found


def test_a_query_that_came_to_another(run: Run, state: Path) -> None:
    done = run("explain", "FIVE", "--state", state)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == f"five: running, in unit {unit(state, 'five')}, shared with fifty, nine"
    assert "  assigned  the operator was relaxed for it" in lines
    assert "  relaxed   bids [RANGE 1 MINUTE] -> [RANGE 2 MINUTES]" in lines
    assert "            bids.price >= 10 -> bids.price >= 6" in lines
    assert "  operator  reads asks [NOW], bids [RANGE 2 MINUTES]" in lines
    assert "            where asks.item = bids.item AND bids.price >= 6" in lines
    assert "1 query by bids.price: 1 row class" in [line[12:] for line in lines]
    assert "  keeps     all rows" in lines


def test_a_query_that_was_served_already(run: Run, state: Path) -> None:
    found = explained(run, "fifty", state)
    assert (found["relation"], found["relaxed"], found["added"]) == ("contained", [], 0.0)
    assert found["part"] == "bids.price >= 51"
    assert float(str(found["alone"])) > 0
    text = run("explain", "fifty", "--state", state).out
    assert "assigned  the operator emitted its rows already, and more" in text
    assert "adds nothing, alone " in text


def test_the_first_query_has_a_part_of_what_its_operator_became(run: Run, state: Path) -> None:
    found = explained(run, "nine", state)
    assert found["relation"] == "new"
    assert found["part"] == "bids.price >= 10 AND age of bids <= 1 MINUTE"
    assert (found["shared_with"], found["others"]) == (["fifty", "five"], 2)


def test_a_query_that_is_neither_a_join_nor_groups(run: Run, state: Path) -> None:
    lines = run("explain", "latest", "--state", state).out.splitlines()
    assert lines[0].endswith("not shared")
    assert "  operator  reads bids for this query alone" in lines
    more = "CREATE QUERY dear AS SELECT item FROM bids [ROWS 3] WHERE price > 9"
    assert "shared with latest" in run("submit", "-e", more, "--state", state).out
    text = run("explain", "dear", "--state", state).out
    assert (
        "assigned  computed beside the other queries of an operator that reads its sources" in text
    )
    assert "reads bids once for 2 different queries in 2 statements" in text
    run("drop", "dear", "--state", state)


def test_a_grouped_query(run: Run, state: Path) -> None:
    lines = run("explain", "total", "--state", state).out.splitlines()
    assert "  operator  reads bids [RANGE 1 MINUTE SLIDE 1 MINUTE]" in lines
    assert "            emits sum(bids.price)" in lines


def test_python_says_the_same(run: Run, state: Path) -> None:
    with open_state(state) as headwater:
        query = headwater.query("five")
        assert query.explain() + "\n" == run("explain", "five", "--state", state).out
        assert query.placement().as_json() == explained(run, "five", state)


@pytest.mark.parametrize("kind", sorted(LISTS))
def test_python_lists_the_same(run: Run, state: Path, kind: str) -> None:
    out = run("show", kind, "--format", "json", "--state", state).out
    with open_state(state) as headwater:
        views = [view.as_json() for view in headwater.show(kind)]
    printed = [json.loads(line) for line in out.splitlines()]
    if kind != "units":  # their waits go on
        assert views == printed
    assert [list(view) for view in views] == [list(record) for record in printed]


def test_python_has_the_same_status_and_health(run: Run, state: Path) -> None:
    with open_state(state) as headwater:
        status, health = headwater.status().as_json(), headwater.health().as_json()
    assert status == json.loads(run("status", "--format", "json", "--state", state).out)
    assert health == json.loads(run("health", "--format", "json", "--state", state).out)


def test_an_unknown_name_in_python(state: Path) -> None:
    with open_state(state) as headwater, pytest.raises(UnknownObject, match="did you mean bids"):
        headwater.show("streams", "bid")


def test_several_names(run: Run, state: Path) -> None:
    done = run("explain", "five", "--query", "nine", "--state", state)
    assert [line[:5] for line in done.out.splitlines() if ", in unit" in line] == ["five:", "nine:"]


def test_an_unknown_name(run: Run, state: Path) -> None:
    done = run("explain", "fiev", "--state", state)
    assert done.status == 2
    assert "did you mean five?" in done.err


def test_of_many_queries_few_are_named_and_no_shapes_worked_out(
    run: Run, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "MAX_NAMED", 1)
    monkeypatch.setattr(explain, "MAX_SHAPED_QUERIES", 2)
    with open_state(state) as headwater:
        text = headwater.query("nine").explain()
    assert "shared with fifty and 1 other\n" in text
    assert "shapes" not in text
    assert "keeps     bids.price >= 10" in text
