"""Whether the rows of a query depend on its start, and on the history of its streams.

The judge is the reference evaluator: a query has the rows after its start, over the tuples that are not
older than its start minus the history of their stream (`KEEP`). A unit has one start for all its queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joining_worlds import (
    SPREAD,
    STREAMS,
    World,
    alone,
    emitted,
    form,
    group,
    join,
    last_rows,
)

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.types import INT, TIMESTAMP, Field, Schema
from headwater.cql import parse_query
from headwater.reference import evaluate
from headwater.reuse import QuerySignature, signature_of
from headwater.reuse.operator import (
    depends_on_previous_event,
    looks_back,
    reaches_within_history,
)
from headwater.runtime.submit.unit_index import (
    _history_to_spare,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A row of a lone stream is made of one tuple, which comes once: however long its window is,
        # and also if it has no end.
        ("SELECT price FROM Bids [RANGE 1 HOUR]", True),
        ("SELECT price FROM Bids", True),
        ("SELECT price FROM Bids [NOW]", True),
        # A join looks back as far as its windows reach, each on the history of its own stream.
        (join(9), True),
        (join(10), True),
        (join(11), False),
        (join(10, " AND b.price > 1"), True),
        ("SELECT b.price FROM Bids [NOW] b, Asks [RANGE 20 SEC] a WHERE b.item = a.item", True),
        ("SELECT b.price FROM Bids [NOW] b, Asks [RANGE 21 SEC] a WHERE b.item = a.item", False),
        ("SELECT b.price FROM Bids [NOW] b, Asks [RANGE UNBOUNDED] a WHERE b.item = a.item", False),
        ("SELECT b.price FROM Bids b, Asks [NOW] a WHERE b.item = a.item", False),
        # A window that slides stands still for as long as the slide, so it reaches so much further.
        (
            "SELECT b.price FROM Bids [RANGE 5 SEC SLIDE 5 SEC] b, Asks [NOW] a WHERE b.item = a.item",
            True,
        ),
        (
            "SELECT b.price FROM Bids [RANGE 5 SEC SLIDE 6 SEC] b, Asks [NOW] a WHERE b.item = a.item",
            False,
        ),
        # A group of a lone stream is made of all tuples in the window: nothing is special about it.
        (group(8), True),
        (group(9), False),
        ("SELECT sum(price) AS s FROM Bids [RANGE 11 SEC]", False),
        ("SELECT sum(price) AS s FROM Bids [RANGE UNBOUNDED]", False),
        # The last tuples may be of any time, and what else shares whole is not looked into.
        (last_rows(3), False),
        ("SELECT b.price FROM Bids [ROWS 1] b, Asks [NOW] a WHERE b.item = a.item", False),
        ("SELECT count(DISTINCT price) AS n FROM Bids [RANGE 1 SEC SLIDE 1 SEC]", False),
    ],
)
def test_results_do_not_depend_on_the_start_if_windows_stay_within_histories(
    text: str, expected: bool
) -> None:
    assert looks_back(form(text), STREAMS) is expected


def test_the_least_difference_counts() -> None:
    """A window may be as long as the history, and not a microsecond longer."""
    text = "SELECT b.v FROM s [RANGE {} MICROSECONDS] b, t [NOW] a WHERE b.k = a.k"
    for size, expected in ((6, True), (7, True), (8, False)):
        found = signature_of(canonicalize(parse_query(text.format(size), SMALL)))
        assert looks_back(found, {"s": replace(S, keep=7), "t": T}) is expected


@pytest.mark.parametrize(
    ("text", "start", "unit_start"),
    [
        # Each needs a tuple that is older than the history when it counts from its own start.
        (join(15), 25, 15),
        (join(15), 25, None),
        ("SELECT b.price FROM Bids b, Asks [NOW] a WHERE b.item = a.item", 25, 15),
        (group(14), 25, 15),
        # No tuple of bids is older than 10 s when a window begins, but the one of second 20 stands
        # until 28: at 26 it still holds the tuples of second 12.
        (
            """SELECT b.price, a.cost FROM Bids [RANGE 8 SEC SLIDE 10 SEC] b,
               Asks [RANGE 2 SEC SLIDE 1 SEC] a WHERE b.item = a.item""",
            25,
            15,
        ),
        ("SELECT sum(price) AS s FROM Bids [RANGE UNBOUNDED]", 25, 15),
        (SPREAD, 25, 15),
    ],
)
def test_rows_would_be_others_where_windows_go_beyond_histories(
    text: str, start: int, unit_start: int | None
) -> None:
    """The no is needed: with the start of another, a query would have other rows than alone."""
    assert not looks_back(form(text), STREAMS)
    assert emitted(text, start, unit_start) != alone(text, start)


ROW = Schema((Field("k", INT), Field("v", INT), Field("ts", TIMESTAMP)))
S, T = Stream("s", ROW, "ts"), Stream("t", ROW, "ts")
SMALL = Namespace.of([S, T])

lengths = st.integers(0, 6)
slides = st.none() | st.integers(1, 4)
tuples = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 24)), min_size=1, max_size=6
)


@dataclass(frozen=True)
class Question:
    """A query, and histories about as long as its windows reach."""

    text: str
    keep: dict[str, int]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A join, the rows of a stream, or groups, with and without keys, slides and differences."""
    windows, keep = {}, {}
    are_sliding = draw(st.booleans())
    for name in ("s", "t"):
        size, slide = draw(lengths), draw(slides if are_sliding else st.none())
        slid = "" if slide is None else f" SLIDE {slide} MICROSECONDS"
        windows[name] = f"{name} [RANGE {size} MICROSECONDS{slid}]"
        keep[name] = max(0, size + (slide or 0) + draw(st.sampled_from((0, 1, 4, 0, -1, -3))))
    both = f"{windows['s']} a, {windows['t']} b WHERE a.k = b.k"
    text = draw(
        st.sampled_from(
            (
                f"SELECT a.v, b.v AS w FROM {both}",
                f"SELECT v FROM {windows['s']} WHERE v > 0",
                f"SELECT k, sum(v) AS n FROM {windows['s']} GROUP BY k",
                f"SELECT count(*) AS n FROM {windows['s']}",
                f"SELECT DISTINCT v FROM {windows['s']}",
                f"SELECT a.k, sum(b.v) AS n FROM {both} GROUP BY a.k",
                f"SELECT count(*) AS n FROM {both}",
            )
        )
    )
    output = draw(st.sampled_from(("{}", "ISTREAM({})", "DSTREAM({})", "RSTREAM({})")))
    return Question(output.format(text), keep)


