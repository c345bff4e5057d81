"""`headwater explain` of a file: what each query computes, and which queries are the same."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from headwater.cli.cql_files import CqlSource, fail
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.tables import console, table
from headwater.cli.queries import queries_of, select_queries
from headwater.cql import parse
from headwater.runtime.inspect.canonical import QueryExplanation, explain_queries


def explain_file(source: CqlSource, names: Sequence[str], brief: bool, format: Format) -> None:
    """Explain the named queries, or all; raises CqlErrors if the file has mistakes."""
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    selected = select_queries(queries, names)
    # All queries of the file are explained, as one that is not selected may be the same.
    explained = zip(queries, explain_queries((q.name, q.query) for q in queries), strict=True)
    explanations = [explanation for query, explanation in explained if query in selected]
    if format is Format.json:
        for explanation in explanations:
            print_json(explanation.as_json())
    elif brief:
        console().print(as_table(explanations))
    else:
        for explanation in explanations:
            print_explanation(explanation)


def as_table(explanations: Sequence[QueryExplanation]) -> Table:
    """One row per query, with the first characters of its digest."""
    return table(
        "",
        [("query", False), ("digest", False), ("same as", False), ("columns", False)],
        [(e.query, e.digest[:12], ", ".join(e.same_as), _format_columns(e)) for e in explanations],
    )


def _format_columns(explanation: QueryExplanation) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in explanation.columns)


def print_explanation(explanation: QueryExplanation) -> None:
    """Print digest, columns, the tree as written and the canonical tree."""
    out = console()
    out.print(Text(explanation.query, style="bold"))
    same = f"   the same as {', '.join(explanation.same_as)}" if explanation.same_as else ""
    out.print(Text(f"  digest   {explanation.digest}{same}"))
    columns = (f"{c.name} {c.type} (c{c.canonical})" for c in explanation.columns)
    out.print(Text(f"  columns  {', '.join(columns)}"))
    trees = (("as written", explanation.logical), ("canonical", explanation.canonical))
    for title, lines in trees:
        out.print(Text(f"  {title}", style="dim"))
        for line in lines:
            out.print(Text(f"    {line}"))
    out.print()
