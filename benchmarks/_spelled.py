"""Random queries of an airport from a few templates, each in somebody's own words.

A template says what is joined, bounded and told; constants, windows and columns are drawn, and then
the spelling: order of sources and conditions, JOIN .. ON or WHERE, sides of comparisons, `v > 5` or
`v + 1 > 6`, aliases, units of time, line breaks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headwater.algebra.catalog import Namespace
from headwater.cql import parse
from headwater.cql.statements import CreateStream

STREAMS = """
CREATE STREAM flights (num INT, gate STRING, dest STRING, terminal STRING, carrier STRING,
  ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM checkins (flight INT, status STRING, seats INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM baggage (flight INT, area STRING, status STRING, weight INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM weather (city STRING, forecast STRING, wind INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
"""

ALIASES = {
    "flights": ("f", "fl", "flights", "x"),
    "checkins": ("c", "ci", "checkins", "y"),
    "baggage": ("b", "bg", "baggage", "z"),
    "weather": ("w", "we", "weather", "v"),
}
MIRRORED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
NEGATED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}


@dataclass(frozen=True)
class Test:
    """A comparison of a column with a constant."""

    column: str
    op: str
    value: int | str


@dataclass(frozen=True)
class Asked:
    """What a query is, before it is written: its windows in seconds, and pairs of equal columns."""

    windows: tuple[tuple[str, int], ...]
    equal: tuple[tuple[str, str], ...]
    tests: tuple[Test, ...]
    told: tuple[str, ...]


# ---- templates


def gate(rng: random.Random) -> Asked:
    """All about one flight."""
    told = ("flights.gate", "checkins.status", "baggage.status")
    return Asked(
        (("flights", 300), ("checkins", 60), ("baggage", 60)),
        (("flights.num", "checkins.flight"), ("flights.num", "baggage.flight")),
        (Test("flights.num", "=", rng.randrange(100, 600)),),
        told,
    )


def terminal(rng: random.Random) -> Asked:
    """Flights of a terminal that have seats left."""
    told = ["flights.num", "flights.gate", "checkins.status", "checkins.seats"]
    return Asked(
        (("flights", rng.choice((300, 600))), ("checkins", rng.choice((60, 120, 300)))),
        (("flights.num", "checkins.flight"),),
        (
            Test("flights.terminal", "=", rng.choice("ABCD")),
            Test("checkins.seats", rng.choice((">", ">=")), rng.randrange(0, 50, 5)),
        ),
        tuple(rng.sample(told, rng.randint(2, 4))),
    )


def storms(rng: random.Random) -> Asked:
    """Flights into wind."""
    told = ["flights.num", "flights.dest", "weather.forecast", "weather.wind"]
    return Asked(
        (("flights", 300), ("weather", rng.choice((300, 900, 1800)))),
        (("flights.dest", "weather.city"),),
        (Test("weather.wind", ">", rng.randrange(20, 120, 10)),),
        tuple(rng.sample(told, 2)),
    )


def heavy(rng: random.Random) -> Asked:
    """Bags of some weight, anywhere or in an area."""
    tests = [Test("baggage.weight", rng.choice(("<", ">", ">=")), rng.randrange(5, 50))]
    if rng.random() < 0.5:
        tests.append(Test("baggage.area", "=", rng.choice(("hall", "belt", "hold"))))
    told = ["baggage.flight", "baggage.area", "baggage.status", "baggage.weight"]
    return Asked((("baggage", 0),), (), tuple(tests), tuple(rng.sample(told, 2)))


def display(rng: random.Random) -> Asked:
    """The flights of a carrier and a terminal, with bags and weather."""
    return Asked(
        (("flights", 300), ("weather", 300), ("checkins", 60), ("baggage", 60)),
        (
            ("flights.dest", "weather.city"),
            ("flights.num", "checkins.flight"),
            ("flights.num", "baggage.flight"),
        ),
        (
            Test("flights.terminal", "=", rng.choice("ABCD")),
            Test("flights.carrier", "=", rng.choice(("DL", "CO", "UA", "AA", "WN"))),
        ),
        ("flights.num", "flights.gate", "baggage.area", "checkins.status", "weather.forecast"),
    )


TEMPLATES = (gate, gate, gate, terminal, storms, heavy, display)


# ---- spelling


def spelled(asked: Asked, rng: random.Random) -> str:
    """The text of a query in the words of one of many people."""
    alias = {stream: rng.choice(ALIASES[stream]) for stream, _ in asked.windows}

    def named(column: str) -> str:
        stream, name = column.split(".")
        return f"{alias[stream]}.{name}"

    told = [f"{named(column)} AS {_name(column, rng)}" for column in asked.told]
    rng.shuffle(told)
    sources = [f"{s} {_window(size, rng)} AS {alias[s]}" for s, size in asked.windows]
    conditions = [_test(test, named(test.column), rng) for test in asked.tests]
    if rng.random() < 0.5:
        ties = [_sides(named(a), "=", named(b), rng) for a, b in _by_source(asked)]
        first, *others = sources
        joins = [f"JOIN {source} ON {tie}" for source, tie in zip(others, ties, strict=True)]
        origin = _space(rng).join([first, *joins])
    else:
        conditions += [_sides(named(a), "=", named(b), rng) for a, b in asked.equal]
        rng.shuffle(sources)
        origin = f",{_space(rng)}".join(sources)
    rng.shuffle(conditions)
    where = f"{_word('AND', rng)}{_space(rng)}".join(f"{c} " for c in conditions).strip()
    parts = [f"{_word('SELECT', rng)} {', '.join(told)}", f"{_word('FROM', rng)} {origin}"]
    return _space(rng).join([*parts, f"{_word('WHERE', rng)} {where}"])


def _by_source(asked: Asked) -> list[tuple[str, str]]:
    """The equality that ties each source but the first to one before it."""
    found = []
    for stream, _ in asked.windows[1:]:
        found.append(next(pair for pair in asked.equal if pair[1].startswith(f"{stream}.")))
    return found


def _test(test: Test, column: str, rng: random.Random) -> str:
    if isinstance(test.value, str):
        return _sides(column, "=", f"'{test.value}'", rng)
    by = rng.randrange(1, 4)
    ways = [
        (column, test.op, test.value),
        (column, test.op, test.value),
        (f"{column} + {by}", test.op, test.value + by),
        (f"{column} - {by}", test.op, test.value - by),
    ]
    left, op, value = rng.choice(ways)
    if op in NEGATED and rng.random() < 0.15:
        return f"{_word('NOT', rng)} {left} {NEGATED[op]} {value}"
    return _sides(left, op, str(value), rng)


def _sides(left: str, op: str, right: str, rng: random.Random) -> str:
    around = rng.choice(("", " "))
    if rng.random() < 0.5:
        left, op, right = right, MIRRORED[op], left
    return f"{left}{around}{op}{around}{right}"


def _name(column: str, rng: random.Random) -> str:
    stream, name = column.split(".")
    return rng.choice((f"{stream}_{name}", f"{name}_of_{stream}"))


def _window(seconds: int, rng: random.Random) -> str:
    if seconds == 0:
        return rng.choice(("[NOW]", "[RANGE 0 SECONDS]"))
    ways = [f"{seconds} {rng.choice(('SEC', 'SECONDS'))}"]
    if seconds % 60 == 0:
        ways.append(f"{seconds // 60} {rng.choice(('MIN', 'MINUTES'))}")
    return f"[RANGE {rng.choice(ways)}]"


def _word(word: str, rng: random.Random) -> str:
    return word.lower() if rng.random() < 0.3 else word


def _space(rng: random.Random) -> str:
    return rng.choice((" ", "\n"))


def queries(number: int, seed: int = 1) -> list[str]:
    """Texts of random queries."""
    rng = random.Random(seed)
    return [spelled(rng.choice(TEMPLATES)(rng), rng) for _ in range(number)]


def names() -> Namespace:
    return Namespace.of([s.stream for s in parse(STREAMS) if isinstance(s, CreateStream)])
