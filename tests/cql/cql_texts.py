"""Random CQL texts from a grammar, and random damage to them.

A `Writer` draws every choice from a `random.Random`, so a seed names a text. What it writes is
correct: queries bind over NAMES, statements declare names that are free.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.cql import CreateStream, CreateTable, parse

DECLARATIONS = """
CREATE STREAM flights (
  num INT NOT NULL, gate STRING, dest STRING, terminal STRING, carrier_code STRING,
  delay DOUBLE, fare DECIMAL(8,2), boarding BOOLEAN, ts TIMESTAMP
) TIMESTAMP BY ts LATENESS 5 SECONDS KEEP 2 HOURS FROM files(path => 'in/flights', format => 'json');
CREATE STREAM weather (city STRING, forecast STRING, wind INT, day DATE, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM `check-ins` (flight INT, status STRING, vacant_seats INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM kafka(topic => 'check-ins');
CREATE STREAM baggage (flight INT, area STRING, status STRING, weight FLOAT, `timestamp` TIMESTAMP)
  TIMESTAMP BY `timestamp` FROM CLIENT;
CREATE TABLE airports (code STRING NOT NULL, city STRING, runways TINYINT)
  FROM files(path => 'airports.csv');
"""


def declared(text: str) -> list[Stream | Table]:
    """The streams and tables that a text declares."""
    return [
        s.stream if isinstance(s, CreateStream) else s.table
        for s in parse(text)
        if isinstance(s, CreateStream | CreateTable)
    ]


NAMES = Namespace.of(declared(DECLARATIONS))

KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "number"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "number"),
    "STRING": "text",
    "BOOLEAN": "truth",
    "TIMESTAMP": "time",
    "DATE": "day",
}


@dataclass(frozen=True)
class Source:
    """A relation that was written into a FROM: its alias and the kinds of its columns."""

    alias: str
    columns: tuple[tuple[str, str], ...]


def quote(name: str) -> str:
    return name if name.isidentifier() and name != "timestamp" else f"`{name}`"


class Writer:
    """Writes random texts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.aliases = 0

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def case(self, word: str) -> str:
        return word if self.chance(70) else word.lower()

    # ---- expressions, by the kind of their value

    def value(self, kind: str, sources: Sequence[Source], depth: int) -> str:
        write: dict[str, Callable[[Sequence[Source], int], str]] = {
            "number": self.number,
            "text": self.text,
            "truth": self.truth,
            "time": self.time,
            "day": self.day,
        }
        return write[kind](sources, depth)

    def column(self, kind: str, sources: Sequence[Source]) -> str | None:
        found = [(s.alias, name) for s in sources for name, k in s.columns if k == kind]
        if not found:
            return None
        alias, name = self.rng.choice(found)
        alone = sum(name == other for s in sources for other, _ in s.columns) == 1
        return quote(name) if alone and self.chance(50) else f"{quote(alias)}.{quote(name)}"

    def leaf(self, kind: str, sources: Sequence[Source], *constants: str) -> str:
        column = self.column(kind, sources)
        return column if column is not None and self.chance(70) else self.pick(*constants)

    def number(self, sources: Sequence[Source], depth: int) -> str:
        if depth <= 0 or self.chance(35):
            return self.leaf(
                "number", sources, "0", "5", "-7", "2.50", "1e3", "5L", "3S", "0.5D", "9999999999"
            )
        a, b = self.number(sources, depth - 1), self.number(sources, depth - 1)
        match self.rng.randrange(12):
            case 0 | 1 | 2:
                return f"{a} {self.pick('+', '-', '*', '/', '%')} {b}"
            case 3:
                return f"({a} {self.pick('+', '-', '*')} {b})"
            case 4:
                return f"-({a})"
            case 5:
                return f"{self.pick('abs', 'CEIL', 'floor', 'round', 'sqrt', 'sign')}({a})"
            case 6:
                return f"{self.pick('coalesce', 'greatest', 'least', 'nvl', 'nullif')}({a}, {b})"
            case 7:
                return (
                    f"{self.pick('length', 'len', 'char_length')}({self.text(sources, depth - 1)})"
                )
            case 8:
                return f"CAST({a} AS {self.pick('INT', 'BIGINT', 'DOUBLE', 'DECIMAL(10,2)', 'tinyint')})"
            case 9:
                part = self.pick("year", "month", "day", "dayofmonth", "quarter")
                return f"{part}({self.time(sources, depth - 1)})"
            case 10:
                return (
                    f"EXTRACT({self.pick('HOUR', 'minute')} FROM {self.time(sources, depth - 1)})"
                )
            case _:
                return self.choice("number", sources, depth)

    def text(self, sources: Sequence[Source], depth: int) -> str:
        if depth <= 0 or self.chance(40):
            return self.leaf(
                "text", sources, "'DL'", "''", "'it''s'", "'a\\\\b\\n'", '"q"', "r'\\d+'", "'%_'"
            )
        a = self.text(sources, depth - 1)
        match self.rng.randrange(6):
            case 0:
                return f"{self.pick('upper', 'lower', 'trim', 'reverse', 'initcap')}({a})"
            case 1:
                return f"{a} || {self.text(sources, depth - 1)}"
            case 2:
                return f"{self.pick('substr', 'substring')}({a}, 1, 2)"
            case 3:
                return f"CAST({self.number(sources, depth - 1)} AS STRING)"
            case 4:
                return f"{self.pick('left', 'RIGHT')}({a}, 3)"
            case _:
                return self.choice("text", sources, depth)

    def time(self, sources: Sequence[Source], depth: int) -> str:
        if depth <= 0 or self.chance(50):
            return self.leaf(
                "time",
                sources,
                "TIMESTAMP '2026-01-31 12:30:00'",
                "timestamp '2026-01-31T00:00:00.5Z'",
            )
        a = self.time(sources, depth - 1)
        match self.rng.randrange(3):
            case 0:
                return f"{a} {self.pick('+', '-')} {self.interval()}"
            case 1:
                return f"date_trunc('{self.pick('hour', 'DAY', 'minute')}', {a})"
            case _:
                return self.choice("time", sources, depth)

    def interval(self) -> str:
        count = self.rng.randrange(1, 90)
        unit = self.pick("SECOND", "MINUTE", "HOUR", "DAY", "MILLISECOND")
        return self.pick(
            f"INTERVAL '{count}' {unit}", f"INTERVAL {count} {unit}S", f"interval '-{count}' {unit}"
        )

    def day(self, sources: Sequence[Source], _depth: int) -> str:
        return self.leaf("day", sources, "DATE '2026-01-31'", "date '1969-12-31'")

    def choice(self, kind: str, sources: Sequence[Source], depth: int) -> str:
        a, b = (self.value(kind, sources, depth - 1) for _ in range(2))
        test = self.truth(sources, depth - 1)
        match self.rng.randrange(4):
            case 0:
                return f"CASE WHEN {test} THEN {a} END"
            case 1:
                return f"case {a} when {b} then {a} when {a} then {b} else {b} end"
            case 2:
                return f"if({test}, {a}, {b})"
            case _:
                return f"CASE WHEN {test} THEN {a} WHEN {test} THEN {b} ELSE NULL END"

    def truth(self, sources: Sequence[Source], depth: int) -> str:
        if depth <= 0:
            return self.leaf("truth", sources, "TRUE", "false", "NULL IS NULL")
        deeper = depth - 1
        match self.rng.randrange(12):
            case 0 | 1 | 2:
                kind = self.pick("number", "text", "time", "number")
                a, b = self.value(kind, sources, deeper), self.value(kind, sources, deeper)
                return (
                    f"({a}) {self.pick('=', '<', '<=', '>', '>=', '<>', '!=', '<=>', '==')} ({b})"
                )
            case 3:
                return f"{self.test(sources, deeper)} {self.case(self.pick('AND', 'OR'))} {self.test(sources, deeper)}"
            case 4:
                return f"NOT ({self.truth(sources, deeper)})"
            case 5:
                return f"({self.number(sources, deeper)}) IS {self.pick('', 'NOT')} NULL"
            case 6:
                listed = ", ".join(self.number(sources, 0) for _ in range(self.rng.randrange(1, 4)))
                return f"({self.number(sources, deeper)}) {self.pick('', 'NOT')} IN ({listed})"
            case 7:
                low, high = self.number(sources, 0), self.number(sources, 0)
                return f"({self.number(sources, deeper)}) {self.pick('', 'NOT')} BETWEEN {low} AND {high}"
            case 8:
                how = self.pick("LIKE", "NOT LIKE", "RLIKE", "NOT RLIKE")
                pattern = self.pick("a", "a%", "_b", "%", "^a.")
                return f"({self.text(sources, deeper)}) {how} '{pattern}'"
            case 9:
                return f"({self.truth(sources, deeper)}) IS {self.pick('', 'NOT')} {self.pick('TRUE', 'FALSE')}"
            case 10:
                call = self.pick("startswith", "endswith", "contains")
                return f"{call}({self.text(sources, deeper)}, {self.text(sources, 0)})"
            case _:
                a, b = self.number(sources, deeper), self.number(sources, deeper)
                return f"({a}) IS {self.pick('', 'NOT')} DISTINCT FROM ({b})"

    def test(self, sources: Sequence[Source], depth: int) -> str:
        return f"({self.truth(sources, depth)})" if self.chance(60) else self.truth(sources, 0)

    # ---- FROM

    def alias(self) -> str:
        self.aliases += 1
        return self.pick("a", "t", "Q", "check-", "date") + str(self.aliases)

    def window(self, columns: Sequence[tuple[str, str]]) -> str:
        key = quote(self.rng.choice(columns)[0])
        return self.pick(
            "", "[NOW]", "[range 5 min]", "[RANGE 1.5 SECONDS]", "[RANGE UNBOUNDED]", "[ROWS 10]",
            "[RANGE 1 HOUR SLIDE 1 MINUTE]", "[RANGE 90S]", f"[PARTITION BY {key} ROWS 2]",
            "[Range UNBOUNDED Slide 5 Sec]",
        )  # fmt: skip

    def relation(self, depth: int) -> tuple[str, Source]:
        if depth > 0 and self.chance(25):
            return self.subquery(depth - 1)
        known = self.rng.choice([NAMES[name] for name in NAMES.names])
        columns = tuple((f.name, KINDS[f.type.name]) for f in known.schema)
        window = self.window(columns) if isinstance(known, Stream) else ""
        name = quote(known.name)
        if self.chance(15):
            name = name.upper()
        alias = self.alias()
        written = quote(alias)
        order = self.pick(
            f"{name} {window} AS {written}",
            f"{name} {written} {window}",
            f"{name} {window} {written}",
        )
        return order, Source(alias, columns)

    def subquery(self, depth: int) -> tuple[str, Source]:
        alias = self.alias()
        query, columns = self.block(depth)
        if self.chance(20):
            other, _ = self.block(depth, columns)
            query = f"{query} UNION ALL {other}"
        return f"({query}) {self.pick('AS ', '')}{quote(alias)}", Source(alias, columns)

    def from_clause(self, depth: int) -> tuple[str, list[Source]]:
        written, first = self.relation(depth)
        sources = [first]
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            text, source = self.relation(depth - 1)
            both = [*sources, source]
            how = self.rng.randrange(6)
            if how < 2:
                written += f", {text}"
            elif how == 2:
                written += f" CROSS JOIN {text}"
            elif how == 3:
                written += (
                    f" {self.pick('JOIN', 'INNER JOIN', 'join')} {text} ON {self.truth(both, 2)}"
                )
            elif how == 4:
                written += f" LEFT {self.pick('', 'OUTER ')}JOIN {text} ON {self.truth(both, 1)}"
            else:
                side = self.pick("RIGHT", "FULL", "FULL OUTER")
                written = f"({written}) {side} JOIN {text} ON {self.truth(both, 1)}"
            sources = both
        return written, sources

    # ---- queries

    def exists(self, sources: Sequence[Source]) -> str:
        text, inner = self.relation(0)
        kind = self.rng.choice([k for _, k in inner.columns])
        mine, theirs = self.value(kind, sources, 1), self.value(kind, [inner], 1)
        own = self.truth([inner], 1)
        no = self.pick("", "NOT ")
        match self.rng.randrange(4):
            case 0:
                return f"{no}EXISTS (SELECT 1 FROM {text} WHERE {own} AND ({mine}) = ({theirs}))"
            case 1:
                return f"({mine}) {no}IN (SELECT {theirs} FROM {text} WHERE {own})"
            case 2:
                return f"{no}EXISTS (SELECT * FROM {text} WHERE {self.truth([*sources, inner], 2)})"
            case _:
                return f"({mine}) {no}IN (SELECT {self.pick('max', 'min')}({theirs}) FROM {text} GROUP BY {own})"

    def block(
        self, depth: int, like: Sequence[tuple[str, str]] = ()
    ) -> tuple[str, tuple[tuple[str, str], ...]]:
        """SELECT .., and the names and kinds of its columns."""
        text, sources = self.from_clause(depth)
        where = [self.test(sources, 2) for _ in range(self.rng.choice([0, 1, 1, 2]))]
        if self.chance(20):
            where.append(self.exists(sources))
        kinds = [kind for _, kind in like] or [
            self.pick("number", "text", "time", "truth") for _ in range(self.rng.randrange(1, 4))
        ]
        grouped = self.chance(30)
        keys = [self.value(kind, sources, 1) for kind in kinds] if grouped else []
        items = []
        columns = []
        for index, kind in enumerate(kinds):
            name = f"v{index}"
            if grouped:
                value = keys[index] if self.chance(40) else self.aggregate(kind, sources)
            else:
                value = self.value(kind, sources, 2)
            items.append(f"{value} {self.pick('AS ', '')}{name}")
            columns.append((name, kind))
        distinct = self.pick("", "", "", "DISTINCT ")
        written = f"SELECT {distinct}{', '.join(items)} FROM {text}"
        if where:
            written += f" {self.case('WHERE')} " + f" {self.case('AND')} ".join(where)
        if grouped:
            written += " GROUP BY " + ", ".join(f"({key})" for key in keys)
            if self.chance(40):
                written += f" HAVING {self.aggregate('number', sources)} > {self.number([], 0)}"
        return written, tuple(columns)

    def aggregate(self, kind: str, sources: Sequence[Source]) -> str:
        value = self.value(kind, sources, 1)
        distinct = self.pick("", "", "DISTINCT ")
        where = f" FILTER (WHERE {self.truth(sources, 1)})" if self.chance(20) else ""
        match kind:
            case "number":
                name = self.pick("sum", "avg", "min", "max", "count", "stddev", "COUNT", "mean")
                inner = self.pick("*", value) if name == "COUNT" else f"{distinct}{value}"
                return f"{name}({inner}){where}"
            case "truth":
                return f"{self.pick('bool_and', 'every', 'bool_or')}({value}){where}"
            case _:
                return f"{self.pick('min', 'max')}({value}){where}"

    def query(self) -> str:
        depth = self.rng.choice([0, 0, 1, 2])
        if self.chance(10):
            query = self.with_query()
        else:
            query, columns = self.block(depth)
            if self.chance(10):
                query += f" UNION ALL {self.block(0, columns)[0]}"
        if self.chance(15):
            return f"{self.pick('ISTREAM', 'dstream', 'RSTREAM')}({query})"
        return query

    def with_query(self) -> str:
        condition = self.truth([Source("flights", (("num", "number"), ("gate", "text")))], 2)
        window = self.pick("", "[NOW]", "[RANGE 20 MINUTES]", "[RANGE 1 HOUR SLIDE 1 MIN]")
        return (
            f"WITH late AS (SELECT * FROM flights WHERE {condition}), n AS (SELECT num n FROM late) "
            f"SELECT x.num, y.n FROM late {window} AS x, n AS y {window} WHERE x.num = y.n"
        )

    # ---- statements

    def statement(self) -> str:
        name = quote(f"{self.pick('new', 'odd name ', 'x')}{self.rng.randrange(1000)}")
        match self.rng.randrange(8):
            case 0 | 1:
                return self.query()
            case 2 | 3:
                clauses = [
                    self.pick("", "LIFETIME 2 HOURS", "lifetime 90 min"),
                    self.pick(
                        "",
                        "TO NONE",
                        "TO files(path => 'out', `max rows` => 5)",
                        "to kafka(topic => 't')",
                    ),
                    self.pick("", "STARTING AT EARLIEST", "starting at TIMESTAMP '2026-01-31'"),
                ]
                self.rng.shuffle(clauses)
                return f"CREATE QUERY {name} {' '.join(clauses)} AS {self.query()}"
            case 4:
                return f"EXPLAIN {self.pick('', 'ANALYZE')} {self.query()}"
            case 5:
                return self.create(name)
            case 6:
                return f"CREATE TABLE {name} (a INT, `b c` STRING NOT NULL) FROM files(path => 'x')"
            case _:
                return self.pick(
                    "SHOW STREAMS", "show rejects", f"DROP QUERY {name}", f"DROP STREAM {name}",
                    f"drop table {name}", f"PAUSE QUERY {name}", f"RESUME QUERY {name}",
                    f"END STREAM {name}", f"REWIND STREAM {name} TO TIMESTAMP '2026-01-31' RESTART QUERIES",
                    "SET NAME = 'x'", "set spark.x = -5.5", "SET a = TRUE",
                )  # fmt: skip

    def create(self, name: str) -> str:
        types = [
            "INT",
            "bigint",
            "DECIMAL(10,2)",
            "decimal",
            "STRING",
            "VARCHAR(5)",
            "DOUBLE",
            "DATE",
            "boolean",
        ]
        columns = [f"c{i} {self.rng.choice(types)}{self.pick('', ' NOT NULL')}" for i in range(3)]
        clauses = [
            "TIMESTAMP BY ts",
            self.pick(
                "FROM CLIENT", "FROM files(path => 'a\\'b', header => true)", "FROM rate(rows => 5)"
            ),
            self.pick("", "LATENESS 5 SECONDS", "LATENESS 0.5 MS"),
            self.pick("", "KEEP 3 DAYS", "keep 1 hour 30 minutes"),
        ]
        self.rng.shuffle(clauses)
        return f"CREATE STREAM {name} (ts TIMESTAMP, {', '.join(columns)}) {' '.join(clauses)}"


# ---- damage

_PIECES = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP BY",
        "HAVING",
        "UNION ALL",
        "JOIN",
        "ON",
        "AND",
        "OR",
        "NOT",
    ),
    *(
        "(",
        ")",
        "[",
        "]",
        ",",
        ";",
        ".",
        "*",
        "-",
        "=",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "::",
        "=>",
        "?",
    ),
    *(
        "CASE",
        "WHEN",
        "END",
        "IN",
        "EXISTS",
        "BETWEEN",
        "INTERVAL",
        "NULL",
        "AS",
        "DISTINCT",
        "OVER",
    ),
    *(
        "RANGE",
        "NOW",
        "ROWS",
        "SLIDE",
        "ISTREAM",
        "count",
        "flights",
        "num",
        "5",
        "1e",
        "0x",
        "\\",
        "{",
        "}",
    ),
    *(
        "ORDER BY 1",
        "LIMIT 5",
        "LATERAL",
        "PIVOT",
        "->",
        "|>",
        "ARRAY",
        "<",
        ">",
        "CAST(",
        "x'",
        "@",
        "$",
        "#",
    ),
    *(
        "SHOW",
        "EXPLAIN",
        "CREATE",
        "STREAM",
        "TO",
        "VALUES",
        "WITH",
        "USING",
        "LEFT",
        "FULL",
        "NATURAL",
        "\0",
    ),
)


