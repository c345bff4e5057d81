"""Providers of a federation on the event kernel: their messages travel, get lost, or are cut off.

The providers are the state machines that the service runs; only the wires are simulated. Whether a message is lost is
a pure function of the seed, the two providers and the number of the message, so a run repeats exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headwater.federation.coordinators.membership import HEARTBEAT_SECONDS, TreeOptions
from headwater.federation.coordinators.messages import Envelope
from headwater.federation.coordinators.provider import ProviderNode
from headwater.federation.coordinators.tree import DEFAULT_K, Cluster, CoordinatorTree
from headwater.sim.coin_flips import CERTAIN, coin_flip, pass_threshold, run_key
from headwater.sim.kernel import Process, Simulation

LEAVING_TICKS = 3
"""Number of ticks for which a leaving provider repeats its messages."""

_LOSS, _DUPLICATE, _PHASE = range(3)


class FederationSimulation:
    """Providers, named by their number, with latencies between them.

    `loss` is the probability that a message is lost, `duplicates` that it arrives twice.
    """

    def __init__(
        self,
        latencies: NDArray[np.float64],
        k: int = DEFAULT_K,
        seed: int = 0,
        loss: float = 0.0,
        duplicates: float = 0.0,
    ) -> None:
        self.latencies, self.k = latencies, k
        self.simulation = Simulation()
        self.nodes: dict[int, ProviderNode] = {}
        self.capabilities: dict[int, float] = {}
        self.sent: Counter[str] = Counter()
        self.lost = 0
        self._key = run_key(seed)
        self._loss, self._duplicates = pass_threshold(loss), pass_threshold(duplicates)
        self._side: dict[int, int] = {}
        # A provider that comes back after its death is another process: its messages start over.
        self._lives: Counter[int] = Counter()

    @property
    def now(self) -> float:
        return self.simulation.now

    def start(
        self, provider: int, contacts: Iterable[int] = (), capability: float = 1.0
    ) -> ProviderNode:
        """Start a provider; without contacts it founds the federation."""
        names = tuple(str(contact) for contact in contacts)
        options = TreeOptions(self.k, capability, names, founder=not names)
        node = ProviderNode(str(provider), options, self.now)
        self.nodes[provider], self.capabilities[provider] = node, capability
        self._lives[provider] += 1
        self.simulation.start_process(self._ticks(provider, node))
        return node

    def kill(self, provider: int) -> None:
        """End a provider without a word."""
        del self.nodes[provider], self.capabilities[provider]

    def leave(self, provider: int) -> None:
        """Let a provider leave."""
        node = self.nodes.pop(provider)
        del self.capabilities[provider]
        self._deliver(provider, node.leave(self.now))
        self.simulation.start_process(self._last_ticks(provider, node))

    def cut(self, sides: Sequence[Iterable[int]]) -> None:
        """Split the network: messages pass within a side only; who is on none is with the first."""
        self._side = {provider: side for side, some in enumerate(sides) for provider in some}

    def heal(self) -> None:
        """Let all messages pass again."""
        self._side = {}

    def lose_nothing(self) -> None:
        """From now on no message is lost or doubled."""
        self._loss = self._duplicates = 0

    def run_for(self, seconds: float) -> None:
        self.simulation.run(self.now + seconds)

    def tree(self, providers: Iterable[int] | None = None) -> CoordinatorTree:
        """The tree of the living, or of some of them, as their coordinators see it."""
        chosen = set(self.nodes if providers is None else providers)
        depth = max((self.nodes[p].membership.top for p in chosen), default=0)
        levels: list[dict[int, Cluster]] = [{} for _ in range(depth)]
        for provider in sorted(chosen):
            for level, role in self.nodes[provider].membership.roles.items():
                members = tuple(sorted(int(name) for name in role.members))
                # Nobody remembers among whom a parent was elected; alone it is the median in any
                # case.
                levels[level - 1][provider] = Cluster(provider, members, (provider,))
        capabilities = {provider: self.capabilities[provider] for provider in sorted(chosen)}
        return CoordinatorTree(self.k, tuple(levels), capabilities)

    def disagreements(self) -> list[str]:
        """Where parent and member disagree, or a summary differs from what it summarizes."""
        found = []
        for provider, node in sorted(self.nodes.items()):
            for level, seat in node.membership.seats.items():
                parent = self.nodes.get(int(seat.parent))
                role = parent.membership.roles.get(level) if parent is not None else None
                if role is None or str(provider) not in role.members:
                    found.append(f"{provider} counts itself to {seat.parent} on level {level}")
            for level, role in node.membership.roles.items():
                for member in role.members:
                    other = self.nodes.get(int(member))
                    place = other.membership.seats.get(level) if other is not None else None
                    if place is None or place.parent != str(provider):
                        found.append(f"{provider} counts {member} to its level {level}")
        return found

    def confirmed_roots(self) -> list[int]:
        """The providers that are the root of a tree, as more than half of its cluster agree."""
        found = []
        for provider, node in sorted(self.nodes.items()):
            tree = node.membership.tree
            if node.membership.is_top and tree.has_root and tree.root == str(provider):
                found.append(provider)
        return found

    def _ticks(self, provider: int, node: ProviderNode) -> Process:
        phase = coin_flip(self._key, self._lives[provider], 3 * provider + _PHASE) / CERTAIN
        # Processes do not start in step, so neither do their ticks.
        yield phase * HEARTBEAT_SECONDS
        while self.nodes.get(provider) is node:
            self._deliver(provider, node.tick(self.now))
            yield HEARTBEAT_SECONDS

    def _last_ticks(self, provider: int, node: ProviderNode) -> Process:
        for _ in range(LEAVING_TICKS):
            yield HEARTBEAT_SECONDS
            self._deliver(provider, node.tick(self.now))

    def _deliver(self, sender: int, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            receiver = int(envelope.receiver)
            self.sent[type(envelope.message).__name__] += 1
            wire = 3 * (sender * len(self.latencies) + receiver)
            # Numbers start over after a death, but the coins of the new life must be its own.
            number = envelope.number + (self._lives[sender] << 32)
            if coin_flip(self._key, number, wire + _LOSS) < self._loss:
                self.lost += 1
                continue
            delay = float(self.latencies[sender, receiver])
            self._arrive_after(delay, sender, receiver, envelope)
            if coin_flip(self._key, number, wire + _DUPLICATE) < self._duplicates:
                self._arrive_after(3 * delay, sender, receiver, envelope)

    def _arrive_after(self, delay: float, sender: int, receiver: int, envelope: Envelope) -> None:
        def arrive() -> None:
            node = self.nodes.get(receiver)
            # Judged on arrival: what is under way when the network is cut does not pass any more.
            if node is None or self._side.get(sender, 0) != self._side.get(receiver, 0):
                self.lost += 1
                return
            self._deliver(receiver, node.receive(self.now, envelope))

        self.simulation.schedule_after(delay, arrive)
