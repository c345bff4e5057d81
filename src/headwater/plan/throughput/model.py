"""The optimisation problem: operators of one or several queries, the sites they may run on, and the
input rates they shall take.

A problem has what stays, a configuration what a search may change: who reads whom, and which sites
host an operator. An operator on several sites is cloned there: its input is split evenly, by key
where it keeps state, and the parts are merged by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

from headwater.errors import PlanError, suggest
from headwater.network.model import Network


class OperatorKind(IntEnum):
    """What an operator does; DISTINCT is whatever compares rows by value."""

    EMIT = 0
    SELECT = 1
    PROJECT = 2
    JOIN = 3
    SEMIJOIN = 4
    OUTERJOIN = 5
    FULLJOIN = 6
    AGGREGATE = 7
    DISTINCT = 8
    UNION = 9


ARITY = {
    OperatorKind.EMIT: (0, 0),
    OperatorKind.SELECT: (1, 1),
    OperatorKind.PROJECT: (1, 1),
    OperatorKind.JOIN: (2, None),
    OperatorKind.SEMIJOIN: (2, 2),
    OperatorKind.OUTERJOIN: (2, 2),
    OperatorKind.FULLJOIN: (2, 2),
    OperatorKind.AGGREGATE: (1, 1),
    OperatorKind.DISTINCT: (1, 1),
    OperatorKind.UNION: (2, None),
}
"""The least and the largest number of inputs."""

Rules = frozenset[tuple[OperatorKind, OperatorKind]]
"""Which kinds may change places: the upper operator's, then the one below it."""

TABLE_6: Rules = frozenset(
    (top, bottom)
    for top, bottoms in {
        OperatorKind.SELECT: (OperatorKind.SELECT, OperatorKind.PROJECT, OperatorKind.JOIN),
        OperatorKind.PROJECT: (OperatorKind.SELECT, OperatorKind.PROJECT, OperatorKind.JOIN),
        OperatorKind.JOIN: (OperatorKind.JOIN,),
    }.items()
    for bottom in bottoms
)
"""The swaps of the paper's Table 6."""

EXTENDED_RULES: Rules = TABLE_6 | {
    (OperatorKind.JOIN, OperatorKind.SELECT),
    (OperatorKind.JOIN, OperatorKind.PROJECT),
    (OperatorKind.SELECT, OperatorKind.AGGREGATE),
    (OperatorKind.AGGREGATE, OperatorKind.SELECT),
    (OperatorKind.SELECT, OperatorKind.DISTINCT),
    (OperatorKind.DISTINCT, OperatorKind.SELECT),
    (OperatorKind.SELECT, OperatorKind.SEMIJOIN),
    (OperatorKind.SELECT, OperatorKind.OUTERJOIN),
    (OperatorKind.PROJECT, OperatorKind.SEMIJOIN),
}
"""These, their reverses at joins, and selections through operators that the paper does not have."""


@dataclass(frozen=True)
class ThroughputOperator:
    """An operator with its statistics; columns are known by names that no move changes.

    `cost` is paid for each input tuple, `result_cost` for each output tuple. A join with a
    `window` holds what came in that many seconds before; one without holds what its inputs hold: of
    a stream the tuples of its window, or `rows` where that number is fixed. An aggregate has `rows`
    groups and emits them all every `period` seconds; without a period it emits `selectivity` rows
    for each tuple. `table` is the size of what an operator keeps for each input besides tuples, of
    a hash table for instance.
    """

    name: str
    kind: OperatorKind
    cost: float = 0.0
    result_cost: float = 0.0
    selectivity: float = 1.0
    window: float | None = None
    rows: float = 0.0
    period: float | None = None
    table: float = 0.0
    stream: str = ""
    reads: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for what in ("cost", "result_cost", "selectivity", "rows", "table"):
            if not getattr(self, what) >= 0:
                raise PlanError(f"{self.name}: {what} is {getattr(self, what)}, it must be >= 0")
        if self.window is not None and not self.window >= 0:
            raise PlanError(f"{self.name}: a window of {self.window} seconds")
        if self.period is not None and not self.period > 0:
            raise PlanError(f"{self.name}: a period of {self.period} seconds")


