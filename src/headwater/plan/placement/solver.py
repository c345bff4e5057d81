"""The only module that knows solvers: HiGHS by SciPy for mixed programs, CP-SAT for whole numbers.

CP-SAT wants whole factors. Rows are scaled to nine digits and rounded in favour of an answer, so that
"infeasible" stays a proof; whether an answer holds exactly is for `check` to say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from ortools.sat.python import cp_model
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from headwater.plan.placement.program import (
    Floats,
    LinearProgram,
    ProgramArrays,
    Solution,
    SolverStatus,
)

SMALLEST = 1e-200
"""Less than this counts as nothing, so that its opposite is still a number."""

FACTOR_SCALE = 1e9
OBJECTIVE_SCALE = 1e9
"""The largest factor of what is minimised, in whole numbers."""

CP_SAT_TIME_FACTOR = 0.5
"""Units of CP-SAT's own time for a second: it decides when to stop, so that runs repeat."""


def solve_highs(program: LinearProgram, seconds: float, gap: float = 0.0) -> Solution:
    """The answer of HiGHS, on one thread.

    Its presolve has been seen to call a program infeasible that was not (SciPy 1.17), so such an
    answer counts only if it comes again without presolve.
    """
    started = time.perf_counter()
    solution = _run_highs(program, seconds, gap, presolve=True)
    if solution.status is SolverStatus.INFEASIBLE:
        # Even if the first run took all the time: a refusal that is not confirmed is not proven.
        left = max(seconds - (time.perf_counter() - started), 0.1 * seconds)
        solution = _run_highs(program, left, gap, presolve=False)
    return solution


def _run_highs(program: LinearProgram, seconds: float, gap: float, presolve: bool) -> Solution:
    arrays = program.to_arrays()
    matrix = csr_array(
        (arrays.factors, (arrays.rows, arrays.columns)),
        shape=(program.constraints, program.variables),
    )
    rows = [LinearConstraint(matrix, arrays.least, arrays.most)] if program.constraints else []
    answer = milp(
        arrays.objective,
        integrality=arrays.integral.astype(int),
        bounds=Bounds(arrays.lower, arrays.upper),
        constraints=rows,
        options={"time_limit": max(seconds, 0.01), "mip_rel_gap": gap, "presolve": presolve},
    )
    bound = -np.inf if answer.mip_dual_bound is None else float(answer.mip_dual_bound)
    # SciPy's numbers: 0 is optimal, 2 is infeasible.
    if answer.status == 2:
        return Solution(SolverStatus.INFEASIBLE)
    if answer.x is None:
        return Solution(SolverStatus.UNKNOWN, None, bound)
    return Solution(
        SolverStatus.OPTIMAL if answer.status == 0 else SolverStatus.FEASIBLE,
        np.asarray(answer.x),
        bound,
    )


def solve_cp_sat(
    program: LinearProgram,
    seconds: float,
    gap: float = 0.0,
    hint: Mapping[int, float] | None = None,
) -> Solution:
    """The answer of CP-SAT with one worker; every variable has to be whole and bounded."""
    arrays = program.to_arrays()
    model = cp_model.CpModel()
    variables = [
        model.new_int_var(int(low), int(high), "")
        for low, high in zip(arrays.lower.tolist(), arrays.upper.tolist(), strict=True)
    ]
    starts = np.searchsorted(arrays.rows, np.arange(program.constraints + 1)).tolist()
    columns = arrays.columns.tolist()
    factors, least, most = _to_integers(arrays, np.asarray(starts))
    for row in range(program.constraints):
        begin, end = starts[row], starts[row + 1]
        inside = [variables[c] for c in columns[begin:end]]
        model.add_linear_constraint(
            cp_model.LinearExpr.weighted_sum(inside, factors[begin:end]), least[row], most[row]
        )
    largest = float(np.abs(arrays.objective).max(initial=0.0))
    if largest:
        scale = OBJECTIVE_SCALE / largest
        priced = np.flatnonzero(arrays.objective).tolist()
        whole = np.rint(arrays.objective[priced] * scale).astype(int).tolist()
        model.minimize(cp_model.LinearExpr.weighted_sum([variables[c] for c in priced], whole))
    for column, value in (hint or {}).items():
        model.add_hint(variables[column], round(value))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = max(seconds, 0.01) * CP_SAT_TIME_FACTOR
    # The clock as well, for machines on which deterministic time passes too slowly.
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.relative_gap_limit = gap
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Solution(SolverStatus.INFEASIBLE)
    bound = solver.best_objective_bound * largest / OBJECTIVE_SCALE if largest else 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(SolverStatus.UNKNOWN, None, bound)
    values = np.array(solver.values(variables).to_list(), np.float64)
    best = SolverStatus.OPTIMAL if status == cp_model.OPTIMAL else SolverStatus.FEASIBLE
    return Solution(best, values, bound)


def _to_integers(arrays: ProgramArrays, starts: Floats) -> tuple[list[int], list[int], list[int]]:
    """Factors and bounds as whole numbers; rounding is in favour of an answer."""
    count = len(starts) - 1
    largest = np.zeros(count)
    np.maximum.at(largest, arrays.rows, np.abs(arrays.factors))
    fraction = np.zeros(count, np.bool_)
    np.logical_or.at(fraction, arrays.rows, arrays.factors != np.rint(arrays.factors))
    for bound in (arrays.least, arrays.most):
        finite = np.isfinite(bound)
        fraction |= finite & (np.where(finite, bound, 0) != np.rint(np.where(finite, bound, 0)))
        largest = np.maximum(largest, np.where(finite, np.abs(bound), 0.0))
    scale = np.where(fraction, FACTOR_SCALE / np.maximum(largest, SMALLEST), 1.0)
    exact = arrays.factors * scale[arrays.rows]
    factors = np.rint(exact).astype(np.int64)
    spare = np.zeros(count)
    # Variables begin at 0, so a rounded factor changes its row by no more than this.
    np.add.at(spare, arrays.rows, np.abs(exact - factors) * arrays.upper[arrays.columns])
    # CP-SAT has whole numbers of 64 bits; what is farther away is no bound.
    far = 2.0**60
    least = np.maximum(np.floor(arrays.least * scale - spare), -far).astype(np.int64)
    most = np.minimum(np.ceil(arrays.most * scale + spare), far).astype(np.int64)
    return factors.tolist(), least.tolist(), most.tolist()
