"""Any sequence of changes, compared with a catalog made of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from catalog_helpers import Clock, segment

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    LogEnd,
    NewQuery,
    NewUnit,
    stream_log,
    unit_log,
)


@dataclass
class Piece:
    """A segment of the model."""

    id: int
    first: int
    last: int
    rows: int
    pieces: list[Piece] = field(default_factory=list)
    removed: bool = False

    def cover(self, after: int, up_to: int) -> list[int]:
        """The ids to read for this part of the log; ValueError if it cannot be had."""
        if self.last <= after or self.first > up_to:
            return []
        if self.first > after and self.last <= up_to:
            return [self.id]
        if any(piece.removed for piece in self.pieces):
            raise ValueError
        return [found for piece in self.pieces for found in piece.cover(after, up_to)]

    def tree(self) -> list[int]:
        below = [found for piece in self.pieces if not piece.removed for found in piece.tree()]
        return [self.id, *below]


@dataclass
class Log:
    """A log of the model: the segments in use, and all that was ever committed to it."""

    live: list[Piece] = field(default_factory=list)
    batches: dict[str, int] = field(default_factory=dict)
    end: int = 0


class Both:
    """A catalog and its model. Each method changes both and compares the answer or refusal."""

    def __init__(self, where: str, random: Random) -> None:
        self.random = random
        self.clock = Clock()
        self.where = where
        self.catalog = Catalog.open(where, clock=self.clock)
        self.logs: dict[str, Log] = {}
        self.units: dict[str, set[str]] = {}
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.cursors: dict[tuple[str, str], Any] = {}
        self.leases: dict[str, Lease] = {}
        self.given: list[Lease] = []
        self.made = 0

    def go(self, steps: int) -> None:
        """Take so many steps, more of those that make something than of those that end it."""
        often: list[Callable[[], None]] = [self.commit, self.commit, self.compact, self.accept]
        seldom: list[Callable[[], None]] = [
            self.open_again,
            self.declare,
            self.drop_stream,
            self.drop_query,
            self.acquire,
            self.release,
            self.wait,
            self.remove,
            self.remove,
            self.read_every_span,
            self.read_every_span,
        ]
        for step in range(steps):
            self.random.choice(often * 3 + seldom)()
            if step % 5 == 0:
                self.compare()
        self.catalog.close()

    def open_again(self) -> None:
        self.catalog.close()
        self.catalog = Catalog.open(self.where, clock=self.clock, create=False)

    def declare(self) -> None:
        name = self.random.choice("aBc")
        if stream_log(name) in self.logs:
            with pytest.raises(CatalogError, match="already"):
                self.catalog.declare_stream(name, "")
        else:
            self.catalog.declare_stream(name, "")
            self.logs[stream_log(name)] = Log()

    def drop_stream(self) -> None:
        name = self.random.choice("Abc")
        log = stream_log(name)
        if log not in self.logs or any(log in inputs for inputs in self.inputs.values()):
            with pytest.raises(CatalogError, match=r"there is no stream|is read by"):
                self.catalog.drop_stream(name)
        else:
            self.catalog.drop_stream(name)
            self.forget(log)

    def accept(self) -> None:
        name = self.random.choice("qRst")
        unit: NewUnit | str
        if self.units and self.random.random() < 0.5:
            unit = self.random.choice(sorted(self.units))
        else:
            inputs = self.some(["stream:c", "stream:b", *self.logs], 2)
            self.made += 1
            unit = NewUnit("d", "", tuple(inputs), id=f"u{self.made:03}")
        taken = any(name.lower() in members for members in self.units.values())
        unknown = isinstance(unit, NewUnit) and not set(unit.inputs) <= set(self.logs)
        if taken or unknown:
            with pytest.raises(CatalogError, match=r"already|there is no stream"):
                self.catalog.accept_query(NewQuery(name, "", "d"), unit)
            return
        row = self.catalog.accept_query(NewQuery(name, "", "d"), unit)
        self.units.setdefault(row.unit_id, set()).add(name.lower())
        if isinstance(unit, NewUnit):
            self.inputs[unit.id] = unit.inputs
            self.logs[unit_log(unit.id)] = Log()

    def drop_query(self) -> None:
        name = self.random.choice("Qrst")
        mine = [unit for unit, members in self.units.items() if name.lower() in members]
        if not mine:
            with pytest.raises(CatalogError, match="there is no query"):
                self.catalog.drop_query(name)
            return
        self.units[mine[0]].remove(name.lower())
        dropped = set(self.catalog.drop_query(name))
        expected = set()
        while unneeded := [
            unit
            for unit, members in self.units.items()
            if not members and not any(unit_log(unit) in read for read in self.inputs.values())
        ]:
            for unit in unneeded:
                del self.units[unit], self.inputs[unit]
                self.forget(unit_log(unit))
                expected.add(unit)
        assert dropped == expected

    def acquire(self) -> None:
        name, holder = self.random.choice("xy"), self.random.choice(["me", "you"])
        ttl = self.random.randrange(12)
        known = self.leases.get(name)
        lease = self.catalog.acquire(name, holder, ttl + 1)
        if known and known.holder not in ("", holder) and known.expires_at > self.clock.now:
            assert lease is None
            return
        token = known.token + 1 if known else 1
        assert lease == Lease(name, holder, token, self.clock.now + ttl + 1)
        self.leases[name] = lease
        self.given.append(lease)

    def release(self) -> None:
        if not self.given:
            return
        lease = self.random.choice(self.given)
        holds = self.holds(lease)
        assert self.catalog.release(lease) == holds
        if holds:
            self.leases[lease.name] = Lease(lease.name, "", lease.token, 0.0)

    def wait(self) -> None:
        self.clock.now += self.random.randrange(12)

    def commit(self) -> None:
        if not self.logs:
            return
        lease = self.random.choice([None, *self.given[-3:]])
        logs = self.some(self.logs, 3)
        key = self.random.choice([None, None, *"1234567"])
        new = [segment(self.random.randrange(9), key=key, of=log) for log in logs]
        cursor = {("me", self.random.choice(sorted(self.logs))): self.random.randrange(99)}
        known = [key for log in logs if key in self.logs[log].batches]
        if lease is not None and not self.holds(lease):
            with pytest.raises(LeaseLost):
                self.catalog.commit(lease, segments=new, cursors=cursor)
        elif known and len(known) < len(logs):
            with pytest.raises(CatalogError, match="but with other segments than before"):
                self.catalog.commit(lease, segments=new, cursors=cursor)
        elif known:
            assert key is not None
            kept = self.catalog.commit(lease, segments=new, cursors=cursor)
            assert {(s.log, s.seq) for s in kept} <= {(x, self.logs[x].batches[key]) for x in logs}
        else:
            for made in self.catalog.commit(lease, segments=new, cursors=cursor):
                log = self.logs[made.log]
                log.end += 1
                assert (made.first_seq, made.seq) == (log.end, log.end)
                log.live.append(Piece(made.id, made.seq, made.seq, made.rows))
                if key is not None:
                    log.batches[key] = made.seq
            self.cursors |= cursor

    def compact(self) -> None:
        if not self.filled():
            return
        name = self.random.choice(self.filled())
        live = self.logs[name].live
        first = self.random.randrange(len(live))
        chosen = live[first : first + self.random.randint(1, 3)]
        new = segment(sum(piece.rows for piece in chosen), of=name)
        made = self.catalog.replace_segments(None, [piece.id for piece in chosen], new)
        whole = Piece(made.id, chosen[0].first, chosen[-1].last, made.rows, list(chosen))
        assert (made.first_seq, made.seq, made.pieces) == (whole.first, whole.last, len(chosen))
        live[first : first + len(chosen)] = [whole]

    def remove(self) -> None:
        """Retention takes a segment in use, a sweep a piece of one that was compacted."""
        if not self.filled():
            return
        log = self.logs[self.random.choice(self.filled())]
        chosen = self.random.choice(log.live)
        pieces = [piece for piece in chosen.pieces if not piece.removed]
        if pieces and self.random.random() < 0.7:
            chosen = self.random.choice(pieces)
            chosen.removed = True
        else:
            log.live.remove(chosen)
        removed = self.catalog.remove_segments([chosen.id, 999_999])
        assert sorted(found.id for found in removed) == sorted(chosen.tree())

    def read_every_span(self) -> None:
        if not self.filled():
            return
        name = self.random.choice(self.filled())
        log = self.logs[name]
        for after, up_to in combinations(range(max(0, log.end - 8), log.end + 1), 2):
            try:
                expected = [id for piece in log.live for id in piece.cover(after, up_to)]
            except ValueError:
                with pytest.raises(CatalogError, match="compacted into one, and the pieces"):
                    self.catalog.segments(name, after, up_to)
            else:
                found = self.catalog.segments(name, after, up_to)
                assert [segment.id for segment in found] == expected
                assert all(one.seq < other.first_seq for one, other in pairwise(found))

    def compare(self) -> None:
        ends = {name: LogEnd(log.end, None) for name, log in self.logs.items()}
        kept = {
            f"{kind}:{unit}": LogEnd(0, None)
            for unit in self.units
            for kind in ("panes", "members")
        }
        assert self.catalog.log_ends() == ends | kept
        streams = {name for name in self.logs if name.startswith("stream:")}
        assert {stream_log(stream.name) for stream in self.catalog.streams()} == streams
        queries = {(q.name, q.unit_id) for q in self.catalog.queries()}
        assert queries == {(q, unit) for unit, members in self.units.items() for q in members}
        assert {unit.id for unit in self.catalog.units()} == set(self.units)
        mine = {input: where for (_, input), where in self.cursors.items()}
        assert self.catalog.cursors("me") == mine
        for name, log in self.logs.items():
            assert [s.id for s in self.catalog.segments(name)] == [p.id for p in log.live]
            assert self.catalog.log_stats(name).rows == sum(piece.rows for piece in log.live)

    def holds(self, lease: Lease) -> bool:
        known = self.leases[lease.name]
        return (known.holder, known.token) == (lease.holder, lease.token)

    def filled(self) -> list[str]:
        return sorted(name for name, log in self.logs.items() if log.live)

    def some(self, names: Iterable[str], most: int) -> list[str]:
        known = sorted(set(names))
        return self.random.sample(known, self.random.randint(0, min(most, len(known))))

    def forget(self, log: str) -> None:
        del self.logs[log]
        self.cursors = {key: where for key, where in self.cursors.items() if key[1] != log}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
)
def test_like_dictionaries(where: str, seed: int) -> None:
    Both(where, Random(seed)).go(60 if "://" in where else 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 24))
def test_like_dictionaries_for_long(tmp_path: Path, seed: int) -> None:
    Both(str(tmp_path), Random(seed)).go(1_000)
