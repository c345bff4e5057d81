#!/usr/bin/env python3
"""The queries of an airport at work, as CQL: `python workload.py --input in > workload.cql`.

After the workload of the StreamReuse paper: agents at gates ask about their flight, displays in
terminals about their flights, managers about everything; passengers ask too. Nobody looks at what others have asked, so
the same question is asked again and again, in other words. The streams are those of airline.cql, read
from the folders that simulate.py fills.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GATES = (117, 204, 311, 450, 512, 608, 733, 845, 919, 1020, 1136, 1244)
TERMINALS = ("A", "B", "C")

# ---- the same question in three people's words

GATE = (
    """
SELECT fl.gate, bg.status AS bags, ci.status AS check_in
FROM flights [RANGE 5 MIN SLIDE 1 MIN] AS fl,
     baggage [RANGE 1 MIN SLIDE 1 MIN] AS bg,
     `check-ins` [RANGE 1 MIN SLIDE 1 MIN] AS ci
WHERE fl.num = ci.flight AND fl.num = bg.flight AND fl.num = {flight}""",
    """
SELECT c.status AS counter, f.gate, b.status AS luggage
FROM `check-ins` [RANGE 60 SECONDS SLIDE 60 SECONDS] AS c
  JOIN flights [RANGE 300 SECONDS SLIDE 60 SECONDS] AS f ON c.flight = f.num
  JOIN baggage [RANGE 60 SEC SLIDE 1 MINUTE] AS b ON b.flight = c.flight
WHERE NOT (b.flight < {flight} OR b.flight > {flight})""",
    """
SELECT f.gate AS door, x.bags, x.people
FROM flights [RANGE 5 MIN SLIDE 1 MIN] AS f
  JOIN (SELECT b.flight, b.status AS bags, c.status AS people
        FROM baggage [RANGE 1 MIN SLIDE 1 MIN] AS b
          JOIN `check-ins` [RANGE 1 MIN SLIDE 1 MIN] AS c ON b.flight = c.flight) AS x
    ON x.flight = f.num
WHERE f.num IN ({flight})""",
)
ASKED_BY = ("gate", "display", "phone")

TERMINAL = (
    """
SELECT fl.num, fl.gate, bg.area, ci.status, w.forecast
FROM flights [RANGE 5 MIN SLIDE 1 MIN] AS fl, weather [RANGE 5 MIN SLIDE 1 MIN] AS w,
     `check-ins` [RANGE 1 MIN SLIDE 1 MIN] AS ci, baggage [RANGE 1 MIN SLIDE 1 MIN] AS bg
WHERE fl.dest = w.city AND fl.num = ci.flight AND fl.num = bg.flight
  AND fl.terminal = 'TERMINAL {terminal}' AND bg.status = 'LOADED'""",
    """
SELECT f.gate, f.num AS flight, c.status AS check_in, w.forecast AS weather, b.area AS bags
FROM baggage [RANGE 60 SEC SLIDE 60 SEC] AS b
  JOIN `check-ins` [RANGE 60 SEC SLIDE 60 SEC] AS c ON b.flight = c.flight
  JOIN flights [RANGE 300 SEC SLIDE 60 SEC] AS f ON f.num = b.flight
  JOIN weather [RANGE 300 SEC SLIDE 60 SEC] AS w ON w.city = f.dest
WHERE 'LOADED' = b.status AND 'TERMINAL {terminal}' = f.terminal""",
)
SHOWN_IN = ("hall", "lounge")

PASSENGER = {
    "my_flight": """
SELECT gate, status FROM flights [NOW] WHERE num = {flight}""",
    "my_bags": """
SELECT bag, area, status FROM baggage [NOW] WHERE flight = {flight}""",
    "my_counter": """
SELECT status, vacant_seats FROM `check-ins` [NOW] WHERE {flight} = flight""",
    "my_weather": """
SELECT f.gate, w.forecast
FROM flights [RANGE 5 MIN] AS f JOIN weather [RANGE {minutes} MIN] AS w ON f.dest = w.city
WHERE f.num = {flight}""",
    "my_boarding": """
SELECT f.gate, f.status, c.vacant_seats
FROM flights [RANGE {minutes} MIN] AS f, `check-ins` [RANGE 1 MIN] AS c
WHERE f.num = c.flight AND f.num = {flight} AND c.vacant_seats < {seats}""",
    "my_belts": """
SELECT area, COUNT(*) AS bags FROM baggage [RANGE {minutes} MIN SLIDE 1 MIN]
WHERE flight = {flight} GROUP BY area""",
}

CITY = {
    "forecast": """
SELECT forecast FROM weather [NOW] WHERE city = '{city}'""",
    "storm": """
SELECT city, forecast FROM weather [NOW]
WHERE city = '{city}' AND forecast IN ('STORM', 'SNOW', 'THUNDERSTORM')""",
    "bound_for": """
SELECT f.num, f.gate, w.forecast
FROM flights [RANGE 2 MIN] AS f, weather [RANGE 5 MIN] AS w
WHERE f.dest = w.city AND w.city = '{city}'""",
    "traffic": """
SELECT status, COUNT(*) AS reports FROM flights [RANGE 5 MIN SLIDE 1 MIN]
WHERE dest = '{city}' GROUP BY status""",
}
CITIES = ("BOS", "CDG", "JFK", "LHR", "SEA", "SFO")

THRESHOLD = {
    "heavier_than": """
SELECT bag, flight, weight FROM baggage [NOW] WHERE weight > {level}""",
    "fuller_than": """
