"""The thesis's protocol for moves in several trees (Algorithms 4.4 to 4.6), to show that it deadlocks.

Only what it obviously lacks is added: tokens are also sent after an adaptation that the last
acknowledgement starts, a node without children passes and does not wait, a leaf that is held is
released by the token like any other, a hold carries its tree, and queues are served as long as
there is something to serve.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum


class PrintedState(Enum):
    """The three states of a node."""

    IDLE = "idle"
    WAIT = "wait"
    HOLD = "hold"


@dataclass(frozen=True)
class HoldMessage:
    """Asks a child to hold still for a tree; the sender's number decides between two that ask each other."""

    tree: int


@dataclass(frozen=True)
class HoldAcknowledgement:
    """The child holds still."""

    tree: int


@dataclass(frozen=True)
class PrintedToken:
    """Lets the receiver adapt a tree, and ends its hold for that tree."""

    tree: int


PrintedMessage = HoldMessage | HoldAcknowledgement | PrintedToken


class PrintedNode:
    """A node of the printed protocol. Its number is also its address."""

    def __init__(self, number: int, children: dict[int, tuple[int, ...]]) -> None:
        self.number = number
        self.children = children
        self.state = PrintedState.IDLE
        self.held_for: int | None = None
        self.awaited: dict[int, int] = {}
        self.ready: list[int] = []
        self.tokens: list[int] = []
        self.holds: list[tuple[int, int]] = []
        self._outbox: list[tuple[int, PrintedMessage]] = []

    def key(self) -> Hashable:
        """All of the state that can change."""
        return (
            self.number,
            self.state,
            self.held_for,
            tuple(sorted(self.awaited.items())),
            tuple(self.ready),
            tuple(self.tokens),
            tuple(self.holds),
        )

    def copy(self) -> PrintedNode:
        """A node in the same state that changes by itself."""
        twin = PrintedNode(self.number, self.children)
        twin.state, twin.held_for = self.state, self.held_for
        twin.awaited, twin.ready = dict(self.awaited), list(self.ready)
        twin.tokens, twin.holds = list(self.tokens), list(self.holds)
        return twin

    def is_waiting(self) -> bool:
        """Whether this node still expects a message."""
        return bool(
            self.state is not PrintedState.IDLE
            or self.awaited
            or self.ready
            or self.tokens
            or self.holds
        )

    def handle(self, sender: int, message: PrintedMessage) -> list[tuple[int, PrintedMessage]]:
        """Algorithm 4.4: take a message, then serve the queues. Returns receivers with messages."""
        self._outbox = []
        self._handle_message(sender, message)
        while self.state is not PrintedState.HOLD and self._serve_queues():
            pass
        return self._outbox

    def _serve_queues(self) -> bool:
        if self.ready:
            self._adapt(self.ready.pop(0))
        elif self.tokens:
            self._handle_token(self.tokens.pop(0))
        elif self.holds:
            return self._serve_holds()
        else:
            return False
        return True

    def _serve_holds(self) -> bool:
        """Offer every queued hold once, up to the first that is accepted."""
        for position in range(len(self.holds)):
            sender, tree = self.holds.pop(position)
            if self._may_hold(sender):
                self._handle_hold(sender, tree)
                return True
            self.holds.insert(position, (sender, tree))
        return False

    def _may_hold(self, sender: int) -> bool:
        return self.state is PrintedState.IDLE or (
            self.state is PrintedState.WAIT and sender > self.number
        )

    def _handle_message(self, sender: int, message: PrintedMessage) -> None:
        match message:
            case HoldMessage(tree):
                self._handle_hold(sender, tree)
            case PrintedToken(tree):
                self._handle_token(tree)
            case HoldAcknowledgement(tree):
                self._handle_acknowledgement(tree)

    def _handle_hold(self, sender: int, tree: int) -> None:
        if self._may_hold(sender):
            self._outbox.append((sender, HoldAcknowledgement(tree)))
            self.held_for = tree
            self.state = PrintedState.HOLD
        else:
            # Whatever its number, in HOLD too: the proof of Theorem 4.2 passes over this case.
            self.holds.append((sender, tree))

    def _handle_token(self, tree: int) -> None:
        if self.state is PrintedState.HOLD:
            if tree != self.held_for:
                self.tokens.append(tree)
                return
            self.held_for = None
            self._rest()
        if tree in self.awaited or tree in self.ready:
            return
        children = self.children.get(tree, ())
        if not children:
            return
        self.awaited[tree] = len(children)
        self.state = PrintedState.WAIT
        self._outbox += [(child, HoldMessage(tree)) for child in children]

    def _handle_acknowledgement(self, tree: int) -> None:
        self.awaited[tree] -= 1
        if self.awaited[tree]:
            return
        del self.awaited[tree]
        if self.state is PrintedState.HOLD:
            self.ready.append(tree)
        else:
            self._adapt(tree)

    def _adapt(self, tree: int) -> None:
        self._rest()
        self._outbox += [(child, PrintedToken(tree)) for child in self.children.get(tree, ())]

    def _rest(self) -> None:
        self.state = PrintedState.WAIT if self.awaited else PrintedState.IDLE
