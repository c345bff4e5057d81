"""A depth-first search of all states of a few nodes, compiled: a state is one number for each node.

What a node's number stands for, its inputs included, is for the caller to know, who is asked once for the
events of each number, and once for each change of a number by what another node does; the rest is lookups.
Visited states are kept whole, in 17 bytes each, so that no two are ever taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headwater.errors import SimulationError
from headwater.jit import cached_njit

DEAD = 0
"""The number of a node that is dead."""

NOTICE, REFUSAL, LOSS, FIRST_MESSAGE = 0, 1, 2, 3
"""How a node changes by another: its death, a connection that it refuses because it is dead, its death with the loss
of all that was under way; and from 3 on, messages from it."""

Event = tuple[int, Sequence[tuple[int, int]]]
"""The number of the node afterwards, and the receivers of what it sends with the numbers of these changes."""


class NodeSteps(Protocol):
    """What the search asks about nodes by their numbers."""

    def events(self, number: int) -> Sequence[Event]: ...

    def changed(self, number: int, by: int, change: int) -> int: ...

    def rank(self, number: int) -> int:
        """A number that differs from those of the same node's other states, and is as small as possible."""
        ...


@dataclass(frozen=True)
class FoundStates:
    """What a search has found."""

    states: int
    """Those visited: of runs that differ only in the order of steps that commute, not all."""
    ends: list[tuple[int, ...]]
    """The states in which no node has an event."""
    endless: bool
    """Whether some run returns to a state that it was in."""
    complete: bool


class _Tables(NamedTuple):
    """The answers so far. Events of a number are a range of `follower`, what an event sends a range of `receiver`."""

    first: NDArray[np.int32]
    events: NDArray[np.int32]
    """How many; -1 if not asked yet."""
    quiet: NDArray[np.uint8]
    """Whether nothing is sent until all events that are there are over."""
    rank: NDArray[np.uint64]
    follower: NDArray[np.int32]
    sends: NDArray[np.int32]
    """Where the sends of each event begin; they end where those of the next begin."""
    receiver: NDArray[np.int32]
    change: NDArray[np.int32]
    keys: NDArray[np.int64]
    values: NDArray[np.int32]