_WORDS = re.compile(r"\s+|\w+|'[^']*'|`[^`]*`|[^\w\s]")


def damaged(rng: random.Random, text: str) -> str:
    """The text with a few words or characters deleted, inserted, replaced, doubled or swapped."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5])):
        text = _characters(rng, text) if rng.random() < 0.3 else _words(rng, text)
    return text


def _characters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + rng.choice(_PIECES) + text[at:]
        case 2:
            odd = chr(rng.choice([0, 9, 10, 34, 39, 40, 41, 91, 92, 96, 128, 0x2028, 0xD800]))
            return text[:at] + odd + text[at:]
        case _:
            return text[:at]


def _words(rng: random.Random, text: str) -> str:
    """Damage that leaves parentheses mostly as they are, so that it reaches behind their check."""
    words = _WORDS.findall(text)
    places = [i for i, word in enumerate(words) if word not in "()[]'`" and word.strip()]
    if not places:
        return text + rng.choice(_PIECES)
    place, other = rng.choice(places), rng.choice(places)
    match rng.randrange(6):
        case 0:
            del words[place]
        case 1:
            words.insert(place, f" {rng.choice(_PIECES)} ")
        case 2:
            words[place] = rng.choice(_PIECES)
        case 3:
            words[place], words[other] = words[other], words[place]
        case 4:
            words[place] = words[other]
        case _:
            words[place:place] = [*words[place : place + rng.randrange(1, 9)], " "]
    return "".join(words)


def noise(rng: random.Random) -> str:
    """Bytes that are no text at all, sometimes behind the start of one."""
    data = rng.randbytes(rng.choice([1, 3, 10, 40, 200]))
    text = data.decode("latin-1") if rng.random() < 0.5 else data.decode("utf-8", "replace")
    return rng.choice(["", "", "SELECT ", "SELECT a FROM ", "CREATE QUERY q AS "]) + text
