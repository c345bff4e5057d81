"""A model checker: all orders in which messages can arrive, choices can fall and nodes can die.

Nodes are state machines that only messages connect, each pair by a channel that keeps its order.
A step changes one node, so steps are computed once for each state of a node and each message;
a state of the whole is one number for each node, and `state_search` goes through them by lookups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from headwater.errors import SimulationError
from headwater.sim.checker.state_search import (
    DEAD,
    FIRST_MESSAGE,
    LOSS,
    NOTICE,
    Event,
    search_states,
)


class CheckedNode(Protocol):
    """What the checker needs of a node, besides how it takes messages: copies and comparison."""

    def copy(self) -> Any: ...

    def key(self) -> Hashable: ...


N = TypeVar("N", bound=CheckedNode)
Sent = Iterable[tuple[int, Hashable]]
"""Receivers with messages."""

State = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]
"""The states of the nodes (-1: dead), the contents of the channels, and the kills that are left."""

_Contents = tuple[int, ...]
_Cell = tuple[int, int, tuple[_Contents, ...]]
"""A node by its position, its state, and what is under way to it from each node."""

_DEAD = -1
_NOTICE = -1
_CHOICE = -2
"""Stands for the sender, where a step is a node's own choice."""
_DEATHS = 0.05
"""How often a step of a random run is a death, as long as one may die."""


def _no_choices(node: CheckedNode) -> Iterable[Hashable]:
    return ()


def _unexpected(node: CheckedNode, *event: Hashable) -> Sent:
    raise SimulationError(f"the model does not say what {event} does to a node")


@dataclass(frozen=True)
class NodeModel(Generic[N]):
    """How a node changes: by a message, by a choice that is open to it, by the death of another."""

    handle: Callable[[N, int, Any], Sent]
    choices: Callable[[N], Iterable[Hashable]] = _no_choices
    choose: Callable[[N, Any], Sent] = _unexpected
    note_death: Callable[[N, int], Sent] = _unexpected


@dataclass(frozen=True)
class CheckedWorld(Generic[N]):
    """Nodes by their position, messages under way at the start, who may be killed, and how many of them."""

    nodes: Sequence[N]
    messages: Sequence[tuple[int, int, Hashable]]
    """Sender, receiver, message."""
    model: NodeModel[N]
    mortal: Sequence[int] = ()
    most_kills: int = 0


@dataclass(frozen=True)
class Exploration:
    """What all interleavings of a world lead to."""

    states: int
    """Those visited: where runs differ only in the order of steps that commute, not each of them."""
    ends: int
    """States in which nothing can happen any more."""
    failures: int
    """Ends that are wrong."""
    first_failure: str = ""
    endless: bool = False
    """Whether some run returns to a state that it was in."""
    complete: bool = True
    """False if there were more states than allowed."""


Judge = Callable[[dict[int, N]], str]
"""What is wrong with the living nodes of an end; empty if nothing is."""


def explore(world: CheckedWorld[N], judge: Judge[N], most_states: int = 20_000_000) -> Exploration:
    """Judge every end that can be reached: the states where nothing is left to happen."""
    cells = _Cells(_Steps(world))
    kills = world.most_kills if world.mortal else 0
    found = search_states(cells.start(), kills, world.mortal, cells, most_states)
    complaints = [complaint for end in found.ends if (complaint := judge(cells.living(end)))]
    first = complaints[0] if complaints else ""
    ends, failures = len(found.ends), len(complaints)
    return Exploration(found.states, ends, failures, first, found.endless, found.complete)


def sample_runs(world: CheckedWorld[N], judge: Judge[N], random: Random, runs: int) -> Exploration:
    """Random runs to their ends, for worlds with too many states; `states` counts them with repetition."""
    steps = _Steps(world)
    states = ends = failures = 0
    first_failure = ""
    for _ in range(runs):
        state = steps.start()
        while not steps.is_end(state):
            deaths = list(steps.deaths(state)) if random.random() < _DEATHS else []
            # This is no end, so where nobody dies there is an event.
            state = random.choice(deaths or list(steps.events(state)))
            states += 1
        ends += 1
        if complaint := judge(steps.living(state)):
            failures += 1
            first_failure = first_failure or complaint
    return Exploration(states, ends, failures, first_failure, complete=False)


