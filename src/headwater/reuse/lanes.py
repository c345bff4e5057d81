"""Lanes: the few joins that an operator is computed as, so that pairs are joined that somebody wants.

An operator covers its queries term by term: of `a.x = 1` and `b.y = 2` it is the join of everything, and
one long window is long for all. Queries that cover each other with little loss make a *lane*: a condition
and windows, the least for its own queries. Each query belongs to one lane, and has its rows from that
lane alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from math import prod

from headwater.algebra.conditions.domain import Domain
from headwater.algebra.conditions.predicate import Box, cover, cover_alike, implies, intersect
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.nodes import Scan
from headwater.algebra.types import BOOLEAN
from headwater.algebra.windows import Range
from headwater.reuse.operator import MAX_PIECES, Operator, Sources, cover_joined_sources
from headwater.reuse.signature import QuerySignature, leaves_of

MAX_LANES = 8
"""Every lane reads its sources again, and makes the statement of a step longer."""

MAX_LOSS = 1.5
"""Queries are in one lane if its pairs are estimated as at most this many times those that they want."""

MAX_GROUPS = 48
"""Of more kinds of queries than these, those with windows of similar length count as one kind."""

MAX_DOMAIN_VALUES = 1_000
"""A lane's condition on a term has at most this many single values, which Spark looks up in a set; else
at most MAX_PIECES ranges, which it compares one after the other."""

POINT_SHARE, PIECE_SHARE, TERM_SHARE, EXCLUSION_SHARE, MOST_SHARE = 0.01, 0.1, 0.3, 0.9, 0.5
"""The assumed fraction of pairs with one given value of a term; with one in a range; that meet any other
condition; with none of a few excluded values; and the largest for several values or ranges."""

FEW_VALUES = 8
"""A range of at most this many values counts as these values, and all but so few as nearly everything."""

SECOND = 1_000_000
LEAST_SPAN, UNBOUNDED_SPAN = 0.01, 1e7
"""The seconds as which windows count that hold an instant, and that never end."""


@dataclass(frozen=True)
class Lane:
    """Some queries of an operator, and what of the operator's join is computed for them."""

    operator: Operator
    signatures: tuple[QuerySignature, ...]


@dataclass(frozen=True)
class _Region:
    """The pairs that meet a condition in some windows; `wanted` is how many of them are estimated to
    be wanted."""

    sources: Sources
    where: Box
    wanted: float

    @property
    def pairs(self) -> float:
        return _estimate_pairs(self.sources, self.where)


@dataclass(frozen=True)
class _Draft:
    """A lane in the making: the numbers of its groups of queries, and their region."""

    groups: tuple[int, ...]
    region: _Region

    def joined_by(self, other: _Draft) -> _Draft:
        return _Draft((*self.groups, *other.groups), _cover_regions(self.region, other.region))


def lanes_of(operator: Operator, signatures: Sequence[QuerySignature]) -> tuple[Lane, ...]:
    """The lanes of a join operator that serves these queries; one, if several would not pay.

    Each query is in one of them, and all the rows that it wants are in that one. They depend on the
    queries alone, not on their order.
    """
    whole = Lane(operator, tuple(signatures))
    # What a lone stream reads it reads once, whatever is asked of it.
    if len(operator.scans) < 2 or not signatures:
        return (whole,)
    groups = _split_lossy(_group_alike(signatures))
    drafts = [_Draft((at,), _region_of(group)) for at, group in enumerate(groups)]
    drafts = _merge_to_most(_merge_near(drafts))
    total = sum(draft.region.pairs for draft in drafts)
    if len(drafts) > 1 and total >= _estimate_pairs(operator.sources, operator.where):
        drafts = [reduce(_Draft.joined_by, drafts)]
    lanes = []
    for draft in drafts:
        members = {signature.digest for at in draft.groups for signature in groups[at]}
        # The operator's condition too: rows are attributed to queries by what it does not imply.
        where = intersect(operator.where, draft.region.where)
        joined = replace(operator, sources=draft.region.sources, where=where)
        lanes.append(Lane(joined, tuple(s for s in signatures if s.digest in members)))
    if len(lanes) == 1 and implies(operator.where, lanes[0].operator.where):
        return (whole,)
    return tuple(lanes)


# ---- which queries go together


def _merge_near(drafts: Iterable[_Draft]) -> list[_Draft]:
    """Few drafts: each, larger ones first, joins the one that it makes grow least, if the loss is small."""
    merged: list[_Draft] = []
    for draft in sorted(drafts, key=lambda d: (-d.region.pairs, d.groups)):
        together = {at: other.joined_by(draft) for at, other in enumerate(merged)}
        near = [
            at
            for at, both in together.items()
            if both.region.pairs <= MAX_LOSS * both.region.wanted
        ]
        if near:
            best = min(near, key=lambda at: _growth(merged[at], draft, together[at]))
            merged[best] = together[best]
        else:
            merged.append(draft)
    return merged


def _merge_to_most(drafts: list[_Draft]) -> list[_Draft]:
    """At most MAX_LANES drafts, those merged that lose least by it."""
    while len(drafts) > MAX_LANES:
        pairs = [(a, b, a.joined_by(b)) for a, b in combinations(drafts, 2)]
        a, b, both = min(pairs, key=lambda pair: (_growth(*pair), pair[0].groups, pair[1].groups))
        drafts = [both, *(draft for draft in drafts if draft is not a and draft is not b)]
    return drafts


def _growth(a: _Draft, b: _Draft, both: _Draft) -> float:
    return both.region.pairs - a.region.pairs - b.region.pairs


