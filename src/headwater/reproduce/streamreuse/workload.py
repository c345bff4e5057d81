"""The two workloads of StreamReuse as CQL: an airline's queries (EW) and RFID tracking (RW).

The paper gives templates, shares, lifetimes and arrivals. What it leaves open (rates, how many
values a column has, how selective predicates are) is chosen here, and is in one place: `Airline`
and `Rfid` hold every number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from random import Random

from headwater.cost import ColumnStatistics, StreamStatistics

MINUTE = 60.0
HOUR = 3600.0


@dataclass(frozen=True)
class QueryArrival:
    """A query that is asked at some moment (seconds) and stays for its lifetime."""

    time: float
    lifetime: float
    kind: str
    text: str


@dataclass(frozen=True)
class Workload:
    """Streams as declared and as measured, and the queries that arrive."""

    name: str
    declarations: str
    statistics: dict[str, StreamStatistics]
    arrivals: tuple[QueryArrival, ...]


@dataclass(frozen=True)
class ArrivalKind:
    """A kind of query: its share of the workload, and how long it lives."""

    name: str
    share: float
    lifetime: float


ARRIVAL_KINDS = (
    ArrivalKind("gate", 0.80, 2 * HOUR),
    ArrivalKind("terminal", 0.15, 12 * HOUR),
    ArrivalKind("monitoring", 0.05, 6 * HOUR),
)


def draw_arrivals(
    random: Random, per_hour: float, until: float
) -> Iterator[tuple[float, ArrivalKind]]:
    """Poisson arrivals, each of a kind drawn by its share."""
    now = random.expovariate(per_hour / HOUR)
    while now < until:
        yield now, random.choices(ARRIVAL_KINDS, [kind.share for kind in ARRIVAL_KINDS])[0]
        now += random.expovariate(per_hour / HOUR)


# ---- EW: the airline

AIRLINE_STREAMS = """\
CREATE STREAM flights (num INT, gate STRING, dest STRING, terminal STRING, carrier_code STRING,
  ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM check_ins (flight INT, city STRING, status STRING, vacant_seats INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM baggage (flight INT, city STRING, area STRING, status STRING, weight INT,
  ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM weather (city STRING, forecast STRING, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM sales (flight INT, city STRING, price INT, ts TIMESTAMP)
  TIMESTAMP BY ts FROM CLIENT;
"""

SHOWN_COLUMNS = {
    "flights": "flights.num",
    "check_ins": "check_ins.vacant_seats",
    "baggage": "baggage.area",
    "weather": "weather.forecast",
    "sales": "sales.price",
}
FLIGHT_COLUMNS = {
    "flights": "flights.num",
    "check_ins": "check_ins.flight",
    "baggage": "baggage.flight",
    "sales": "sales.flight",
}
WATCHED_COLUMNS = {
    "check_ins": "check_ins.vacant_seats",
    "baggage": "baggage.weight",
    "sales": "sales.price",
}


@dataclass(frozen=True)
class Airline:
    """The numbers behind EW: 1500 flights a day, and what they cause in records a day.

    A flight is reported 5 times, has 150 passengers who check in and buy a ticket once each, and
    150 bags that are scanned 4 times; each of 100 cities sends its weather every hour.
    A monitoring query is about two carriers, or without flights about the top `watched` of what one
    of its streams measures.
    """

    flights: int = 1500
    updates: int = 5
    passengers: int = 150
    scans: int = 4
    cities: int = 100
    forecasts: int = 24
    terminals: int = 8
    carriers: int = 20
    watched: float = 0.01
    per_hour: float = 60.0

    @property
    def statistics(self) -> dict[str, StreamStatistics]:
        day = 24 * HOUR
        flight = {
            "flight": ColumnStatistics(self.flights, 1, self.flights),
            "city": ColumnStatistics(self.cities),
        }
        level = ColumnStatistics(1000, 1, 1000)
        passengers = self.flights * self.passengers / day
        return {
            "flights": StreamStatistics(
                self.flights * self.updates / day,
                columns={
                    "num": ColumnStatistics(self.flights, 1, self.flights),
                    "dest": ColumnStatistics(self.cities),
                    "terminal": ColumnStatistics(self.terminals),
                    "carrier_code": ColumnStatistics(self.carriers),
                },
            ),
            "check_ins": StreamStatistics(passengers, columns=flight | {"vacant_seats": level}),
            "baggage": StreamStatistics(
                passengers * self.scans, columns=flight | {"weight": level}
            ),
            "weather": StreamStatistics(
                self.cities * self.forecasts / day,
                columns={"city": ColumnStatistics(self.cities)},
            ),
            "sales": StreamStatistics(passengers, columns=flight | {"price": level}),
        }


def airline_workload(seed: int, hours: float = 5.0, numbers: Airline | None = None) -> Workload:
    """EW: gate agents, terminal displays and monitoring, each query with a predicate of its own."""
    numbers = numbers or Airline()
    random = Random(f"EW {seed}")
    draws = list(draw_arrivals(random, numbers.per_hour, hours * HOUR))
    # Every gate asks for a flight of its own, as in the paper: no two of these queries are equal.
    flights = iter(random.sample(range(1, numbers.flights + 1), len(draws)))
    terminal_carriers = [(t, c) for t in range(numbers.terminals) for c in range(numbers.carriers)]
    # Terminal queries differ as well, as long as there are displays that nobody has asked for.
    displays = cycle(random.sample(terminal_carriers, len(terminal_carriers)))
    arrivals = []
    for time, kind in draws:
        if kind.name == "gate":
            text = gate_query(next(flights))
        elif kind.name == "terminal":
            text = terminal_query(*next(displays))
        else:
            text = monitoring_query(random, numbers)
        arrivals.append(QueryArrival(time, kind.lifetime, kind.name, text))
    return Workload("EW", AIRLINE_STREAMS, numbers.statistics, tuple(arrivals))


def gate_query(flight: int) -> str:
    """Q3 of the paper: one flight's gate, bags and check-in."""
    return f"""\
SELECT fl.gate, bg.status AS bags, ci.status AS check_in
FROM flights [RANGE 5 MIN SLIDE 1 MIN] AS fl, baggage [RANGE 1 MIN SLIDE 1 MIN] AS bg,
     check_ins [RANGE 1 MIN SLIDE 1 MIN] AS ci
WHERE fl.num = ci.flight AND fl.num = bg.flight AND fl.num = {flight}"""


def terminal_query(terminal: int, carrier: int) -> str:
    """Q1 of the paper: the display of a carrier in a terminal."""
    return f"""\
SELECT flights.num, flights.gate, baggage.area, check_ins.status, weather.forecast
FROM flights [RANGE 5 MIN SLIDE 1 MIN], weather [RANGE 5 MIN SLIDE 1 MIN],
     check_ins [RANGE 1 MIN SLIDE 1 MIN], baggage [RANGE 1 MIN SLIDE 1 MIN]
WHERE flights.dest = weather.city AND flights.num = check_ins.flight
  AND flights.num = baggage.flight AND flights.terminal = 'TERMINAL {chr(ord("A") + terminal)}'
  AND flights.carrier_code = 'C{carrier}'"""


def monitoring_query(random: Random, numbers: Airline) -> str:
    """Any two to five of the streams, with windows of 1 to 5 minutes.

    Streams meet by flight; weather meets the destination of flights, or where something happened.
    """
    stream_sets = [c for size in range(2, 6) for c in combinations(SHOWN_COLUMNS, size)]
    streams = random.choice(stream_sets)
    by_flight = [stream for stream in streams if stream in FLIGHT_COLUMNS]
    joins = [f"{FLIGHT_COLUMNS[by_flight[0]]} = {FLIGHT_COLUMNS[other]}" for other in by_flight[1:]]
    if "weather" in streams:
        city = "dest" if by_flight[0] == "flights" else "city"
        joins.append(f"{by_flight[0]}.{city} = weather.city")
    return _select_text(
        [SHOWN_COLUMNS[stream] for stream in streams],
        streams,
        random,
        [*joins, _watch_condition(random, by_flight, numbers)],
    )


def _watch_condition(random: Random, streams: Sequence[str], numbers: Airline) -> str:
    """The condition of a monitoring query: two carriers, or the top of what a stream measures."""
    if streams[0] == "flights":
        carrier, other_carrier = random.sample(range(numbers.carriers), 2)
        return f"flights.carrier_code IN ('C{carrier}', 'C{other_carrier}')"
    share = random.uniform(0.5, 1.5) * numbers.watched
    return f"{WATCHED_COLUMNS[streams[0]]} > {round(1000 * (1 - share))}"


def _select_text(
    columns: Sequence[str], streams: Sequence[str], random: Random, conditions: Sequence[str]
) -> str:
    slide = random.randint(1, 5)
    sources = [
        f"{stream} [RANGE {random.randint(1, 5)} MIN SLIDE {slide} MIN]" for stream in streams
    ]
    shown = ", ".join(f"{column} AS c{position}" for position, column in enumerate(columns))
    return f"SELECT {shown}\nFROM {', '.join(sources)}\nWHERE {' AND '.join(conditions)}"


# ---- RW: RFID tracking


@dataclass(frozen=True)
class Rfid:
    """The numbers behind RW: readers, how often they read, tags, and how much a query wants.

    A query joins 4 to 6 readers on the tag and wants a range of item classes, as wide as `share` of
    all or half more or less. The n-th reader is asked for with a weight of 1 / n ** skew, as in
    the evaluation of COSMOS; windows are those of the airline's displays. With several `attributes` each
    query joins on one of them, so that few queries have a join in common.
    """

    readers: int = 20
    slowest: float = 1.0
    fastest: float = 10.0
    tags: int = 10_000
    classes: int = 1000
    share: float = 0.3
    range: int = 5
    skew: float = 0.8
    attributes: int = 1
    per_hour: float = 30.0

    @property
    def join_columns(self) -> list[str]:
        return ["tag", *(f"tag{number}" for number in range(1, self.attributes))]


def rfid_workload(seed: int, hours: float = 5.0, numbers: Rfid | None = None) -> Workload:
    """RW: queries over random readers, each with a predicate of its own."""
    numbers = numbers or Rfid()
    random = Random(f"RW {seed}")
    names = [f"reader{position}" for position in range(numbers.readers)]
    statistics = {
        name: StreamStatistics(
            random.uniform(numbers.slowest, numbers.fastest),
            columns={
                **dict.fromkeys(
                    numbers.join_columns, ColumnStatistics(numbers.tags, 1, numbers.tags)
                ),
                "class": ColumnStatistics(numbers.classes, 1, numbers.classes),
            },
        )
        for name in names
    }
    arrivals = tuple(
        QueryArrival(time, kind.lifetime, kind.name, tracking_query(random, names, numbers))
        for time, kind in draw_arrivals(random, numbers.per_hour, hours * HOUR)
    )
    tags = ", ".join(f"{column} INT" for column in numbers.join_columns)
    declarations = "\n".join(
        f"CREATE STREAM {name} ({tags}, class INT, antenna INT, ts TIMESTAMP)"
        " TIMESTAMP BY ts FROM CLIENT;"
        for name in names
    )
    return Workload("RW", declarations, statistics, arrivals)


def _draw_readers(random: Random, readers: Sequence[str], count: int, skew: float) -> list[str]:
    """Different readers, the n-th of all with a weight of 1 / n ** skew."""
    left = {reader: 1 / rank**skew for rank, reader in enumerate(readers, start=1)}
    chosen = []
    for _ in range(count):
        chosen.append(random.choices(list(left), list(left.values()))[0])
        del left[chosen[-1]]
    return chosen


def tracking_query(random: Random, readers: Sequence[str], numbers: Rfid) -> str:
    """Where items of some classes passed: 3 to 5 joins on the tag."""
    streams = _draw_readers(random, readers, random.randint(3, 5) + 1, numbers.skew)
    columns = numbers.join_columns
    on = random.choice(columns) if len(columns) > 1 else columns[0]
    joins = [f"{streams[0]}.{on} = {other}.{on}" for other in streams[1:]]
    width = max(1, round(numbers.classes * numbers.share * random.uniform(0.5, 1.5)))
    low = random.randint(1, max(1, numbers.classes - width + 1))
    class_ranges = [f"{stream}.class BETWEEN {low} AND {low + width - 1}" for stream in streams]
    shown = ", ".join(f"{stream}.antenna AS c{position}" for position, stream in enumerate(streams))
    sources = ", ".join(f"{stream} [RANGE {numbers.range} MIN SLIDE 1 MIN]" for stream in streams)
    return f"SELECT {shown}\nFROM {sources}\nWHERE {' AND '.join([*joins, *class_ranges])}"
