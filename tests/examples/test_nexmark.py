"""NEXMark in CQL, checked three ways.

The golden files hold all rows (`pytest --update-golden` writes them again). A few results are small enough to
be worked out by hand from the data. And every query is asked of DuckDB as well, in the benchmark's own words
(window functions, row numbers), at all instants at once: `SELECT t, ..` is the answer at every instant
t, from which `_emitted` takes what ISTREAM or RSTREAM emit.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import duckdb
import pytest
from example_rows import (
    EXAMPLES,
    Row,
    assert_same_rows,
    in_order,
    read_rows,
    rows_by_query,
    write_rows,
)

from headwater.cql import CreateQuery, parse

NEXMARK = EXAMPLES / "nexmark"
QUERIES = [f"q{n}" for n in range(23) if n != 12] + ["q12_event_time"]


@cache
def _rows(query: str) -> list[Row]:
    return rows_by_query(NEXMARK, query)[query]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_the_golden_ones(query: str, update_golden: bool) -> None:
    path = NEXMARK / "expected" / f"{query}.jsonl"
    rows = in_order(_rows(query))
    if update_golden:
        write_rows(path, rows)
    assert_same_rows(rows, read_rows(path))


def test_every_query_is_checked() -> None:
    statements = parse((NEXMARK / "queries.cql").read_text())
    assert {s.name for s in statements if isinstance(s, CreateQuery)} == set(QUERIES)
    assert set(QUERIES) == set(ANSWERS)
    assert {path.stem for path in NEXMARK.glob("expected/*.jsonl")} == set(QUERIES)


def test_the_data_is_what_the_script_writes(tmp_path: Path) -> None:
    script = (NEXMARK / "generate.py").read_text()
    (tmp_path / "generate.py").write_text(script)
    subprocess.run([sys.executable, "generate.py"], cwd=tmp_path, check=True)
    for path in (NEXMARK / "data").iterdir():
        assert (tmp_path / "data" / path.name).read_text() == path.read_text()


# ---- by hand


def _row(query: str, time: str, **columns: object) -> Row:
    return {**columns, "_tau": f"2026-03-01T{time}00Z", "_query": query}


BY_HAND = {
    # The only multiple of 123 from 1100 to 1129 is 1107 = 9 * 123, and it has two bids.
    "q2": [
        _row("q2", "23:58:21.3000", auction=1107, price=2337),
        _row("q2", "23:58:34.0000", auction=1107, price=424954),
    ],
    # Of the auctions of category 10, those of sellers 1006, 1008 (AZ) and 1019 (WA) do not count.
    "q3": [
        _row("q3", "23:57:56.7000", name="Donald", city="San Mateo", state="CA", id=1105),
        _row("q3", "23:58:08.0000", name="Edsger", city="San Mateo", state="CA", id=1108),
        _row("q3", "23:58:53.0000", name="Donald", city="San Mateo", state="CA", id=1116),
    ],
    # 1000 registers at 57:36.7, with auctions at 57:30.1 and 57:33.3; 1006 at 58:23 and 58:29.5; 1008 at
    # 58:44.3 and 58:47.1; 1010 at 58:53.9 and 58:58.9; 1015 at 59:40.7 and 59:44. 1003 (57:59, 58:02), 1007
    # (58:30.6, 58:43.4) and 1019 (59:56.1, 00:14.1) are in different windows.
    "q8": [
        _row("q8", "23:57:40.0000", id=1000, name="Donald"),
        _row("q8", "23:58:30.0000", id=1006, name="Carol"),
        _row("q8", "23:58:50.0000", id=1008, name="Edsger"),
        _row("q8", "23:59:00.0000", id=1010, name="Ada"),
        _row("q8", "23:59:50.0000", id=1015, name="Frances"),
    ],
}


@pytest.mark.parametrize("query", BY_HAND)
def test_rows_are_those_worked_out_by_hand(query: str) -> None:
    assert_same_rows(_rows(query), BY_HAND[query])


# ---- by DuckDB

SETUP = """
CREATE TABLE person AS SELECT * FROM read_csv('{data}/person.csv', types={{'date_time': 'TIMESTAMP'}});
CREATE TABLE auction AS SELECT * FROM read_csv('{data}/auction.csv', types={{'date_time': 'TIMESTAMP', 'expires': 'TIMESTAMP'}});
CREATE TABLE bid AS SELECT *, row_number() OVER () AS arrival FROM read_csv('{data}/bid.csv', types={{'date_time': 'TIMESTAMP'}});
CREATE TABLE side_input AS SELECT * FROM read_csv('{data}/side_input.csv');

