"""Writes the small NEXMark data set beside this file: `python generate.py`.

The same seed gives the same files on every machine. The auction site is the one of the NEXMark benchmark,
shrunk: 20 persons, 30 auctions, 150 bids in five minutes around midnight, so that a day changes on
the way. Times are whole tenths of a second and often equal; some fall exactly on the instants of the
windows, some auctions expire before the data ends, and a few bids come after the end of theirs.
"""

from __future__ import annotations

import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

SEED = 20260301
BEGIN = datetime(2026, 3, 1, 23, 57, 30, tzinfo=UTC)
SPAN = 3_000  # tenths of a second
FIRST_PERSON, PERSONS = 1000, 20
FIRST_AUCTION, AUCTIONS = 1100, 30
BIDS = 150

NAMES = ["Ada", "Barbara", "Carol", "Donald", "Edsger", "Frances", "Grace", "Hedy"]
CITIES = [
    ("Portland", "OR"),
    ("Boise", "ID"),
    ("San Mateo", "CA"),
    ("Seattle", "WA"),
    ("Phoenix", "AZ"),
]
ITEMS = ["lamp", "chair", "atlas", "radio", "clock"]
CHANNELS = ["Google", "Apple", "Facebook", "Baidu", "channel-17", "channel-42"]

Row = tuple[object, ...]


def at(tenths: int) -> str:
    moment = BEGIN + timedelta(milliseconds=100 * tenths)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def moments(rng: random.Random, count: int, end: int) -> list[int]:
    """Sorted times; one in four is a whole second, so that ties and window ends occur."""
    drawn = (rng.randrange(end) for _ in range(count))
    return sorted(t - t % 10 if rng.random() < 0.25 else t for t in drawn)


def persons(rng: random.Random) -> list[Row]:
    rows = []
    for i, t in enumerate(moments(rng, PERSONS, SPAN // 2)):
        name, (city, state) = rng.choice(NAMES), rng.choice(CITIES)
        card = " ".join(f"{rng.randrange(10_000):04}" for _ in range(4))
        email = f"{name.lower()}{i}@example.org"
        rows.append((FIRST_PERSON + i, name, email, card, city, state, at(t), "-"))
    return rows


def auctions(rng: random.Random, people: list[Row]) -> list[Row]:
    """Half are of one busy seller, the others of whoever registered last."""
    rows = []
    for i, t in enumerate(moments(rng, AUCTIONS, SPAN * 3 // 4)):
        registered = [person for person in people if str(person[6]) <= at(t)] or people[:1]
        seller = (people[0] if rng.random() < 0.5 else registered[-1])[0]
        item, initial = rng.choice(ITEMS), rng.randrange(1, 500)
        expires = at(t + rng.randrange(100, 900))
        row = (FIRST_AUCTION + i, item, f"a {item}", initial, initial + rng.randrange(500), at(t))
        rows.append((*row, expires, seller, rng.randrange(10, 15), "-"))
    return rows


def bids(rng: random.Random, sales: list[Row]) -> list[Row]:
    """Prices are spread evenly over the powers of ten from 100 to 100 million."""
    rows = []
    for t in moments(rng, BIDS, SPAN):
        open_now = [sale for sale in sales if str(sale[5]) <= at(t)] or sales[:1]
        auction = rng.choice(open_now[-6:])[0]
        price = round(100 * 10 ** (6 * rng.random()))
        channel = rng.choice(CHANNELS)
        url = f"https://www.example.org/{rng.choice(ITEMS)}/{rng.choice(NAMES).lower()}/item.htm?query=1"
        if channel.startswith("channel") and rng.random() < 0.8:
            url += f"&channel_id={channel.removeprefix('channel-')}"
        extra = "".join(rng.choice("abcde") for _ in range(8))
        bidder = FIRST_PERSON + rng.randrange(PERSONS // 2)
        rows.append((auction, bidder, price, channel, url, at(t), extra))
    return rows


def side_input() -> list[Row]:
    return [(key, f"value {key}") for key in range(0, 10, 2)]


HEADERS = {
    "person": "id name email_address credit_card city state date_time extra",
    "auction": "id item_name description initial_bid reserve date_time expires seller category extra",
    "bid": "auction bidder price channel url date_time extra",
    "side_input": "key value",
}


def main(folder: Path) -> None:
    rng = random.Random(SEED)
    people = persons(rng)
    sales = auctions(rng, people)
    tables = {
        "person": people,
        "auction": sales,
        "bid": bids(rng, sales),
        "side_input": side_input(),
    }
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADERS[name].split())
            writer.writerows(rows)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
