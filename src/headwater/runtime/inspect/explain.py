"""Where a query runs and why: `headwater explain NAME`, read from the catalog alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.reuse import QuerySignature, SharingKind, signature_of
from headwater.reuse.describe import (
    count_noun,
    describe_bounds,
    describe_operator,
    describe_shape,
)
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, is_log, requesting_unit
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.lifecycle import input_streams, plannable_queries, upstream_units

Placement = dict[str, Any]

MAX_NAMED = 5
"""How many of the queries that share a unit are named."""

MAX_SHAPED_QUERIES = 500
"""Of units with more queries, shapes are not worked out to be shown."""

RELATIONS = {
    "new": "none ran that it could share, or not for less: a unit was made for it",
    "equal": "asks for what the operator told already",
    "contained": "asks for a part of what the operator told already",
    "overlapping": "the operator was relaxed for it",
    "moved": "came from a unit that failed, to one of its own",
    None: "shares with equal queries alone",
}


def describe_placement(catalog: Catalog, query: QueryRow) -> Placement:
    """A query with its unit, whom it shares that with, how it came there, and its part of it."""
    definitions = Definitions(catalog)
    (statement,) = parse(query.definition, definitions.namespace)
    assert isinstance(statement, CreateQuery)
    canonical = canonicalize(statement.query)
    others, number = catalog.other_queries(query, MAX_NAMED)
    note = _assignment_note(catalog, query)
    return {
        "query": query.spelled,
        "state": query.state,
        "unit": query.unit_id,
        "shared_with": others,
        "others": number,
        "tree": tree(canonical.query),
        "relation": note.get("relation"),
        "relaxed": note.get("relaxed", []),
        "added": note.get("added"),
        "alone": note.get("alone"),
        **_describe_operator(catalog, definitions, query, signature_of(canonical), number + 1),
        **_unit_links(catalog, query),
        "tables": _table_versions(catalog, query),
        "place": _location(catalog, definitions, query),
    }


def _location(catalog: Catalog, definitions: Definitions, query: QueryRow) -> Placement | None:
    """The site of a query's unit, if there are sites, and what it takes there."""
    unit = catalog.unit(query.unit_id)
    if unit is None or current_deployment(catalog) is None:
        return None
    from headwater.runtime.inspect.sites import locate_unit

    location = locate_unit(catalog, definitions, unit)
    return None if location is None else asdict(location)


def _assignment_note(catalog: Catalog, query: QueryRow) -> Placement:
    """What was noted when the query came into the unit that it is in."""
    for event in reversed(catalog.events(kind="query placed", subject=query.name, limit=1)):
        if event.detail["unit"] == query.unit_id:
            return dict(event.detail)
    for event in catalog.events(kind="query moved", subject=query.name, limit=1):
        if event.detail["unit"] == query.unit_id:
            return {"relation": "moved"}
    return {}


def _describe_operator(
    catalog: Catalog,
    definitions: Definitions,
    query: QueryRow,
    signature: QuerySignature,
    queries: int,
) -> Placement:
    """The operator of a query's unit as it is now, its shapes, and what the query wants of it."""
    sharing, unit = UnitPlanner(definitions), catalog.unit(query.unit_id)
    if unit is None or unit.state == "dropped":
        return {"operator": None, "shapes": None, "part": None}
    unit = sharing.ensure_definition(catalog, unit)
    operator = sharing.operator(unit)
    described_operator: Placement = {
        "operator": None if operator is None else describe_operator(operator),
        "shapes": None,
        "part": None,
    }
    if operator is None or signature.kind is not SharingKind.JOIN:
        return described_operator
    if queries <= MAX_SHAPED_QUERIES:
        planned = plannable_queries(catalog.subscribers(unit.id), input_streams(catalog, unit))
        signatures = {row.result_key: sharing.signature(row) for row in planned}
        subscribers = JoinSubscribers(operator, tuple(signatures.values()))
        described_operator["shapes"] = [
            describe_shape(shape, operator.sources) for shape in subscribers.shapes
        ]
    bounds = JoinSubscribers(operator, (signature,)).residual_bounds(signature)
    return described_operator | {"part": describe_bounds(bounds, operator.sources)}


