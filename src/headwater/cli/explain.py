"""`headwater explain`: what a query means, and which queries mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.cli.files import Source, fail
from headwater.cli.formats import Format, json_line
from headwater.cli.queries import Named, queries_of, select
from headwater.cli.tables import console, table
from headwater.cql import parse, tree


@dataclass(frozen=True)
class Explained:
    """A query, its canonical form, and the other queries of the file with the same content."""

    named: Named
    canonical: Canonical
    same_as: tuple[str, ...]

    @property
    def columns(self) -> str:
        return ", ".join(f"{c.name} {c.type}" for c in self.named.query.columns)


def explain_file(source: Source, names: Sequence[str], brief: bool, format: Format) -> None:
    """Print the queries of those names, or all; raises CqlErrors if the file has mistakes."""
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    wanted = select(queries, names)
    found = [e for e in explained(queries) if e.named in wanted]
    if format is Format.json:
        for one in found:
            json_line(as_json(one))
    elif brief:
        console().print(as_table(found))
    else:
        for one in found:
            print_one(one)


def explained(queries: Sequence[Named]) -> list[Explained]:
    """Every query with those before and behind it that have its digest."""
    forms = [(named, canonicalize(named.query)) for named in queries]
    names: dict[str, list[str]] = {}
    for named, form in forms:
        names.setdefault(form.digest, []).append(named.name)
    return [
        Explained(named, form, tuple(n for n in names[form.digest] if n != named.name))
        for named, form in forms
    ]


def as_json(one: Explained) -> dict[str, object]:
    places = dict(one.canonical.columns)
    return {
        "query": one.named.name,
        "digest": one.canonical.digest,
        "same_as": list(one.same_as),
        "columns": [
            {
                "name": c.name,
                "type": str(c.type),
                "nullable": c.nullable,
                "canonical": places[c.name],
            }
            for c in one.named.query.columns
        ],
        "logical": tree(one.named.query),
        "canonical": tree(one.canonical.query),
    }


def as_table(found: Sequence[Explained]) -> Table:
    """One row for each query, with the start of its digest."""
    return table(
        "",
        [("query", False), ("digest", False), ("same as", False), ("columns", False)],
        [(e.named.name, e.canonical.digest[:12], ", ".join(e.same_as), e.columns) for e in found],
    )


def print_one(one: Explained) -> None:
    """The query in full: columns, digest, the tree as written and the canonical one."""
    out = console()
    out.print(Text(one.named.name, style="bold"))
    same = f"   the same as {', '.join(one.same_as)}" if one.same_as else ""
    out.print(Text(f"  digest   {one.canonical.digest}{same}"))
    places = dict(one.canonical.columns)
    columns = (f"{c.name} {c.type} (c{places[c.name]})" for c in one.named.query.columns)
    out.print(Text(f"  columns  {', '.join(columns)}"))
    for title, lines in (
        ("as written", tree(one.named.query)),
        ("canonical", tree(one.canonical.query)),
    ):
        out.print(Text(f"  {title}", style="dim"))
        for line in lines:
            out.print(Text(f"    {line}"))
    out.print()
