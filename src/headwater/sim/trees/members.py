"""Providers in given trees, what is wrong with them, and worlds of them for the model checker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any

from headwater.federation.dissemination.protocol.adaptation import (
    AdaptingMember,
    Changes,
    MoveAttempt,
    NewParent,
    RoundToken,
)
from headwater.federation.dissemination.protocol.membership import MembershipPolicy, TreeMembership
from headwater.federation.dissemination.protocol.printed_locks import PrintedNode, PrintedToken
from headwater.sim.checker.interleavings import CheckedWorld, NodeModel

Parents = Mapping[int, int | None]
"""A tree: the parent of each provider, None for the origin."""


def ancestors(parents: Parents, provider: int) -> tuple[int, ...]:
    """The way to the origin, nearest first."""
    path: list[int] = []
    parent = parents[provider]
    while parent is not None:
        path.append(parent)
        parent = parents[parent]
    return tuple(path)


def origin_of(parents: Parents) -> int:
    """The provider that has no parent."""
    (origin,) = (provider for provider, parent in parents.items() if parent is None)
    return origin


def place_members(
    trees: Sequence[Parents], policy: MembershipPolicy | None = None
) -> dict[int, AdaptingMember]:
    """Members that have the places of these trees and know what they would have been sent by now."""
    policy = policy or MembershipPolicy()
    numbers = sorted({provider for parents in trees for provider in parents})
    members = {number: AdaptingMember(number, policy=policy) for number in numbers}
    for tree, parents in enumerate(trees):
        origin = origin_of(parents)
        # Leaves first, so that children have reported before their parent does.
        for provider in sorted(parents, key=lambda one: -len(ancestors(parents, one))):
            children = tuple(
                (child, policy.report(members[child].places[tree]))
                for child in sorted(parents)
                if parents[child] == provider
            )
            path = ancestors(parents, provider)
            place = TreeMembership(tree, origin, parents[provider], path, children)
            members[provider].places[tree] = place
    return members


def find_fault(members: Mapping[int, AdaptingMember], expected: Mapping[int, Iterable[int]]) -> str:
    """What is wrong with living members when nothing is under way; empty if nothing is.

    `expected` has the providers of each tree; those that are not among the members are dead.
    """
    for member in members.values():
        if member.attempts or member.lock.owner or member.lock.queue or member.prepared:
            return f"{member.number} waits for ever"
    for tree, providers in expected.items():
        living = [provider for provider in providers if provider in members]
        for provider in living:
            if tree not in members[provider].places:
                return f"{provider} has no place in tree {tree}"
        if fault := _tree_fault({one: members[one].places[tree] for one in living}):
            return f"tree {tree}: {fault}"
    return ""


def _tree_fault(places: Mapping[int, TreeMembership]) -> str:
    """A tree whose origin is dead cannot be right or wrong."""
    rooted = {one: place for one, place in places.items() if place.origin in places}
    for provider, place in rooted.items():
        if place.candidates or place.guests:
            return f"{provider} is between two parents"
        if not _reaches_origin(provider, places):
            return f"{provider} is cut off from the origin"
    for provider, place in rooted.items():
        children = tuple(sorted(one for one in places if places[one].parent == provider))
        if children != place.child_numbers():
            return f"{provider} has the children {children}, but knows {place.child_numbers()}"
        if place.parent is not None and place.path != (place.parent, *places[place.parent].path):
            return f"{provider} knows the way {place.path}, which is not its parent's"
    return ""


def _reaches_origin(provider: int, places: Mapping[int, TreeMembership]) -> bool:
    at = provider
    # No way is longer than this unless it is a circle.
    for _ in places:
        if at == places[provider].origin:
            return True
        parent = places[at].parent
        if parent is None or parent not in places:
            return False
        at = parent
    return at == places[provider].origin


def possible_moves(holder: int, families: Mapping[int, tuple[int, ...]]) -> Iterator[Changes]:
    """All six kinds of moves of a holder: `families` has its children, each with its own children."""
    for parent, nephews in families.items():
        for nephew in nephews:
            rise = NewParent(nephew, parent, holder)
            yield (rise,)
            yield rise, NewParent(parent, holder, nephew)
            for uncle in families:
                if uncle != parent:
                    yield (NewParent(nephew, parent, uncle),)
                    yield rise, NewParent(uncle, holder, parent)
    for child, parent in permutations(families, 2):
        yield (NewParent(child, holder, parent),)
    for one, other in combinations(families, 2):
        for left in families[one]:
            for right in families[other]:
                yield NewParent(left, one, other), NewParent(right, other, one)


def known_families(attempt: MoveAttempt) -> dict[int, tuple[int, ...]]:
    """The children and grandchildren that a holder knows from the grants."""
    holder = attempt.name.holder
    return {
        child: tuple(grandchild for grandchild, _ in known.children)
        for child, known in attempt.statistics
        if child != holder
    }


MoveChoice = tuple[int, Changes]
"""A tree, and the move in it."""


def no_moves(member: AdaptingMember) -> list[MoveChoice]:
    """Every attempt ends without a move: what is left are the locks."""
    return [(attempt.name.tree, ()) for attempt in member.open_choices()]


def all_moves(member: AdaptingMember) -> list[MoveChoice]:
    """Every move is possible, and none."""
    return no_moves(member) + [
        (attempt.name.tree, move)
        for attempt in member.open_choices()
        for move in possible_moves(member.number, known_families(attempt))
    ]


def ordered_world(
    trees: Sequence[Parents],
    choices: Callable[[AdaptingMember], Iterable[Hashable]] = all_moves,
    kills: int = 0,
) -> CheckedWorld[AdaptingMember]:
    """Our protocol: a token at each origin, and any provider except an origin may die. Providers are 0, 1, .."""
    members = place_members(trees)
    origins = [origin_of(parents) for parents in trees]
    model = NodeModel[AdaptingMember](
        lambda member, sender, message: member.handle(sender, message),
        choices,
        _choose,
        lambda member, dead: member.note_death(dead),
    )
    tokens = [(origin, origin, RoundToken(tree)) for tree, origin in enumerate(origins)]
    mortal = [number for number in members if number not in origins]
    return CheckedWorld(list(members.values()), tokens, model, mortal, kills)


def _choose(member: AdaptingMember, choice: Any) -> list[tuple[int, Any]]:
    """A move, or something else that a member does by itself: a method and its arguments."""
    if isinstance(choice[0], str):
        sent: list[tuple[int, Any]] = getattr(member, choice[0])(*choice[1:])
        return sent
    return member.decide(*choice)


def judge_members(trees: Sequence[Parents]) -> Callable[[dict[int, AdaptingMember]], str]:
    """Whether no provider is waiting and every tree spans its living providers."""
    expected = {tree: tuple(parents) for tree, parents in enumerate(trees)}
    return lambda living: find_fault(living, expected)


def printed_world(trees: Sequence[Parents]) -> CheckedWorld[PrintedNode]:
    """The printed protocol: a token at each origin. Providers are 0, 1, .."""
    nodes = []
    for number in sorted({provider for parents in trees for provider in parents}):
        children = {
            tree: tuple(sorted(child for child in parents if parents[child] == number))
            for tree, parents in enumerate(trees)
        }
        nodes.append(PrintedNode(number, children))
    origins = [origin_of(parents) for parents in trees]
    tokens = [(origin, origin, PrintedToken(tree)) for tree, origin in enumerate(origins)]
    model = NodeModel[PrintedNode](lambda node, sender, message: node.handle(sender, message))
    return CheckedWorld(nodes, tokens, model)


def judge_printed(living: dict[int, PrintedNode]) -> str:
    """Whether no provider is waiting."""
    waiting = [number for number, node in living.items() if node.is_waiting()]
    return f"{waiting} wait for ever" if waiting else ""
