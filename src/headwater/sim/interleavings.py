"""A model checker: all orders in which messages can arrive, choices can fall and nodes can die.

Nodes are state machines that only messages connect, each pair by a channel that keeps its order.
A step changes one node, so steps are computed once for each state of a node and each message,
and a state of the whole is a few numbers.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from headwater.errors import SimulationError


class CheckedNode(Protocol):
    """What the checker needs of a node, besides how it takes messages: copies and comparison."""

    def copy(self) -> Any: ...

    def key(self) -> Hashable: ...


N = TypeVar("N", bound=CheckedNode)
Sent = Iterable[tuple[int, Hashable]]
"""Receivers with messages."""

State = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]
"""The states of the nodes (-1: dead), the contents of the channels, and the kills that are left."""

_DEAD = -1
_NOTICE = -1
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
    """Visit every state that can be reached, depth first, and judge those where nothing is left to happen."""
    steps = _Steps(world)
    start = steps.start()
    key = steps.packed(start)
    open_states, closed = {key}, set[bytes]()
    path: list[tuple[bytes, Iterator[State]]] = [(key, steps.successors(start))]
    ends = failures = 0
    first_failure, endless = "", False
    while path:
        key, successors = path[-1]
        follower = next(successors, None)
        if follower is None:
            path.pop()
            open_states.discard(key)
            closed.add(key)
            continue
        following = steps.packed(follower)
        if following == key:
            continue
        if following in open_states:
            endless = True
        elif following not in closed:
            if len(closed) + len(open_states) >= most_states:
                return Exploration(len(closed), ends, failures, first_failure, endless, False)
            if not steps.is_end(follower):
                open_states.add(following)
                path.append((following, steps.successors(follower)))
                continue
            closed.add(following)
            ends += 1
            if complaint := judge(steps.living(follower)):
                failures += 1
                first_failure = first_failure or complaint
    return Exploration(len(closed), ends, failures, first_failure, endless)


def sample_runs(world: CheckedWorld[N], judge: Judge[N], random: Random, runs: int) -> Exploration:
    """Random runs to their ends, for worlds with too many states; `states` counts them with repetition."""
    steps = _Steps(world)
    states = ends = failures = 0
    first_failure = ""
    for _ in range(runs):
        state = steps.start()
        while not steps.is_end(state):
            deaths = list(steps.deaths(state)) if random.random() < _DEATHS else []
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
    _content_numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def start(self) -> State:
        count = len(self.world.nodes)
        channels: list[tuple[int, ...]] = [()] * (count * count)
        for sender, receiver, message in self.world.messages:
            channels[sender * count + receiver] += (self._message_number(message),)
        nodes = tuple(self._node_number(node) for node in self.world.nodes)
        return nodes, tuple(channels), self.world.most_kills

    def packed(self, state: State) -> bytes:
        """The state in a quarter of the memory, of which there have to be millions: few channels have contents."""
        nodes, channels, kills = state
        numbers = [kills, *nodes]
        for at, channel in enumerate(channels):
            if channel:
                known = self._content_numbers
                numbers += at, known.setdefault(channel, len(known))
        return array("i", numbers).tobytes()

    def living(self, state: State) -> dict[int, N]:
        return {at: self.nodes[one] for at, one in enumerate(state[0]) if one != _DEAD}

    def is_end(self, state: State) -> bool:
        """No message is in flight and no node has a choice left; possible deaths do not count."""
        nodes, channels, _ = state
        return not any(channels) and not any(self._open_choices(one) for one in nodes)

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
            for choice in range(len(self._open_choices(one))):
                yield self._after(at, -2, choice, state)

    def deaths(self, state: State) -> Iterator[State]:
        nodes, _, kills = state
        for victim in self.world.mortal if kills else ():
            if nodes[victim] != _DEAD:
                yield from self._kill(victim, state)

    def _after(self, at: int, sender: int, event: int, state: State) -> State:
        nodes, channels, kills = state
        changed, sent = self._result(nodes[at], sender, event)
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

    def _result(
        self, node: int, sender: int, event: int
    ) -> tuple[int, tuple[tuple[int, int], ...]]:
        known = self._results.get((node, sender, event))
        if known is None:
            twin: N = self.nodes[node].copy()
            model = self.world.model
            if sender == -2:
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
                contents[other * count + victim] = ()
                if nodes[other] != _DEAD and other != victim:
                    arriving = () if lost else channels[victim * count + other]
                    contents[victim * count + other] = (*arriving, _NOTICE)
            yield (*nodes[:victim], _DEAD, *nodes[victim + 1 :]), tuple(contents), kills - 1

    def _open_choices(self, node: int) -> tuple[Hashable, ...]:
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
