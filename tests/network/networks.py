"""Random networks for the tests of this folder, and where data from elsewhere is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

from headwater.network import Link, Network, Site

ROOT = Path(__file__).parents[2]


def shared(name: str) -> Path:
    """A folder of the shared data; skips the test where it is absent."""
    path = Path(os.environ.get("HEADWATER_DATA", ROOT.parent / "shared" / "data")) / name
    if not path.exists():
        pytest.skip(f"{path} is not here; HEADWATER_DATA names the folder of the shared data")
    return path


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Up to ten sites and any links between them, parallel ones too; not always connected."""
    count = draw(st.integers(1, 10))
    places = st.integers(0, count - 1)
    numbers = st.integers(0, 20).map(float)
    ends = st.tuples(places, places).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, max_size=25)) if count > 1 else []
    links = tuple(Link(a, b, latency=draw(numbers), cost=draw(numbers)) for a, b in pairs)
    return Network(tuple(Site(f"h{place}") for place in range(count)), links)
