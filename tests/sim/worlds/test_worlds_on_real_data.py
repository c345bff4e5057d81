"""Worlds over networks, latencies and trades that were measured."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from headwater.sim.worlds.read import parse_world
from headwater.sim.worlds.simulate import simulate_world
from headwater.sim.worlds.ticks import read_ticks

OPENING = 34200
"""Half past nine, in seconds since midnight."""

DATA = Path(os.environ.get("HEADWATER_DATA") or Path(__file__).parents[3] / "../shared/data")

DEMAND = """
[streams]
substreams = 40
origins = 3
[queries]
count = 30
substreams = [3, 6]
[distribution]
policies = ["naive", "hierarchical"]
k = 2
rounds = 1
[[failures]]
at = 100
event = "dies"
"""


def data(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(
            f"{DATA / name} is not here; HEADWATER_DATA names the folder of the shared data"
        )
    return DATA / name


def test_a_topology_with_its_cities_by_name() -> None:
    network = data("topology_zoo/Abilene.gml")
    world = parse_world(f'[network]\ngml = "{network}"\n{DEMAND}provider = "Chicago"\n')
    assert len(world.network.host_names) == 11 and "Chicago" in world.network.host_names
    report = simulate_world(world)
    (providers,) = (table for table in report.tables if table.title.startswith("Loads"))
    loads = {row[0]: row[2:] for row in providers.rows}
    assert loads["Chicago"] == (0.0, 0.0)
    assert all(
        all(load > 0 for load in row[1:]) for name, row in loads.items() if name != "Chicago"
    )


@pytest.mark.long
def test_latencies_that_were_measured() -> None:
    matrix = data("latency/PlanetLabData_1")
    text = f'[network]\nlatencies = "{matrix}"\n[providers]\ncount = 12\n{DEMAND}providers = 2\n'
    report = simulate_world(parse_world(text))
    naive, hierarchical = report.tables[0].rows
    at = report.tables[0].columns.index("WEC")
    assert hierarchical[at] < naive[at]


@pytest.mark.long
def test_trades_that_were_made() -> None:
    files = [data(f"ticks/{name}-20131008-trade.zip") for name in ("ibm", "aig", "bac")]
    text = f"""
    [network]
    generator = "transit-stub"
    [providers]
    count = 16
    [dissemination]
    policies = ["greedy", "source"]
    ticks = [{", ".join(f'"{file}"' for file in files)}]
    tick_start = {OPENING}
    interest = 0.6
    duration = 20000
    period = 10000
    """
    world = parse_world(text)
    assert world.dissemination is not None
    for file, trace in zip(files, world.dissemination.traces, strict=True):
        with zipfile.ZipFile(file) as archive:
            lines = archive.read(archive.namelist()[0]).splitlines()
        # The market opens at half past nine: the first price is the last one before, all others follow.
        times = [float(line.split(b",")[0]) / 1000 for line in lines]
        assert len(trace.times) == 1 + sum(time > OPENING for time in times)
    report = simulate_world(world)
    at = report.tables[0].columns.index("loss")
    greedy, source = (row[at] for row in report.tables[0].rows)
    assert isinstance(greedy, float) and isinstance(source, float)
    assert 0 < greedy <= source
    measured = [row[at + 1] for row in report.tables[0].rows]
    assert all(isinstance(loss, float) and 0 < loss < 1 for loss in measured)


def test_prices_of_trades_are_in_dollars_and_times_in_seconds() -> None:
    trace = read_ticks(data("ticks/ibm-20131008-trade.zip"))
    assert trace.name == "ibm-20131008-trade"
    assert 8 * 3600 < trace.times[0] < trace.times[-1] < 20 * 3600
    assert 150 < np.median(trace.values) < 200
