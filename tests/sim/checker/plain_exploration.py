"""All interleavings the plain way: every state is a copy of all nodes and channels, and nothing is numbered or shared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.sim.checker.interleavings import CheckedWorld

NOTICE = "notice of death"


@dataclass
class PlainState:
    """Living nodes by position, what is under way from one to another, and how many may still die."""

    nodes: dict[int, Any]
    channels: dict[tuple[int, int], tuple[Hashable, ...]]
    kills: int

    def key(self) -> Hashable:
        nodes = tuple((at, node.key()) for at, node in sorted(self.nodes.items()))
        return nodes, tuple(sorted((c for c in self.channels.items() if c[1]), key=str)), self.kills

    def copy(self) -> PlainState:
        nodes = {at: node.copy() for at, node in self.nodes.items()}
        return PlainState(nodes, dict(self.channels), self.kills)


@dataclass(frozen=True)
class PlainExploration:
    """What all interleavings lead to; the ends as keys of the living nodes."""

    states: int
    ends: frozenset[Hashable]
    failures: int
    endless: bool


def explore_plainly(
    world: CheckedWorld[Any], judge: Callable[[dict[int, Any]], str]
) -> PlainExploration:
    """Every state that can be reached, every step from each of them, and all cycles."""
    start = PlainState(dict(enumerate(world.nodes)), {}, world.most_kills)
    for sender, receiver, message in world.messages:
        _put(start, sender, receiver, message)
    followers: dict[Hashable, set[Hashable]] = {}
    ends: dict[Hashable, PlainState] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        key = state.key()
        if key in followers:
            continue
        events = list(_events(world, state))
        if not events and state is not start:
            ends[key] = state
        after = events + (list(_deaths(world, state)) if events or state is start else [])
        followers[key] = {one.key() for one in after} - {key}
        waiting += after
    failures = sum(1 for state in ends.values() if judge(state.nodes))
    found = frozenset((state.key()) for state in ends.values())
    return PlainExploration(len(followers), found, failures, _has_cycle(followers))


def _put(state: PlainState, sender: int, receiver: int, message: Hashable) -> None:
    state.channels[sender, receiver] = (*state.channels.get((sender, receiver), ()), message)


def _send(state: PlainState, sender: int, sent: Any) -> None:
    for receiver, message in sent:
        if receiver in state.nodes:
            _put(state, sender, receiver, message)
        elif state.channels.get((receiver, sender), ())[-1:] != (NOTICE,):
            _put(state, receiver, sender, NOTICE)


def _events(world: CheckedWorld[Any], state: PlainState) -> Iterator[PlainState]:
    model = world.model
    for (sender, receiver), contents in state.channels.items():
        if contents:
            after = state.copy()
            after.channels[sender, receiver] = contents[1:]
            node = after.nodes[receiver]
            if contents[0] == NOTICE:
                _send(after, receiver, model.note_death(node, sender))
            else:
                _send(after, receiver, model.handle(node, sender, contents[0]))
            yield after
    for at, node in state.nodes.items():
        for choice in model.choices(node):
            after = state.copy()
            _send(after, at, model.choose(after.nodes[at], choice))
            yield after


def _deaths(world: CheckedWorld[Any], state: PlainState) -> Iterator[PlainState]:
    for victim in world.mortal if state.kills else ():
        if victim in state.nodes:
            for lost in (False, True):
                after = state.copy()
                del after.nodes[victim]
                after.kills -= 1
                for sender, receiver in state.channels:
                    if receiver == victim or (sender == victim and lost):
                        after.channels[sender, receiver] = ()
                for other in after.nodes:
                    _put(after, victim, other, NOTICE)
                yield after


def _has_cycle(followers: dict[Hashable, set[Hashable]]) -> bool:
    """Whether something is left when states that nothing leads to are taken away again and again."""
    leads_to = dict.fromkeys(followers, 0)
    for after in followers.values():
        for key in after:
            leads_to[key] += 1
    free = [key for key, count in leads_to.items() if not count]
    removed = 0
    while free:
        removed += 1
        for key in followers[free.pop()]:
            leads_to[key] -= 1
            if not leads_to[key]:
                free.append(key)
    return removed < len(followers)
