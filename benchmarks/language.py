"""How fast a query gets from text to canonical form: one query, and ten thousand gate queries.

The query is StreamReuse's Q1, a four-way window join; the gate queries are its Q3 with one flight
number each, every second one spelled differently. Beside it, on the same text, what sqlglot's own
qualifier and simplifier take for the plain SQL of the query. Refuses to report if two spellings of
one query differ in their digest, or two queries agree in it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import sqlglot
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.simplify import simplify

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream

STREAMS = """
CREATE STREAM flights (num INT, gate STRING, dest STRING, terminal STRING, carrier_code STRING,
  ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM weather (city STRING, forecast STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM `check-ins` (flight INT, status STRING, vacant_seats INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM baggage (flight INT, area STRING, status STRING, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
"""

Q1 = """
SELECT flights.num, flights.gate, baggage.area, `check-ins`.status, weather.forecast
FROM flights [RANGE 5 MIN SLIDE 1 MIN], weather [RANGE 5 MIN SLIDE 1 MIN],
     `check-ins` [RANGE 1 MIN SLIDE 1 MIN], baggage [RANGE 1 MIN SLIDE 1 MIN]
WHERE flights.dest = weather.city AND flights.num = `check-ins`.flight
  AND flights.num = baggage.flight AND flights.terminal = 'TERMINAL A'
  AND flights.carrier_code = 'DL'
"""

GATE = """
SELECT fl.gate, bg.status AS bag, ci.status AS seat
FROM flights fl [RANGE 5 MIN SLIDE 1 MIN], baggage bg [RANGE 1 MIN SLIDE 1 MIN],
     `check-ins` ci [RANGE 1 MIN SLIDE 1 MIN]
WHERE fl.num = ci.flight AND fl.num = bg.flight AND fl.num = {number}
"""

GATE_RESPELLED = """
SELECT c.status AS s1, f.gate AS g, b.status AS s2
FROM `check-ins` [RANGE 60 SECONDS SLIDE 1 MINUTE] AS c JOIN flights [RANGE 5 MIN SLIDE 1 MIN] AS f
  ON c.flight = f.num JOIN baggage [RANGE 1 MIN SLIDE 60 SEC] AS b ON b.flight = c.flight
WHERE {number} = b.flight
"""

GATES = 10_000


def median_ms(action: Callable[[], object], repeat: int = 300) -> float:
    for _ in range(20):
        action()
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def main() -> int:
    streams = [s.stream for s in parse(STREAMS) if isinstance(s, CreateStream)]
    names = Namespace.of(streams)

    def to_canonical(text: str) -> str:
        return canonicalize(parse_query(text, names)).digest

    def from_scratch() -> str:
        return canonicalize(parse_query(Q1, names.copy())).digest

    cold, known = median_ms(from_scratch), median_ms(lambda: to_canonical(Q1))
    print(f"Q1 to canonical form, its shape not met before: {cold:.3f} ms at the median")
    print(f"Q1 to canonical form, its shape known: {known:.3f} ms at the median")

    texts = [
        (GATE if number % 2 else GATE_RESPELLED).format(number=number) for number in range(GATES)
    ]
    begun = time.perf_counter()
    digests = [to_canonical(text) for text in texts]
    seconds = time.perf_counter() - begun
    print(f"{GATES:,} gate queries: {seconds:.2f} s, {GATES / seconds:,.0f} queries/s on one core")

    other = [to_canonical((GATE_RESPELLED if n % 2 else GATE).format(number=n)) for n in range(500)]
    if len(set(digests)) != GATES or digests[:500] != other:
        print("digests are wrong: nothing to report", file=sys.stderr)
        return 1

    schema = {s.name: {f.name: str(f.type) for f in s.schema} for s in streams}
    plain = Q1
    for window in (" [RANGE 5 MIN SLIDE 1 MIN]", " [RANGE 1 MIN SLIDE 1 MIN]"):
        plain = plain.replace(window, "")

    def with_sqlglot() -> object:
        tree = sqlglot.parse_one(plain, dialect="spark")
        return simplify(qualify(tree, schema=schema, dialect="spark"))

    theirs = median_ms(with_sqlglot)
    print(f"sqlglot parse + qualify + simplify of the plain SQL: {theirs:.3f} ms at the median")
    print(f"ratio: canonical form {theirs / cold:.2f}x as fast as sqlglot's optimizer passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