CREATE TABLE bids AS SELECT DISTINCT date_time AS t FROM bid;
CREATE TABLE bids_and_auctions AS FROM bids UNION SELECT date_time FROM auction;
CREATE MACRO up(t, step) AS to_timestamp(ceil(epoch(t) / step) * step) AT TIME ZONE 'UTC';
CREATE MACRO every(step, first, last) AS TABLE
  SELECT unnest(generate_series(up(first, step), up(last, step), to_seconds(step))) AS t;
CREATE TABLE every_2s AS FROM every(2, (SELECT min(t) FROM bids), (SELECT max(t) FROM bids));
CREATE TABLE every_10s AS FROM every(10, (SELECT min(t) FROM bids), (SELECT max(t) FROM bids));
CREATE TABLE registering AS
  FROM every(10, (SELECT min(date_time) FROM auction), (SELECT max(date_time) FROM auction));

CREATE TABLE closed AS
  WITH clock AS (SELECT t, max(date_time) AS now FROM bids_and_auctions JOIN bid ON date_time <= t GROUP BY t)
  SELECT t, a.id, a.item_name, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time AS bid_time,
         row_number() OVER (PARTITION BY t, a.id ORDER BY b.price DESC, b.date_time) AS place
  FROM clock
  JOIN auction AS a ON a.date_time <= t AND a.expires <= now
  JOIN bid AS b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires;