Inputs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Configuration:
    """A plan and its place: of each operator the inputs and the sites, and the operators whose
    results somebody wants."""

    inputs: Inputs
    outputs: tuple[int, ...]
    hosts: tuple[tuple[int, ...], ...]

    def use_count(self, operator: int) -> int:
        """How often the operator's result is read or wanted."""
        read = sum(below.count(operator) for below in self.inputs)
        return read + self.outputs.count(operator)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All operators, inputs before those who read them; raises PlanError if there is a cycle."""
        done: dict[int, None] = {}
        busy: set[int] = set()

        def visit(operator: int) -> None:
            if operator in busy:
                raise PlanError(f"operator {operator} reads its own result")
            if operator not in done:
                busy.add(operator)
                for below in self.inputs[operator]:
                    visit(below)
                busy.remove(operator)
                done[operator] = None

        for operator in range(len(self.inputs)):
            visit(operator)
        return tuple(done)


@dataclass(frozen=True)
class ThroughputProblem:
    """Operators, the plan as written, where each may run, and the rates to be reached.

    `options` has for every operator the sets of sites that may host it; `points` one or several
    targets, each a rate for every stream: a configuration is as good as at its worst point.
    """

    operators: tuple[ThroughputOperator, ...]
    initial_inputs: Inputs
    outputs: tuple[int, ...]
    options: tuple[tuple[tuple[int, ...], ...], ...]
    network: Network
    points: tuple[Mapping[str, float], ...]
    widths: Mapping[str, float] = field(default_factory=dict)
    latency: float | None = None
    rules: Rules = TABLE_6

    def __post_init__(self) -> None:
        count = len(self.operators)
        if not len(self.initial_inputs) == len(self.options) == count:
            raise PlanError("operators, inputs and options must be as many")
        for operator, below, options in zip(
            self.operators, self.initial_inputs, self.options, strict=True
        ):
            _check_operator(operator, below, options, count, len(self.network.sites))
        _check_columns(self)
        if not self.points:
            raise PlanError("a profile needs at least one point")
        for point in self.points:
            for stream in self.streams:
                if not point.get(stream, 0) > 0:
                    raise PlanError(f"the profile has no rate above 0 for the stream {stream}")

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that come in, each once; a stored table is none."""
        return tuple(dict.fromkeys(o.stream for o in self.operators if o.stream))

    def initial_configuration(self) -> Configuration:
        """The plan as written, every operator at the first of its options."""
        return Configuration(
            self.initial_inputs, self.outputs, tuple(options[0] for options in self.options)
        )

    def with_rules(self, rules: Rules) -> ThroughputProblem:
        return replace(self, rules=rules)

    def width(self, columns: frozenset[str]) -> float:
        """The bytes of a tuple; a column of unknown width has 8."""
        return sum(self.widths.get(column, 8.0) for column in sorted(columns))


def _check_operator(
    operator: ThroughputOperator,
    below: Sequence[int],
    options: Sequence[tuple[int, ...]],
    count: int,
    sites: int,
) -> None:
    least, most = ARITY[operator.kind]
    if len(below) < least or (most is not None and len(below) > most):
        raise PlanError(f"{operator.name}: {operator.kind.name} with {len(below)} inputs")
    if not all(0 <= position < count for position in below):
        raise PlanError(f"{operator.name}: reads an operator that is not there")
    if not options:
        raise PlanError(f"{operator.name}: no site may host it")
    for hosts in options:
        if not hosts or len(set(hosts)) < len(hosts) or not all(0 <= h < sites for h in hosts):
            raise PlanError(f"{operator.name}: {hosts} is no set of sites")


def _check_columns(problem: ThroughputProblem) -> None:
    """Every operator finds what it reads, and inputs of a join have no column in common."""
    named = output_columns(problem, problem.initial_configuration())
    for operator, below in zip(problem.operators, problem.initial_inputs, strict=True):
        arriving = [named[i] for i in below]
        every = frozenset[str]().union(*arriving)
        for column in sorted((operator.reads | operator.drops | operator.keys) - every):
            raise PlanError(f"{operator.name}: no column {column}; {suggest(column, every)}")
        if operator.kind is not OperatorKind.UNION and len(every) < sum(map(len, arriving)):
            raise PlanError(f"{operator.name}: its inputs have columns of the same name")


def output_columns(
    problem: ThroughputProblem, configuration: Configuration
) -> list[frozenset[str]]:
    """The columns of each operator's result."""
    result: list[frozenset[str]] = [frozenset()] * len(problem.operators)
    for position in configuration.order:
        operator, below = problem.operators[position], configuration.inputs[position]
        read = below[:1] if operator.kind is OperatorKind.SEMIJOIN else below
        arriving = frozenset[str]().union(*(result[i] for i in read))
        result[position] = (arriving - operator.drops) | operator.adds
    return result
