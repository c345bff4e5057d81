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
from headwater.network.sites import connected
from headwater.plan.throughput.model import Kind, Operator, Problem

WINDOW = 5.0
LINK_LATENCY = 0.06
COSTS = CostTable()


def two_operators() -> Problem:
    """Figure 5: selections of 1/2 and 1/5, whose memory ties each to one of two sites.

    The slow site takes 100 tuples a second for the first, the fast one 500 for the second. On one
    machine the cheap first selection belongs first; on these sites it must come second.
    """
    columns = frozenset({"s.a", "s.b"})
    operators = (
        Operator("s", Kind.EMIT, stream="s", adds=columns),
        Operator("o1", Kind.SELECT, 20, selectivity=1 / 2, table=40, reads=frozenset({"s.a"})),
        Operator("o2", Kind.SELECT, 40, selectivity=1 / 5, table=400, reads=frozenset({"s.b"})),
    )
    sites = connected((Site("N1", cpu=2_000, memory=60), Site("N2", cpu=20_000, memory=420)))
    anywhere = ((0,), (1,))
    return Problem(
        operators,
        ((), (0,), (1,)),
        (2,),
        (((0,),), anywhere, anywhere),
        sites,
        ({"s": 1.0},),
    )


def three_streams() -> Problem:
    """The query of section 6.4: two selections above two joins, on two sites that are alike.

    The join on C is 100 times as selective as that on B; each selection lets pass one tuple in 100.
    """

    def emit(name: str, *columns: str) -> Operator:
        return Operator(name, Kind.EMIT, stream=name, adds=frozenset(columns))

    def join(name: str, selectivity: float, *columns: str) -> Operator:
        cost = COSTS["join"].tuple
        reads = frozenset(columns)
        return Operator(name, Kind.JOIN, cost, selectivity=selectivity, window=WINDOW, reads=reads)

    def select(name: str, column: str) -> Operator:
        cost = COSTS["select"].tuple
        return Operator(name, Kind.SELECT, cost, selectivity=0.01, reads=frozenset({column}))

    operators = (
        emit("ab", "ab.a", "ab.b"),
        emit("bc", "bc.b", "bc.c"),
        emit("cd", "cd.c", "cd.d"),
        join("join on c", 1e-5, "bc.c", "cd.c"),
        join("join on b", 1e-3, "ab.b", "bc.b"),
        select("a = 0", "ab.a"),
        select("d = 0", "cd.d"),
    )
    sites = connected((Site("N1", cpu=1e8), Site("N2", cpu=1e8)), latency=LINK_LATENCY)
    anywhere = ((0,), (1,))
    return Problem(
        operators,
        ((), (), (), (1, 2), (0, 3), (4,), (5,)),
        (6,),
        (anywhere,) * len(operators),
        sites,
        ({"ab": 1.0, "bc": 1.0, "cd": 1.0},),
    )


def small(seed: int) -> Problem:
    """A query of section 6.1: one or two emitters, at most five others, two sites for each."""
    rng = random.Random(f"small {seed}")
    emitters = rng.randint(1, 2)
    others = rng.randint(max(2, emitters), 5)
    return _random(rng, emitters, others - (emitters - 1), sites=4, choices=(2, 2))


def large(seed: int, operators: int | None = None) -> Problem:
    """A query of section 6.2: of up to 40 operators, 3 to 13 of them emitters."""
    rng = random.Random(f"large {seed}")
    emitters = rng.randint(3, 13)
    joined = 2 * emitters - 1
    total = operators or rng.randint(max(joined + 1, 10), 40)
    return _random(rng, emitters, total - joined, sites=rng.randint(4, 12), choices=(2, 4))


def introduction(seed: int = 0) -> Problem:
    """The example of the introduction: 15 operators, five of them joins, 11 sites, two choices each.

    As written, the selections stand above all joins, so that each has many places to go.
    """
    rng = random.Random(f"introduction {seed}")
    draft = _Draft(rng)
    for number in range(6):
        draft.emit(number)
    for _ in range(5):
        draft.join()
    for _ in range(4):
        draft.select()
    return _problem(rng, draft, sites=11, choices=(2, 2), emitters_move=True)


