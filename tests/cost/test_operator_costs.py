"""The table of costs: its defaults, its file, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cost.operators import CostTable, OperatorCost, format_costs, read_costs
from headwater.errors import InputError


def test_the_defaults_are_those_of_the_paper() -> None:
    table = CostTable()
    costs = [table[kind].per_tuple for kind in ("emit", "select", "project", "join")]
    assert costs == [0, 20, 50, 800]


def test_a_file_changes_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "costs.toml"
    file.write_text("[join]\ntuple = 1.5\nresult = 2\n")
    table = read_costs(file)
    assert table["join"] == OperatorCost(1.5, 2.0)
    assert table["select"] == CostTable()["select"]


def test_a_table_is_written_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "costs.toml"
    table = CostTable({**CostTable().costs, "join": OperatorCost(0.1, 1e-7)})
    file.write_text(format_costs(table))
    assert read_costs(file) == table


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[joins]\ntuple = 1\n", 1, "unknown key joins; did you mean"),
        ("[join]\nresult = 1\n", 1, "needs tuple = a number"),
        ("[join]\ntuple = -1\n", 2, "at least 0"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = tmp_path / "costs.toml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_costs(file)
    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert says in str(refused.value)