class _Visited(NamedTuple):
    """A hash table of states, each in two words."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    colour: NDArray[np.uint8]


class _Walk(NamedTuple):
    """The way from the start to the present state, and where in its steps each state is."""

    nodes: NDArray[np.int32]
    kills: NDArray[np.int32]
    tried: NDArray[np.int64]
    """The nodes whose events are tried in each state, a bit each."""
    actor: NDArray[np.int32]
    """The node whose events are next, or behind the nodes the one that dies next."""
    step: NDArray[np.int32]
    ends: NDArray[np.int32]
    totals: NDArray[np.int64]
    request: NDArray[np.int64]


_FREE, _OPEN, _CLOSED = 0, 1, 2
_DEPTH, _STATES, _ENDS, _ENDLESS = 0, 1, 2, 3
_DONE, _ASK_EVENTS, _ASK_CHANGE, _ASK_ROOM, _TOO_MANY = 0, 1, 2, 3, 4
_KILL_BITS = 4
_MOST_NODES = 60
_FULL = 0.7
"""The share of a hash table that may be in use."""


@cached_njit
def _hashed(low: np.uint64, high: np.uint64) -> np.uint64:
    # Both words together, then the last steps of SplitMix64.
    mixed = low * np.uint64(0x9E3779B97F4A7C15) ^ high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@cached_njit
def _change_key(number: int, by: int, change: int) -> np.int64:
    # Six bits are enough for _MOST_NODES nodes, and leave 28 for the change.
    return (np.int64(number) << 34) | (np.int64(change) << 6) | np.int64(by)


@cached_njit
def _change_slot(keys: Any, key: np.int64) -> int:
    mask = np.uint64(len(keys) - 1)
    slot = _hashed(np.uint64(key), np.uint64(0)) & mask
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@cached_njit
def _state_slot(visited: Any, low: np.uint64, high: np.uint64) -> int:
    mask = np.uint64(len(visited.colour) - 1)
    slot = _hashed(low, high) & mask
    while visited.colour[slot] != _FREE and (
        visited.low[slot] != low or visited.high[slot] != high
    ):
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@cached_njit
def _move_states(old: Any, new: Any) -> None:
    for at in range(len(old.colour)):
        if old.colour[at] != _FREE:
            slot = _state_slot(new, old.low[at], old.high[at])
            new.low[slot], new.high[slot] = old.low[at], old.high[at]
            new.colour[slot] = old.colour[at]


@cached_njit
def _packed(tables: Any, nodes: Any, kills: int, bits: int) -> tuple[np.uint64, np.uint64]:
    low, high = np.uint64(0), np.uint64(kills)
    half = (len(nodes) + 1) // 2
    for at in range(len(nodes)):
        if at < half:
            low = (low << np.uint64(bits)) | tables.rank[nodes[at]]
        else:
            high = (high << np.uint64(bits)) | tables.rank[nodes[at]]
    return low, high


@cached_njit
def _change(tables: Any, request: Any, number: int, by: int, change: int) -> int:
    """The number after a change; -1, and a request, if it is not known yet."""
    slot = _change_slot(tables.keys, _change_key(number, by, change))
    if tables.keys[slot] == -1:
        request[0], request[1], request[2] = number, by, change
        return -1
    return int(tables.values[slot])


@cached_njit
def _after_event(tables: Any, request: Any, nodes: Any, at: int, event: int) -> bool:
    nodes[at] = tables.follower[event]
    for send in range(tables.sends[event], tables.sends[event + 1]):
        to = tables.receiver[send]
        if nodes[to] != DEAD:
            changed, number = to, _change(tables, request, nodes[to], at, tables.change[send])
        else:
            changed, number = at, _change(tables, request, nodes[at], to, REFUSAL)
        if number < 0:
            return False
        nodes[changed] = number
    return True


@cached_njit
def _after_death(tables: Any, request: Any, nodes: Any, victim: int, change: int) -> bool:
    nodes[victim] = DEAD
    for other in range(len(nodes)):
        if nodes[other] != DEAD:
            number = _change(tables, request, nodes[other], victim, change)
            if number < 0:
                return False
            nodes[other] = number
    return True


@cached_njit
def _tried(tables: Any, nodes: Any, kills: int) -> int:
    """A persistent set: nodes that nobody else can send to before one of them has had an event.

    Only quiet nodes are left out, and only if nobody is going to die: what they do commutes with all that others do.
    """
    active, busy, first = 0, 0, 0
    for at in range(len(nodes)):
        if nodes[at] != DEAD and tables.events[nodes[at]] > 0:
            active |= 1 << at
            first = first or 1 << at
            busy |= 0 if tables.quiet[nodes[at]] else 1 << at
    if kills > 0:
        return active
    return busy or first


@cached_njit
def _search(tables: Any, visited: Any, walk: Any, mortal: Any, bits: int, most: int) -> int:
    """Go on with the walk until it is at its end, or an answer or room is missing."""
    count = walk.nodes.shape[1]
    nodes = np.empty(count, np.int32)
    room = int(len(visited.colour) * _FULL)
    while walk.totals[_DEPTH] > 0:
        top = walk.totals[_DEPTH] - 1
        actor, step = walk.actor[top], walk.step[top]
        nodes[:] = walk.nodes[top]
        kills = walk.kills[top]
        if actor < count:
            tried = walk.tried[top] >> actor & 1
            if not tried or step >= tables.events[nodes[actor]]:
                walk.actor[top], walk.step[top] = actor + 1, 0
                continue
            event = tables.first[nodes[actor]] + step
            # An answer that is missing ends the call; the same step is made again when it is known.
            if not _after_event(tables, walk.request, nodes, actor, event):
                return _ASK_CHANGE
        elif actor < count + len(mortal) and kills > 0:
            victim = mortal[actor - count]
            if nodes[victim] == DEAD or step > 1:
                walk.actor[top], walk.step[top] = actor + 1, 0
                continue
            change = NOTICE if step == 0 else LOSS
            if not _after_death(tables, walk.request, nodes, victim, change):
                return _ASK_CHANGE
            kills -= 1
        else:
            low, high = _packed(tables, nodes, kills, bits)
            visited.colour[_state_slot(visited, low, high)] = _CLOSED
            walk.totals[_DEPTH] = top
            continue
        is_end = True
        for number in nodes:
            if number != DEAD:
                if tables.events[number] < 0:
                    walk.request[0] = number
                    return _ASK_EVENTS
                is_end = is_end and tables.events[number] == 0
        low, high = _packed(tables, nodes, kills, bits)
        slot = _state_slot(visited, low, high)
        if visited.colour[slot] == _FREE:
            if walk.totals[_STATES] >= most:
                return _TOO_MANY
            ends = walk.totals[_ENDS]
            # The step is not counted yet, so it is simply made again when there is room.
            if walk.totals[_STATES] >= room or ends == len(walk.ends) or top + 1 == len(walk.kills):
                return _ASK_ROOM
            visited.low[slot], visited.high[slot] = low, high
            walk.totals[_STATES] += 1
            if is_end:
                visited.colour[slot] = _CLOSED
                walk.ends[ends] = nodes
                walk.totals[_ENDS] += 1
            else:
                visited.colour[slot] = _OPEN
                walk.nodes[top + 1] = nodes
                walk.kills[top + 1] = kills
                walk.tried[top + 1] = _tried(tables, nodes, kills)
                walk.actor[top + 1], walk.step[top + 1] = 0, 0
                walk.totals[_DEPTH] = top + 2
        elif visited.colour[slot] == _OPEN and (
            kills != walk.kills[top] or np.any(nodes != walk.nodes[top])
        ):
            walk.totals[_ENDLESS] = 1
        walk.step[top] = step + 1
    return _DONE


def search_states(
    start: Sequence[int], kills: int, mortal: Sequence[int], steps: NodeSteps, most_states: int
) -> FoundStates:
    """Find every end that can be reached from the start, with so many deaths of those that are mortal."""
    search = _Search(start, kills, mortal, steps)
    complete = search.run(most_states)
    totals = search.walk.totals
    ends = [tuple(one) for one in search.walk.ends[: totals[_ENDS]].tolist()]
    return FoundStates(int(totals[_STATES]), ends, bool(totals[_ENDLESS]), complete)


class _Search:
    """Answers what the compiled search asks for, and makes room for it."""

    def __init__(
        self, start: Sequence[int], kills: int, mortal: Sequence[int], steps: NodeSteps
    ) -> None:
        count = len(start)
        half = (count + 1) // 2
        self.bits = min(64 // half, (64 - _KILL_BITS) // max(count - half, 1), 31)
        if count > _MOST_NODES or kills >> _KILL_BITS:
            raise SimulationError(f"at most {_MOST_NODES} nodes and {(1 << _KILL_BITS) - 1} deaths")
        self.steps, self.mortal = steps, np.array(mortal, np.int32)
        self.tables = _empty_tables(1 << 10)
        self.events = self.sends = self.changes = 0
        self.under_way = set[int]()
        self.visited = _empty_visited(1 << 12)
        self.walk = _empty_walk(1 << 8, count)
        for number in start:
            self._add_events(number)
        self.walk.nodes[0], self.walk.kills[0] = start, kills
        self.walk.tried[0] = _tried(self.tables, self.walk.nodes[0], kills)
        low, high = _packed(self.tables, self.walk.nodes[0], kills, self.bits)
        slot = _state_slot(self.visited, low, high)
        self.visited.low[slot], self.visited.high[slot] = low, high
        self.visited.colour[slot] = _OPEN
        self.walk.totals[_DEPTH] = self.walk.totals[_STATES] = 1

    def run(self, most_states: int) -> bool:
        """Whether all states could be visited."""
        while True:
            arguments = self.tables, self.visited, self.walk, self.mortal, self.bits, most_states
            status = _search(*arguments)
            if status == _ASK_EVENTS:
                self._add_events(int(self.walk.request[0]))
            elif status == _ASK_CHANGE:
                self._add_change(*self.walk.request.tolist())
            elif status == _ASK_ROOM:
                self._make_room()
            else:
                return bool(status == _DONE)

    def _add_events(self, number: int) -> None:
        """Enter a number into the tables, with its events."""
        rank = self.steps.rank(number)
        if rank >> self.bits:
            raise SimulationError(f"a node has more than {1 << self.bits:,} states with inputs")
        events = self.steps.events(number)
        quiet = self._are_quiet(number, events)
        self._reserve("first", number + 1)
        self._reserve("quiet", number + 1)
        self._reserve("events", number + 1, -1)
        self._reserve("rank", number + 1)
        self.tables.rank[number], self.tables.quiet[number] = rank, quiet
        self.tables.first[number], self.tables.events[number] = self.events, len(events)
        self._reserve("follower", self.events + len(events))
        self._reserve("sends", self.events + len(events) + 1)
        for follower, sent in events:
            self._add_event(follower, sent)

    def _are_quiet(self, number: int, events: Sequence[Event]) -> bool:
        """Whether none of these events, nor any that is possible after them without others, sends anything."""
        if any(sent for _, sent in events):
            return False
        self.under_way.add(number)
        # A node that can go on by itself for ever is not quiet.
        quiet = all(one not in self.under_way and self._is_quiet(one) for one, _ in events)
        self.under_way.discard(number)
        return quiet

    def _is_quiet(self, number: int) -> bool:
        self._reserve("events", number + 1, -1)
        if self.tables.events[number] < 0:
            self._add_events(number)
        return bool(self.tables.quiet[number])

    def _add_event(self, follower: int, sent: Sequence[tuple[int, int]]) -> None:
        # A number is named before it is asked about: until then its entry has to say so.
        self._reserve("events", follower + 1, -1)
        self._reserve("receiver", self.sends + len(sent))
        self._reserve("change", self.sends + len(sent))
        self.tables.follower[self.events] = follower
        for receiver, change in sent:
            self.tables.receiver[self.sends], self.tables.change[self.sends] = receiver, change
            self.sends += 1
        self.events += 1
        self.tables.sends[self.events] = self.sends

    def _add_change(self, number: int, by: int, change: int) -> None:
        value = self.steps.changed(number, by, change)
        self._reserve("events", value + 1, -1)
        if self.changes >= _FULL * len(self.tables.keys):
            self._widen_changes()
        slot = _change_slot(self.tables.keys, _change_key(number, by, change))
        self.tables.keys[slot] = _change_key(number, by, change)
        self.tables.values[slot] = value
        self.changes += 1

    def _widen_changes(self) -> None:
        old = self.tables
        keys = np.full(2 * len(old.keys), -1, np.int64)
        values = np.zeros(len(keys), np.int32)
        for key, value in zip(old.keys.tolist(), old.values.tolist(), strict=True):
            if key != -1:
                slot = _change_slot(keys, key)
                keys[slot], values[slot] = key, value
        self.tables = old._replace(keys=keys, values=values)

    def _reserve(self, name: str, length: int, filler: int = 0) -> None:
        """Make an array of the tables at least so long."""
        array = getattr(self.tables, name)
        if length > len(array):
            wider = np.full(max(length, 2 * len(array)), filler, array.dtype)
            wider[: len(array)] = array
            self.tables = self.tables._replace(**{name: wider})

    def _make_room(self) -> None:
        totals = self.walk.totals
        if totals[_STATES] >= int(len(self.visited.colour) * _FULL):
            wider = _empty_visited(2 * len(self.visited.colour))
            _move_states(self.visited, wider)
            self.visited = wider
        names = [] if totals[_ENDS] < len(self.walk.ends) else ["ends"]
        if totals[_DEPTH] == len(self.walk.kills):
            names += ["nodes", "kills", "tried", "actor", "step"]
        wider_arrays = {
            name: np.concatenate(
                (getattr(self.walk, name), np.zeros_like(getattr(self.walk, name)))
            )
            for name in names
        }
        self.walk = self.walk._replace(**wider_arrays)


def _empty_tables(size: int) -> _Tables:
    def zeros() -> NDArray[np.int32]:
        return np.zeros(size, np.int32)

    return _Tables(
        first=zeros(),
        events=np.full(size, -1, np.int32),
        quiet=np.zeros(size, np.uint8),
        rank=np.zeros(size, np.uint64),
        follower=zeros(),
        sends=zeros(),
        receiver=zeros(),
        change=zeros(),
        keys=np.full(size, -1, np.int64),
        values=zeros(),
    )


def _empty_visited(size: int) -> _Visited:
    return _Visited(np.zeros(size, np.uint64), np.zeros(size, np.uint64), np.zeros(size, np.uint8))


def _empty_walk(size: int, count: int) -> _Walk:
    return _Walk(
        nodes=np.zeros((size, count), np.int32),
        kills=np.zeros(size, np.int32),
        tried=np.zeros(size, np.int64),
        actor=np.zeros(size, np.int32),
        step=np.zeros(size, np.int32),
        ends=np.zeros((size, count), np.int32),
        totals=np.zeros(4, np.int64),
        request=np.zeros(3, np.int64),
    )
