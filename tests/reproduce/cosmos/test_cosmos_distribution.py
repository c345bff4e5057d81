"""Chapter 3 of COSMOS: its figures run in small, and what does not depend on a seed holds."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from headwater.errors import SimulationError
from headwater.federation.distribution.objective import check
from headwater.federation.distribution.printed import explicit_edges, explicit_wec
from headwater.reproduce import FIGURES, FigureSettings
from headwater.reproduce.cosmos.distribution import DISTRIBUTION
from headwater.reproduce.cosmos.distribution_initial import (
    EXAMPLE_BY_HAND,
    example_mappings,
    example_problem,
)
from headwater.reproduce.cosmos.distribution_worlds import (
    FIRST_SEED,
    QUICK,
    make_world,
)
from headwater.reproduce.cosmos.measured import LATENCIES, cell_rates

DATA = Path(os.environ.get("HEADWATER_DATA") or Path(__file__).parents[4] / "shared" / "data")


def test_every_figure_of_chapter_3_has_a_name() -> None:
    named = {f"cosmos-fig3-{name}" for name in ("8a", "8b", "9", "10", "11", "12")}
    assert named | {"cosmos-wec-example", "cosmos-objective"} < set(DISTRIBUTION)
    assert DISTRIBUTION.items() <= FIGURES.items()


def test_the_example_is_what_was_computed_by_hand() -> None:
    problem = example_problem()
    edges = explicit_edges(problem)
    for name, place in example_mappings(problem).items():
        assert check(problem, place).wec == EXAMPLE_BY_HAND[name]
        assert explicit_wec(problem, edges, place) == EXAMPLE_BY_HAND[name]


def test_a_seed_gives_the_same_world() -> None:
    one, other = make_world(QUICK, FIRST_SEED), make_world(QUICK, FIRST_SEED)
    assert one.queries(50, 1).substream.tobytes() == other.queries(50, 1).substream.tobytes()
    assert one.queries(50, 1).load.tobytes() != one.queries(50, 2).load.tobytes()


def test_missing_latencies_are_named(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="--data"):
        make_world(QUICK, FIRST_SEED, data=tmp_path)


@pytest.mark.long
def test_measured_latencies_make_a_world() -> None:
    if not (DATA / LATENCIES).exists():
        pytest.skip(f"{DATA / LATENCIES} is not here; HEADWATER_DATA names the folder of the data")
    world = make_world(QUICK, FIRST_SEED, data=DATA)
    assert len(world.federation.places) == QUICK.providers
    assert 0 < world.federation.places.latency.max() < 10
    drawn = make_world(QUICK, FIRST_SEED).federation.substreams.rate
    measured = world.federation.substreams.rate
    assert measured.sum() == pytest.approx(drawn.sum())
    assert measured.max() / measured.mean() > 2 * drawn.max() / drawn.mean()


def test_rates_of_cells_are_those_of_the_lines_in_them(tmp_path: Path) -> None:
    """A stream of two prices and two sizes, ten seconds long: four cells, of 1, 2, 3 and 4 trades."""
    kinds = [(100, 5), (100, 7), (200, 5), (200, 7)]
    lines = [kind for number, kind in enumerate(kinds, start=1) for _ in range(number)]
    text = "".join(f"{10_000 * at // 9},{p},{s}\n" for at, (p, s) in enumerate(lines))
    (tmp_path / "ticks").mkdir()
    with zipfile.ZipFile(tmp_path / "ticks" / "one.zip", "w") as archive:
        archive.writestr("one.csv", text)
    rates = cell_rates(tmp_path)
    assert len(rates) == 4
    assert rates.sum() == pytest.approx(len(text) / 10)
    by_cell = [
        sum(len(line) for line in text.splitlines(True) if f",{p},{s}" in line) for p, s in kinds
    ]
    assert sorted(rates) == pytest.approx(sorted(size / 10 for size in by_cell))


@pytest.mark.long
@pytest.mark.parametrize("name", ["cosmos-wec-example", "cosmos-fig3-9"])
def test_claims_that_hold_in_small(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.claims
    assert all(claim.holds for claim in report.claims)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DISTRIBUTION))
def test_a_figure_of_distribution_has_tables_and_claims(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.tables
    assert report.claims
