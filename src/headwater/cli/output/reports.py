"""Reports of figures and simulations: printed as tables, written as JSON lines, drawn as plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer
from rich.table import Table

from headwater.cli.cql_files import fail
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.tables import console, table
from headwater.report import Cell, Claim, Report, ReportTable

HOLDS = {True: "yes", False: "no", None: "?"}


def show_report(
    title: str, report: Report, files: list[Path], format: Format, **label: str
) -> None:
    """Print a report; `label` is what each line of JSON says of where it comes from."""
    if format is Format.json:
        for line in _as_json(report, files, label):
            print_json(line)
    else:
        _print(title, report, files)


def draw_plots(report: Report, folder: Path, option: str) -> list[Path]:
    """Draw the plots into a folder, which is made; `option` names it on the command line."""
    # Loaded with the package of all figures, which takes longer than a small world.
    from headwater.reproduce.draw import draw_plot

    try:
        if report.plots:
            folder.mkdir(parents=True, exist_ok=True)
        return [draw_plot(plot, folder) for plot in report.plots]
    except OSError as error:
        fail(
            f"the plots cannot be written to {folder}: {error.strerror}; "
            f"name a folder with {option}"
        )


def _as_json(
    report: Report, files: list[Path], label: dict[str, str]
) -> Iterator[dict[str, object]]:
    """One object for each table row, claim and plot."""
    for report_table in report.tables:
        for row in report_table.rows:
            cells = dict(zip(report_table.columns, row, strict=True))
            yield {**label, "table": report_table.title, **cells}
    for claim in report.claims:
        yield {
            **label,
            "claim": claim.what,
            "paper": claim.paper,
            "ours": claim.ours,
            "holds": claim.holds,
        }
    for file in files:
        yield {**label, "plot": str(file)}


def _print(title: str, report: Report, files: list[Path]) -> None:
    out = console()
    typer.echo(title)
    for report_table in report.tables:
        typer.echo()
        out.print(_table(report_table))
    if report.claims:
        typer.echo()
        out.print(_claims(report.claims))
    if files:
        typer.echo()
    for file in files:
        typer.echo(f"wrote {file}")


def _table(report_table: ReportTable) -> Table:
    numeric = [
        all(isinstance(row[position], int | float | None) for row in report_table.rows)
        for position in range(len(report_table.columns))
    ]
    columns = list(zip(report_table.columns, numeric, strict=True))
    return table(
        report_table.title, columns, [[_text(cell) for cell in row] for row in report_table.rows]
    )


def _claims(claims: tuple[Claim, ...]) -> Table:
    columns = [("claim", False), ("paper", False), ("ours", False), ("holds", False)]
    return table(
        "The paper's claims",
        columns,
        [(claim.what, claim.paper, claim.ours, HOLDS[claim.holds]) for claim in claims],
    )


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    # Before the numbers, as a bool is an int in Python.
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
