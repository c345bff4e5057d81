"""Queries in random words: what is shared, and that the words do not matter."""

from __future__ import annotations

import random

from _spelled import TEMPLATES, names, queries, spelled
from headwater.algebra.canonical import canonicalize
from headwater.cql import parse_query
from sharing_found import found


def test_spellings_of_a_query_have_one_digest() -> None:
    rng, known = random.Random(5), names()
    for template in TEMPLATES[2:]:
        asked = template(rng)
        texts = {spelled(asked, rng) for _ in range(8)}
        assert len(texts) > 1
        assert len({canonicalize(parse_query(text, known)).digest for text in texts}) == 1


def test_reuse_finds_what_equality_finds_and_much_more() -> None:
    result = found(queries(300))
    assert result.text <= result.canonical <= result.reuse
    assert result.ratio >= 65
    assert result.operators + result.reuse == result.queries
