"""Linear programs over whole and real numbers as arrays, written down row by row or many rows at once.

They know no solver: `solver` takes a program and answers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class LinearProgram:
    """Variables with bounds, rows that bound sums of them, and a sum to minimise.

    Variables are numbers; a family of them is an array of numbers, so that rows can be written with
    NumPy's indexing.
    """

    def __init__(self) -> None:
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []
        self.integral: list[NDArray[np.bool_]] = []
        self.rows: list[Indices] = []
        self.columns: list[Indices] = []
        self.factors: list[Floats] = []
        self.least: list[Floats] = []
        self.most: list[Floats] = []
        self.objective: dict[int, float] = {}
        self.variables = 0
        self.constraints = 0

    def add_variables(
        self, shape: int | tuple[int, ...], upper: ArrayLike = 1.0, integral: bool = True
    ) -> NDArray[np.int64]:
        """New variables from 0 to `upper`, as an array of this shape."""
        size = int(np.prod(shape))
        self.lower.append(np.zeros(size))
        self.upper.append(np.broadcast_to(np.asarray(upper, np.float64), shape).ravel().copy())
        self.integral.append(np.full(size, integral))
        variables = np.arange(self.variables, self.variables + size, dtype=np.int64).reshape(shape)
        self.variables += size
        return variables

    def add_row(
        self,
        columns: Sequence[int] | Indices,
        factors: Sequence[float] | Floats | float,
        least: float = -np.inf,
        most: float = np.inf,
    ) -> None:
        """least <= sum of factors * columns <= most."""
        wide = np.asarray(columns, np.int64).reshape(1, -1)
        self.add_rows(
            wide, np.broadcast_to(np.asarray(factors, np.float64), wide.shape), least, most
        )

    def add_rows(
        self,
        columns: Any,
        factors: Any,
        least: float | Floats = -np.inf,
        most: float | Floats = np.inf,
    ) -> None:
        """One row for each row of `columns`; factors are the same for all, or given for each."""
        columns = np.asarray(columns, np.int64)
        count, wide = columns.shape
        if count == 0:
            return
        self.rows.append(np.repeat(np.arange(count) + self.constraints, wide))
        self.columns.append(columns.ravel())
        self.factors.append(np.broadcast_to(np.asarray(factors, np.float64), columns.shape).ravel())
        self.least.append(np.broadcast_to(np.asarray(least, np.float64), count))
        self.most.append(np.broadcast_to(np.asarray(most, np.float64), count))
        self.constraints += count

    def minimise(self, columns: Any, factors: Any) -> None:
        """Add terms to the sum to be minimised."""
        columns = np.asarray(columns, np.int64).ravel()
        for column, factor in zip(
            columns.tolist(),
            np.broadcast_to(np.asarray(factors, np.float64), columns.shape).tolist(),
            strict=True,
        ):
            self.objective[column] = self.objective.get(column, 0.0) + factor

    def to_arrays(self) -> ProgramArrays:
        """All of it, for a solver."""
        objective = np.zeros(self.variables)
        objective[list(self.objective)] = list(self.objective.values())

        def joined(parts: list[Any]) -> Any:
            return np.concatenate(parts) if parts else np.zeros(0)

        return ProgramArrays(
            objective,
            joined(self.lower),
            joined(self.upper),
            joined(self.integral).astype(bool),
            joined(self.rows).astype(np.int64),
            joined(self.columns).astype(np.int64),
            joined(self.factors),
            joined(self.least),
            joined(self.most),
        )


@dataclass(frozen=True, eq=False)
class ProgramArrays:
    """A program as a solver takes it; the matrix is given by its entries."""

    objective: Floats
    lower: Floats
    upper: Floats
    integral: NDArray[np.bool_]
    rows: Indices
    columns: Indices
    factors: Floats
    least: Floats
    most: Floats


class SolverStatus(Enum):
    """What a solver says: the best answer, some answer, that there is none, or nothing in time."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Solution:
    """The values of an answer, none if there is no answer, and a bound below all answers."""

    status: SolverStatus
    values: Floats | None = None
    bound: float = -np.inf

    def is_set(self, variables: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some variables are one."""
        assert self.values is not None
        return np.asarray(self.values[variables] > 0.5)
