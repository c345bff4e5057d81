"""Histories of many trees over hundreds of providers: the protocol itself on the event kernel.

Providers die, come back, join and leave, and messages get lost, all by coin flips, so that a history is
a function of its settings. At the end no provider may be cut off, and the feed of each must be
without a gap and without a repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from headwater.errors import SimulationError
from headwater.federation.dissemination.protocol.adaptation import (
    AdaptingMember,
    Changes,
    MoveAttempt,
)
from headwater.federation.dissemination.protocol.membership import MembershipPolicy, TreeMembership
from headwater.sim.coin_flips import coin_flip, pass_threshold, run_key
from headwater.sim.kernel import Simulation
from headwater.sim.trees.members import find_fault, known_families, possible_moves

Chooser = Callable[[AdaptingMember, MoveAttempt], Changes]
"""The move that a holder chooses from the statistics that came with the grants; empty for none."""

_LOSS, _DEATH, _RETURN, _LEAVE = range(4)


@dataclass(frozen=True)
class HistorySettings:
    """What happens in a history. Chances are those of a provider in a second, or of a message."""

    providers: int = 30
    trees: int = 3
    seconds: int = 100
    death: float = 0.001
    rejoin: float = 0.05
    """The chance of one that is dead, or outside of a tree, to come back."""
    leave: float = 0.001
    loss: float = 0.01
    messages: float = 1.0
    """What an origin emits in a second."""
    round_seconds: float = 20.0
    fanout: int = 4
    settle_seconds: int = 60
    """How long all is quiet at the end, so that whatever was lost can be repeated."""

    def __post_init__(self) -> None:
        if not 0 < self.trees < self.providers:
            raise SimulationError("there must be more providers than trees, and a tree at least")


@dataclass
class HistoryOutcome:
    """What came of a history."""

    fault: str = ""
    deaths: int = 0
    returns: int = 0
    leaves: int = 0
    sent: int = 0
    lost: int = 0
    moves: int = 0
    """Changes of parent that were committed."""
    delivered: int = 0
    disorder: list[str] = field(default_factory=list)
    """Feeds that had a gap or a repetition."""


def random_chooser(random: Random) -> Chooser:
    """Any move, whatever it costs: the hardest on the protocol."""

    def choose(member: AdaptingMember, attempt: MoveAttempt) -> Changes:
        moves = list(possible_moves(member.number, known_families(attempt)))
        return random.choice(moves) if moves else ()

    return choose


class TreeHistory:
    """Providers 0, 1, .. on the event kernel; the first ones are the origins of the trees."""

    def __init__(
        self, settings: HistorySettings, seed: int, chooser: Chooser | None = None
    ) -> None:
        self.settings = settings
        self.chooser = chooser or random_chooser(Random(seed))
        self.outcome = HistoryOutcome()
        self.simulation = Simulation()
        self.members: dict[int, AdaptingMember] = {}
        self._key = run_key(seed)
        self._loss = pass_threshold(settings.loss)
        self._arrivals: dict[tuple[int, int], float] = {}
        random = Random(seed)
        self._points = [(random.random(), random.random()) for _ in range(settings.providers)]

        def nearest_parent(
            place: TreeMembership, number: int, newcomer: int, report: object
        ) -> int:
            """Here as long as there are few children, else below the nearest of them."""
            children = place.child_numbers()
            if len(children) < settings.fanout:
                return number
            return min(children, key=lambda child: self.delay(child, newcomer))

        self._policy = MembershipPolicy(choose_parent=nearest_parent)

    def run(self) -> HistoryOutcome:
        """Let it happen, then let it settle, and look at the end."""
        settings = self.settings
        for number in range(settings.providers):
            self._start_member(number)
        self._start_publishing()
        for second in range(1, settings.seconds):
            self.simulation.schedule_at(second, partial(self._disturb, second))
        self.simulation.run(settings.seconds)
        self._loss = 0
        for number in set(range(settings.providers)) - set(self.members):
            self._start_member(number)
        self._join_all()
        self.simulation.run(settings.seconds + settings.settle_seconds)
        self.outcome.fault = self._final_fault()
        return self.outcome

    def delay(self, one: int, other: int) -> float:
        """Seconds from one provider to another."""
        (x, y), (u, v) = self._points[one], self._points[other]
        return 0.001 + 0.05 * float(((x - u) ** 2 + (y - v) ** 2) ** 0.5)

    # What happens.

    def _start_member(self, number: int) -> None:
        now = self.simulation.now
        # The clock gives serials above all that the same provider used before its death.
        member = AdaptingMember(number, policy=self._policy, serial=int(now * 1000))
        member.round_seconds = self.settings.round_seconds
        member.next_token = now + member.round_seconds
        self.members[number] = member
        if number < self.settings.trees:
            member.create_tree(number)
        for tree in range(self.settings.trees):
            self._deliver(member, member.join(tree, tree, now))
        first = now + coin_flip(self._key, number, _RETURN) / (1 << 53)
        self.simulation.schedule_at(first, lambda: self._tick(member))

    def _tick(self, member: AdaptingMember) -> None:
        if self.members.get(member.number) is member:
            self._act(member, lambda: member.tick(self.simulation.now))
            self.simulation.schedule_after(1.0, lambda: self._tick(member))

    def _disturb(self, second: int) -> None:
        """Deaths, returns and leaves of one second."""
        settings, now = self.settings, self.simulation.now
        # Origins stay alive: a tree whose origin is dead can be neither right nor wrong.
        for number in range(settings.trees, settings.providers):
            member = self.members.get(number)
            if member is None:
                if self._happens(settings.rejoin, second, number, _RETURN):
                    self._start_member(number)
                    self.outcome.returns += 1
            elif self._happens(settings.death, second, number, _DEATH):
                del self.members[number]
                self.outcome.deaths += 1
            elif self._happens(settings.leave, second, number, _LEAVE):
                tree = second % settings.trees
                self._act(member, partial(member.leave, tree, now))
                self.outcome.leaves += 1
            elif self._happens(settings.rejoin, second, number, _RETURN):
                for tree in range(settings.trees):
                    self._act(member, partial(member.join, tree, tree, now))

    def _happens(self, chance: float, second: int, number: int, event: int) -> bool:
        flip = coin_flip(self._key, second * self.settings.providers + number, event)
        return flip < pass_threshold(chance)

    def _join_all(self) -> None:
        now = self.simulation.now
        for member in self.members.values():
            for tree, place in tuple(member.places.items()):
                # At the end everybody is expected in every tree.
                member.places[tree] = replace(place, leaving=False)
            for tree in range(self.settings.trees):
                self._act(member, partial(member.join, tree, tree, now))

    def _start_publishing(self) -> None:
        settings = self.settings
        # Until half of the quiet time, so that the last ones can arrive, and be asked for again.
        count = int((settings.seconds + settings.settle_seconds / 2) * settings.messages)
        for tree in range(settings.trees):
            for number in range(1, count):
                self.simulation.schedule_at(
                    number / settings.messages, partial(self._publish, tree, number)
                )

    def _publish(self, tree: int, number: int) -> None:
        member = self.members[tree]
        self._act(member, lambda: member.publish(tree, number, self.simulation.now))

    # Messages.

    def _act(self, member: AdaptingMember, action: Callable[[], list[tuple[int, Any]]]) -> None:
        """Let a member do something, send what it says, and decide what it leaves open."""
        before = dict(member.places)
        sent = action()
        for attempt in member.open_choices():
            move = self.chooser(member, attempt)
            sent += member.decide(attempt.name.tree, move, self.simulation.now)
        for tree, place in before.items():
            self._compare_places(member, place, member.places.get(tree))
        self._deliver(member, sent)

    def _compare_places(
        self, member: AdaptingMember, before: TreeMembership, after: TreeMembership | None
    ) -> None:
        """Count moves and deliveries; what a message says is its number, so that the feed can be checked."""
        if after is None or not before.started:
            return
        self.outcome.moves += None not in (before.parent, after.parent) and (
            before.parent != after.parent
        )
        arrived = after.feed.newest - before.feed.newest
        self.outcome.delivered += arrived
        expected = tuple(range(before.feed.newest + 1, after.feed.newest + 1))
        if arrived < 0 or (arrived and after.feed.kept[-arrived:] != expected):
            self.outcome.disorder.append(
                f"{member.number} in tree {after.tree}: {expected} expected, not {after.feed.kept[-arrived:]}"
            )

    def _deliver(self, sender: AdaptingMember, sent: list[tuple[int, Any]]) -> None:
        for receiver, message in sent:
            self.outcome.sent += 1
            if coin_flip(self._key, self.outcome.sent, _LOSS) < self._loss:
                self.outcome.lost += 1
                continue
            pair = sender.number, receiver
            time = self.simulation.now + self.delay(*pair)
            # A connection keeps the order of what it carries.
            self._arrivals[pair] = time = max(time, self._arrivals.get(pair, 0.0))
            self.simulation.schedule_at(time, partial(self._arrive, *pair, message))

    def _arrive(self, sender: int, receiver: int, message: Any) -> None:
        if member := self.members.get(receiver):
            now = self.simulation.now
            self._act(member, lambda: member.handle(sender, message, now))

    # The end.

    def _final_fault(self) -> str:
        everybody = range(self.settings.providers)
        # Rounds never end here, so at any moment an attempt may be under way, and locks held.
        settled = {
            number: replace(member, attempts={}, lock=type(member.lock)(), prepared=None)
            for number, member in self.members.items()
        }
        expected = dict.fromkeys(range(self.settings.trees), everybody)
        return find_fault(settled, expected) or self._feed_fault()

    def _feed_fault(self) -> str:
        """Everybody must have what the origin has emitted, whichever way it came."""
        for tree in range(self.settings.trees):
            newest = self.members[tree].places[tree].feed.newest
            for number, member in self.members.items():
                if member.places[tree].feed.newest != newest:
                    return f"{number} is behind in tree {tree}"
        return self.outcome.disorder[0] if self.outcome.disorder else ""
