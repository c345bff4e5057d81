"""How many queries of ten thousand find an operator that runs already.

The queries are drawn from templates and written in random words. A query shares if another has its
text, letter case and spaces aside; if another has its canonical form; or if reuse puts it into an
operator that another made. The last line compares reuse with equality of text.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from _spelled import names, queries
from headwater.algebra.canonical import canonicalize
from headwater.cql import parse_query
from headwater.reuse import Containment, Lattice, signature_of
from headwater.reuse.load import SharingCosts
from headwater.reuse.planning.single_site import choose_operator

RATE = 100.0
"""Rows in a second of each stream."""

PRICES = SharingCosts(rates=dict.fromkeys(("flights", "checkins", "baggage", "weather"), RATE))


@dataclass(frozen=True)
class Found:
    """Of so many queries, how many share by each measure, and what those that do are to the
    operator they share; and how many operators run in the end."""

    queries: int
    text: int
    canonical: int
    reuse: int
    operators: int
    relations: dict[Containment, int]

    @property
    def ratio(self) -> float:
        return self.reuse / max(1, self.text)


def found(texts: Iterable[str]) -> Found:
    """Plan queries one after the other, each with those before it running."""
    known = names()
    lattice = Lattice()
    seen, digests = set[str](), set[str]()
    relations = dict.fromkeys(Containment, 0)
    number = 0
    for number, text in enumerate(texts, 1):
        canonical = canonicalize(parse_query(text, known))
        form = signature_of(canonical)
        running = ((name, lattice.operator(name)) for name in lattice.nearest(form))
        choice = choose_operator(form, running, PRICES)
        lattice.insert(choice.name or f"o{number}", choice.operator)
        if choice.containment is not None:
            relations[choice.containment] += 1
        seen.add(tidied(text))
        digests.add(canonical.digest)
    return Found(
        number,
        number - len(seen),
        number - len(digests),
        sum(relations.values()),
        len(lattice),
        relations,
    )


def tidied(text: str) -> str:
    """A text without what is easy to see past."""
    return re.sub(r"\s*([=<>,]+)\s*", r"\1", " ".join(text.lower().split()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    result = found(queries(parser.parse_args().queries))
    print(f"{result.queries:,} random queries; those that share with one before them:")
    print(f"  by equal text            {result.text:>7,}")
    print(f"  by equal canonical form  {result.canonical:>7,}")
    print(f"  by reuse                 {result.reuse:>7,}   in {result.operators:,} operators")
    of = ", ".join(f"{number:,} {what.value}" for what, number in result.relations.items())
    print(f"  of which                 {of}")
    if result.reuse < result.canonical:
        print("reuse found less than equality of canonical form", file=sys.stderr)
        return 1
    print(f"ratio: {result.ratio:,.0f}x as many queries share as equality of text finds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
