"""GML files: the real ones, what they say, and mistakes that are refused with their line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from networks import shared

from headwater.errors import InputError
from headwater.network import Network, load_gml
from headwater.network.gml import great_circle

GRAPH = """\
graph [
  label "two cities"
  node [ id 0 label "Paris" Latitude 48.85341 Longitude 2.3488 ]
  node [ id 7 label "Rome &amp; Ostia" Longitude 12.51133 Latitude 41.89193 ]
  # a place without coordinates
  node [ id 9 label "Paris" graphics [ x 1.0 y 2 ] ]
  edge [ source 0 target 7 LinkSpeedRaw 8000.0 ]
  edge [ source 0 target 7 ]
  edge [ source 9 target 7 ]
]
"""


@pytest.fixture
def write(tmp_path: Path):
    def file(text: str) -> Path:
        path = tmp_path / "net.gml"
        path.write_text(text)
        return path

    return file


def test_names_lengths_and_speeds(write) -> None:
    network = load_gml(write(GRAPH), unknown_latency=0.25, bandwidth=5.0)
    assert [site.name for site in network.sites] == ["Paris (0)", "Rome & Ostia", "Paris (9)"]
    assert network.links[0].latency == pytest.approx(1105.8 / 200_000, rel=0.01)
    assert [link.bandwidth for link in network.links] == [1000.0, 5.0, 5.0]
    assert [(link.a, link.b) for link in network.links] == [(0, 1), (0, 1), (2, 1)]
    assert network.links[2].latency == 0.25


def test_distances_on_earth() -> None:
    assert great_circle(0, 0, 0, 180) == pytest.approx(20015, rel=0.001)
    assert great_circle(52.52, 13.405, 52.52, 13.405) == 0


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (("", ""), 9, "Paris (9) is not located"),
        (("id 7", 'id "7"'), 4, "id has to be a number, but it is '7'"),
        (("id 7", ""), 4, "id has to be a number, but there is none"),
        (("id 7", "id 0"), 4, "a second node has the id 0"),
        (("source 9", "source 8"), 9, "the source of a link is 8, and no node has that id"),
        (("source 9 target 7", "source 7 target 7"), 9, "leads from Rome & Ostia to itself"),
        (("48.85341", "148.85341"), 3, "not on Earth"),
        (("id 7", "id ="), 4, "'=' is not GML"),
        (("Latitude 41.89193 ]", "Latitude ]"), 4, "Latitude has no value"),
        (("id 7", "7 id"), 4, "a key is expected, not 7"),
        (("target 7 ]\n]", "target 7 ]\n"), 1, "never closed"),
        (("graph [", "tree ["), 1, "this one has 0"),
    ],
)
def test_mistakes_are_reported_with_their_line(
    write, change: tuple[str, str], line: int, reason: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_gml(write(GRAPH.replace(*change)))
    assert f"net.gml, line {line}: " in str(refused.value)
    assert reason in str(refused.value)


def test_files_that_are_none(tmp_path: Path, write) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_gml(tmp_path / "none.gml")
    with pytest.raises(InputError, match="the graph has no node"):
        load_gml(write("graph [ ]"))
    (tmp_path / "latin.gml").write_bytes(b'graph [ label "Z\xfcrich" ]')
    with pytest.raises(InputError, match="not UTF-8"):
        load_gml(tmp_path / "latin.gml")


def test_every_file_of_the_topology_zoo_loads_or_is_refused() -> None:
    loaded: dict[Path, Network] = {}
    refused: dict[Path, str] = {}
    for path in sorted(shared("topology_zoo").glob("*.gml")):
        try:
            loaded[path] = load_gml(path, unknown_latency=0.005)
        except InputError as error:
            refused[path] = str(error)
    assert (len(loaded), len(refused)) == (275, 1)
    assert all("leads from Dubai to itself" in said for said in refused.values())
    located = [p for p, n in loaded.items() if all(s.latitude is not None for s in n.sites)]
    sizes = {path.stem: len(network.sites) for path, network in loaded.items()}
    assert sizes["Kdl"] == 754
    assert load_gml(located[0]) == loaded[located[0]]
    unlocated = next(path for path in loaded if path not in located)
    with pytest.raises(InputError, match="say which one to assume"):
        load_gml(unlocated)


@pytest.mark.slow
def test_how_many_files_of_the_topology_zoo_need_no_assumption() -> None:
    kinds: Counter[str] = Counter()
    for path in shared("topology_zoo").glob("*.gml"):
        try:
            load_gml(path)
            kinds["located"] += 1
        except InputError as error:
            kinds["assume" if "say which one to assume" in str(error) else "other"] += 1
    assert kinds == {"located": 85, "assume": 191}
