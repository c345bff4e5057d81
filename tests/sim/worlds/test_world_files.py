"""World files: what is read, and every kind of mistake with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golden import Case, cases, rewrite
from headwater.errors import InputError
from headwater.network.transit_stubs import COSMOS, transit_stub_network
from headwater.sim.worlds.model import (
    DisseminationSettings,
    DistributionSettings,
    Failure,
    FailureKind,
    ProviderSettings,
    QuerySettings,
    StreamSettings,
)
from headwater.sim.worlds.read import parse_world, read_world
from headwater.sim.worlds.ticks import begin_together, read_ticks

GOLDEN = "worlds/errors.txt"

TRIANGLE = """
[[site]]
name = "oslo"
[[site]]
name = "lima"
[[site]]
name = "quito"
[[link]]
from = "oslo"
to = "lima"
latency = 0.01
[[link]]
from = "lima"
to = "quito"
latency = 0.02
"""

FILES = {
    "triangle.toml": TRIANGLE,
    "apart.toml": TRIANGLE.rpartition("[[link]]")[0],
    "ragged.txt": "0 1 2\n1 0\n2 1 0\n",
    "rising.csv": "1000,20000,5\n1500,20100,5\n",
    "falling.csv": "1000,20000\n500,20100\n",
}

WHOLE = """\
seeds = [3, 4]
[network]
sites = "triangle.toml"
[providers]
names = ["lima", "oslo"]
capability = { lima = 2 }
[streams]
substreams = 20
rate = 5
origins = ["quito"]
groups = 2
zipf = 1
[queries]
count = 10
substreams = [2, 4]
result_share = 0.5
arrivals = 0.01
load = 3
[distribution]
policies = ["naive", "adaptive"]
objective = "traffic"
k = 3
alpha = 0.2
rounds = 7
period = 100
[dissemination]
policies = ["greedy", "random+adaptive"]
objects = 2
rate = [1, 2]
interest = 0.5
tp = 0.001
tc = [0.001, 0.002]
source = "quito"
period = 50
duration = 500
[[failures]]
at = 400
event = "returns"
provider = "lima"
[[failures]]
at = 200
event = "dies"
provider = "lima"
[[failures]]
at = 100
event = "rates"
substreams = 5
factor = 0.5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def mistakes(text: str, folder: Path) -> str:
    with pytest.raises(InputError) as refused:
        parse_world(text, "world.toml", folder)
    return str(refused.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title)
def test_mistakes_are_refused(case: Case, folder: Path, update_golden: bool) -> None:
    if not update_golden:
        assert mistakes(case.input, folder) == case.outcome


def test_golden_mistakes_are_written_again(folder: Path, update_golden: bool) -> None:
    if update_golden:
        rewrite(GOLDEN, lambda case: mistakes(case.input, folder))


def test_every_setting_is_read(folder: Path) -> None:
    world = parse_world(WHOLE, folder=folder)
    assert world.seeds == (3, 4)
    assert world.network.host_names == ("oslo", "lima", "quito")
    assert world.providers == ProviderSettings(("lima", "oslo"), capabilities={"lima": 2.0})
    assert world.streams == StreamSettings(20, (5.0, 5.0), ("quito",), 2, 1.0)
    assert world.queries == QuerySettings(10, (2.0, 4.0), 0.5, 0.01, 3.0)
    assert world.distribution == DistributionSettings(
        ("naive", "adaptive"), "traffic", 3, 0.2, 7, 100.0
    )
    assert world.dissemination == DisseminationSettings(
        ("greedy", "random+adaptive"),
        2,
        (1.0, 2.0),
        interest=0.5,
        filter_time=(0.001, 0.001),
        transmit_time=(0.001, 0.002),
        source="quito",
        period=50.0,
        duration=500.0,
    )
    assert world.failures == (
        Failure(100.0, FailureKind.rates, count=5, factor=0.5),
        Failure(200.0, FailureKind.dies, "lima"),
        Failure(400.0, FailureKind.returns, "lima"),
    )


@pytest.mark.parametrize("left_out", ["distribution", "dissemination"])
def test_a_chapter_that_is_left_out_is_not_simulated(folder: Path, left_out: str) -> None:
    before, _, rest = WHOLE.partition(f"[{left_out}]\n")
    text = before + rest[rest.index("\n[") + 1 :]
    world = parse_world(text, folder=folder)
    assert getattr(world, left_out) is None
    assert (world.distribution is None) != (world.dissemination is None)


def test_files_are_looked_for_from_the_folder_of_the_world(folder: Path) -> None:
    (folder / "world.toml").write_text(WHOLE)
    assert read_world(folder / "world.toml").network.host_names == ("oslo", "lima", "quito")
    with pytest.raises(InputError, match=r"other\.toml: no such file"):
        read_world(folder / "other.toml")


def test_a_generated_network_has_the_seed_of_the_run_or_its_own() -> None:
    text = '[network]\ngenerator="transit-stub"\n{}\n[dissemination]\npolicies=["greedy"]'
    network = parse_world(text.format("")).network
    assert network.network(1) != network.network(2)
    assert network.network(1) == network.network(1)
    fixed = parse_world(text.format('shape = "cosmos"\nseed = 5')).network
    assert fixed.network(1) == fixed.network(2) == transit_stub_network(COSMOS, 5)


def test_latencies_are_scaled_to_their_mean(folder: Path) -> None:
    text = '[network]\nsites="triangle.toml"\nmean_latency=0.1\n[dissemination]\npolicies=["dita"]'
    network = parse_world(text, folder=folder).network.network(1)
    # Between the three pairs it was 10, 20 and 30 ms.
    assert [link.latency for link in network.links] == pytest.approx([0.05, 0.1])


def test_ticks_are_in_seconds_and_money(folder: Path) -> None:
    trace = read_ticks(folder / "rising.csv")
    assert trace.name == "rising"
    np.testing.assert_allclose(trace.times, [1.0, 1.5])
    np.testing.assert_allclose(trace.values, [2.0, 2.01])


def test_files_of_ticks_have_one_clock(folder: Path) -> None:
    """One that begins earlier is not shifted against the others."""
    (folder / "early.csv").write_text("200,30000\n900,30100\n1200,30300\n")
    early, rising = (read_ticks(folder / name) for name in ("early.csv", "rising.csv"))
    both = begin_together([early, rising])
    np.testing.assert_allclose(both[0].times, [0.0, 0.2])
    np.testing.assert_allclose(both[0].values, [3.01, 3.03])
    np.testing.assert_allclose(both[1].times, [0.0, 0.5])
    sooner = begin_together([early, rising], 0.5)
    np.testing.assert_allclose(sooner[0].times, [0.0, 0.4, 0.7])
    np.testing.assert_allclose(sooner[1].times, [0.5, 1.0])
    with pytest.raises(InputError, match=r"early ends at 1\.2 seconds, before 2"):
        begin_together([early, rising], 2.0)
    text = (
        '[network]\nsites="triangle.toml"\n[dissemination]\npolicies=["dita"]\n'
        'ticks=["early.csv"]\ntick_start=2'
    )
    with pytest.raises(InputError, match=r":6: early ends at 1\.2 seconds"):
        parse_world(text, folder=folder)
