from __future__ import annotations

import json

from command_line import AIRLINE, Run, Write


def explained(run: Run, *args: object) -> dict[str, dict[str, object]]:
    done = run("explain", *args, "--format", "json")
    assert done.status == 0, done.err
    return {one["query"]: one for one in map(json.loads, done.out.splitlines())}


def test_equal_queries_are_found_however_they_are_written(run: Run) -> None:
    same = {name: one["same_as"] for name, one in explained(run, AIRLINE).items()}
    assert {name: others for name, others in same.items() if others} == {
        "gate_117": ["gate_a7_display"],
        "gate_a7_display": ["gate_117"],
        "disrupted": ["trouble"],
        "trouble": ["disrupted"],
    }


def test_digests_differ_where_meanings_do(run: Run) -> None:
    found = explained(run, AIRLINE)
    assert len({one["digest"] for one in found.values()}) == len(found) - 2


def test_columns_with_types_and_their_place_in_the_canonical_form(run: Run) -> None:
    found = explained(run, AIRLINE, "--query", "trouble", "--query", "disrupted")
    places = {
        name: {column["name"]: column["canonical"] for column in one["columns"]}  # type: ignore[attr-defined]
        for name, one in found.items()
    }
    assert places["trouble"]["destination"] == places["disrupted"]["dest"]
    assert places["trouble"]["flight"] == places["disrupted"]["num"]
    num = found["disrupted"]["columns"][0]  # type: ignore[index]
    assert (num["name"], num["type"], num["nullable"]) == ("num", "INT", False)


def test_same_as_names_queries_that_are_not_shown(run: Run) -> None:
    assert explained(run, AIRLINE, "-q", "trouble")["trouble"]["same_as"] == ["disrupted"]


def test_text(run: Run) -> None:
    done = run("explain", AIRLINE, "--query", "TROUBLE")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("trouble\n")
    assert "the same as disrupted" in done.out
    assert "destination STRING" in done.out
    for title in ("as written", "canonical"):
        assert f"  {title}\n" in done.out


def test_brief_has_a_line_for_each_query(run: Run) -> None:
    done = run("explain", AIRLINE, "--brief")
    assert done.status == 0
    assert len([line for line in done.out.splitlines() if line.strip()]) == 13 + 2


def test_lines_are_whole_where_there_is_no_terminal(run: Run) -> None:
    lines = run("explain", AIRLINE, "--brief").out.splitlines()
    assert any("tickets BIGINT" in line and "average DECIMAL" in line for line in lines)


def test_queries_without_a_name_have_a_number(run: Run, write: Write) -> None:
    path = write("SELECT a FROM s; CREATE QUERY q AS SELECT a FROM s; EXPLAIN SELECT b FROM s;")
    found = explained(run, path)
    assert list(found) == ["#1", "q", "#2"]
    assert found["#1"]["same_as"] == ["q"]


def test_dropped_queries_are_gone(run: Run, write: Write) -> None:
    path = write("CREATE QUERY q AS SELECT a FROM s; SELECT b FROM s; DROP QUERY q;")
    assert list(explained(run, path)) == ["#1"]


def test_unknown_query(run: Run) -> None:
    done = run("explain", AIRLINE, "--query", "gate_118")
    assert (done.status, done.out) == (2, "")
    assert "no query gate_118; did you mean gate_117?" in done.err


def test_no_query(run: Run, write: Write) -> None:
    done = run("explain", write(""))
    assert (done.status, done.out) == (2, "")
    assert "test.cql has no query" in done.err
