"""Problems to try searches on: the paper's examples, and its two kinds of random queries.

Costs, windows and link latency are those of the paper's section 6. What it does not say (rates,
selectivities, capacities of sites and links) is drawn here, from ranges wide enough that any of the
constraints may bind.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from headwater.cost.operators import CostTable
from headwater.network.model import Network, Site
from headwater.network.sites import fully_connected
from headwater.plan.throughput.model import OperatorKind, ThroughputOperator, ThroughputProblem

WINDOW = 5.0
LINK_LATENCY = 0.06
COSTS = CostTable()


def two_operators() -> ThroughputProblem:
    """Figure 5: selections of 1/2 and 1/5, whose memory ties each to one of two sites.

    The slow site takes 100 tuples a second for the first, the fast one 500 for the second. On one
    machine the cheap first selection belongs first; on these sites it must come second.
    """
    columns = frozenset({"s.a", "s.b"})
    operators = (
        ThroughputOperator("s", OperatorKind.EMIT, stream="s", adds=columns),
        ThroughputOperator(
            "o1", OperatorKind.SELECT, 20, selectivity=1 / 2, table=40, reads=frozenset({"s.a"})
        ),
        ThroughputOperator(
            "o2", OperatorKind.SELECT, 40, selectivity=1 / 5, table=400, reads=frozenset({"s.b"})
        ),
    )
    sites = fully_connected((Site("N1", cpu=2_000, memory=60), Site("N2", cpu=20_000, memory=420)))
    anywhere = ((0,), (1,))
    return ThroughputProblem(
        operators,
        ((), (0,), (1,)),
        (2,),
        (((0,),), anywhere, anywhere),
        sites,
        ({"s": 1.0},),
    )


def three_streams() -> ThroughputProblem:
    """The query of section 6.4: two selections above two joins, on two sites that are alike.

    The join on C is 100 times as selective as that on B; each selection lets pass one tuple in 100.
    """

    def emit(name: str, *columns: str) -> ThroughputOperator:
        return ThroughputOperator(name, OperatorKind.EMIT, stream=name, adds=frozenset(columns))

    def join(name: str, selectivity: float, *columns: str) -> ThroughputOperator:
        cost = COSTS["join"].per_tuple
        reads = frozenset(columns)
        return ThroughputOperator(
            name, OperatorKind.JOIN, cost, selectivity=selectivity, window=WINDOW, reads=reads
        )

    def select(name: str, column: str) -> ThroughputOperator:
        cost = COSTS["select"].per_tuple
        return ThroughputOperator(
            name, OperatorKind.SELECT, cost, selectivity=0.01, reads=frozenset({column})
        )

    operators = (
        emit("ab", "ab.a", "ab.b"),
        emit("bc", "bc.b", "bc.c"),
        emit("cd", "cd.c", "cd.d"),
        join("join on c", 1e-5, "bc.c", "cd.c"),
        join("join on b", 1e-3, "ab.b", "bc.b"),
        select("a = 0", "ab.a"),
        select("d = 0", "cd.d"),
    )
    sites = fully_connected((Site("N1", cpu=1e8), Site("N2", cpu=1e8)), latency=LINK_LATENCY)
    anywhere = ((0,), (1,))
    return ThroughputProblem(
        operators,
        ((), (), (), (1, 2), (0, 3), (4,), (5,)),
        (6,),
        (anywhere,) * len(operators),
        sites,
        ({"ab": 1.0, "bc": 1.0, "cd": 1.0},),
    )


def small_problem(seed: int) -> ThroughputProblem:
    """A query of section 6.1: one or two emitters, at most five others, two sites for each."""
    rng = random.Random(f"small {seed}")
    emitters = rng.randint(1, 2)
    others = rng.randint(max(2, emitters), 5)
    # To join the emitters takes one join less than there are; the rest are unary.
    return _random_problem(rng, emitters, others - (emitters - 1), sites=4, choices=(2, 2))


def large_problem(seed: int, operators: int | None = None) -> ThroughputProblem:
    """A query of section 6.2: of up to 40 operators, 3 to 13 of them emitters."""
    rng = random.Random(f"large {seed}")
    emitters = rng.randint(3, 13)
    joined = 2 * emitters - 1
    total = operators or rng.randint(max(joined + 1, 10), 40)
    return _random_problem(rng, emitters, total - joined, sites=rng.randint(4, 12), choices=(2, 4))


def introduction_problem(seed: int = 0) -> ThroughputProblem:
    """The example of the introduction: 15 operators, five of them joins, 11 sites, two choices each.

    As written, the selections are above all joins, so that each has many possible positions.
    """
    rng = random.Random(f"introduction {seed}")
    draft = _Draft(rng)
    for number in range(6):
        draft.emit(number)
    for _ in range(5):
        draft.join()
    for _ in range(4):
        draft.select()
    return _draft_problem(rng, draft, sites=11, choices=(2, 2), emitters_move=True)


def _random_problem(
    rng: random.Random, emitters: int, unary: int, sites: int, choices: tuple[int, int]
) -> ThroughputProblem:
    """Adds random operators on top of the present ones until all are joined into one."""
    draft = _Draft(rng)
    for number in range(emitters):
        draft.emit(number)
    joins = emitters - 1
    while unary or joins:
        # By what is left of each kind, so that every order of the two kinds is equally likely.
        if rng.random() < joins / (unary + joins):
            draft.join()
            joins -= 1
            continue
        if rng.random() < 0.7 or not draft.project():
            draft.select()
        unary -= 1
    return _draft_problem(rng, draft, sites, choices)


def _draft_problem(
    rng: random.Random,
    draft: _Draft,
    sites: int,
    choices: tuple[int, int],
    emitters_move: bool = False,
) -> ThroughputProblem:
    """The draft with random options, sites and rates."""
    options = [
        _random_options(
            rng, sites, choices if o.kind is not OperatorKind.EMIT or emitters_move else (1, 1)
        )
        for o in draft.operators
    ]
    return ThroughputProblem(
        tuple(draft.operators),
        tuple(draft.inputs),
        tuple(draft.roots),
        tuple(options),
        _random_sites(rng, sites),
        ({o.stream: _log_uniform(rng, 10, 1000) for o in draft.operators if o.stream},),
        {column: float(rng.randint(4, 40)) for o in draft.operators for column in sorted(o.adds)},
    )


@dataclass
class _Draft:
    """A plan that grows upwards; `roots` are the operators whose output is not read yet."""

    rng: random.Random
    operators: list[ThroughputOperator] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    free_columns: dict[int, list[str]] = field(default_factory=dict)

    def emit(self, number: int) -> None:
        names = [f"s{number}.{letter}" for letter in "abcd"]
        operator = ThroughputOperator(
            f"s{number}", OperatorKind.EMIT, stream=f"s{number}", adds=frozenset(names)
        )
        self._append(operator, (), names)

    def select(self) -> None:
        below = self._random_root()
        column = self.rng.choice(self.free_columns[below])
        selectivity = _log_uniform(self.rng, 0.01, 1)
        cost = COSTS["select"].per_tuple
        reads = frozenset({column})
        operator = ThroughputOperator(
            self._name("o"), OperatorKind.SELECT, cost, selectivity=selectivity, reads=reads
        )
        self._append(operator, (below,), self.free_columns.pop(below))

    def project(self) -> bool:
        """Drop a column or two of a root; False if it has too few."""
        below = self._random_root()
        names = self.free_columns[below]
        # One column at least has to remain.
        if len(names) < 3:
            return False
        drops = self.rng.sample(names, self.rng.randint(1, 2))
        cost = COSTS["project"].per_tuple
        operator = ThroughputOperator(
            self._name("p"), OperatorKind.PROJECT, cost, drops=frozenset(drops)
        )
        del self.free_columns[below]
        self._append(operator, (below,), [name for name in names if name not in drops])
        return True

    def join(self) -> None:
        left, right = self.rng.sample(self.roots, 2)
        names = self.rng.choice(self.free_columns[left]), self.rng.choice(self.free_columns[right])
        operator = ThroughputOperator(
            self._name("j"),
            OperatorKind.JOIN,
            COSTS["join"].per_tuple,
            selectivity=_log_uniform(self.rng, 1e-5, 1e-3),
            window=WINDOW,
            table=1000.0,
            reads=frozenset(names),
        )
        self._append(
            operator, (left, right), self.free_columns.pop(left) + self.free_columns.pop(right)
        )

    def _random_root(self) -> int:
        return self.rng.choice(self.roots)

    def _name(self, letter: str) -> str:
        return f"{letter}{len(self.operators)}"

    def _append(
        self, operator: ThroughputOperator, below: tuple[int, ...], names: list[str]
    ) -> None:
        position = len(self.operators)
        self.operators.append(operator)
        self.inputs.append(below)
        self.roots = [root for root in self.roots if root not in below] + [position]
        self.free_columns[position] = names


def _random_sites(rng: random.Random, count: int) -> Network:
    sites = tuple(
        Site(f"N{n}", cpu=_log_uniform(rng, 1e5, 1e7), memory=_log_uniform(rng, 1e6, 1e8))
        for n in range(count)
    )
    return fully_connected(sites, bandwidth=_log_uniform(rng, 1e5, 1e7), latency=LINK_LATENCY)


def _random_options(
    rng: random.Random, sites: int, choices: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    count = min(sites, rng.randint(*choices))
    return tuple((site,) for site in rng.sample(range(sites), count))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    """A number between the two whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
