"""Where a query runs and why: `headwater explain NAME`, read from the catalog alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.reuse import Form, Kind, form_of
from headwater.reuse.members import Members
from headwater.reuse.words import counted, described, told_apart, wish
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, is_log, reader_of
from headwater.runtime.definitions import Definitions
from headwater.runtime.lifecycle import above, in_plan, inputs_of
from headwater.runtime.sharing import Sharing
from headwater.runtime.sites.deployment import deployed

Placement = dict[str, Any]

NAMED = 5
"""How many of the queries that share a unit are named."""

MOST_SHAPED = 500
"""Of units with more queries, shapes are not worked out to be shown."""

RELATIONS = {
    "new": "none ran that it could share, or not for less: a unit was made for it",
    "equal": "asks for what the operator told already",
    "contained": "asks for a part of what the operator told already",
    "overlapping": "the operator was relaxed for it",
    "moved": "came from a unit that failed, to one of its own",
    None: "shares with equal queries alone",
}


def placement(catalog: Catalog, query: QueryRow) -> Placement:
    """A query with its unit, whom it shares that with, how it came there, and its part of it."""
    definitions = Definitions(catalog)
    (statement,) = parse(query.definition, definitions.names)
    assert isinstance(statement, CreateQuery)
    canonical = canonicalize(statement.query)
    others, number = catalog.companions(query, NAMED)
    placed = _placed(catalog, query)
    return {
        "query": query.spelled,
        "state": query.state,
        "unit": query.unit_id,
        "shared_with": others,
        "others": number,
        "tree": tree(canonical.query),
        "relation": placed.get("relation"),
        "relaxed": placed.get("relaxed", []),
        "added": placed.get("added"),
        "alone": placed.get("alone"),
        **_operator(catalog, definitions, query, form_of(canonical), number + 1),
        **_links(catalog, query),
        "tables": _tables(catalog, query),
        "place": _place(catalog, definitions, query),
    }


def _place(catalog: Catalog, definitions: Definitions, query: QueryRow) -> Placement | None:
    """The site of a query's unit, if there are sites, and what it takes there."""
    unit = catalog.unit(query.unit_id)
    if unit is None or deployed(catalog) is None:
        return None
    from headwater.runtime.sites.report import place_of  # brings the planner, which takes a while

    found = place_of(catalog, definitions, unit)
    return None if found is None else asdict(found)


def _placed(catalog: Catalog, query: QueryRow) -> Placement:
    """What was noted when the query came into the unit that it is in."""
    for event in reversed(catalog.events(kind="query placed", subject=query.name, limit=1)):
        if event.detail["unit"] == query.unit_id:
            return dict(event.detail)
    for event in catalog.events(kind="query moved", subject=query.name, limit=1):
        if event.detail["unit"] == query.unit_id:
            return {"relation": "moved"}
    return {}


def _operator(
    catalog: Catalog, definitions: Definitions, query: QueryRow, form: Form, queries: int
) -> Placement:
    """The operator of a query's unit as it is now, its shapes, and what the query wants of it."""
    sharing, unit = Sharing(definitions), catalog.unit(query.unit_id)
    if unit is None or unit.state == "dropped":
        return {"operator": None, "shapes": None, "part": None}
    unit = sharing.defined(catalog, unit)
    operator = sharing.operator(unit)
    found: Placement = {
        "operator": None if operator is None else described(operator),
        "shapes": None,
        "part": None,
    }
    if operator is None or form.kind is not Kind.JOIN:
        return found
    if queries <= MOST_SHAPED:
        members = in_plan(catalog.members(unit.id), inputs_of(catalog, unit))
        forms = {row.result_key: sharing.form(row) for row in members}
        known = Members(operator, tuple(forms.values()))
        found["shapes"] = [told_apart(shape, operator.sources) for shape in known.shapes]
    bounds = Members(operator, (form,)).bounds(form)
    return found | {"part": wish(bounds, operator.sources)}


def _links(catalog: Catalog, query: QueryRow) -> Placement:
    """The units whose rows the unit of a query reads, and those that read its own."""
    unit = catalog.unit(query.unit_id)
    if unit is None or unit.state == "dropped":
        return {"reads": [], "read_by": []}
    asked = catalog.hidden_members(unit.id)
    readers = [row for row in (catalog.unit(reader_of(name) or "") for name in asked) if row]
    return {
        "reads": [_named(catalog, other) for other in above(catalog, unit)],
        "read_by": [_named(catalog, other) for other in readers if other.state != "dropped"],
    }


def _tables(catalog: Catalog, query: QueryRow) -> dict[str, int]:
    """The versions of the tables that the last step of a query's unit has read."""
    found = catalog.cursors(query.unit_id)
    at = {name.partition(":")[2]: read for name, read in found.items() if not is_log(name)}
    return {name: read["version"] for name, read in sorted(at.items())}


def _named(catalog: Catalog, unit: UnitRow) -> Placement:
    """A unit, and some of the queries that it serves."""
    names, number = catalog.served(unit.id, NAMED)
    return {"unit": unit.id, "queries": names, "others": number - len(names)}


# ---- for people


def lines(found: Placement) -> list[str]:
    """The same as text."""
    text = [f"{found['query']}: {found['state']}, in unit {found['unit']}{_sharing(found)}"]
    text += [f"  {line}" for line in found["tree"]]
    text += _titled("placed", [RELATIONS[found["relation"]], *_cost(found)])
    text += _titled("relaxed", found["relaxed"])
    text += _titled("site", [] if found["place"] is None else _site(found["place"]))
    text += _titled("operator", found["operator"] or [])
    text += _titled("tables", [f"{name}, version {n}" for name, n in found["tables"].items()])
    text += _titled("reads", [_link("the rows of", one) for one in found["reads"]])
    text += _titled("read by", [_link("", one) for one in found["read_by"]])
    text += _titled("shapes", found["shapes"] or [])
    return text + _titled("its part", [] if found["part"] is None else [found["part"]])


def _sharing(found: Placement) -> str:
    if not found["others"]:
        return ", which serves no other"
    more = found["others"] - len(found["shared_with"])
    rest = f" and {counted(more, 'other', 'others')}" if more else ""
    return f", shared with {', '.join(found['shared_with'])}{rest}"


def _link(what: str, one: Placement) -> str:
    """A unit on the other end, and whom it serves."""
    names = ", ".join(one["queries"])
    more = f" and {counted(one['others'], 'other', 'others')}" if one["others"] else ""
    serves = f", which serves {names}{more}" if names else ""
    return f"{what} unit {one['unit']}{serves}".strip()


def _cost(found: Placement) -> list[str]:
    """Seconds of one core in a second, as they were estimated when it came."""
    if found["alone"] is None:
        return []
    added = f"adds {found['added']:.4f}" if found["added"] else "adds nothing"
    return [f"{added}, alone {found['alone']:.4f}: seconds of work in a second, estimated"]


def _site(place: Placement) -> list[str]:
    """Where it runs, what it reads from where, and what it takes beside what was estimated."""
    if place["site"] is None:
        return ["none at present: what it reads cannot be had"]
    text = [place["site"], *(f"reads {said}" for said in place["reads"])]
    for name in ("estimated", "measured"):
        need = place[name]
        if need is not None:
            text.append(
                f"{name}: {need['cpu']:.3f} of a core, {need['memory']:,.0f} bytes of memory, makes "
                f"{need['rate']:,.0f} bytes a second"
            )
    return text


def _titled(title: str, said: list[str]) -> list[str]:
    return [f"  {title if n == 0 else '':<9} {line}" for n, line in enumerate(said)]
