"""An operator that was written as text is read back as the same operator, self-joins included."""

from __future__ import annotations

import random
from functools import reduce

from headwater.algebra.canonical import canonicalize
from headwater.cql import parse_query
from headwater.reuse import QuerySignature, minimal_operator, relax, signature_of
from headwater.reuse.definition import operator_definition, operator_from_definition
from overlapping import random_query
from strategies import SOURCES


def test_what_is_written_is_read() -> None:
    rng = random.Random(7)
    by_base: dict[str, list[QuerySignature]] = {}
    for _ in range(150):
        form = signature_of(canonicalize(random_query(rng)))
        if form.block is not None:
            by_base.setdefault(form.sharing_key, []).append(form)
    assert len(by_base) > 5
    for forms in by_base.values():
        for size in (1, 2, len(forms)):
            first, *others = rng.sample(forms, min(size, len(forms)))
            operator = reduce(relax, others, minimal_operator(first))
            read = operator_from_definition(
                parse_query(operator_definition(operator, first.output), SOURCES)
            )
            assert read == operator


def test_queries_that_share_whole_have_no_operator() -> None:
    assert operator_from_definition(parse_query("SELECT item FROM Bids [ROWS 3]", SOURCES)) is None


def test_a_text_in_another_order_still_has_its_operator() -> None:
    """As states have it that were written before."""
    text = "SELECT a.cost, b.price FROM Bids [NOW] b, Asks [NOW] a WHERE a.item = b.item"
    query = parse_query(text, SOURCES)
    assert operator_from_definition(query) == minimal_operator(signature_of(canonicalize(query)))
