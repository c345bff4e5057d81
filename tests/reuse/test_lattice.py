"""The lattice against looking at all operators."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from compensated import asked, form
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.reuse import (
    Lattice,
    Operator,
    QuerySignature,
    minimal_operator,
    partial_join_queries,
    relax,
    signature_of,
)
from headwater.reuse.lattice import MAX_RELAXATIONS_TRIED
from overlapping import random_join, window

SEEDS = st.integers(0, 2**32)
REGIONS = 4


def grouped(rng: random.Random) -> QuerySignature:
    """Groups of bids; how they are grouped and what is told of them differs."""
    keys = rng.sample(["item", "bidder", "note"], rng.randint(0, 2))
    calls = rng.sample(["count(*)", "sum(price)", "max(item)"], rng.randint(1, 2))
    told = ", ".join(f"{e} AS v{n}" for n, e in enumerate((*keys, *calls)))
    where = rng.choice(["", " WHERE price > 1", " WHERE price > 2", " WHERE item = 1"])
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    return form(f"SELECT {told} FROM Bids {window(rng, rng.random() < 0.5)}{where}{by}")


def drawn(rng: random.Random, size: int) -> list[QuerySignature]:
    found = [
        asked(random_join(rng)).form if rng.random() < 0.7 else grouped(rng) for _ in range(size)
    ]
    return [one for one in found if one.block is not None]


def some_regions(rng: random.Random) -> int:
    return rng.randrange(1, 1 << REGIONS)


@dataclass
class Plain:
    """What a lattice should find, by trying all."""

    known: dict[str, tuple[Operator, int]] = field(default_factory=dict)

    def candidates(self, one: QuerySignature, regions: int) -> list[str]:
        return sorted(
            name
            for name, (operator, where) in self.known.items()
            if operator.sharing_key == one.sharing_key and where & regions
        )

    def serving(self, one: QuerySignature, regions: int) -> list[str]:
        found = self.candidates(one, regions)
        return [n for n in found if relax(self.known[n][0], one) is self.known[n][0]]


def check(lattice: Lattice, plain: Plain, one: QuerySignature, regions: int) -> None:
    assert sorted(lattice.candidates(one, regions)) == plain.candidates(one, regions)
    assert sorted(lattice.serving(one, regions)) == plain.serving(one, regions)
    nearest = list(lattice.nearest(one, regions))
    assert len(nearest) == len(set(nearest)) and set(nearest) <= set(plain.candidates(one, regions))
    more = len(plain.candidates(one, regions)) - len(plain.serving(one, regions))
    assert len(nearest) == len(plain.serving(one, regions)) + min(more, MAX_RELAXATIONS_TRIED)
    assert sorted(nearest[: len(plain.serving(one, regions))]) == plain.serving(one, regions)
    for query in partial_join_queries(one):
        part = signature_of(canonicalize(query))
        assert sorted(lattice.candidates(part, regions)) == plain.candidates(part, regions)


@settings(deadline=None, max_examples=12)
@given(SEEDS)
def test_finds_what_trying_all_finds(seed: int) -> None:
    rng = random.Random(seed)
    lattice, plain = Lattice(), Plain()
    forms = drawn(rng, 40)
    for number, one in enumerate(forms):
        name = f"o{rng.randrange(20)}"
        known = plain.known.get(name)
        if known is not None and rng.random() < 0.3:
            lattice.remove(name)
            del plain.known[name]
        else:
            alike = known is not None and known[0].sharing_key == one.sharing_key
            operator = relax(known[0], one) if known and alike else minimal_operator(one)
            plain.known[name] = (operator, some_regions(rng))
            lattice.insert(name, *plain.known[name])
        check(lattice, plain, forms[rng.randrange(number + 1)], some_regions(rng))
    for one in forms:
        check(lattice, plain, one, some_regions(rng))


@settings(deadline=None, max_examples=15)
@given(SEEDS)
def test_what_was_removed_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    forms = drawn(rng, 20)
    lattice, fresh = Lattice(), Lattice()
    operators = {f"o{n}": (minimal_operator(one), some_regions(rng)) for n, one in enumerate(forms)}
    for name, (operator, regions) in operators.items():
        lattice.insert(name, operator, regions)
    for name in rng.sample(sorted(operators), len(operators) // 2):
        lattice.remove(name)
    for name, (operator, regions) in operators.items():
        if name in lattice:
            fresh.insert(name, operator, regions)
    assert len(lattice) == len(fresh)
    assert lattice._root == fresh._root


JOIN = "FROM Bids [RANGE 2 SEC] b, Asks [RANGE 4 SEC] a"


def test_by_hand() -> None:
    lattice = Lattice()
    wide = form(f"SELECT b.price, b.item {JOIN} WHERE b.item = a.item AND b.price > 5")
    lattice.insert("wide", minimal_operator(wide), 0b01)
    narrow = form(f"SELECT b.price {JOIN} WHERE b.item = a.item AND b.price > 9")
    assert lattice.candidates(narrow) == list(lattice.serving(narrow)) == ["wide"]
    assert lattice.candidates(narrow, 0b10) == []
    lattice.insert("narrow", minimal_operator(narrow), 0b10)
    assert list(lattice.serving(wide)) == ["wide"]
    assert sorted(lattice.candidates(wide)) == ["narrow", "wide"]
    three = form(
        f"SELECT b.price, i.label {JOIN}, Items i WHERE b.item = a.item AND a.note = i.label"
    )
    parts = [signature_of(canonicalize(query)) for query in partial_join_queries(three)]
    (running,) = (part for part in parts if lattice.candidates(part))
    assert running.sharing_key == wide.sharing_key
    assert sorted(lattice.candidates(running)) == ["narrow", "wide"]
    assert list(lattice.nearest(wide)) == ["wide", "narrow"]
    lattice.remove("wide")
    lattice.remove("narrow")
    assert lattice.candidates(wide) == [] and len(lattice) == 0


def test_the_newest_that_could_be_relaxed() -> None:
    lattice = Lattice()
    forms = [
        form(f"SELECT item FROM Bids [NOW] WHERE item = {n}")
        for n in range(2 * MAX_RELAXATIONS_TRIED)
    ]
    wide = form("SELECT item FROM Bids [NOW] WHERE item BETWEEN 500 AND 600")
    lattice.insert("wide", minimal_operator(wide))
    for number, one in enumerate(forms):
        lattice.insert(f"o{number}", minimal_operator(one))
    new = form("SELECT item FROM Bids [NOW] WHERE item = 77")
    newest = [f"o{n}" for n in range(2 * MAX_RELAXATIONS_TRIED - 1, MAX_RELAXATIONS_TRIED, -1)]
    assert list(lattice.nearest(new)) == ["wide", *newest]
    assert next(lattice.nearest(forms[0])) == "o0"
