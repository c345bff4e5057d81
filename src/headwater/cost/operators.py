"""What an operator costs for a tuple: one small table for all, and the file it is kept in.

    [join]
    tuple = 800           # instructions for each tuple that comes in
    result = 0            # and for each that goes out

A kind that a file does not name keeps its default. The defaults for emit, select, project and join
are those of the WhiteWater paper; the others are set beside them by likeness. A cost is in the unit
in which sites state their speed, whatever it is: seconds of one core serve as well, with cpu = 1.

What the runtime does besides has kinds of its own: `read` a tuple from a log, `write` a row to one,
and for each step, however little it reads, `step`, `term` (for each source in each term of a delta)
and `panes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.tomltext import Section, read_toml


@dataclass(frozen=True)
class OperatorCost:
    """Instructions for a tuple that comes in, and for a result that goes out."""

    per_tuple: float = 0.0
    per_result: float = 0.0


DEFAULT_COSTS: Mapping[str, OperatorCost] = {
    # WhiteWater's costs, in instructions per tuple: select 20, project 50, join 800.
    "emit": OperatorCost(0),
    "select": OperatorCost(20),
    "project": OperatorCost(50),
    "join": OperatorCost(800),
    "semijoin": OperatorCost(800),
    "outerjoin": OperatorCost(800),
    "fulljoin": OperatorCost(800),
    "aggregate": OperatorCost(400),
    "distinct": OperatorCost(400),
    "union": OperatorCost(20),
    "read": OperatorCost(200),
    "write": OperatorCost(150),
    "step": OperatorCost(10e6),
    "term": OperatorCost(6e6),
    "panes": OperatorCost(20e6),
}

SECONDS_PER_INSTRUCTION = 5e-9
"""What an instruction of the defaults counts as where costs are seconds of a core."""


@dataclass(frozen=True)
class CostTable:
    """The cost of each kind of operator."""

    costs: Mapping[str, OperatorCost] = field(default_factory=lambda: dict(DEFAULT_COSTS))

    def __getitem__(self, kind: str) -> OperatorCost:
        return self.costs[kind]


SECOND_COSTS = CostTable(
    {
        kind: OperatorCost(
            cost.per_tuple * SECONDS_PER_INSTRUCTION, cost.per_result * SECONDS_PER_INSTRUCTION
        )
        for kind, cost in DEFAULT_COSTS.items()
    }
)
"""The defaults in seconds of a core."""


def read_costs(path: Path, defaults: CostTable | None = None) -> CostTable:
    """The table of a file over the defaults; raises InputError with the line of a mistake."""
    top = read_toml(path)
    # A misspelt kind would otherwise silently keep its default.
    top.check_keys(*DEFAULT_COSTS)
    overrides = {kind: _parse_cost(top.section(kind)) for kind in top.values}
    return CostTable({**(defaults or CostTable()).costs, **overrides})


def format_costs(table: CostTable) -> str:
    """The table as the text of a file that `read_costs` reads back."""
    return "\n".join(
        f"[{kind}]\ntuple = {cost.per_tuple!r}\nresult = {cost.per_result!r}\n"
        for kind, cost in table.costs.items()
    )


def _parse_cost(section: Section) -> OperatorCost:
    section.check_keys("tuple", "result")
    return OperatorCost(section.number("tuple"), section.number("result", 0.0))
