"""Both solvers give the same answer to the same program, and nothing is lost in whole numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headwater.plan.placement.program import LinearProgram, Solution, SolverStatus
from headwater.plan.placement.solver import solve_cp_sat, solve_highs


def random_program(seed: int) -> LinearProgram:
    """A few yes-or-no variables, rows with fractions, and a price."""
    dice = random.Random(seed)
    program = LinearProgram()
    columns = program.add_variables(6)
    for _ in range(4):
        factors = [dice.uniform(-3, 5) for _ in columns]
        least = dice.choice((-np.inf, dice.uniform(0, 4)))
        program.add_row(columns, factors, least, dice.uniform(3, 9))
    program.minimise(columns, [dice.uniform(-1, 2) for _ in columns])
    return program


def value(program: LinearProgram, solution: Solution) -> float:
    assert solution.values is not None
    return float(program.to_arrays().objective @ solution.values)


def test_both_solvers_agree() -> None:
    seen = set()
    for seed in range(40):
        program = random_program(seed)
        one, other = solve_highs(program, 5.0), solve_cp_sat(program, 5.0)
        assert one.status is other.status, seed
        seen.add(one.status)
        if one.status is SolverStatus.OPTIMAL:
            assert value(program, one) == pytest.approx(value(program, other), abs=1e-6)
            assert one.bound == pytest.approx(value(program, one), abs=1e-6)
    assert seen == {SolverStatus.OPTIMAL, SolverStatus.INFEASIBLE}


def test_what_just_fits_is_not_rounded_away() -> None:
    program = LinearProgram()
    columns = program.add_variables(3)
    program.add_row(columns, [0.1, 0.2, 0.3], 0.6 - 1e-12, 0.1 + 0.2 + 0.3)
    assert solve_cp_sat(program, 5.0).status is SolverStatus.OPTIMAL


def test_many_rows_at_once_are_rows() -> None:
    program = LinearProgram()
    a, b = program.add_variables(3), program.add_variables(3, 5.0)
    program.add_rows(np.stack([a, b], 1), [-5.0, 1.0], most=0.0)
    program.minimise(b, -1.0)
    program.minimise(a, 2.0)
    solution = solve_highs(program, 5.0)
    assert solution.values is not None
    assert solution.values[b].tolist() == [5.0] * 3
    assert solution.is_set(a).all()
