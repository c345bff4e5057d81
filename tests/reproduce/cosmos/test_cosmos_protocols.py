"""What must hold in the figures of locks and forwarding, whatever the seed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from headwater.errors import InputError
from headwater.reproduce import FIGURES, FigureSettings
from headwater.reproduce.cosmos.coherency import load_ticks


def verdicts(name: str) -> dict[str, bool | None]:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.tables
    return {claim.what: claim.holds for claim in report.claims}


@pytest.mark.long
def test_deadlocks_are_found_and_ours_has_none() -> None:
    printed, locks, moves, samples = verdicts("cosmos-deadlock").values()
    assert (printed, locks, moves, samples) == (False, True, True, True)


@pytest.mark.long
def test_only_the_rule_without_the_parent_leaves_somebody_out_of_tolerance() -> None:
    for what, holds in verdicts("cosmos-coherency").items():
        assert holds == (not what.endswith("by the rule > cr")), what


def test_ticks_are_read_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "day.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("day.csv", "1000,20000,5,P\n1000,30000,5,P\n2500,10000,1,Q\n")
    found = load_ticks(path)
    assert (found.times.tolist(), found.values.tolist()) == ([1.0, 2.5], [3.0, 1.0])
    other = tmp_path / "other.zip"
    other.write_text("no zip")
    with pytest.raises(InputError, match=r"other\.zip"):
        load_ticks(other)