def shortest_failure(world: CheckedWorld[N], judge: Judge[N]) -> list[str] | None:
    """The fewest steps that lead to a wrong end; None if there is no such end."""
    steps = _Steps(world)
    start = steps.start()
    came_from: dict[State, State | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if steps.is_end(state) and judge(steps.living(state)):
            return steps.describe_path(state, came_from)
        for follower in steps.successors(state):
            if follower not in came_from:
                came_from[follower] = state
                waiting.append(follower)
    return None


@dataclass
class _Cells(Generic[N]):
    """Nodes with all that is under way to them, numbered: the events of a cell are the same wherever it occurs."""

    steps: _Steps[N]
    _cells: list[_Cell] = field(default_factory=lambda: [(_DEAD, _DEAD, ())])
    """The dead are cell 0."""
    _numbers: dict[_Cell, int] = field(default_factory=dict)
    _ranks: list[int] = field(default_factory=lambda: [0])
    _counts: dict[int, int] = field(default_factory=dict)

    def start(self) -> list[int]:
        nodes, channels, _ = self.steps.start()
        count = len(nodes)
        return [self._number((at, one, channels[at::count])) for at, one in enumerate(nodes)]

    def living(self, cells: Sequence[int]) -> dict[int, N]:
        return {
            at: self.steps.nodes[self._cells[cell][1]]
            for at, cell in enumerate(cells)
            if cell != DEAD
        }

    def rank(self, number: int) -> int:
        return self._ranks[number]

    def events(self, number: int) -> list[Event]:
        if number == DEAD:
            return []
        owner, node, channels = self._cells[number]
        found = []
        for sender, contents in enumerate(channels):
            if contents:
                rest = _with_contents(channels, sender, contents[1:])
                found.append(self._event(owner, rest, node, sender, contents[0]))
        for choice in range(len(self.steps.open_choices(node))):
            found.append(self._event(owner, channels, node, _CHOICE, choice))
        return found

    def changed(self, number: int, by: int, change: int) -> int:
        owner, node, channels = self._cells[number]
        contents = channels[by]
        if change >= FIRST_MESSAGE:
            contents += (change - FIRST_MESSAGE,)
        elif change == LOSS:
            contents = (_NOTICE,)
        # One refusal says all that the next one would.
        elif change == NOTICE or contents[-1:] != (_NOTICE,):
            contents += (_NOTICE,)
        return self._number((owner, node, _with_contents(channels, by, contents)))

    def _event(
        self, owner: int, channels: tuple[_Contents, ...], node: int, sender: int, event: int
    ) -> Event:
        after, sent = self.steps.result(node, sender, event)
        changes = [(receiver, message + FIRST_MESSAGE) for receiver, message in sent]
        return self._number((owner, after, channels)), changes

    def _number(self, cell: _Cell) -> int:
        number = self._numbers.get(cell)
        if number is None:
            number = self._numbers[cell] = len(self._cells)
            self._cells.append(cell)
            owner = cell[0]
            self._counts[owner] = self._counts.get(owner, 0) + 1
            self._ranks.append(self._counts[owner])
        return number


def _with_contents(
    channels: tuple[_Contents, ...], sender: int, contents: _Contents
) -> tuple[_Contents, ...]:
    return (*channels[:sender], contents, *channels[sender + 1 :])


@dataclass
class _Steps(Generic[N]):
    """The steps of a world, over numbered states of nodes and numbered messages."""

    world: CheckedWorld[N]
    nodes: list[N] = field(default_factory=list)
    messages: list[Hashable] = field(default_factory=list)
    _node_numbers: dict[Hashable, int] = field(default_factory=dict)
    _message_numbers: dict[Hashable, int] = field(default_factory=dict)
    _results: dict[tuple[int, int, int], tuple[int, tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    _choices: dict[int, tuple[Hashable, ...]] = field(default_factory=dict)

    def start(self) -> State:
        count = len(self.world.nodes)
        channels: list[tuple[int, ...]] = [()] * (count * count)
        for sender, receiver, message in self.world.messages:
            channels[sender * count + receiver] += (self._message_number(message),)
        nodes = tuple(self._node_number(node) for node in self.world.nodes)
        return nodes, tuple(channels), self.world.most_kills

    def living(self, state: State) -> dict[int, N]:
        return {at: self.nodes[one] for at, one in enumerate(state[0]) if one != _DEAD}

    def is_end(self, state: State) -> bool:
        """No message is in flight and no node has a choice left; possible deaths do not count."""
        nodes, channels, _ = state
        return not any(channels) and not any(self.open_choices(one) for one in nodes)

    def successors(self, state: State) -> Iterator[State]:
        yield from self.events(state)
        yield from self.deaths(state)

    def events(self, state: State) -> Iterator[State]:
        nodes, channels, kills = state
        count = len(nodes)
        for at, channel in enumerate(channels):
            if channel:
                receiver = at % count
                rest = (*channels[:at], channel[1:], *channels[at + 1 :])
                yield self._after(receiver, at // count, channel[0], (nodes, rest, kills))
        for at, one in enumerate(nodes):
            for choice in range(len(self.open_choices(one))):
                yield self._after(at, _CHOICE, choice, state)

    def deaths(self, state: State) -> Iterator[State]:
        nodes, _, kills = state
        for victim in self.world.mortal if kills else ():
            if nodes[victim] != _DEAD:
                yield from self._kill(victim, state)

    def _after(self, at: int, sender: int, event: int, state: State) -> State:
        nodes, channels, kills = state
        changed, sent = self.result(nodes[at], sender, event)
        if sent:
            count = len(nodes)
            contents = list(channels)
            for receiver, message in sent:
                if nodes[receiver] != _DEAD:
                    contents[at * count + receiver] += (message,)
                elif contents[receiver * count + at][-1:] != (_NOTICE,):
                    # A connection to the dead is refused.
                    contents[receiver * count + at] += (_NOTICE,)
            channels = tuple(contents)
        return (*nodes[:at], changed, *nodes[at + 1 :]), channels, kills

    def result(self, node: int, sender: int, event: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        known = self._results.get((node, sender, event))
        if known is None:
            twin: N = self.nodes[node].copy()
            model = self.world.model
            if sender == _CHOICE:
                sent = model.choose(twin, self._choices[node][event])
            elif event == _NOTICE:
                sent = model.note_death(twin, sender)
            else:
                sent = model.handle(twin, sender, self.messages[event])
            numbered = tuple((to, self._message_number(message)) for to, message in sent)
            known = self._node_number(twin), numbered
            self._results[node, sender, event] = known
        return known

    def _kill(self, victim: int, state: State) -> Iterator[State]:
        """What was under way from the dead arrives, or is lost with it; then its death is noticed."""
        nodes, channels, kills = state
        count = len(nodes)
        for lost in (False, True):
            contents = list(channels)
            for other in range(count):
                # What was under way to the dead is never read, and would only tell equal states
                # apart.
                contents[other * count + victim] = ()
                if nodes[other] != _DEAD and other != victim:
                    arriving = () if lost else channels[victim * count + other]
                    contents[victim * count + other] = (*arriving, _NOTICE)
            yield (*nodes[:victim], _DEAD, *nodes[victim + 1 :]), tuple(contents), kills - 1

    def open_choices(self, node: int) -> tuple[Hashable, ...]:
        if node == _DEAD:
            return ()
        if node not in self._choices:
            self._choices[node] = tuple(self.world.model.choices(self.nodes[node]))
        return self._choices[node]

    def _node_number(self, node: N) -> int:
        key = node.key()
        if key not in self._node_numbers:
            self._node_numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self._node_numbers[key]

    def _message_number(self, message: Hashable) -> int:
        if message not in self._message_numbers:
            self._message_numbers[message] = len(self.messages)
            self.messages.append(message)
        return self._message_numbers[message]

    def describe_path(self, state: State, came_from: dict[State, State | None]) -> list[str]:
        path, before = [], came_from[state]
        while before is not None:
            path.append(self._describe_step(before, state))
            state, before = before, came_from[before]
        return path[::-1]

    def _describe_step(self, before: State, after: State) -> str:
        count = len(before[0])
        for at, (old, new) in enumerate(zip(before[0], after[0], strict=True)):
            if new == _DEAD != old:
                return f"{at} dies"
        for at, (old_contents, new_contents) in enumerate(zip(before[1], after[1], strict=True)):
            if old_contents and len(new_contents) < len(old_contents):
                return self._describe_event(at // count, at % count, old_contents[0])
        for at, (old_contents, new_contents) in enumerate(zip(before[1], after[1], strict=True)):
            if old_contents and new_contents[: len(old_contents)] != old_contents:
                return self._describe_event(at // count, at % count, old_contents[0])
        return "a choice"

    def _describe_event(self, sender: int, receiver: int, event: int) -> str:
        what = "notice of death" if event == _NOTICE else str(self.messages[event])
        return f"{sender} -> {receiver}: {what}"
