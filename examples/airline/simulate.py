#!/usr/bin/env python3
"""A day at an airport in a few minutes: events of five streams, written as files of JSON lines.

    python simulate.py --out in --seconds 600 --speed 10

lets ten minutes pass, ten seconds of them in each second of ours, and each of our seconds adds a file
to in/flights, in/check-ins, in/baggage, in/weather and in/sales. With `--speed 0` all files are
written at once. What happens depends on the seed and the number of seconds alone, so a run can be
repeated, and be compared with another at another speed. The streams are those of airline.cql; an
event may be reported late, but never by more than its stream's LATENESS.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
STREAMS = ("flights", "check-ins", "baggage", "weather", "sales")
LATE = {"flights": 4.0, "check-ins": 4.0, "baggage": 9.0}
"""By how many seconds a report may come late; airline.cql allows a second more."""

CITIES = ("BOS", "CDG", "JFK", "LHR", "SEA", "SFO")
FORECASTS = ("CLEAR", "CLOUDS", "RAIN", "FOG", "SNOW", "STORM", "THUNDERSTORM")
CARRIERS = ("DL", "CO", "AA", "UA")
NUMBERS = (117, 204, 311, 450, 512, 608, 733, 845, 919, 1020, 1136, 1244)
FILE_SECONDS = 30.0
"""How much of the time goes into one file where files are written at once."""


@dataclass(frozen=True)
class Event:
    """Something that happened, and when (in seconds since the start) the stream hears of it."""

    heard: float
    stream: str
    record: Mapping[str, object]


@dataclass(frozen=True)
class Flight:
    """A flight of the day; its times are seconds since the start."""

    number: int
    carrier: str
    terminal: str
    gate: str
    city: str
    boarding: float
    departure: float
    fate: str

    def status(self, at: float) -> str:
        if self.fate != "ON TIME" and at > self.boarding / 2:
            return self.fate
        if at < self.boarding:
            return "SCHEDULED"
        return "BOARDING" if at < self.departure else "DEPARTED"


def events(seconds: float, seed: int, flights: Sequence[int] = NUMBERS) -> list[Event]:
    """All that happens in so many seconds, in the order in which it is heard of."""
    chance = random.Random(seed)
    planned = [plan(number, seconds, chance) for number in flights]
    sales, bags = count(1), count(9001)
    sources: list[Iterator[Event]] = [weather(city, seconds, chance) for city in CITIES]
    for flight in planned:
        sources += [
            announcements(flight, seconds, chance),
            counters(flight, seconds, chance),
            luggage(flight, seconds, chance, bags),
            tickets(flight, seconds, chance, sales),
        ]
    found = [event for source in sources for event in source if event.heard < seconds]
    return sorted(found, key=lambda event: event.heard)


def plan(number: int, seconds: float, chance: random.Random) -> Flight:
    """A flight that boards and leaves within the time, if it does."""
    terminal = "ABC"[number % 3]
    boarding = seconds * chance.uniform(0.3, 0.7)
    return Flight(
        number=number,
        carrier=CARRIERS[number % len(CARRIERS)],
        terminal=f"TERMINAL {terminal}",
        gate=f"{terminal}{chance.randint(1, 12)}",
        city=CITIES[number % len(CITIES)],
        boarding=boarding,
        departure=boarding + seconds * 0.25,
        fate=chance.choices(("ON TIME", "DELAYED", "CANCELLED"), (8, 3, 1))[0],
    )


def times(chance: random.Random, seconds: float, mean: float) -> Iterator[float]:
    """Moments at random, so many seconds apart on average."""
    at = chance.uniform(0, mean)
    while at < seconds:
        yield at
        at += chance.expovariate(1 / mean)


def event(stream: str, at: float, chance: random.Random, **record: object) -> Event:
    """Happened at a time, heard of a little later."""
    moment = START + timedelta(milliseconds=round(at * 1000))
    heard = at + chance.uniform(0, LATE.get(stream, 0.0))
    ts = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Event(heard, stream, {**record, "ts": ts})


def announcements(flight: Flight, seconds: float, chance: random.Random) -> Iterator[Event]:
    for at in times(chance, seconds, 40):
        yield event(
            "flights",
            at,
            chance,
            num=flight.number,
            carrier_code=flight.carrier,
            gate=flight.gate,
            terminal=flight.terminal,
            dest=flight.city,
            status=flight.status(at),
        )


def counters(flight: Flight, seconds: float, chance: random.Random) -> Iterator[Event]:
    vacant = chance.randint(60, 180)
    for at in times(chance, seconds, 25):
        open_ = at < flight.boarding
        vacant = max(0, vacant - chance.randint(0, 9)) if open_ else vacant
        status = "OPEN" if open_ and vacant > 30 else "BUSY" if open_ else "CLOSED"
        yield event(
            "check-ins", at, chance, flight=flight.number, status=status, vacant_seats=vacant
        )


def luggage(
    flight: Flight, seconds: float, chance: random.Random, bags: Iterator[int]
) -> Iterator[Event]:
    """Each bag is dropped, screened and loaded."""
    area = flight.terminal[-1]
    for dropped in times(chance, min(seconds, flight.departure), 30):
        bag, weight = next(bags), round(chance.uniform(4, 32), 1)
        places = (f"{area}-HALL", f"{area}-SCREENING", f"{area}-APRON")
        at = dropped
        for status, place in zip(("DROPPED", "SCREENED", "LOADED"), places, strict=True):
            yield event(
                "baggage",
                at,
                chance,
                bag=bag,
                flight=flight.number,
                area=place,
                status=status,
                weight=weight,
            )
            at += chance.uniform(15, 60)


def weather(city: str, seconds: float, chance: random.Random) -> Iterator[Event]:
    forecast, wind = chance.randrange(len(FORECASTS)), chance.randint(5, 40)
    for at in times(chance, seconds, 60):
        forecast = min(max(forecast + chance.randint(-1, 1), 0), len(FORECASTS) - 1)
        wind = max(0, wind + chance.randint(-6, 8))
        temperature = round(chance.uniform(-5, 25), 1)
        yield event(
            "weather",
            at,
            chance,
            city=city,
            forecast=FORECASTS[forecast],
            wind=wind,
            temperature=temperature,
        )


def tickets(
    flight: Flight, seconds: float, chance: random.Random, sales: Iterator[int]
) -> Iterator[Event]:
    for at in times(chance, min(seconds, flight.boarding), 35):
        class_ = chance.choices(("ECONOMY", "BUSINESS"), (5, 1))[0]
        price = chance.randint(79, 399) * (4 if class_ == "BUSINESS" else 1)
        yield event(
            "sales",
            at,
            chance,
            sale=next(sales),
            flight=flight.number,
            **{"class": class_},
            price=price,
        )


# ---- files


def write(out: Path, number: int, found: Sequence[Event]) -> int:
    """Put the events of each stream into a new file, which appears when it is complete."""
    for stream in STREAMS:
        lines = [json.dumps(e.record) for e in found if e.stream == stream]
        if lines:
            hidden = out / stream / f".{number:06}.jsonl"
            hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
            hidden.rename(out / stream / f"{number:06}.jsonl")
    return len(found)


def simulate(out: Path, seconds: float, speed: float, seed: int) -> int:
    """Write what happens, in its time or at once; returns the number of events."""
    for stream in STREAMS:
        (out / stream).mkdir(parents=True, exist_ok=True)
    left = events(seconds, seed)
    length = speed or FILE_SECONDS
    begun = time.monotonic()
    number = written = 0
    while left:
        number += 1
        if speed:
            time.sleep(max(0.0, begun + number - time.monotonic()))
        ready = [e for e in left if e.heard < number * length]
        left = left[len(ready) :]
        written += write(out, number, ready)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the events of an airport as files.")
    parser.add_argument("--out", type=Path, required=True, help="gets a folder for each stream")
    parser.add_argument("--seconds", type=float, default=90.0, help="how much time passes there")
    parser.add_argument(
        "--speed", type=float, default=1.0, help="their seconds in one of ours; 0: all at once"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.seconds <= 0 or given.speed < 0:
        parser.error("--seconds must be above 0, and --speed not below")
    written = simulate(given.out, given.seconds, given.speed, given.seed)
    print(f"{written} events in {given.out}")


if __name__ == "__main__":
    main()