def _group_alike(signatures: Sequence[QuerySignature]) -> list[list[QuerySignature]]:
    """Queries that restrict the same terms in the same windows, or in similar ones if there would be
    very many groups."""
    groups: dict[Hashable, list[QuerySignature]] = {}
    for key_of in (_exact_key, _rough_key, _structure, lambda _: None):
        groups = _group_by(signatures, key_of)
        if len(groups) <= MAX_GROUPS:
            break
    return [groups[key] for key in sorted(groups, key=str)]


def _split_lossy(groups: list[list[QuerySignature]]) -> list[list[QuerySignature]]:
    """Groups of which each is divided by the values of a term, if it would else hold many combinations
    of the values of several terms that no query has."""
    parts = [part for group in groups for part in _divide(group)]
    return parts if len(parts) <= MAX_GROUPS else groups


def _divide(group: list[QuerySignature]) -> list[list[QuerySignature]]:
    region = _region_of(group)
    if region.pairs <= MAX_LOSS * region.wanted or len(set(map(_structure, group))) > 1:
        return [group]
    domains = zip(*([c.domain for c in s.content.where.constraints] for s in group), strict=True)
    numbers = {at: len(set(of_term)) for at, of_term in enumerate(domains)}
    varying = [at for at, number in numbers.items() if number > 1]
    if len(varying) < 2:  # the values of one term are united as they are
        return [group]
    # The term with the fewest different values makes the fewest parts.
    at = min(varying, key=lambda at: numbers[at])
    if numbers[at] > 2 * MAX_LANES:
        return [group]
    parts = _group_by(group, lambda signature: signature.content.where.constraints[at].domain)
    return [smaller for part in parts.values() for smaller in _divide(part)]


def _group_by(
    signatures: Sequence[QuerySignature], key_of: Callable[[QuerySignature], Hashable]
) -> dict[Hashable, list[QuerySignature]]:
    groups: dict[Hashable, list[QuerySignature]] = {}
    for signature in signatures:
        groups.setdefault(key_of(signature), []).append(signature)
    return groups


def _exact_key(signature: QuerySignature) -> Hashable:
    return tuple(str(scan.window) for scan in signature.scans), _structure(signature)


def _rough_key(signature: QuerySignature) -> Hashable:
    windows = [scan.window for scan in signature.scans if isinstance(scan.window, Range)]
    # Lengths within a factor of four.
    lengths = tuple(-1 if w.size is None else w.size.bit_length() // 2 for w in windows)
    return lengths, tuple(w.slide for w in windows), _structure(signature)


def _structure(signature: QuerySignature) -> Hashable:
    """The terms that a query's condition restricts, without the constants."""
    where = signature.content.where
    equal = tuple("=".join(map(canonical_text, c.terms)) for c in where.constraints)
    return equal, tuple(map(canonical_text, where.terms))


# ---- regions


def _region_of(signatures: Sequence[QuerySignature]) -> _Region:
    """The least region around what queries want."""
    wanted = {(leaves_of(s.content), s.content.where): None for s in signatures}
    by_structure = _group_by(signatures, _structure).values()
    boxes = [list({s.content.where: None for s in alike}) for alike in by_structure]
    where = reduce(
        lambda a, b: cover(a, b, "set"), (cover_alike(alike, _shortened) for alike in boxes)
    )
    sources = reduce(cover_joined_sources, {sources: None for sources, _ in wanted})
    pairs = sum(_estimate_pairs(*one) for one in wanted)
    return _Region(sources, where, min(pairs, _estimate_pairs(sources, where)))


def _shortened(domain: Domain) -> Domain:
    """A domain that holds this one and is not long as a condition."""
    if domain.count_values(MAX_DOMAIN_VALUES) is not None:
        return domain
    return domain.fill_gaps(MAX_PIECES)


def _cover_regions(a: _Region, b: _Region) -> _Region:
    sources, where = cover_joined_sources(a.sources, b.sources), cover(a.where, b.where, "set")
    # What one of them holds already is wanted once.
    if (sources, where) == (a.sources, a.where):
        return a
    return _Region(sources, where, min(a.wanted + b.wanted, _estimate_pairs(sources, where)))


def _estimate_pairs(sources: Sources, where: Box) -> float:
    """The pairs of tuples in a second, if all streams were alike: their number says nothing, but that
    of two regions can be compared."""
    spans = [_span_seconds(source.window) for source in sources if isinstance(source, Scan)]
    # Each new tuple meets what the windows of the other sources hold.
    meetings = sum(prod(spans[:at]) * prod(spans[at + 1 :]) for at in range(len(spans)))
    shares = [
        _domain_share(c.domain) * PIECE_SHARE ** (len(c.terms) - 1) for c in where.constraints
    ]
    return meetings * prod(shares) * TERM_SHARE ** len(where.terms)


def _span_seconds(window: object) -> float:
    assert isinstance(window, Range)
    return UNBOUNDED_SPAN if window.size is None else max(LEAST_SPAN, window.size / SECOND)


def _domain_share(domain: Domain) -> float:
    if domain.has_all_values:
        return 1.0
    if domain.type == BOOLEAN:
        return MOST_SHARE
    if domain.complement().count_values(FEW_VALUES) is not None:
        return EXCLUSION_SHARE
    shares = [POINT_SHARE * domain.null]
    for at in range(0, len(domain.cuts[: 2 * MAX_PIECES]), 2):
        points = Domain(domain.type, domain.cuts[at : at + 2]).count_values(FEW_VALUES)
        shares.append(PIECE_SHARE if points is None else POINT_SHARE * points)
    return min(MOST_SHARE, max(POINT_SHARE, sum(shares)))
