"""Families: queries that differ in constants as one query, judged by the reference evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.algebra.conditions.domain import Domain
from headwater.algebra.nodes import (
    Aggregate,
    OuterJoin,
    Query,
    Relation,
    Scan,
    is_empty_over_empty_windows,
    walk_relations,
)
from headwater.cql import parse_query
from headwater.reference import evaluate
from headwater.reference.values import normalize_row
from headwater.reuse.families import MAX_ROWS_PER_QUERY, Template, family_of, template_of
from strategies import ASKS, BIDS, ITEMS, UNIVERSE, domains_of, queries, streams, tables

NAMES = Namespace.of([BIDS, ASKS, ITEMS])
Inputs = dict[str, list[Any]]
SECOND = 1_000_000


def template(text: str) -> Template:
    return template_of(canonicalize(parse_query(text, NAMES)).query)


def rows_of(query: Query, given: Inputs, stored: Inputs, **bounds: Any) -> list[tuple[Any, ...]]:
    found = evaluate(query, given, stored, **bounds)
    return [(row.tau, *normalize_row(row.values)) for row in found]


def rows_apart(templates: Sequence[Template], given: Inputs, stored: Inputs) -> list[Counter[Any]]:
    """What each query of a family has of its rows."""
    family = family_of(templates)
    constants = {table.scan.table: list(table.rows) for table in family.tables}
    rows = rows_of(family.query, given, stored | constants)
    numbers = family.numbers or (None,) * len(templates)
    return [
        Counter(
            (tau, *(values[n] for n in columns))
            for tau, *values in rows
            if number is None or values[-1] == number
        )
        for number, columns in zip(numbers, family.columns, strict=True)
    ]


def alone(template: Template) -> Query:
    """The query of a template, with its constants where they were."""
    return family_of([template]).query


@st.composite
def families(draw: st.DrawFn) -> tuple[Query, list[Template]]:
    """A query, and templates that have other constants; most have one in common with another."""
    query = canonicalize(draw(queries())).query
    first = template_of(query)
    assume(first.slots)
    found = [first]
    for _ in range(draw(st.integers(1, 3))):
        domains = tuple(draw(_others(domain).filter(_is_bound)) for domain in first.domains)
        other = replace(first, domains=domains)
        assume(other.rows <= MAX_ROWS_PER_QUERY)
        found.append(other)
    return query, found


def _others(domain: Domain) -> st.SearchStrategy[Domain]:
    """The same values, all others, or any."""
    near = st.sampled_from((domain, domain.complement()))
    return st.one_of(near, domains_of(domain.type)) if domain.type in UNIVERSE else near


def _is_bound(domain: Domain) -> bool:
    return not (domain.is_empty or domain.has_all_values)


@settings(deadline=None, max_examples=60)
@given(families(), streams(), tables())
def test_each_query_of_a_family_has_its_own_rows(
    drawn: tuple[Query, list[Template]], given: Inputs, stored: Inputs
) -> None:
    query, templates = drawn
    shared = rows_apart(templates, given, stored)
    assert shared[0] == Counter(rows_of(query, given, stored))
    for one, rows in zip(templates, shared, strict=True):
        assert rows == Counter(rows_of(alone(one), given, stored))


BELOW = "SELECT item FROM Bids [NOW] b WHERE NOT EXISTS (SELECT * FROM Asks [RANGE 2 SEC] a WHERE a.item = b.item{})"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BELOW.format("") + " AND b.price > 1", BELOW.format("") + " AND b.price > 2"),
        (BELOW.format("") + " AND b.price > 1", BELOW.format("") + " AND b.price IN (1, 3)"),
        (BELOW.format(" AND a.cost > 1"), BELOW.format(" AND a.cost < 3")),
        ("SELECT item FROM Bids [ROWS 2] WHERE note = 'a'", "SELECT price FROM Bids [ROWS 2] WHERE note = 'b'"),
        (
            "SELECT b.item FROM Bids b LEFT JOIN Asks a ON b.item = a.item AND a.cost > 1",
            "SELECT b.item FROM Bids b LEFT JOIN Asks a ON b.item = a.item AND a.cost > 2",
        ),
        (
            "SELECT item, count(*) AS n FROM Bids [ROWS 3] WHERE price > 1 GROUP BY item",
            "SELECT item, count(*) AS n FROM Bids [ROWS 3] WHERE price > 2 GROUP BY item",
        ),
        (
            "SELECT item FROM Bids WHERE price > 1 UNION ALL SELECT item FROM Asks",
            "SELECT item FROM Bids WHERE price > 2 UNION ALL SELECT item FROM Asks",
        ),
    ],
)  # fmt: skip
def test_one_family(one: str, other: str) -> None:
    assert template(one).key == template(other).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BELOW.format(""), BELOW.format(" AND a.cost > 1")),
        (BELOW.format("").replace("NOW", "RANGE 1 SEC"), BELOW.format("")),
        (BELOW.format("").replace("NOT ", ""), BELOW.format("")),
        # A group of all rows is there where there is no row, which would be of no query.
        (
            "SELECT max(r.n) AS m FROM (SELECT count(*) AS n FROM Bids WHERE price > 1 GROUP BY item) r",
            "SELECT max(r.n) AS m FROM (SELECT count(*) AS n FROM Bids WHERE price > 2 GROUP BY item) r",
        ),
        # So is a row without a match on either side.
        (
            "SELECT b.item FROM (SELECT item FROM Bids WHERE price > 1) b FULL JOIN Asks a ON b.item = a.item",
            "SELECT b.item FROM (SELECT item FROM Bids WHERE price > 2) b FULL JOIN Asks a ON b.item = a.item",
        ),
        # What is shown of a group says which group it is, so HAVING is not above what is shown.
        (
            "SELECT count(*) AS n FROM Bids [ROWS 3] GROUP BY item HAVING max(price) > 1",
            "SELECT count(*) AS n FROM Bids [ROWS 3] GROUP BY item HAVING max(price) > 2",
        ),
        (
            "SELECT item, count(*) AS n FROM Bids [ROWS 3] GROUP BY item",
            "SELECT count(*) AS n FROM Bids [ROWS 3] GROUP BY item",
        ),
    ],
)  # fmt: skip
def test_not_one_family(one: str, other: str) -> None:
    assert template(one).key != template(other).key


def test_constants_are_compared_above_what_they_do_not_change() -> None:
    """A row without a match is found once, and then given to the queries whose constants it meets."""
    one, other = (template(BELOW.format("") + f" AND b.price > {n}") for n in (1, 2))
    family = family_of([one, other])
    (table,) = family.tables
    assert [row[0] for row in table.rows] == [0, 1]
    text = str(family.query.root)
    assert text.index("Join(inputs=(SemiJoin(") < text.index("TableScan(table='$constants0'")


def test_what_all_have_in_common_stays_in_the_query() -> None:
    text = "SELECT item FROM Bids [ROWS 2] WHERE price > {} AND note = 'a'"
    family = family_of([template(text.format(n)) for n in (1, 2)])
    (table,) = family.tables
    assert len(table.scan.schema.fields) == 4
    assert len(family.terms) == 1


def test_queries_that_show_other_columns_alone_need_no_constants() -> None:
    texts = ("SELECT item FROM Bids [ROWS 2]", "SELECT price, item FROM Bids [ROWS 2]")
    family = family_of([template(text) for text in texts])
    assert family.numbers is None and not family.tables
    assert len(family.query.columns) == 2
    assert len(family.columns[0]) == 1 and len(family.columns[1]) == 2


def test_many_constants_of_one_query_stay_where_they_are() -> None:
    listed = ", ".join(str(2 * n) for n in range(MAX_ROWS_PER_QUERY + 1))
    assert not template(f"SELECT item FROM Bids [ROWS 2] WHERE price IN ({listed})").slots


def keeps_constants(node: Relation) -> bool:
    """Whether constants below stay where they are."""
    return (isinstance(node, OuterJoin) and node.full) or (
        isinstance(node, Aggregate) and not node.keys
    )


@settings(deadline=None, max_examples=60)
@given(queries(), st.lists(st.integers(0, 6), min_size=1, max_size=3), streams(), tables())
def test_queries_of_other_starts_see_the_tuples_since_then(
    query: Query, starts: list[int], given: Inputs, stored: Inputs
) -> None:
    """As if each had been accepted at its start, with two seconds of history."""
    query = canonicalize(query).query
    assume(is_empty_over_empty_windows(query.root))
    names = sorted({n.stream.lower() for n in walk_relations(query.root) if isinstance(n, Scan)})
    templates = [
        template_of(query, tuple((name, (start - 2) * SECOND) for name in names))
        for start in starts
    ]
    templates.append(template_of(query, tuple((name, None) for name in names)))
    is_family = len({template.key for template in templates}) == 1
    assert is_family or any(map(keeps_constants, walk_relations(query.root)))
    groups = [templates] if is_family else [[template] for template in templates]
    *shared, whole = [rows for group in groups for rows in rows_apart(group, given, stored)]
    assert whole == Counter(rows_of(query, given, stored))
    keep = dict.fromkeys(given, 2 * SECOND)
    for start, rows in zip(starts, shared, strict=True):
        due = rows_of(query, given, stored, start=start * SECOND, keep=keep)
        later = {row: n for row, n in rows.items() if row[0] > start * SECOND}
        assert later == Counter(due)