SELECT flight, vacant_seats FROM `check-ins` [NOW] WHERE vacant_seats < {level}""",
    "sold_above": """
SELECT flight, price FROM sales [NOW] WHERE price >= {level} * 20""",
}
LEVELS = tuple(range(12, 40, 2))

REVENUE = """
SELECT flight, COUNT(*) AS tickets, MAX(price) AS dearest
FROM sales [RANGE {minutes} MIN SLIDE 1 MIN] GROUP BY flight"""

MONITORING = {
    "disrupted": """
SELECT num, gate, dest, status FROM flights [NOW] WHERE status IN ('DELAYED', 'CANCELLED')""",
    "trouble": """
SELECT f.dest AS destination, f.num AS flight, f.status, f.gate
FROM flights [RANGE 0 SECONDS] AS f
WHERE f.status = 'CANCELLED' OR f.status = 'DELAYED'""",
    "departures": """
SELECT f.num, a.city, a.country, f.gate, f.status
FROM flights [NOW] AS f JOIN airports AS a ON a.code = f.dest""",
    "board": """
SELECT f.gate, f.num AS flight, f.status, a.city AS to_city, a.country AS to_country
FROM airports AS a, flights [NOW] AS f WHERE a.code = f.dest""",
    "seats_to_spare": """
SELECT f.num, c.status, c.vacant_seats
FROM flights [RANGE 5 MIN SLIDE 5 MIN] AS f, `check-ins` [RANGE 5 MIN SLIDE 5 MIN] AS c
WHERE f.num = c.flight AND f.carrier_code IN ('DL', 'CO') AND c.vacant_seats >= 40""",
    "merge_these": """
SELECT c.vacant_seats AS seats, c.flight, c.status
FROM `check-ins` [RANGE 300 SEC SLIDE 300 SEC] AS c
  JOIN flights [RANGE 300 SEC SLIDE 300 SEC] AS f ON c.flight = f.num
WHERE (f.carrier_code = 'CO' OR f.carrier_code = 'DL') AND NOT c.vacant_seats < 40""",
    "bags_by_area": """
SELECT area, COUNT(*) AS bags, SUM(weight) AS kilograms
FROM baggage [RANGE 5 MIN SLIDE 1 MIN] GROUP BY area""",
    "belts": """
SELECT SUM(b.weight) AS load, COUNT(*) AS pieces, b.area AS belt
FROM baggage [RANGE 300 SEC SLIDE 60 SEC] AS b GROUP BY b.area""",
    "best_sellers": """
SELECT flight, COUNT(*) AS tickets, SUM(price) AS revenue, AVG(price) AS average
FROM sales [RANGE 10 MIN SLIDE 5 MIN] GROUP BY flight HAVING SUM(price) > 500""",
}


@dataclass(frozen=True)
class Asked:
    """A query, and who asks it: gate, terminal, passenger, .. or monitoring."""

    kind: str
    name: str
    text: str
    lifetime: str = ""

    def __str__(self) -> str:
        lifetime = f" LIFETIME {self.lifetime}" if self.lifetime else ""
        return f"CREATE QUERY {self.name}{lifetime} AS{self.text};"


def workload(
    gates: Sequence[int] = GATES, terminals: Sequence[str] = TERMINALS
) -> tuple[Asked, ...]:
    """What is asked, kind by kind."""
    return (
        *(
            Asked("gate", f"{who}_{flight}", words.format(flight=flight), "2 HOURS")
            for flight in gates
            for who, words in zip(ASKED_BY, GATE, strict=True)
        ),
        *(
            Asked(
                "terminal",
                f"{where}_{terminal.lower()}",
                words.format(terminal=terminal),
                "12 HOURS",
            )
            for terminal in terminals
            for where, words in zip(SHOWN_IN, TERMINAL, strict=True)
        ),
        *(
            Asked("passenger", f"{name}_{flight}", text.format(**asked), "2 HOURS")
            for n, flight in enumerate(gates)
            for name, text in PASSENGER.items()
            for asked in [{"flight": flight, "minutes": 1 + n % 5, "seats": 30 + 5 * n}]
        ),
        *(
            Asked("city", f"{name}_{city.lower()}", text.format(city=city))
            for city in CITIES
            for name, text in CITY.items()
        ),
        *(
            Asked("threshold", f"{name}_{level}", text.format(level=level))
            for level in LEVELS
            for name, text in THRESHOLD.items()
        ),
        *(
            Asked("revenue", f"revenue_{minutes}", REVENUE.format(minutes=minutes))
            for minutes in range(1, 13)
        ),
        *(Asked("monitoring", name, text) for name, text in MONITORING.items()),
    )


def streams(folder: Path) -> str:
    """The declarations of airline.cql, for the folders below this one instead of its files."""
    text = (HERE / "airline.cql").read_text(encoding="utf-8")
    found = re.findall(r"^CREATE (?:STREAM|TABLE) .*?;\n", text, re.MULTILINE | re.DOTALL)
    declared = "\n".join(found)
    declared = re.sub(
        r"(?s)(CREATE STREAM `?([\w-]+).*?)FROM files\(.*?\)",
        lambda m: f"{m[1]}FROM files(path => '{folder / m[2]}', format => 'json')",
        declared,
    )
    return declared.replace("'data/airports.csv'", f"'{HERE.resolve() / 'data/airports.csv'}'")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the queries of an airport as CQL.")
    parser.add_argument("--input", type=Path, default=Path("in"), help="what simulate.py fills")
    given = parser.parse_args()
    print(streams(given.input))
    print("\n\n".join(str(asked) for asked in workload()))


if __name__ == "__main__":
    main()
