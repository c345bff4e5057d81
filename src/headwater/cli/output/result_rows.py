"""Printing result rows, the same for `eval` and `results`, so that their output can be compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.expressions import Column
from headwater.algebra.times import format_timestamp
from headwater.cli.cql_files import EXIT_WRONG, fail
from headwater.cli.output.formats import RowFormat, pluralize, print_json
from headwater.cli.output.plain_tables import format_table
from headwater.reference import Result
from headwater.reference.formatting import csv_line, to_json, to_text

TAU, QUERY = "_tau", "_query"


@dataclass(frozen=True)
class QueryResults:
    """Result rows of a query, with its name and columns."""

    name: str
    columns: tuple[Column, ...]
    results: Sequence[Result]


def check_columns(name: str, columns: tuple[Column, ...]) -> None:
    """End the command if a column has the name that is added to every row."""
    if QUERY in (column.name.lower() for column in columns):
        fail(
            f"{name}: {QUERY} is reserved for the name of the query; rename the column", EXIT_WRONG
        )


def print_query_results(answer: QueryResults, format: RowFormat, heading: bool = True) -> None:
    """Print rows; without a heading if they continue those printed before."""
    match format:
        case RowFormat.json:
            _print_json_rows(answer)
        case RowFormat.csv:
            _print_csv(answer, heading)
        case RowFormat.table if heading:
            _print_table(answer)
        case RowFormat.table:
            _print_continued(answer)


def _cell_texts(answer: QueryResults, result: Result) -> list[str | None]:
    return [
        None if value is None else to_text(value, column.type)
        for value, column in zip(result.values, answer.columns, strict=True)
    ]


def _print_table(answer: QueryResults) -> None:
    rows = [
        [format_timestamp(result.tau), *_cell_texts(answer, result)] for result in answer.results
    ]
    heading = [(TAU, False), *((column.name, column.type.is_numeric) for column in answer.columns)]
    title = f"{answer.name}: {pluralize(len(rows), 'row')}"
    # Rich takes more than a second for a thousand rows, and is of use on a terminal alone.
    if not sys.stdout.isatty():
        texts = [["NULL" if text is None else text for text in row] for row in rows]
        sys.stdout.write("\n".join([title, *format_table(heading, texts)]) + "\n")
        return
    from rich.text import Text  # here, because Rich is slow to load

    from headwater.cli.output.tables import console, table

    null, out = Text("NULL", style="dim"), console()
    out.print(Text(title, style="bold"))
    out.print(table("", heading, [[null if t is None else t for t in row] for row in rows]))


def _print_continued(answer: QueryResults) -> None:
    for result in answer.results:
        texts = (text if text is not None else "NULL" for text in _cell_texts(answer, result))
        sys.stdout.write("   ".join([format_timestamp(result.tau), *texts]) + "\n")


def _print_json_rows(answer: QueryResults) -> None:
    for result in answer.results:
        values = {
            column.name: to_json(value, column.type)
            for value, column in zip(result.values, answer.columns, strict=True)
        }
        print_json({**values, TAU: format_timestamp(result.tau), QUERY: answer.name})


def _print_csv(answer: QueryResults, heading: bool) -> None:
    if heading:
        sys.stdout.write(csv_line([*(column.name for column in answer.columns), TAU, QUERY]))
    for result in answer.results:
        fields = [*_cell_texts(answer, result), format_timestamp(result.tau), answer.name]
        sys.stdout.write(csv_line(fields))