"""

# The answer at every instant t. A column called id_ distinguishes rows, and is not shown.
ANSWERS = {
    "q0": "SELECT t, auction, bidder, price, date_time, extra, arrival AS id_ FROM bids JOIN bid ON date_time = t",
    "q1": "SELECT t, auction, bidder, 0.908 * price, date_time, extra, arrival AS id_ FROM bids JOIN bid ON date_time = t",
    "q2": "SELECT t, auction, price, arrival AS id_ FROM bids JOIN bid ON date_time = t WHERE auction IN (1107, 1230)",
    "q3": """
        SELECT greatest(p.date_time, a.date_time) AS t, name, city, state, a.id, a.id AS id_
        FROM person AS p, auction AS a
        WHERE p.id = seller AND category = 10 AND city IN ('Portland', 'Boise', 'San Mateo')
    """,
    "q4": "SELECT t, category, avg(price) FROM closed WHERE place = 1 GROUP BY ALL",
    "q5": """
        WITH counts AS (
          SELECT t, auction, count(*) AS num
          FROM every_2s JOIN bid ON date_time > t - INTERVAL 10 SECONDS AND date_time <= t
          GROUP BY ALL
        )
        SELECT t, auction, num FROM counts QUALIFY rank() OVER (PARTITION BY t ORDER BY num DESC) = 1
    """,
    "q6": """
        WITH last_ten AS (
          FROM closed WHERE place = 1
          QUALIFY row_number() OVER (PARTITION BY t, seller ORDER BY expires DESC, id DESC) <= 10
        )
        SELECT t, seller, avg(price) FROM last_ten GROUP BY ALL
    """,
    "q7": """
        SELECT t, auction, price, bidder, date_time
        FROM every_10s JOIN bid ON date_time > t - INTERVAL 10 SECONDS AND date_time <= t
        QUALIFY rank() OVER (PARTITION BY t ORDER BY price DESC) = 1
    """,
    "q8": """
        SELECT DISTINCT t, p.id, p.name
        FROM registering
        JOIN person AS p ON p.date_time > t - INTERVAL 10 SECONDS AND p.date_time <= t
        JOIN auction AS a ON a.date_time > t - INTERVAL 10 SECONDS AND a.date_time <= t AND a.seller = p.id
    """,
    "q9": "SELECT t, id, item_name, seller, category, expires, bidder, price, bid_time FROM closed WHERE place = 1",
    "q10": """
        SELECT t, auction, bidder, price, date_time, extra, strftime(t, '%Y-%m-%d'), strftime(t, '%H:%M'), arrival AS id_
        FROM bids JOIN bid ON date_time = t
    """,
    "q11": """
        WITH seen AS (
          SELECT t, bidder, date_time,
                 date_time - lag(date_time) OVER (PARTITION BY t, bidder ORDER BY date_time) AS pause
          FROM bids JOIN bid ON date_time <= t
        ), numbered AS (
          SELECT *, count(*) FILTER (pause IS NULL OR pause > INTERVAL 10 SECONDS)
                    OVER (PARTITION BY t, bidder ORDER BY date_time) AS session
          FROM seen
        )
        SELECT t, bidder, count(*), min(date_time), max(date_time)
        FROM numbered GROUP BY t, bidder, session HAVING max(date_time) + INTERVAL 10 SECONDS < t
    """,
    "q12_event_time": """
        SELECT t, bidder, count(*)
        FROM every_10s JOIN bid ON date_time > t - INTERVAL 10 SECONDS AND date_time <= t
        GROUP BY ALL
    """,
    "q13": """
        SELECT t, auction, bidder, price, date_time, value, arrival AS id_
        FROM bids JOIN bid ON date_time = t JOIN side_input ON key = auction % 10
    """,
    "q14": """
        SELECT t, auction, bidder, 0.908 * price,
               if(hour(date_time) BETWEEN 8 AND 18, 'dayTime', if(hour(date_time) IN (7, 19), 'otherTime', 'nightTime')),
               date_time, extra, len(regexp_extract_all(extra, 'c')), arrival AS id_
        FROM bids JOIN bid ON date_time = t
        WHERE 0.908 * price BETWEEN 1000000.001 AND 49999999.999
    """,
    "q15": """
        SELECT t, strftime(date_time, '%Y-%m-%d') AS day, count(*), sum(r1), sum(r2), sum(r3),
               count(DISTINCT bidder), count(DISTINCT if(r1 = 1, bidder, NULL)),
               count(DISTINCT if(r2 = 1, bidder, NULL)), count(DISTINCT if(r3 = 1, bidder, NULL)),
               count(DISTINCT auction), count(DISTINCT if(r1 = 1, auction, NULL)),
               count(DISTINCT if(r2 = 1, auction, NULL)), count(DISTINCT if(r3 = 1, auction, NULL))
        FROM bids JOIN (
          SELECT *, (price < 10000)::INT AS r1, (price BETWEEN 10000 AND 999999)::INT AS r2,
                 (price >= 1000000)::INT AS r3
          FROM bid
        ) ON date_time <= t
        GROUP BY t, day
    """,
    "q16": """
        SELECT t, channel, strftime(date_time, '%Y-%m-%d') AS day, strftime(max(date_time), '%H:%M'),
               count(*), sum(r1), sum(r2), sum(r3),
               count(DISTINCT bidder), count(DISTINCT if(r1 = 1, bidder, NULL)),
               count(DISTINCT if(r2 = 1, bidder, NULL)), count(DISTINCT if(r3 = 1, bidder, NULL)),
               count(DISTINCT auction), count(DISTINCT if(r1 = 1, auction, NULL)),
               count(DISTINCT if(r2 = 1, auction, NULL)), count(DISTINCT if(r3 = 1, auction, NULL))
        FROM bids JOIN (
          SELECT *, (price < 10000)::INT AS r1, (price BETWEEN 10000 AND 999999)::INT AS r2,
                 (price >= 1000000)::INT AS r3
          FROM bid
        ) ON date_time <= t
        GROUP BY t, channel, day
    """,
    "q17": """
        SELECT t, auction, strftime(date_time, '%Y-%m-%d') AS day, count(*), count(*) FILTER (price < 10000),
               count(*) FILTER (price BETWEEN 10000 AND 999999), count(*) FILTER (price >= 1000000),
               min(price), max(price), avg(price), sum(price)
        FROM bids JOIN bid ON date_time <= t
        GROUP BY t, auction, day
    """,
    "q18": """
        SELECT t, auction, bidder, price, channel, date_time, extra, arrival AS id_
        FROM bids JOIN bid ON date_time <= t
        QUALIFY row_number() OVER (PARTITION BY t, bidder, auction ORDER BY date_time DESC, arrival DESC) = 1
    """,
    "q19": """
        SELECT t, auction, bidder, price, date_time,
               rank() OVER (PARTITION BY t, auction ORDER BY price DESC, date_time) AS place
        FROM bids JOIN bid ON date_time <= t
        QUALIFY place <= 10
    """,
    "q20": """
        SELECT t, auction, bidder, price, channel, b.date_time, item_name, initial_bid, reserve,
               a.date_time, expires, seller, category, arrival AS id_
        FROM bids_and_auctions JOIN bid AS b ON b.date_time <= t JOIN auction AS a ON a.date_time <= t AND a.id = b.auction
        WHERE category = 10
    """,
    "q21": """
        SELECT t, auction, bidder, price, channel,
               coalesce(MAP {'Apple': '0', 'Google': '1', 'Facebook': '2', 'Baidu': '3'}[channel],
                        nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')) AS channel_id,
               arrival AS id_
        FROM bids JOIN bid ON date_time = t
        WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT t, auction, bidder, price, channel, string_split(url, '/')[4], string_split(url, '/')[5],
               string_split(url, '/')[6], arrival AS id_
        FROM bids JOIN bid ON date_time = t
    """,
}
WHOLE = {"q5", "q7", "q8", "q12_event_time"}  # emitted by RSTREAM


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(SETUP.format(data=NEXMARK / "data"))
    return connection


def _emitted(query: str) -> Counter[tuple[str, ...]]:
    """The rows emitted from DuckDB's answers: (instant, values) as texts, each as often as it is emitted."""
    found = _duckdb().execute(ANSWERS[query])
    names = [column[0] for column in found.description or ()]
    hidden = names.index("id_") if "id_" in names else len(names)
    answers: dict[object, Counter[tuple[object, ...]]] = {}
    for t, *values in found.fetchall():
        answers.setdefault(t, Counter())[tuple(values)] += 1
    emitted: Counter[tuple[str, ...]] = Counter()
    before: Counter[tuple[object, ...]] = Counter()
    for t in sorted(answers, key=str):
        new = answers[t] if query in WHOLE else answers[t] - before
        for values, count in new.items():
            emitted[tuple(map(_text, (t, *values[: hidden - 1])))] += count
        before = answers[t]
    return emitted


def _text(value: object) -> str:
    """A value in a form that does not depend on who computed it."""
    text = str(value)
    if isinstance(value, str) and text.endswith("Z") and "T" in text:
        text = text.replace("T", " ").removesuffix("Z")
    if ":" in text and "." in text:
        text = text.rstrip("0").rstrip(".")
    try:
        return f"{float(text):.13g}"
    except ValueError:
        return text


@pytest.mark.parametrize("query", ANSWERS)
def test_duckdb_says_the_same(query: str) -> None:
    got: Counter[tuple[str, ...]] = Counter()
    for row in _rows(query):
        values = [value for name, value in row.items() if name not in ("_tau", "_query")]
        got[tuple(map(_text, (row["_tau"], *values)))] += 1
    assert got and got == _emitted(query)
