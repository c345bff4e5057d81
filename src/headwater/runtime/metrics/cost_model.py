"""The cost model of a state: what was calibrated and measured, as the catalog holds it.

Rates are those of the streams' logs. What passes conditions is measured by sampled steps and kept by
stream, so that every query over the stream is priced by it; costs are those of `costs.toml`, which the
engine copies into the catalog, so that processes elsewhere price alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

from headwater.algebra.canonical import Block
from headwater.algebra.catalog import Namespace
from headwater.algebra.conditions.predicate import normalize, to_expr
from headwater.algebra.expressions import Call, Column, columns_of, conjuncts
from headwater.algebra.nodes import Project, Scan, Select, TableScan
from headwater.algebra.windows import Range
from headwater.cost.conditions import MeasuredShare, SourceCondition
from headwater.cost.model import CostModel, StreamModel, join_name, window_seconds
from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost
from headwater.cost.provenance import Estimate, Provenance, declared, measured
from headwater.cql import parse_query
from headwater.cql.writer import condition_text
from headwater.errors import HeadwaterError
from headwater.reuse.load import source_condition
from headwater.runtime.catalog import Catalog, Json, Statistic, stream_log
from headwater.runtime.compile.join_order import Term, join_chains

COSTS, JOINS, STEPS = "costs", "joins", "steps"
"""The owners of the statistics that are the costs of operators, the shares of pairs that join, and by
what factor steps take longer than their costs say."""

SCALE = "scale"

LANES = "lanes"
"""The statistic of a unit that says in how many joins it is computed, of which it can have few."""

MAX_CONDITIONS = 64
"""How many measured conditions of a stream are considered, the newest first."""

TIMES_MEASURED = 5.0
"""How often what a sampled step measured counts as measured: it was over many rows."""


def shares_owner(stream: str) -> str:
    """The owner of what was measured to pass conditions on a stream."""
    return f"shares:{stream.lower()}"


# ---- what is stored


def cost_statistics(costs: CostTable) -> dict[tuple[str, str], float]:
    """Costs of operators in seconds, as statistics."""
    return {
        (COSTS, f"{kind} {part}"): value
        for kind, cost in costs.costs.items()
        for part, value in (("tuple", cost.per_tuple), ("result", cost.per_result))
    }


def condition_statistics(
    operators: Sequence[Json], terms: Sequence[Term]
) -> dict[tuple[str, str], float]:
    """What the conditions and joins of the terms that Spark ran were measured to pass. What met an
    empty input was not measured."""
    found: dict[tuple[str, str], float] = {}
    chains = [chain for operator in operators for chain in join_chains(operator)]
    # Spark has left out a part of the plan: it is not known which chain is of which term.
    if len(chains) != len(terms):
        return found
    for chain, term in zip(chains, terms, strict=True):
        sources = {s.alias: s for s in term.block.sources if isinstance(s, Scan | TableScan)}
        if len(chain) != len(term.order) - 1 or not chain or term.prejoined or not term.is_whole:
            continue
        first = chain[0]["inputs"][0]["rows_out"]
        scans = [sources[alias] for alias in term.order]
        if not first or not all(isinstance(scan, Scan) for scan in scans):
            continue
        read = term.rows.get(term.order[0])
        if read and (text := _own_condition(term.block, term.order[0])):
            scan = scans[0]
            assert isinstance(scan, Scan)
            found[shares_owner(scan.stream), text] = min(1.0, first / read)
        built = [join["inputs"][1]["rows_out"] for join in chain]
        if all(built) and chain[-1]["rows_out"] is not None and term.span is not None:
            held = [
                rows * _held_fraction(scan, term.span)
                for rows, scan in zip(built, scans[1:], strict=True)
            ]
            share = chain[-1]["rows_out"] / (first * prod(held))
            found[JOINS, _equalities(term.block)] = min(1.0, share)
    return found


def _held_fraction(scan: object, span: float) -> float:
    """Of the tuples read for a delta of so many seconds, those in a window at one time."""
    assert isinstance(scan, Scan) and isinstance(scan.window, Range)
    seconds = max(1e-6, window_seconds(scan.window.size))
    return seconds / (seconds + span)


def _own_condition(block: Block, alias: str) -> str:
    """The conditions on a source alone as text of CQL, empty if there are none."""
    parts = [
        condition_text(part, lambda column: f"`{column.name}`")
        for part in conjuncts(to_expr(block.where))
        if {column.relation for column in columns_of(part)} == {alias}
    ]
    return " AND ".join(sorted(parts))


def _equalities(block: Block) -> str:
    streams = {s.alias: s.stream.lower() for s in block.sources if isinstance(s, Scan)}
    names = []
    for constraint in block.where.constraints:
        columns = [t for t in constraint.terms if isinstance(t, Column) and t.relation in streams]
        if len({column.relation for column in columns}) > 1:
            names.append(_equality(columns, streams))
    for term in block.where.terms:
        if isinstance(term, Call) and term.name == "=":
            sides = [side for side in term.args if isinstance(side, Column)]
            if len({side.relation for side in sides}) == 2:
                names.append(_equality(sides, streams))
    return join_name(names)


def _equality(columns: Iterable[Column], streams: Mapping[str, str]) -> str:
    return " = ".join(sorted(f"{streams[c.relation]}.{c.name}" for c in columns))


# ---- what is read


def read_cost_model(
    catalog: Catalog,
    streams: Iterable[str],
    namespace: Namespace,
    declared_rates: Mapping[str, float] | None = None,
) -> CostModel:
    """All that is known of the costs of queries over some streams, in one read."""
    names = sorted({stream.lower() for stream in streams})
    logs = {name: stream_log(name) for name in names}
    owners = [COSTS, JOINS, STEPS, *logs.values(), *map(shares_owner, names)]
    stored = catalog.statistics_of(owners)
    costs = stored.get(COSTS)
    scale = stored.get(STEPS, {}).get(SCALE)
    table = SECOND_COSTS if costs is None else _read_costs(costs)
    return CostModel(
        streams={
            name: _stream_model(stored.get(logs[name], {}), (declared_rates or {}).get(name))
            for name in names
        },
        joins={
            name: measured(statistic.value, TIMES_MEASURED)
            for name, statistic in stored.get(JOINS, {}).items()
        },
        filters={
            name: tuple(_measured_shares(name, stored.get(shares_owner(name), {}), namespace))
            for name in names
        },
        costs=table if scale is None else scale_steps(table, scale.value),
        costs_known=Provenance.DEFAULT if costs is None else Provenance.CALIBRATED,
        steps_known=None if scale is None else Provenance.MEASURED,
    )


def _stream_model(values: Mapping[str, Statistic], declared_rate: float | None) -> StreamModel:
    batches = values["batches"].value if "batches" in values else 0.0
    rate = values["rows_rate"].value if "rows_rate" in values else 0.0
    if not batches or not rate:
        return StreamModel() if declared_rate is None else StreamModel(declared(declared_rate))
    size = values["bytes_rate"].value / rate if "bytes_rate" in values else 0.0
    known = StreamModel(measured(rate, batches))
    return StreamModel(known.rate, measured(size, batches) if size else known.tuple_bytes)


def _measured_shares(
    stream: str, values: Mapping[str, Statistic], namespace: Namespace
) -> Iterator[MeasuredShare]:
    newest = sorted(values.items(), key=lambda item: (-item[1].updated_at, item[0]))
    for text, statistic in newest[:MAX_CONDITIONS]:
        condition = _parse_condition(stream, text, namespace, namespace.version)
        if condition is not None:
            yield MeasuredShare(condition, measured(statistic.value, TIMES_MEASURED))


@lru_cache(maxsize=4096)
def _parse_condition(
    stream: str, text: str, namespace: Namespace, _version: int
) -> SourceCondition | None:
    """A condition as it was stored; None if the stream was declared anew since, without a column."""
    # A namespace changes in place; the version is there for the cache.
    try:
        query = parse_query(f"SELECT 1 AS x FROM `{stream}` [NOW] AS s WHERE {text}", namespace)
    except HeadwaterError:
        return None
    root = query.root
    below = root.input if isinstance(root, Project) else root
    where = normalize(below.condition if isinstance(below, Select) else None)
    aliases = {column.relation for expr in conjuncts(to_expr(where)) for column in columns_of(expr)}
    return source_condition(where, aliases.pop()) if len(aliases) == 1 else None


def _read_costs(values: Mapping[str, Statistic]) -> CostTable:
    kinds = {name.partition(" ")[0] for name in values}

    def part(kind: str, name: str) -> float:
        stored = values.get(f"{kind} {name}")
        return 0.0 if stored is None else stored.value

    known = {kind: OperatorCost(part(kind, "tuple"), part(kind, "result")) for kind in kinds}
    return CostTable({**SECOND_COSTS.costs, **known})


def scale_steps(costs: CostTable, factor: float) -> CostTable:
    """The costs with what a step takes however little it reads as many times as large."""
    scaled = {
        kind: OperatorCost(costs[kind].per_tuple * factor) for kind in ("step", "term", "panes")
    }
    return CostTable({**costs.costs, **scaled})


def measured_load(values: Mapping[str, float]) -> Estimate | None:
    """The CPU seconds in a second that a unit was measured to take while it ran; None if its steps
    have not been measured."""
    if not values.get("cpu_steps") or "cpu_rate" not in values:
        return None
    return measured(values["cpu_rate"], values["cpu_steps"])
