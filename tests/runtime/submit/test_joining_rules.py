"""When a new query may join a running unit: never where a row of it, or of those that are there, would be
lost or doubled; and always where none would be. Decided from the catalog, without Spark.

The judge is the reference evaluator: a query has the rows after its start, over the tuples that are not
older than its start minus the history of their stream (`KEEP`). A unit has one start for all its queries.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.nodes import Query
from headwater.algebra.types import INT, TIMESTAMP, Field, Schema
from headwater.cql import CreateQuery, CreateStream, parse, parse_query
from headwater.cql.statements import EARLIEST, LATEST, Start
from headwater.reference import Result, evaluate
from headwater.reuse import QuerySignature, signature_of
from headwater.reuse.operator import (
    depends_on_previous_event,
    looks_back,
    reaches_within_history,
)
from headwater.runtime.catalog import (
    Catalog,
    NewSegment,
    QueryRow,
    StreamRow,
    UnitRow,
    partial_join_name,
    replaced_partial_join_name,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.lifecycle import (
    equal_running_queries,
    input_streams,
    is_final,
    is_stopped_for_good,
    plannable_queries,
    update_unit_state,
)
from headwater.runtime.submit import scripts
from headwater.runtime.submit.statements import _equal_query, earlier_start, submit
from headwater.runtime.submit.unit_index import (
    FOREVER_AGO,
    UnitIndex,
    _history_to_spare,
    starts_by,
    unit_index,
)

SECOND = 1_000_000
BIDS_KEEP, ASKS_KEEP = 10, 20

# The streams are spelled with capitals, as users may, and are the same in any case.
DECLARED = f"""
CREATE STREAM Bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {BIDS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Taxes (item INT, tax INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
"""


STREAMS = {
    statement.stream.name.lower(): statement.stream
    for statement in parse(DECLARED)
    if isinstance(statement, CreateStream)
}
NAMES = Namespace.of(STREAMS.values())


@cache
def query_of(text: str) -> Query:
    return parse_query(text, NAMES)


@cache
def form(text: str) -> QuerySignature:
    return signature_of(canonicalize(query_of(text)))


def join(seconds: int, more: str = "") -> str:
    """A join that looks back on so many seconds of bids; more than 10 is beyond their history."""
    return (
        f"SELECT b.price, a.cost FROM Bids [RANGE {seconds} SEC] b, Asks [RANGE 2 SEC] a "
        f"WHERE b.item = a.item{more}"
    )


def group(seconds: int, more: str = "") -> str:
    """A grouped query that slides by two seconds; with 9 seconds it looks back on 11."""
    return (
        f"SELECT item, sum(price) AS s FROM Bids [RANGE {seconds} SEC SLIDE 2 SEC]{more} "
        "GROUP BY item"
    )


def lone(least: int) -> str:
    return f"SELECT price FROM Bids [RANGE 1 HOUR] WHERE price > {least}"


def last_rows(count: int) -> str:
    """A query that shares with its equals alone."""
    return f"SELECT price FROM Bids [ROWS {count}]"


SPREAD = "SELECT max(price) - min(price) AS s FROM Bids [ROWS 40]"
"""One of these of which every tuple matters."""

OTHER = " AND b.price > 1"
"""Makes another join of the same base."""
OTHERS = " WHERE price > 1"
"""The same for a group."""

DATA = {
    "bids": [(1, n, n * SECOND) for n in range(0, 60, 2)],
    "asks": [(1, n, n * SECOND) for n in range(1, 60, 3)],
}
"""Dense enough that a window that holds one second more or less is another one."""


@dataclass
class World:
    """A catalog, and what is asked of it; times are seconds, and None is all of the input."""

    catalog: Catalog
    definitions: Definitions

    def ask(
        self,
        name: str,
        text: str,
        start: int | None = None,
        lifetime: int | None = None,
        at: Start | None = None,
    ) -> str:
        """Submit a query; returns the unit that it is in."""
        begin = at or (EARLIEST if start is None else Start("TIMESTAMP", start * SECOND))
        span = None if lifetime is None else lifetime * SECOND
        statement = CreateQuery(name, query_of(text), start=begin, lifetime=span)
        return submit(self.catalog, self.definitions, statement).unit_id

    def row(self, name: str) -> QueryRow:
        found = self.catalog.query(name)
        assert found is not None
        return found

    def unit(self, unit_id: str) -> UnitRow:
        found = self.catalog.unit(unit_id)
        assert found is not None
        return found

    def execute(self, text: str) -> None:
        scripts.execute(self.catalog, self.definitions, text)

    def known(self) -> UnitIndex:
        found = unit_index(self.catalog, self.definitions)
        found.refresh()
        return found

    def takes(self, unit_id: str, text: str, start: int | None) -> bool:
        """Whether a unit would accept a query of that start."""
        micros = None if start is None else start * SECOND
        return self.known()._can_join(unit_id, form(text), micros)

    def begins(self, unit_id: str) -> int | None:
        """The start of a unit in seconds."""
        micros = self.catalog.cursor(unit_id, "start")
        return None if micros is None else micros // SECOND

    def evaluated(self, unit_id: str, instant: int) -> None:
        """Have a unit evaluate its groups up to an instant."""
        self.catalog.commit(None, cursors={(unit_id, "instant"): instant * SECOND})

    def arrived(self, stream: str, second: int) -> None:
        """Ingest a tuple; no stream here is late, so that second is the watermark."""
        at = second * SECOND
        segment = NewSegment(stream_log(stream), f"{stream} {second}", 1, 1, at, at, at)
        self.catalog.commit(None, segments=[segment], stream_progress=(stream, at))

    def finish(self, name: str) -> None:
        """Finish a query, and let its unit rest if it was the last."""
        row = self.row(name)
        self.catalog.finish_queries(row.unit_id, [row.name])
        update_unit_state(self.catalog, row.unit_id)


# ---- what the semantics say


def alone(text: str, start: int | None) -> list[Result]:
    """The rows that a query has by definition."""
    return emitted(text, start, start)


def emitted(text: str, start: int | None, unit_start: int | None) -> list[Result]:
    """The rows after its start that a query has in a unit with another one."""
    rows = all_emitted(text, unit_start)
    return [row for row in rows if start is None or row.tau > start * SECOND]


@cache
def all_emitted(text: str, unit_start: int | None) -> list[Result]:
    since = None if unit_start is None else unit_start * SECOND
    keep = {"bids": BIDS_KEEP * SECOND, "asks": ASKS_KEEP * SECOND}
    return evaluate(query_of(text), DATA, start=since, keep=keep)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with the streams, to be copied: making its tables takes longer than most tests here."""
    path = tmp_path_factory.mktemp("declared") / "catalog.sqlite"
    with Catalog.open(str(path)) as catalog:
        scripts.execute(catalog, Definitions(catalog), DECLARED)
    return path


@pytest.fixture
def world(tmp_path: Path, declared: Path) -> Iterator[World]:
    with Catalog.open(shutil.copy(declared, tmp_path)) as catalog:
        yield World(catalog, Definitions(catalog))


def earlier_of(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


STARTS = (None, 15, 25, 35)
"""Starts in the midst of the data, further apart than windows reach."""


# ---- whether results depend on the start


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


# ---- joins: what a unit has missed for a query is made up for


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_joins_one_of_any_start_if_both_look_back(world: World, own: int | None) -> None:
    unit = world.ask("first", join(10), own)
    for start in STARTS:
        assert world.takes(unit, join(10, OTHER), start)
        # Nobody has another row for it.
        for text, begin in ((join(10), own), (join(10, OTHER), start)):
            assert emitted(text, begin, earlier_of(own, start)) == alone(text, begin)
    assert world.ask("second", join(10, OTHER), 25) == unit


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_that_goes_beyond_a_history_joins_one_of_the_same_start_alone(
    world: World, own: int | None
) -> None:
    unit = world.ask("first", join(15), own)
    for start in STARTS:
        keeps_rows = all(
            emitted(text, begin, earlier_of(own, start)) == alone(text, begin)
            for text, begin in ((join(15), own), (join(15, OTHER), start))
        )
        assert world.takes(unit, join(15, OTHER), start) is keeps_rows is (own == start)
    assert (world.ask("second", join(15, OTHER), 25) == unit) is (own == 25)


@pytest.mark.parametrize("own", [25, 35])
def test_a_join_of_an_earlier_start_leaves_those_alone_that_go_beyond_a_history(
    world: World, own: int
) -> None:
    """The unit would have to begin earlier, and its query would look back on more than it may."""
    unit = world.ask("first", join(15), own)
    for start in (None, own - 10, own - 1):
        assert not world.takes(unit, join(10), start)
        assert emitted(join(15), own, start) != alone(join(15), own)
    assert world.takes(unit, join(10), own)


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_that_goes_beyond_a_history_leaves_those_alone_that_do_not(
    world: World, own: int | None
) -> None:
    """It would see tuples in this unit that are too old for it."""
    unit = world.ask("first", join(10), own)
    assert not world.takes(unit, join(15), 35)
    assert emitted(join(15), 35, own) != alone(join(15), 35)
    assert world.takes(unit, join(15), own)


def test_rows_of_a_lone_stream_are_shared_whatever_their_windows_and_starts(world: World) -> None:
    unit = world.ask("first", lone(0), 25)
    for number, start in enumerate(STARTS):
        assert world.ask(f"q{number}", lone(number + 1), start) == unit


def test_who_begins_later_joins_though_others_go_beyond_a_history(world: World) -> None:
    """The unit begins where it began, so nothing changes for those that are there."""
    joins = world.ask("first", join(15), 15)
    groups = world.ask("second", group(14), 15)
    assert emitted(join(10), 25, 15) == alone(join(10), 25)
    assert emitted(group(8), 25, 15) == alone(group(8), 25)
    assert world.takes(joins, join(10), 25)
    assert world.takes(groups, group(8), 25)
    assert not world.takes(joins, join(10), 5), "the first would have rows of older tuples"


def test_a_slide_that_the_operator_hides(world: World) -> None:
    """With another window beside it, what slides is not seen in the operator's window; the rows of
    the query would still be others if the unit began earlier."""
    slid = "SELECT price FROM Bids [RANGE 1 SEC SLIDE 11 SEC]"
    unit = world.ask("first", slid, 25)
    assert world.ask("second", "SELECT item FROM Bids [RANGE 1 SEC]", 25) == unit
    assert not world.takes(unit, "SELECT price FROM Bids [NOW]", 15)
    assert world.takes(unit, "SELECT price FROM Bids [NOW]", 35)


# ---- equal queries: their rows are written once, so they must be there


@pytest.mark.parametrize(
    "text", [join(10), lone(3), group(8)], ids=["join", "lone stream", "groups"]
)
def test_an_equal_query_begins_no_earlier_than_the_first_that_is_there(
    world: World, text: str
) -> None:
    """Both have the same rows in the log. Those before the start of the first were never written."""
    unit = world.ask("first", text, 25)
    assert [start for start in (None, 0, 24, 25, 26) if world.takes(unit, text, start)] == [25, 26]
    assert world.ask("same", text, 25) == unit
    assert world.ask("later", text, 40) == unit
    assert world.ask("earlier", text, 24) != unit
    # The first that begins counts, not the last.
    assert world.takes(unit, text, 26)
    keys = {world.row(name).result_key for name in ("first", "same", "later")}
    assert len(keys) == 1


@pytest.mark.parametrize("text", [join(10), group(8)], ids=["join", "groups"])
def test_an_equal_query_of_all_input_has_every_row(world: World, text: str) -> None:
    """Times before 1970 are times like others, and so is 1970 itself."""
    unit = world.ask("first", text, None)
    assert all(world.takes(unit, text, start) for start in (None, -100, 0, 25))


@pytest.mark.parametrize("text", [join(10), group(8)], ids=["join", "groups"])
def test_an_equal_query_of_the_same_start_in_1970(world: World, text: str) -> None:
    unit = world.ask("first", text, 0)
    assert [world.takes(unit, text, start) for start in (None, -1, 0, 1)] == [
        False,
        False,
        True,
        True,
    ]


def test_what_counts_is_the_start_of_the_equal_one_and_not_of_its_unit(world: World) -> None:
    """The unit has emitted since 15, but rows of the second query only since 25."""
    for kind in (join, group):
        more = OTHER if kind is join else OTHERS
        unit = world.ask(f"{kind.__name__} 1", kind(8), 15)
        assert world.ask(f"{kind.__name__} 2", kind(8, more), 25) == unit
        assert not world.takes(unit, kind(8, more), 20)
        assert world.takes(unit, kind(8, more), 25)
        assert world.takes(unit, kind(8), 20)


def test_equal_groups_join_though_their_instants_were_evaluated(world: World) -> None:
    """Their rows are in the log already; those of other groups are not, and nobody makes up for them."""
    unit = world.ask("first", group(8), 15)
    world.evaluated(unit, 40)
    assert world.takes(unit, group(8), 20)
    assert world.ask("same", group(8), 20) == unit
    assert world.row("same").result_key == world.row("first").result_key
    assert not world.takes(unit, group(8, OTHERS), 20)


def test_equal_groups_that_go_beyond_a_history_need_the_same_start(world: World) -> None:
    unit = world.ask("first", group(9), 15)
    assert world.takes(unit, group(9), 15)
    assert not world.takes(unit, group(9), 25)
    assert emitted(group(14), 25, 15) != alone(group(14), 25)


def test_equal_groups_join_though_others_of_the_unit_go_beyond_a_history(world: World) -> None:
    """They have the rows of their equal, whatever else the unit does."""
    unit = world.ask("first", group(8), 15)
    assert world.ask("long", group(14), 15) == unit
    assert world.takes(unit, group(8), 25)
    assert not world.takes(unit, group(14), 25)


def test_an_equal_query_that_is_over_is_none(world: World) -> None:
    """Its rows are still in the log: under the same key they would count twice."""
    unit = world.ask("other", join(10, OTHER), 15)
    assert world.ask("first", join(10), 30, lifetime=5) == unit
    assert world.catalog.unit(unit) is not None
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    assert _equal_query(world.catalog, unit, form(join(10)).digest) == "first"
    assert not world.takes(unit, join(10), 20)
    world.finish("first")
    assert _equal_query(world.catalog, unit, form(join(10)).digest) is None
    assert world.takes(unit, join(10), 20), "there is none whose rows it would have to do with"
    assert world.ask("again", join(10), 20) == unit
    assert world.row("again").result_key != world.row("first").result_key


def test_the_first_of_equal_queries_is_named(world: World) -> None:
    digest = form(join(10)).digest
    unit = world.ask("other", join(10, OTHER), 5)
    assert _equal_query(world.catalog, unit, digest) is None
    assert _equal_query(world.catalog, "no unit", digest) is None
    world.ask("b", join(10), 20)
    assert _equal_query(world.catalog, unit, digest) == "b"
    assert _equal_query(world.catalog, unit, form(join(10, OTHER)).digest) == "other"
    for name, start in (("a", 30), ("c", 25)):
        assert world.ask(name, join(10), start) == unit
    assert _equal_query(world.catalog, unit, digest) == "b", "neither the last nor by name"


def test_one_of_all_input_is_the_first_of_equal_queries(world: World) -> None:
    unit = world.ask("z", join(10), None)
    assert world.ask("a", join(10), -100) == unit
    assert _equal_query(world.catalog, unit, form(join(10)).digest) == "z"
    assert _equal_query(world.catalog, unit, form(join(9)).digest) is None


# ---- groups: nothing is made up for


@pytest.mark.parametrize(
    ("own", "earlier", "later"),
    [
        (None, [], [None, 0, 25]),  # the unit has all that a query can need
        (25, [None, 15, 23], [25, 35]),  # of 23, the row of instant 24 would be missing
    ],
)
def test_groups_join_a_unit_that_begins_no_later(
    world: World, own: int | None, earlier: list[int | None], later: list[int | None]
) -> None:
    unit, text = world.ask("first", group(8), own), group(8, OTHERS)
    for start in (*earlier, *later):
        assert world.takes(unit, text, start) is (start in later)
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        assert (rows == alone(text, start)) is (start in later)
    assert world.ask("second", text, 25) == unit
    assert (world.ask("third", group(8), 15) == unit) is (own is None)
    assert world.begins(unit) == own, "a unit of groups never begins earlier"


@pytest.mark.parametrize("own", [None, 15])
def test_groups_join_a_unit_that_has_evaluated_no_instant_of_theirs(
    world: World, own: int | None
) -> None:
    """A query has the rows after its start: an instant that is the start itself is none of its."""
    unit, text = world.ask("first", group(8), own), group(8, OTHERS)
    assert world.takes(unit, text, own)
    world.evaluated(unit, 24)
    assert [start for start in (None, 15, 23, 24, 25) if world.takes(unit, text, start)] == [24, 25]
    assert world.ask("second", text, 24) == unit
    assert world.ask("third", group(7, OTHERS), 23) != unit


@pytest.mark.parametrize("own", [None, 25])
def test_groups_that_go_beyond_a_history_join_one_of_the_same_start_alone(
    world: World, own: int | None
) -> None:
    """Their windows would hold more or less than they may, or rows would be missing."""
    unit, text = world.ask("first", group(14), own), group(14, OTHERS)
    for start in STARTS:
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        keeps_rows = rows == alone(text, start)
        assert world.takes(unit, text, start) is keeps_rows is (own == start)


@pytest.mark.parametrize("own", [None, 25])
def test_groups_that_go_beyond_a_history_leave_those_alone_that_do_not(
    world: World, own: int | None
) -> None:
    """Their windows would hold tuples in this unit that are too old for them."""
    unit, text = world.ask("first", group(8), own), group(14, OTHERS)
    assert not world.takes(unit, text, 35)
    assert emitted(text, 35, own) != alone(text, 35)
    assert world.takes(unit, text, own)


@pytest.mark.parametrize(("own", "start"), [(15, 25), (None, None)])
def test_an_instant_that_is_evaluated_meanwhile_makes_groups_choose_again(
    world: World, monkeypatch: pytest.MonkeyPatch, own: int | None, start: int | None
) -> None:
    """Between the choice and the acceptance the unit goes on: then the query would miss that instant."""
    unit = world.ask("first", group(8), own)
    accept = world.catalog.accept_query

    def overtaken(*args: Any, **named: Any) -> QueryRow:
        monkeypatch.setattr(world.catalog, "accept_query", accept)
        world.evaluated(unit, 26)
        return accept(*args, **named)

    monkeypatch.setattr(world.catalog, "accept_query", overtaken)
    assert world.ask("other", group(8, OTHERS), start) != unit


def test_an_instant_that_is_evaluated_meanwhile_is_there_for_equal_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = world.ask("first", group(8), 15)
    accept = world.catalog.accept_query

    def late(*args: Any, **named: Any) -> QueryRow:
        world.evaluated(unit, 26)
        return accept(*args, **named)

    monkeypatch.setattr(world.catalog, "accept_query", late)
    assert world.ask("equal", group(8), 25) == unit


def test_joins_join_whatever_was_evaluated(world: World) -> None:
    """What they have missed of tuples that were ingested before is made up for."""
    unit = world.ask("first", join(10), 15)
    world.evaluated(unit, 40)
    assert world.ask("second", join(10, OTHER), 25) == unit
    assert world.ask("third", join(9), None) == unit


# ---- queries that share with their equals alone


@pytest.mark.parametrize("own", [None, 25])
def test_the_last_rows_are_shared_by_equals_of_the_same_start(
    world: World, own: int | None
) -> None:
    """How far back they lie is not known, so with another start they may be others."""
    unit, text = world.ask("first", SPREAD, own), SPREAD
    for start in STARTS:
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        keeps_rows = rows == alone(text, start)
        assert world.takes(unit, text, start) is keeps_rows is (own == start)


def test_each_of_the_units_of_equals_is_looked_at(world: World) -> None:
    units = {start: world.ask(f"q{start}", last_rows(3), start) for start in STARTS}
    assert len({*units.values()}) == len(STARTS)
    for start, unit in units.items():
        assert world.ask(f"same{start}", last_rows(3), start) == unit
    assert world.ask("other", last_rows(4), 15) not in units.values()


def test_last_rows_do_not_join_an_equal_that_is_over(world: World) -> None:
    """Its unit may not be at rest yet, but writes no row for it any more."""
    unit = world.ask("first", last_rows(3), 30, lifetime=5)
    world.arrived("bids", 50)
    assert world.takes(unit, last_rows(3), 30)
    world.catalog.finish_queries(unit, ["first"])
    assert world.unit(unit).state == "running"
    assert not world.takes(unit, last_rows(3), 30)
    assert world.ask("again", last_rows(3), 30) != unit


# ---- units that rest

KINDS = {"joined": join(10), "grouped": group(8), "latest": last_rows(3)}


def test_a_paused_unit_is_joined_and_runs_again(world: World) -> None:
    """It has kept its place, so nothing is lost."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        world.execute(f"PAUSE QUERY {kind}")
        assert world.unit(unit).state == "paused"
        assert world.ask(f"{kind} too", text, 15) == unit
        assert world.unit(unit).state == "running"
        assert world.row(kind).state == "paused"


def test_a_parked_unit_is_left_alone(world: World) -> None:
    """Its steps fail: a query that joined it would fail with it."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        world.catalog.park_unit(unit, "it fails")
        assert not world.takes(unit, text, 15)
        assert world.ask(f"{kind} too", text, 15) != unit
        assert world.unit(unit).state == "parked"


def test_a_unit_that_is_gone_is_joined_by_nobody(world: World) -> None:
    """Also if it is dropped by another process, which the one that chooses does not know yet."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        known = world.known()
        assert known._can_join(unit, form(text), 15 * SECOND)
        world.catalog.drop_query(kind)
        assert not known._can_join(unit, form(text), 15 * SECOND)
        assert not known._can_join("no unit", form(text), 15 * SECOND)
        assert world.ask(f"{kind} again", text, 15) != unit


def test_a_unit_that_has_stopped_for_good_is_joined_by_nobody(world: World) -> None:
    """Its streams need not keep their tuples for it any more, so it could have missed some."""
    units = {kind: world.ask(kind, text, 30, lifetime=5) for kind, text in KINDS.items()}
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    for kind, text in KINDS.items():
        unit = units[kind]
        assert not is_stopped_for_good(world.catalog, world.unit(unit))
        world.finish(kind)
        assert world.unit(unit).state == "paused"
        assert is_stopped_for_good(world.catalog, world.unit(unit))
        assert not world.takes(unit, text, 30)
        assert not world.takes(unit, text, 60)
    assert world.ask("again", join(10), 60) != units["joined"]


def test_a_unit_whose_stream_may_be_reopened_is_joined(world: World) -> None:
    """The end of its input has finished its query, but it goes on when there is more."""
    units = {kind: world.ask(kind, text, 15) for kind, text in KINDS.items()}
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
        world.catalog.end_stream(stream, reopens=True)
    for kind, text in KINDS.items():
        world.finish(kind)
        assert world.unit(units[kind]).state == "paused"
        assert world.takes(units[kind], text, 15)
    for stream in ("bids", "asks"):
        world.catalog.end_stream(stream)
    for kind, text in KINDS.items():
        assert not world.takes(units[kind], text, 15), "now it is the end"


def test_a_unit_rests_for_good_only_with_all_its_queries(world: World) -> None:
    unit = world.ask("short", join(10), 30, lifetime=5)
    assert world.ask("long", join(10, OTHER), 30) == unit
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    world.finish("short")
    world.execute("PAUSE QUERY long")
    assert world.unit(unit).state == "paused"
    assert world.takes(unit, join(9), 30)


def test_whoever_joins_a_running_unit_reads_none_of_its_queries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, and a query is accepted in milliseconds."""
    unit = world.ask("first", join(10), 15)

    def members(self: Catalog, unit_id: str) -> list[QueryRow]:
        raise AssertionError(f"all queries of unit {unit_id} are read")

    monkeypatch.setattr(Catalog, "subscribers", members)
    assert world.ask("second", join(10, OTHER), 15) == unit
    assert world.ask("third", join(10), 15) == unit


# ---- the start of a unit

times = st.none() | st.integers(-5, 5)


def order(start: int | None) -> int:
    return FOREVER_AGO if start is None else start


@given(times, times)
@settings(max_examples=60)
def test_a_unit_begins_with_the_first_of_its_queries(own: int | None, start: int | None) -> None:
    """Later, and rows of one would be lost; earlier than needed, and it would look back for nothing."""
    earlier = earlier_start(own, start)
    now = order(own) if earlier is None else earlier
    assert now == min(order(own), order(start))
    assert (earlier is None) == (order(own) <= order(start)), "it is left as it is if it can be"
    assert starts_by(own, start) == (order(own) <= order(start))


def test_a_unit_begins_earlier_for_the_sake_of_a_join(world: World) -> None:
    unit = world.ask("first", join(10), 25)
    begins = []
    for number, start in enumerate((30, 25, 20, 22, 0, 5, -7)):
        assert world.ask(f"q{number}", join(10, f" AND b.price > {number}"), start) == unit
        begins.append(world.begins(unit))
    assert begins == [25, 25, 20, 20, 0, 0, -7]
    assert world.ask("all", join(9), None) == unit
    assert world.catalog.cursor(unit, "start") == FOREVER_AGO
    assert world.ask("late", join(9), 40) == unit
    assert world.catalog.cursor(unit, "start") == FOREVER_AGO


def test_a_unit_of_all_input_stays_so(world: World) -> None:
    unit = world.ask("first", join(10), None)
    assert world.begins(unit) is None
    assert world.ask("second", join(10, OTHER), 15) == unit
    assert world.begins(unit) is None


def test_a_new_unit_begins_with_its_query(world: World) -> None:
    for start in (None, -1, 0, 15):
        for number, text in enumerate((join(15), group(9), last_rows(3))):
            unit = world.ask(f"q{number} {start}", text, start)
            assert world.begins(unit) == start
            (row,) = world.catalog.subscribers(unit)
            assert row.start_at == (None if start is None else start * SECOND)


# ---- the start and the end of a query


def test_a_query_begins_with_the_least_watermark_of_its_streams(world: World) -> None:
    """Up to there one of them may still bring tuples that would be missing from a join."""
    world.arrived("bids", 40)
    world.arrived("asks", 30)
    world.arrived("fees", 20)
    for name, at in (("unsaid", None), ("latest", LATEST)):
        for text, expected in ((join(10), 30), (lone(1), 40), (last_rows(3), 40)):
            statement = CreateQuery(f"{name} {text}", query_of(text), start=at)
            row = submit(world.catalog, world.definitions, statement)
            assert row.start_at == expected * SECOND


def test_a_stream_is_counted_once_however_often_it_is_read(world: World) -> None:
    world.arrived("bids", 40)
    text = "SELECT x.price FROM Bids [NOW] x, BIDS [NOW] y WHERE x.item = y.item"
    world.ask("q", text, at=LATEST)
    assert world.row("q").start_at == 40 * SECOND


@pytest.mark.parametrize("seen", [(), ("asks",), ("bids", "fees")])
def test_a_query_has_all_of_the_input_if_one_of_its_streams_has_not_begun(
    world: World, seen: tuple[str, ...]
) -> None:
    """That one may bring tuples of any time."""
    for stream in seen:
        world.arrived(stream, 40)
    world.ask("q", join(10), at=LATEST)
    assert world.row("q").start_at is None


def test_a_query_of_tables_alone_has_all_there_is(world: World, tmp_path: Path) -> None:
    """No stream has a watermark that it could begin with."""
    world.execute(f"""
        CREATE TABLE items (item INT) FROM files(path => '{tmp_path}', format => 'csv');
        CREATE QUERY q AS SELECT item FROM items;
    """)
    assert world.row("q").start_at is None


def test_what_is_said_of_the_start_goes_before_watermarks(world: World) -> None:
    for stream in ("bids", "asks"):
        world.arrived(stream, 40)
    for start in (None, -1, 0, 15, 100):
        world.ask(f"q{start}", join(10), start)
        assert world.row(f"q{start}").start_at == (None if start is None else start * SECOND)


def test_a_lifetime_counts_from_the_start(world: World) -> None:
    for number, (start, lifetime, end) in enumerate(
        [
            (15, 5, 20),
            (0, 5, 5),
            (-5, 5, 0),
            (15, None, None),  # for ever
            (None, 5, None),  # it counts from the first tuple, which has yet to come
            (None, None, None),
        ]
    ):
        world.ask(f"q{number}", lone(1), start, lifetime)
        row = world.row(f"q{number}")
        assert row.end_at == (None if end is None else end * SECOND)
        assert row.has_unknown_end is (lifetime is not None and end is None)


# ---- queries that may still have rows


def stream_row(**changed: Any) -> StreamRow:
    known: dict[str, Any] = {
        "name": "bids",
        "spelled": "Bids",
        "definition": "",
        "lateness": 0,
        "keep": 10,
        "ended": False,
        "max_event_time": None,
        "malformed": 0,
        "late": 0,
        "created_at": 0.0,
        "reopens": False,
        "closed_until": None,
        "source": None,
        "next_seq": 1,
    }
    return StreamRow(**known | changed)


def query_row(name: str = "q", **changed: Any) -> QueryRow:
    known: dict[str, Any] = {
        "name": name,
        "spelled": name,
        "definition": "",
        "digest": "d",
        "unit_id": "u",
        "state": "finished",
        "start_at": 0,
        "end_at": 20,
        "columns": [],
        "sink": None,
        "error": "",
        "accepted_at": 0.0,
        "lifetime": 20,
        "result_key": "d",
    }
    return QueryRow(**known | changed)


@pytest.mark.parametrize(
    ("stream", "query", "expected"),
    [
        # A tuple of the end itself counts, so the watermark has to be beyond it ..
        ({"max_event_time": 21}, {}, True),
        ({"max_event_time": 20}, {}, False),
        # .. and a tuple has to be there: where a stream was reopened the watermark is further.
        ({"max_event_time": 20, "closed_until": 20}, {}, True),
        ({"max_event_time": 19, "closed_until": 20}, {}, False),
        ({"closed_until": 20}, {}, False),
        ({}, {}, False),
        # Only more input undoes the end of one that has no lifetime, and then it does.
        ({"max_event_time": 21}, {"end_at": None}, False),
        ({"ended": True, "max_event_time": 5}, {"end_at": None}, True),
        ({"ended": True, "max_event_time": 5}, {}, True),
        ({"ended": True, "reopens": True, "max_event_time": 5}, {}, False),
        ({"ended": True, "reopens": True, "max_event_time": 21}, {}, True),
        ({"ended": True, "reopens": True, "max_event_time": 21}, {"end_at": None}, False),
        # One that is not finished has rows to come, whatever its streams say.
        ({"ended": True, "max_event_time": 21}, {"state": "running"}, False),
        ({"ended": True, "max_event_time": 21}, {"state": "paused"}, False),
        ({"ended": True, "max_event_time": 21}, {"state": "parked"}, False),
    ],
)
def test_a_query_is_over_when_nothing_can_bring_it_a_row(
    stream: Mapping[str, Any], query: Mapping[str, Any], expected: bool
) -> None:
    assert is_final(query_row(**query), [stream_row(**stream)]) is expected


def test_one_stream_that_may_be_reopened_is_enough_to_go_on() -> None:
    over = stream_row(ended=True, max_event_time=5)
    open_again = replace(over, name="asks", reopens=True)
    endless = query_row(end_at=None)
    assert is_final(endless, [over, over])
    assert not is_final(endless, [over, open_again])
    assert not is_final(endless, [over, stream_row(max_event_time=50)])
    # The stream that is furthest has passed the end: rows of a join need them all.
    assert is_final(query_row(), [stream_row(max_event_time=50), stream_row(max_event_time=1)])


def test_a_plan_is_made_for_queries_that_may_still_have_rows() -> None:
    streams = [stream_row(max_event_time=21)]
    over, lasting, running = (
        query_row("over"),
        query_row("lasting", end_at=None),
        query_row("running", state="running"),
    )
    assert plannable_queries([over, lasting, running], streams) == (lasting, running)
    assert plannable_queries([running], streams) == (running,)
    assert plannable_queries([over], streams) == (over,), "a plan of nothing cannot be made"
    assert plannable_queries([over, over], streams) == (over, over)
    assert plannable_queries([], streams) == ()


def test_the_operator_of_a_unit_is_that_of_queries_that_may_still_have_rows(world: World) -> None:
    """Otherwise a new query would be compared with what the unit does not do any more."""
    unit = world.ask("wide", join(10), 30, lifetime=5)
    assert world.ask("narrow", join(3, OTHER), 30) == unit
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    world.finish("wide")
    row = UnitPlanner(world.definitions).ensure_definition(world.catalog, world.unit(unit))
    assert "3 SECONDS" in row.definition and "10 SECONDS" not in row.definition
    streams = input_streams(world.catalog, row)
    assert [q.name for q in plannable_queries(world.catalog.subscribers(unit), streams)] == [
        "narrow"
    ]


def test_equals_that_still_write_rows(world: World) -> None:
    digest = form(join(10)).digest
    unit = world.unit(world.ask("short", join(10), 30, lifetime=5))
    assert world.ask("long", join(10), 30, lifetime=50) == unit.id
    assert world.ask("other", join(10, OTHER), 30) == unit.id

    def names() -> list[str]:
        return sorted(query.name for query in equal_running_queries(world.catalog, unit, digest))

    assert names() == ["long", "short"]
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    assert names() == ["long", "short"], "nothing is over before its unit has said so"
    world.finish("short")
    assert names() == ["long"]
    world.execute("PAUSE QUERY long")
    assert names() == ["long"], "it goes on where it was"


# ---- units that read what another one joins

TWO = "SELECT b.price, a.cost FROM Bids [RANGE 5 SEC] b, Asks [RANGE 2 SEC] a WHERE b.item = a.item"


def three(bids: int, fees: int = 2, more: str = "") -> str:
    return (
        f"SELECT b.price, f.fee FROM Bids [RANGE {bids} SEC] b, Asks [RANGE 2 SEC] a, "
        f"Fees [RANGE {fees} SEC] f WHERE b.item = a.item AND b.item = f.item{more}"
    )


def test_a_join_of_three_reads_a_join_of_two(world: World) -> None:
    """It needs rows that were made of older tuples: a row of two that is 5 s old when the third comes."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert set(world.unit(unit).inputs) == {unit_log(two), stream_log("fees")}
    asked = world.row(partial_join_name(unit))
    assert (asked.unit_id, asked.start_at) == (two, 20 * SECOND)
    assert (world.begins(two), world.begins(unit)) == (20, 25)


def test_a_part_of_one_that_begins_in_1970_begins_before_that(world: World) -> None:
    two = world.ask("two", TWO, 0)
    unit = world.ask("three", three(5), 0)
    assert world.row(partial_join_name(unit)).start_at == -5 * SECOND
    assert (world.begins(two), world.begins(unit)) == (-5, 0)


def test_groups_read_their_streams_themselves(world: World) -> None:
    """Their panes are made of tuples, and made again from them when queries come and go."""
    two = world.ask("two", TWO, 25)
    text = three(5).replace("b.price, f.fee", "b.item, sum(f.fee) AS s") + " GROUP BY b.item"
    unit = world.ask("sums", text, 25)
    assert unit_log(two) not in world.unit(unit).inputs


def test_a_part_of_all_input_is_asked_for_all_input(world: World) -> None:
    two = world.ask("two", TWO, None)
    unit = world.ask("three", three(5), None)
    assert world.row(partial_join_name(unit)).start_at is None
    assert world.begins(two) is None
    later = world.ask("later", three(5, more=" AND f.fee > 1"), 25)
    assert later == unit


def test_the_slide_of_a_part_counts_too(world: World) -> None:
    """A window that slides lags behind by as much."""
    text = (
        "SELECT b.price{} FROM Bids [RANGE 5 SEC SLIDE 2 SEC] b, Asks [RANGE 2 SEC SLIDE 2 SEC] a{} "
        "WHERE b.item = a.item{}"
    )
    two = world.ask("two", text.format("", "", ""), 25)
    more = (", f.fee", ", Fees [RANGE 2 SEC SLIDE 2 SEC] f", " AND b.item = f.item")
    unit = world.ask("three", text.format(*more), 25)
    assert unit_log(two) in world.unit(unit).inputs
    assert world.row(partial_join_name(unit)).start_at == (25 - 5 - 2) * SECOND


def test_a_join_that_goes_beyond_a_history_reads_no_other(world: World) -> None:
    """How far it looks back depends on its start, and the other has one of its own."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5, fees=21), 25)
    assert unit_log(two) not in world.unit(unit).inputs


def test_a_unit_that_goes_beyond_a_history_is_read_by_no_other(world: World) -> None:
    """It would have to begin earlier."""
    two = world.ask("two", TWO.replace("5 SEC", "15 SEC"), 25)
    unit = world.ask("three", three(5), 25)
    assert unit_log(two) not in world.unit(unit).inputs
    assert world.begins(two) == 25


def test_a_unit_that_reads_another_reads_more_for_those_who_need_more(world: World) -> None:
    """What it reads is relaxed with it, and what it has read so far is kept until it can change."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    asked = world.row(partial_join_name(unit))
    assert world.takes(unit, three(5, more=" AND f.fee > 1"), 30)
    assert world.takes(unit, three(4), 30)
    assert world.takes(unit, three(5, fees=4), 30), "of fees it reads all"
    assert world.takes(unit, three(6), 30)
    assert world.ask("same", three(5, more=" AND f.fee > 1"), 30) == unit
    assert world.row(partial_join_name(unit)) == asked
    assert world.ask("other", three(6), 30) == unit
    more = world.row(partial_join_name(unit))
    assert more.result_key != asked.result_key and more.unit_id == two
    read, awaited = world.catalog.partial_joins(unit)
    assert read is not None and (read.name, read.result_key) == (
        replaced_partial_join_name(unit),
        asked.result_key,
    )
    assert awaited == more
    assert world.ask("third", three(7), 30) == unit
    read, awaited = world.catalog.partial_joins(unit)
    assert read is not None and awaited is not None
    assert read.result_key == asked.result_key and awaited.result_key != more.result_key
    assert len(world.catalog.hidden_subscribers(two)) == 2
    world.catalog.adopt_partial_join(world.unit(unit))
    read, awaited = world.catalog.partial_joins(unit)
    assert read == world.row(partial_join_name(unit)) and awaited is None
    assert len(world.catalog.hidden_subscribers(two)) == 1


def test_a_unit_reads_no_more_of_one_that_cannot_give_it(world: World) -> None:
    """A longer window would need tuples from before the history of the stream."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert not world.takes(unit, three(11), 30)
    assert world.ask("other", three(11), 30) != unit


def test_a_unit_goes_on_if_a_stream_may_be_reopened_that_another_reads_for_it(
    world: World,
) -> None:
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    for stream in ("bids", "asks", "fees"):
        world.arrived(stream, 50)
        world.catalog.end_stream(stream, reopens=stream != "fees")
    world.finish("three")
    assert world.unit(unit).state == "paused"
    assert world.takes(unit, three(5), 25)


def test_a_unit_whose_part_is_unknown_is_joined_by_nobody(world: World) -> None:
    """What it can serve is not known then."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    known = world.known()
    need = known.reading_need(unit, form(three(5)), 25 * SECOND)
    assert need is not None and need.is_met
    assert known.reading_need("no unit", form(three(5)), 25 * SECOND) is None


def test_a_unit_that_reads_another_is_not_joined_by_an_earlier_start(world: World) -> None:
    """The other has no rows from before the start that was asked of it."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert not world.takes(unit, three(5, more=" AND f.fee > 1"), 15)
    assert not world.takes(unit, three(5, more=" AND f.fee > 1"), None)
    assert world.takes(unit, three(4), 24), "a shorter window reaches back less"


def test_units_that_read_others_are_read_by_none(world: World) -> None:
    """A unit waits for those that it reads: one below the other is as far as that goes."""
    two = world.ask("two", TWO, 25)
    built = world.ask("three", three(5), 25)
    four = three(5).replace(
        "Fees [RANGE 2 SEC] f", "Fees [RANGE 2 SEC] f, Taxes [RANGE 2 SEC] t"
    ) + (" AND b.item = t.item")
    unit = world.ask("four", four, 25)
    assert unit_log(built) not in world.unit(unit).inputs
    assert unit_log(two) in world.unit(unit).inputs


# ---- all of it together


@pytest.mark.parametrize("kind", [join, group])
def test_who_is_in_a_unit_has_the_rows_it_would_have_alone(world: World, kind: Any) -> None:
    """Whatever came before, in whatever order of starts."""
    texts = [kind(size) for size in (6, 8, 15)]
    for number, (start, text) in enumerate(product((25, 15, None, 35), texts)):
        world.ask(f"q{number}", text, start)
    units = world.catalog.units()
    assert 1 < len(units) < 12
    for unit in units:
        own = world.catalog.cursor(unit.id, "start")
        begin = None if own in (None, FOREVER_AGO) else own // SECOND
        for query in world.catalog.subscribers(unit.id):
            (statement,) = parse(query.definition, world.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            start = None if query.start_at is None else query.start_at // SECOND
            text = texts[int(query.name[1:]) % 3]
            assert emitted(text, start, begin) == alone(text, start)
            assert begin is None or (start is not None and begin <= start)