@given(questions(), tuples, tuples, st.integers(0, 24), st.none() | st.integers(0, 24))
@settings(max_examples=150)
def test_a_query_that_looks_back_has_the_same_rows_in_a_unit_of_any_earlier_start(
    asked: Question, s: list[Any], t: list[Any], start: int, before: int | None
) -> None:
    query = parse_query(asked.text, SMALL)
    streams = {one.name: replace(one, keep=asked.keep[one.name]) for one in (S, T)}
    signature, data = signature_of(canonicalize(query)), {"s": s, "t": t}
    if is_independent(signature, streams, data, start):
        unit_start = None if before is None else start - before
        rows = evaluate(query, data, start=unit_start, keep=asked.keep)
        due = evaluate(query, data, start=start, keep=asked.keep)
        assert [row for row in rows if row.tau > start] == due


def is_independent(
    signature: QuerySignature, streams: dict[str, Stream], data: dict[str, list[Any]], start: int
) -> bool:
    """Whether the start does not matter: whatever the data is, or by an event shortly before it."""
    if looks_back(signature, streams):
        return True
    if not depends_on_previous_event(signature) or not reaches_within_history(signature, streams):
        return False
    least = start - _history_to_spare(signature, streams)
    names = {scan.stream for scan in signature.scans}
    return any(least <= row[-1] <= start for name in names for row in data[name])


@pytest.mark.parametrize(
    ("event", "expected"), [(24, True), (19, True), (18, False), (26, False), (None, False)]
)
def test_an_event_before_the_start_settles_what_the_instant_before_it_is(
    world: World, event: int | None, expected: bool
) -> None:
    """The instant before the start is that of the last event: its window must not reach back further
    than the history of 10 s, so it may be 6 s before the start where the window has 4 s."""
    text = "SELECT sum(price) AS s FROM Bids [RANGE 4 SEC]"
    unit = world.ask("first", text.replace("sum", "max"), 15)
    if event is not None:
        world.arrived("bids", event)
    assert world.takes(unit, text, 25) is expected