def _unit_links(catalog: Catalog, query: QueryRow) -> Placement:
    """The units whose rows the unit of a query reads, and those that read its own."""
    unit = catalog.unit(query.unit_id)
    if unit is None or unit.state == "dropped":
        return {"reads": [], "read_by": []}
    hidden = catalog.hidden_subscribers(unit.id)
    readers = [row for row in (catalog.unit(requesting_unit(name) or "") for name in hidden) if row]
    return {
        "reads": [_unit_summary(catalog, other) for other in upstream_units(catalog, unit)],
        "read_by": [_unit_summary(catalog, other) for other in readers if other.state != "dropped"],
    }


def _table_versions(catalog: Catalog, query: QueryRow) -> dict[str, int]:
    """The versions of the tables that the last step of a query's unit has read."""
    cursors = catalog.cursors(query.unit_id)
    at = {name.partition(":")[2]: read for name, read in cursors.items() if not is_log(name)}
    return {name: read["version"] for name, read in sorted(at.items())}


def _unit_summary(catalog: Catalog, unit: UnitRow) -> Placement:
    """A unit, and some of the queries that it serves."""
    names, number = catalog.served_queries(unit.id, MAX_NAMED)
    return {"unit": unit.id, "queries": names, "others": number - len(names)}


# ---- for people


def format_placement(placement: Placement) -> list[str]:
    """The same as text."""
    text = [
        f"{placement['query']}: {placement['state']}, in unit {placement['unit']}{_format_sharing(placement)}"
    ]
    text += [f"  {line}" for line in placement["tree"]]
    text += _with_title("placed", [RELATIONS[placement["relation"]], *_format_cost(placement)])
    text += _with_title("relaxed", placement["relaxed"])
    text += _with_title(
        "site", [] if placement["place"] is None else _format_location(placement["place"])
    )
    text += _with_title("operator", placement["operator"] or [])
    text += _with_title(
        "tables", [f"{name}, version {n}" for name, n in placement["tables"].items()]
    )
    text += _with_title(
        "reads", [_format_link("the rows of", other) for other in placement["reads"]]
    )
    text += _with_title("read by", [_format_link("", other) for other in placement["read_by"]])
    text += _with_title("shapes", placement["shapes"] or [])
    return text + _with_title("its part", [] if placement["part"] is None else [placement["part"]])


def _format_sharing(placement: Placement) -> str:
    if not placement["others"]:
        return ", which serves no other"
    more = placement["others"] - len(placement["shared_with"])
    rest = f" and {count_noun(more, 'other', 'others')}" if more else ""
    return f", shared with {', '.join(placement['shared_with'])}{rest}"


def _format_link(what: str, unit: Placement) -> str:
    """A unit on the other end, and whom it serves."""
    names = ", ".join(unit["queries"])
    more = f" and {count_noun(unit['others'], 'other', 'others')}" if unit["others"] else ""
    serves = f", which serves {names}{more}" if names else ""
    return f"{what} unit {unit['unit']}{serves}".strip()


def _format_cost(placement: Placement) -> list[str]:
    """Seconds of one core in a second, as they were estimated when it came."""
    if placement["alone"] is None:
        return []
    added = f"adds {placement['added']:.4f}" if placement["added"] else "adds nothing"
    return [f"{added}, alone {placement['alone']:.4f}: seconds of work in a second, estimated"]


def _format_location(location: Placement) -> list[str]:
    """Where it runs, what it reads from where, and what it takes beside what was estimated."""
    if location["site"] is None:
        return ["none at present: what it reads cannot be had"]
    text = [location["site"], *(f"reads {input_text}" for input_text in location["reads"])]
    for name in ("estimated", "measured"):
        usage = location[name]
        if usage is not None:
            text.append(
                f"{name}: {usage['cpu']:.3f} of a core, {usage['memory']:,.0f} bytes of memory, makes "
                f"{usage['rate']:,.0f} bytes a second"
            )
    return text


def _with_title(title: str, texts: list[str]) -> list[str]:
    return [f"  {title if n == 0 else '':<9} {line}" for n, line in enumerate(texts)]