def _random(
    rng: random.Random, emitters: int, unary: int, sites: int, choices: tuple[int, int]
) -> Problem:
    """Random operators are put on top of what there is, until all is joined into one."""
    draft = _Draft(rng)
    for number in range(emitters):
        draft.emit(number)
    joins = emitters - 1
    while unary or joins:
        if rng.random() < joins / (unary + joins):
            draft.join()
            joins -= 1
            continue
        if rng.random() < 0.7 or not draft.project():
            draft.select()
        unary -= 1
    return _problem(rng, draft, sites, choices)


def _problem(
    rng: random.Random,
    draft: _Draft,
    sites: int,
    choices: tuple[int, int],
    emitters_move: bool = False,
) -> Problem:
    """The draft with random options, sites and rates."""
    options = [
        _options(rng, sites, choices if o.kind is not Kind.EMIT or emitters_move else (1, 1))
        for o in draft.operators
    ]
    return Problem(
        tuple(draft.operators),
        tuple(draft.inputs),
        tuple(draft.roots),
        tuple(options),
        _sites(rng, sites),
        ({o.stream: _spread(rng, 10, 1000) for o in draft.operators if o.stream},),
        {column: float(rng.randint(4, 40)) for o in draft.operators for column in sorted(o.adds)},
    )


@dataclass
class _Draft:
    """A plan that grows upwards; `roots` are the operators that nobody reads yet."""

    rng: random.Random
    operators: list[Operator] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    free: dict[int, list[str]] = field(default_factory=dict)

    def emit(self, number: int) -> None:
        names = [f"s{number}.{letter}" for letter in "abcd"]
        operator = Operator(f"s{number}", Kind.EMIT, stream=f"s{number}", adds=frozenset(names))
        self._put(operator, (), names)

    def select(self) -> None:
        below = self._root()
        column = self.rng.choice(self.free[below])
        chance = _spread(self.rng, 0.01, 1)
        cost = COSTS["select"].tuple
        reads = frozenset({column})
        operator = Operator(self._name("o"), Kind.SELECT, cost, selectivity=chance, reads=reads)
        self._put(operator, (below,), self.free.pop(below))

    def project(self) -> bool:
        """Drop a column or two of a root; False if it has too few."""
        below = self._root()
        names = self.free[below]
        if len(names) < 3:
            return False
        drops = self.rng.sample(names, self.rng.randint(1, 2))
        cost = COSTS["project"].tuple
        operator = Operator(self._name("p"), Kind.PROJECT, cost, drops=frozenset(drops))
        del self.free[below]
        self._put(operator, (below,), [name for name in names if name not in drops])
        return True

    def join(self) -> None:
        left, right = self.rng.sample(self.roots, 2)
        names = self.rng.choice(self.free[left]), self.rng.choice(self.free[right])
        operator = Operator(
            self._name("j"),
            Kind.JOIN,
            COSTS["join"].tuple,
            selectivity=_spread(self.rng, 1e-5, 1e-3),
            window=WINDOW,
            table=1000.0,
            reads=frozenset(names),
        )
        self._put(operator, (left, right), self.free.pop(left) + self.free.pop(right))

    def _root(self) -> int:
        return self.rng.choice(self.roots)

    def _name(self, letter: str) -> str:
        return f"{letter}{len(self.operators)}"

    def _put(self, operator: Operator, below: tuple[int, ...], names: list[str]) -> None:
        place = len(self.operators)
        self.operators.append(operator)
        self.inputs.append(below)
        self.roots = [root for root in self.roots if root not in below] + [place]
        self.free[place] = names


def _sites(rng: random.Random, count: int) -> Network:
    sites = tuple(
        Site(f"N{n}", cpu=_spread(rng, 1e5, 1e7), memory=_spread(rng, 1e6, 1e8))
        for n in range(count)
    )
    return connected(sites, bandwidth=_spread(rng, 1e5, 1e7), latency=LINK_LATENCY)


def _options(
    rng: random.Random, sites: int, choices: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    count = min(sites, rng.randint(*choices))
    return tuple((site,) for site in rng.sample(range(sites), count))


def _spread(rng: random.Random, low: float, high: float) -> float:
    """A number between the two whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
