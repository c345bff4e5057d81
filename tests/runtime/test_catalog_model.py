"""Any sequence of changes, compared with a catalog made of dictionaries."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import postgres
import pytest
from catalog_helpers import Clock, segment
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

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

NAMES = st.sampled_from(["a", "B", "c"])
SMALL = st.integers(0, 12)


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


class Machine(RuleBasedStateMachine):
    """Each rule does the same to both, and compares the answer or the refusal."""

    def __init__(self, where: str) -> None:
        super().__init__()
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

    def teardown(self) -> None:
        self.catalog.close()

    @initialize()
    def begin(self) -> None:
        """Most of what can go wrong needs a log with several segments."""
        self.declare("a")
        for made in self.catalog.commit(None, segments=[segment(of="stream:a") for _ in range(5)]):
            self.logs["stream:a"].live.append(Piece(made.id, made.seq, made.seq, made.rows))
        self.logs["stream:a"].end = 5

    @rule()
    def open_again(self) -> None:
        self.catalog.close()
        self.catalog = Catalog.open(self.where, clock=self.clock, create=False)

    @rule(name=NAMES)
    def declare(self, name: str) -> None:
        if stream_log(name) in self.logs:
            with pytest.raises(CatalogError, match="already"):
                self.catalog.declare_stream(name, "")
        else:
            self.catalog.declare_stream(name, "")
            self.logs[stream_log(name)] = Log()

    @rule(name=NAMES)
    def drop_stream(self, name: str) -> None:
        log = stream_log(name)
        if log not in self.logs or any(log in inputs for inputs in self.inputs.values()):
            with pytest.raises(CatalogError, match=r"there is no stream|is read by"):
                self.catalog.drop_stream(name)
        else:
            self.catalog.drop_stream(name)
            self._forget(log)

    @rule(name=st.sampled_from(["q", "R", "s", "t"]), data=st.data())
    def accept(self, name: str, data: st.DataObject) -> None:
        unit: NewUnit | str
        if self.units and data.draw(st.booleans()):
            unit = data.draw(st.sampled_from(sorted(self.units)))
        else:
            inputs = data.draw(st.lists(st.sampled_from(sorted(self.logs) or ["stream:x"])))
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

    @rule(name=st.sampled_from(["Q", "r", "s", "t"]))
    def drop_query(self, name: str) -> None:
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
                self._forget(unit_log(unit))
                expected.add(unit)
        assert dropped == expected

    @rule(name=st.sampled_from(["x", "y"]), holder=st.sampled_from(["me", "you"]), ttl=SMALL)
    def acquire(self, name: str, holder: str, ttl: int) -> None:
        known = self.leases.get(name)
        lease = self.catalog.acquire(name, holder, ttl + 1)
        if known and known.holder not in ("", holder) and known.expires_at > self.clock.now:
            assert lease is None
            return
        token = known.token + 1 if known else 1
        assert lease == Lease(name, holder, token, self.clock.now + ttl + 1)
        self.leases[name] = lease
        self.given.append(lease)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.given))
        holds = self._holds(lease)
        assert self.catalog.release(lease) == holds
        if holds:
            self.leases[lease.name] = Lease(lease.name, "", lease.token, 0.0)

    @rule(seconds=SMALL)
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), rows=SMALL, position=SMALL)
    def commit(self, data: st.DataObject, rows: int, position: int) -> None:
        lease = data.draw(st.none() | st.sampled_from(self.given)) if self.given else None
        logs = data.draw(st.lists(st.sampled_from(sorted(self.logs)), max_size=3, unique=True))
        key = data.draw(st.none() | st.sampled_from(["1", "2", "3"]))
        new = [segment(rows + n, key=key, of=log) for n, log in enumerate(logs)]
        cursor = {("me", data.draw(st.sampled_from(sorted(self.logs)))): position}
        known = [key for log in logs if key in self.logs[log].batches]
        if lease is not None and not self._holds(lease):
            with pytest.raises(LeaseLost):
                self.catalog.commit(lease, segments=new, cursors=cursor)
        elif known and len(known) < len(logs):
            with pytest.raises(CatalogError, match="but not with the segments it had then"):
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

    @precondition(lambda self: self._compactable())
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._compactable()))
        live = self.logs[name].live
        first = data.draw(st.integers(0, len(live) - 1))
        chosen = live[first : data.draw(st.integers(first + 1, len(live)))]
        new = segment(sum(piece.rows for piece in chosen), of=name)
        made = self.catalog.replace_segments(None, [piece.id for piece in chosen], new)
        whole = Piece(made.id, chosen[0].first, chosen[-1].last, made.rows, list(chosen))
        assert (made.first_seq, made.seq, made.pieces) == (whole.first, whole.last, len(chosen))
        live[first : first + len(chosen)] = [whole]

    @precondition(lambda self: self._compactable())
    @rule(data=st.data(), sweep=st.booleans())
    def remove(self, data: st.DataObject, sweep: bool) -> None:
        """Retention takes a segment in use, a sweep a piece of one that was compacted."""
        log = self.logs[data.draw(st.sampled_from(self._compactable()))]
        chosen = data.draw(st.sampled_from(log.live))
        pieces = [piece for piece in chosen.pieces if not piece.removed]
        if sweep and pieces:
            chosen = data.draw(st.sampled_from(pieces))
            chosen.removed = True
        else:
            log.live.remove(chosen)
        removed = self.catalog.remove_segments([chosen.id, 999_999])
        assert sorted(found.id for found in removed) == sorted(chosen.tree())

    @precondition(lambda self: self._compactable())
    @rule(data=st.data())
    def read_every_span(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._compactable()))
        log = self.logs[name]
        for after, up_to in combinations(range(log.end + 1), 2):
            try:
                expected = [id for piece in log.live for id in piece.cover(after, up_to)]
            except ValueError:
                with pytest.raises(CatalogError, match="compacted into one, and the pieces"):
                    self.catalog.segments(name, after, up_to)
            else:
                found = self.catalog.segments(name, after, up_to)
                assert [segment.id for segment in found] == expected
                assert all(one.seq < other.first_seq for one, other in pairwise(found))

    @invariant()
    def same(self) -> None:
        ends = {name: LogEnd(log.end, None) for name, log in self.logs.items()}
        assert self.catalog.log_ends() == ends
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

    def _holds(self, lease: Lease) -> bool:
        known = self.leases[lease.name]
        return (known.holder, known.token) == (lease.holder, lease.token)

    def _compactable(self) -> list[str]:
        return sorted(name for name, log in self.logs.items() if log.live)

    def _forget(self, log: str) -> None:
        del self.logs[log]
        self.cursors = {key: where for key, where in self.cursors.items() if key[1] != log}


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_like_dictionaries_on_sqlite() -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            lambda: Machine(tempfile.mkdtemp(dir=directory)), settings=_settings(10)
        )


@pytest.mark.postgresql
def test_like_dictionaries_on_postgresql(postgresql: postgres.Server) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Machine(postgresql.url()), settings=_settings(3)
    )


@pytest.mark.slow
def test_like_dictionaries_for_long() -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            lambda: Machine(tempfile.mkdtemp(dir=directory)), settings=_settings(300)
        )
