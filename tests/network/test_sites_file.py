"""Networks in TOML files: what is read, and mistakes with their lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headwater.errors import InputError
from headwater.network.model import Link, Site
from headwater.network.sites import fully_connected, read_network

SITES = """\
# two places
[[site]]
name = "edge"
cpu = 2e6

[[site]]
name = "core"
cpu = 1e7
memory = 1_000_000
bandwidth_in = 5e5
bandwidth_out = 6e5

[[link]]
from = "edge"
to = "core"
bandwidth = 1e6
latency = 0.06
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sites.toml"


def test_sites_and_links_are_read(file: Path) -> None:
    file.write_text(SITES)
    network = read_network(file)
    assert network.sites == (
        Site("edge", cpu=2e6),
        Site("core", cpu=1e7, memory=1e6, bandwidth_in=5e5, bandwidth_out=6e5),
    )
    assert network.links == (Link(0, 1, 0.06, bandwidth=1e6),)
    assert network.direct_link(1, 0) == network.direct_link(0, 1) == network.links[0]
    assert network.direct_link(0, 0) is None


def test_without_links_all_are_connected(file: Path) -> None:
    file.write_text(SITES.partition("[[link]]")[0])
    assert read_network(file) == fully_connected(read_network(file).sites)
    assert read_network(file).direct_link(0, 1) == Link(0, 1, 0.0, bandwidth=math.inf)


def test_the_widest_of_several_links_counts() -> None:
    network = fully_connected((Site("a"), Site("b")), bandwidth=5.0)
    wide = Link(1, 0, 0.0, bandwidth=9.0)
    assert type(network)(network.sites, (wide, *network.links)).direct_link(0, 1) == wide


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('name = "core"', 'name = "edge"', 7, "a second site is called edge"),
        ("cpu = 1e7", 'cpu = "fast"', 8, "cpu takes a number, not 'fast'"),
        ("cpu = 1e7", "cpu = -1", 8, "cpu is -1, it must be at least 0"),
        ("cpu = 1e7", "gpu = 1", 8, "unknown key gpu; did you mean cpu?"),
        ('to = "core"', 'to = "cor"', 15, "no site cor; did you mean core?"),
        ('to = "core"', 'to = "edge"', 15, "a link leads from edge to itself"),
        ('to = "core"', "", 13, "needs to = a text"),
        ("bandwidth = 1e6", "bandwidth = 0", 16, "leave it out"),
        ("latency = 0.06", "latency = inf", 17, "the latency of a link is finite"),
        ("# two places", "[[sites]]", 1, "unknown key sites; did you mean site?"),
        ("cpu = 2e6", "cpu = ", 4, "not TOML"),
        ('name = "edge"', "name = 5", 3, "name takes a text, not 5"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    file: Path, old: str, new: str, line: int, says: str
) -> None:
    file.write_text(SITES.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        read_network(file)
    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert says in str(refused.value)


def test_a_file_without_sites_is_refused(file: Path) -> None:
    file.write_text("")
    with pytest.raises(InputError, match="no \\[\\[site\\]\\]"):
        read_network(file)
    with pytest.raises(InputError, match="no such file"):
        read_network(file.parent / "other.toml")
