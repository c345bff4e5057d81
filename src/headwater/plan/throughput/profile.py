"""The goal of tuning and the statistics of the data: profile.toml, and the problem built from it.

    latency = 2.0                      # seconds from a tuple to its result; no limit if not said
    horizon = 3600                     # the seconds that a window without end counts as

    [streams.ab]
    rate = 1000                        # tuples a second to be reached
    site = "edge"                      # where it comes in; the first site if not said
    distinct = { a = 100, b = 5000 }   # how many values columns have

    [tables.airports]
    rows = 300

    [selectivity]                      # shares that are known, by the text of the condition
    "ab.b = bc.b" = 0.0002

    [[point]]                          # another target; streams it does not name keep their rate
    ab = 3000

Shares that are not said are estimated from the numbers of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from pathlib import Path

from headwater.algebra.conditions.predicate import normalize
from headwater.algebra.expressions import Column, Expr, substitute
from headwater.algebra.nodes import Query
from headwater.cost.operators import CostTable
from headwater.cost.rates import DEFAULT_DISTINCT, ColumnStatistics, selectivity
from headwater.errors import InputError, suggest
from headwater.network.model import Network
from headwater.plan.throughput.from_cql import (
    OperatorGraph,
    Statistics,
    build_operator_graph,
    condition_text,
)
from headwater.plan.throughput.model import EXTENDED_RULES, OperatorKind, ThroughputProblem
from headwater.tomltext import Section, read_toml

SourceColumn = tuple[str, str]
"""A stream or table, and a column of it."""


@dataclass(frozen=True)
class WorkloadProfile:
    """Target rates, known numbers of values and shares, and where streams come in."""

    name: str
    points: tuple[Mapping[str, float], ...]
    sites: Mapping[str, str] = field(default_factory=dict)
    distinct: Mapping[SourceColumn, float] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    latency: float | None = None
    horizon: float = 3600.0


def read_profile(path: Path) -> WorkloadProfile:
    """The profile of a file; raises InputError with the line of a mistake."""
    top = read_toml(path)
    top.check_keys("latency", "horizon", "streams", "tables", "selectivity", "point")
    rates: dict[str, float] = {}
    sites: dict[str, str] = {}
    rows: dict[str, float] = {}
    distinct: dict[SourceColumn, float] = {}
    for name, section in top.named_sections("streams"):
        section.check_keys("rate", "site", "distinct")
        rates[name.lower()] = _parse_positive(section, "rate")
        if "site" in section.values:
            sites[name.lower()] = section.string("site")
        distinct |= _parse_distinct(name, section)
    for name, section in top.named_sections("tables"):
        section.check_keys("rows", "distinct")
        rows[name.lower()] = section.number("rows")
        distinct |= _parse_distinct(name, section)
    if not rates:
        top.refuse("streams", "there is no [streams.NAME] with a rate")
    shares = top.section("selectivity")
    return WorkloadProfile(
        str(path),
        tuple(_parse_points(top, rates)),
        sites,
        distinct,
        rows,
        {_normalize_text(key): _parse_share(shares, key) for key in shares.values},
        top.number("latency") if "latency" in top.values else None,
        top.number("horizon", 3600.0),
    )


def _parse_points(top: Section, rates: dict[str, float]) -> list[dict[str, float]]:
    points = [rates]
    for section in top.sections("point"):
        for key in section.values:
            if key.lower() not in rates:
                section.refuse(key, f"no stream {key}; {suggest(key, rates)}")
        points.append({**rates, **{k.lower(): _parse_positive(section, k) for k in section.values}})
    return points


def _parse_positive(section: Section, key: str) -> float:
    rate = section.number(key)
    if rate == 0:
        section.refuse(key, f"{key} is 0, it must be more")
    return rate


def _parse_distinct(name: str, section: Section) -> dict[SourceColumn, float]:
    inside = Section(
        section.name,
        section.text,
        section.header,
        section.position,
        section.section("distinct").values,
    )
    return {
        (name.lower(), key.lower()): max(1.0, inside.number(key, least=1)) for key in inside.values
    }


def _parse_share(section: Section, key: str) -> float:
    share = section.number(key)
    if share > 1:
        section.refuse(key, f"a share is at most 1, this is {share:g}")
    return share


def _normalize_text(text: str) -> str:
    return "".join(text.lower().split())


def build_problem(
    queries: Sequence[Query],
    profile: WorkloadProfile,
    network: Network,
    costs: CostTable,
    copies: int = 1,
) -> tuple[ThroughputProblem, OperatorGraph]:
    """The problem of running queries on sites, and what its operators do.

    Operators may run anywhere, on up to `copies` sites at once where their input can be split.
    Raises InputError if the profile lacks a stream, or names one that does not exist.
    """
    condition_texts: list[str] = []
    graph = build_operator_graph(queries, build_statistics(profile, condition_texts), costs)
    for text in profile.shares:
        if text not in map(_normalize_text, condition_texts):
            raise InputError(
                f"{profile.name}: [selectivity] names a condition that no query has: {text};"
                f" {suggest(text, condition_texts)}"
            )
    home = {s: network.position_of(site) for s, site in profile.sites.items()}
    points = tuple(
        {o.stream: stream_rate(profile, point, o.stream) for o in graph.operators if o.stream}
        for point in profile.points
    )
    options = tuple(
        ((home.get(operator.stream.lower(), 0),),)
        if operator.kind is OperatorKind.EMIT
        else _host_sets(len(network.sites), copies if graph.is_clonable(position) else 1)
        for position, operator in enumerate(graph.operators)
    )
    problem = ThroughputProblem(
        graph.operators,
        graph.inputs,
        graph.outputs,
        options,
        network,
        points,
        graph.widths,
        profile.latency,
        EXTENDED_RULES,
    )
    return problem, graph


def _host_sets(sites: int, copies: int) -> tuple[tuple[int, ...], ...]:
    """All sets of at least one and up to `copies` sites."""
    return tuple(
        hosts for size in range(1, copies + 1) for hosts in combinations(range(sites), size)
    )


def stream_rate(profile: WorkloadProfile, point: Mapping[str, float], stream: str) -> float:
    if stream.lower() not in point:
        raise InputError(
            f"{profile.name}: no rate for the stream {stream}; write [streams.{stream}] rate = ..."
        )
    return point[stream.lower()]


def build_statistics(profile: WorkloadProfile, condition_texts: list[str]) -> Statistics:
    """Estimates from a profile; `condition_texts` gets the texts of the conditions."""

    def share(condition: Expr, sources: Mapping[Column, SourceColumn]) -> float:
        at_source = substitute(
            condition,
            {c: Column(*sources[c], c.type, c.nullable) for c in sources},
        )
        # People may write a column by the alias of the query or by its stream.
        texts = [condition_text(condition), condition_text(at_source)]
        condition_texts.extend(texts)
        for text in map(_normalize_text, texts):
            if text in profile.shares:
                return profile.shares[text]
        known = {c: ColumnStatistics(_distinct_count(profile, sources[c])) for c in sources}
        return min(1.0, selectivity(normalize(condition), known))

    def groups(keys: Sequence[SourceColumn | None]) -> float:
        return prod(_distinct_count(profile, key) for key in keys)

    def rows(table: str) -> float:
        return profile.rows.get(table.lower(), 1000.0)

    return Statistics(share, groups, rows, profile.horizon)


def _distinct_count(profile: WorkloadProfile, source: SourceColumn | None) -> float:
    if source is None:
        return DEFAULT_DISTINCT
    return profile.distinct.get((source[0].lower(), source[1].lower()), DEFAULT_DISTINCT)
