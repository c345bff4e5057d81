"""Pairs of queries that share one operator, and pairs that must not: a golden file of their plans."""

from __future__ import annotations

import pytest

from golden import Case, cases, rewrite
from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, parse_query, tree
from headwater.cql.statements import CreateStream
from headwater.reuse import (
    Lattice,
    QuerySignature,
    SharingKind,
    classify_containment,
    minimal_operator,
    partial_join_queries,
    relax,
    signature_of,
)
from headwater.reuse.describe import (
    describe_bounds,
    describe_changes,
    describe_lanes,
    describe_operator,
    describe_shape,
    describe_terms,
)
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.relation_subscribers import RelationSubscribers
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


def forms(case: Case) -> tuple[QuerySignature, QuerySignature]:
    one, other = (signature_of(canonicalize(parse_query(t, NAMES))) for t in case.input.split(";"))
    return one, other


def plan(case: Case) -> str:
    """What becomes of the second query while the operator of the first runs."""
    one, other = forms(case)
    if one.relation is not None and one.sharing_key == other.sharing_key:
        return plan_beside(one, other)
    if one.block is None:
        return "equal" if one.sharing_key == other.sharing_key else "nothing in common"
    running = minimal_operator(one)
    found = classify_containment(other, running)
    if found is None:
        return _of_a_part(one, other)
    after = relax(running, other)
    lines = [found.value, *_titled("operator", describe_operator(after))]
    lines += _titled("relaxed", describe_changes(running, after))
    if one.kind is SharingKind.JOIN:
        members = JoinSubscribers(after, (one, other))
        lines += _titled("lanes", describe_lanes(members.lanes, after))
        lines += _titled(
            "shapes", [describe_shape(shape, after.sources) for shape in members.shapes]
        )
        lines += _titled(
            "wanted",
            [describe_bounds(members.residual_bounds(f), after.sources) for f in (one, other)],
        )
    return "\n".join(lines)


def plan_beside(one: QuerySignature, other: QuerySignature) -> str:
    """What is computed where both read the same sources."""
    statements = RelationSubscribers((one, other)).statements
    if len(statements) == 2:
        return "beside it, in a statement of its own"
    family = statements[0].family
    if family.numbers is None:
        return (
            "equal" if one.digest == other.digest else "in its statement, which shows more columns"
        )
    terms = ", ".join(describe_terms(family.terms, family.query.root))
    rows = [f"{table.scan.table} {row}" for table in family.tables for row in table.rows]
    query = tree(family.query)
    return "\n".join([f"in its statement, with other constants for {terms}", *query, *rows])


def _of_a_part(one: QuerySignature, other: QuerySignature) -> str:
    """A join of some of the query's sources that runs."""
    lattice = Lattice()
    lattice.insert("running", minimal_operator(one))
    for part in (signature_of(canonicalize(query)) for query in partial_join_queries(other)):
        if not lattice.candidates(part):
            continue
        before = lattice.operator("running")
        after = relax(before, part)
        found = classify_containment(part, before)
        assert found is not None
        lines = [f"a part of it: {found.value}", *_titled("operator", describe_operator(after))]
        return "\n".join([*lines, *_titled("relaxed", describe_changes(before, after))])
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
