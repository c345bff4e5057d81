"""Pairs of queries that share one operator, and pairs that must not: a golden file of their plans."""

from __future__ import annotations

import pytest

from golden import Case, cases, rewrite
from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream
from headwater.reuse import Form, Kind, Lattice, form_of, operator_of, relation, relaxed
from headwater.reuse.members import Members
from headwater.reuse.words import changes, described, told_apart, wish
from strategies import ASKS, BIDS, ITEMS

FILE = "reuse/pairs.txt"
AIRLINE = """
CREATE STREAM flights (num INT, gate STRING, dest STRING, terminal STRING, carrier_code STRING,
  ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM weather (city STRING, forecast STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM check_ins (flight INT, status STRING, vacant_seats INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM baggage (flight INT, area STRING, status STRING, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
"""
STREAMS = [s.stream for s in parse(AIRLINE) if isinstance(s, CreateStream)]
NAMES = Namespace.of([BIDS, ASKS, ITEMS, *STREAMS])


def forms(case: Case) -> tuple[Form, Form]:
    one, other = (form_of(canonicalize(parse_query(t, NAMES))) for t in case.input.split(";"))
    return one, other


def plan(case: Case) -> str:
    """What becomes of the second query while the operator of the first runs."""
    one, other = forms(case)
    if one.kind is Kind.WHOLE:
        return "equal" if one.base == other.base else "nothing in common"
    running = operator_of(one)
    found = relation(other, running)
    if found is None:
        return _of_a_part(one, other)
    after = relaxed(running, other)
    lines = [found.value, *_titled("operator", described(after))]
    lines += _titled("relaxed", changes(running, after))
    if one.kind is Kind.JOIN:
        members = Members(after, (one, other))
        lines += _titled("shapes", [told_apart(shape, after.sources) for shape in members.shapes])
        lines += _titled("wanted", [wish(members.bounds(f), after.sources) for f in (one, other)])
    return "\n".join(lines)


def _of_a_part(one: Form, other: Form) -> str:
    """A join of some of the query's sources that runs."""
    lattice = Lattice()
    lattice.insert("running", operator_of(one))
    for query, _ in lattice.parts(other):
        part = form_of(canonicalize(query))
        before = lattice.operator("running")
        after = relaxed(before, part)
        found = relation(part, before)
        assert found is not None
        lines = [f"a part of it: {found.value}", *_titled("operator", described(after))]
        return "\n".join([*lines, *_titled("relaxed", changes(before, after))])
    return "nothing in common"


def _titled(title: str, lines: list[str]) -> list[str]:
    return [f"{title if n == 0 else '':<8} {line}" for n, line in enumerate(lines)]


@pytest.mark.parametrize("case", cases(FILE), ids=lambda case: case.title)
def test_plans(case: Case) -> None:
    assert plan(case) == case.outcome


@pytest.mark.parametrize("case", cases(FILE), ids=lambda case: case.title)
def test_pairs_share_unless_their_title_says_not(case: Case) -> None:
    assert (plan(case) == "nothing in common") == case.title.startswith("NOT")


NOT = [case for case in cases(FILE) if case.title.startswith("NOT")]


@pytest.mark.parametrize("case", NOT, ids=lambda case: case.title)
def test_pairs_that_do_not_share_do_so_in_neither_order(case: Case) -> None:
    one, other = case.input.split(";")
    assert plan(Case(case.title, f"{other};{one}", "")) == "nothing in common"


def test_pairs_are_written_anew(update_golden: bool) -> None:
    if update_golden:
        rewrite(FILE, plan)
