"""`headwater explain` of a file: what each query computes, and which queries are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.cli.cql_files import CqlSource, fail
from headwater.cli.formats import Format, print_json
from headwater.cli.queries import NamedQuery, queries_of, select_queries
from headwater.cli.tables import console, table
from headwater.cql import parse, tree


@dataclass(frozen=True)
class QueryExplanation:
    """A query, its canonical form, and the other queries of the file with the same digest."""

    named: NamedQuery
    canonical: CanonicalQuery
    same_as: tuple[str, ...]

    @property
    def columns(self) -> str:
        return ", ".join(f"{c.name} {c.type}" for c in self.named.query.columns)


def explain_file(source: CqlSource, names: Sequence[str], brief: bool, format: Format) -> None:
    """Explain the named queries, or all; raises CqlErrors if the file has mistakes."""
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    selected = select_queries(queries, names)
    explanations = [e for e in explain_queries(queries) if e.named in selected]
    if format is Format.json:
        for explanation in explanations:
            print_json(as_json(explanation))
    elif brief:
        console().print(as_table(explanations))
    else:
        for explanation in explanations:
            print_explanation(explanation)


def explain_queries(queries: Sequence[NamedQuery]) -> list[QueryExplanation]:
    """Explain each query, comparing digests with all the others."""
    canonicals = [(named, canonicalize(named.query)) for named in queries]
    names: dict[str, list[str]] = {}
    for named, canonical in canonicals:
        names.setdefault(canonical.digest, []).append(named.name)
    return [
        QueryExplanation(
            named, canonical, tuple(n for n in names[canonical.digest] if n != named.name)
        )
        for named, canonical in canonicals
    ]


def as_json(explanation: QueryExplanation) -> dict[str, object]:
    positions = dict(explanation.canonical.columns)
    return {
        "query": explanation.named.name,
        "digest": explanation.canonical.digest,
        "same_as": list(explanation.same_as),
        "columns": [
            {
                "name": c.name,
                "type": str(c.type),
                "nullable": c.nullable,
                "canonical": positions[c.name],
            }
            for c in explanation.named.query.columns
        ],
        "logical": tree(explanation.named.query),
        "canonical": tree(explanation.canonical.query),
    }


def as_table(explanations: Sequence[QueryExplanation]) -> Table:
    """One row per query, with the first characters of its digest."""
    return table(
        "",
        [("query", False), ("digest", False), ("same as", False), ("columns", False)],
        [
            (e.named.name, e.canonical.digest[:12], ", ".join(e.same_as), e.columns)
            for e in explanations
        ],
    )


def print_explanation(explanation: QueryExplanation) -> None:
    """Print digest, columns, the tree as written and the canonical tree."""
    out = console()
    out.print(Text(explanation.named.name, style="bold"))
    same = f"   the same as {', '.join(explanation.same_as)}" if explanation.same_as else ""
    out.print(Text(f"  digest   {explanation.canonical.digest}{same}"))
    positions = dict(explanation.canonical.columns)
    columns = (f"{c.name} {c.type} (c{positions[c.name]})" for c in explanation.named.query.columns)
    out.print(Text(f"  columns  {', '.join(columns)}"))
    for title, lines in (
        ("as written", tree(explanation.named.query)),
        ("canonical", tree(explanation.canonical.query)),
    ):
        out.print(Text(f"  {title}", style="dim"))
        for line in lines:
            out.print(Text(f"    {line}"))
    out.print()
