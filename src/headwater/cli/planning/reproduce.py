"""`headwater reproduce`: compute a figure of a paper, and compare it with the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer
from rich.table import Table

from headwater.cli.cql_files import fail
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.tables import console, table
from headwater.errors import suggest
from headwater.reproduce import FIGURES, Claim, FigureSettings, Report, ReportTable
from headwater.reproduce.draw import draw_plot
from headwater.reproduce.figure import Cell

HOLDS = {True: "yes", False: "no", None: "?"}


def list_figures(format: Format) -> None:
    """Print the names and titles of all figures."""
    if format is Format.json:
        for name, figure in sorted(FIGURES.items()):
            print_json({"figure": name, "title": figure.title})
    else:
        rows = [(name, figure.title) for name, figure in sorted(FIGURES.items())]
        console().print(table("", [("figure", False), ("title", False)], rows))


def reproduce_figure(
    name: str, out: Path, seeds: int | None, quick: bool, data: Path | None, format: Format
) -> None:
    """Compute a figure, print it, and draw its plots into `out`."""
    if name not in FIGURES:
        fail(f"there is no figure {name}; {suggest(name, FIGURES)}")
    figure = FIGURES[name]
    report = figure.run(FigureSettings(seeds or (1 if quick else figure.seeds), quick, data))
    files = _draw(report, out)
    if format is Format.json:
        for line in _as_json(name, report, files):
            print_json(line)
    else:
        _print(figure.title, report, files)


def _draw(report: Report, out: Path) -> list[Path]:
    try:
        if report.plots:
            out.mkdir(parents=True, exist_ok=True)
        return [draw_plot(plot, out) for plot in report.plots]
    except OSError as error:
        fail(f"the plots cannot be written to {out}: {error.strerror}; name a folder with --out")


def _as_json(name: str, report: Report, files: list[Path]) -> Iterator[dict[str, object]]:
    """One object for each table row, claim and plot."""
    for report_table in report.tables:
        for row in report_table.rows:
            yield {
                "figure": name,
                "table": report_table.title,
                **dict(zip(report_table.columns, row, strict=True)),
            }
    for claim in report.claims:
        yield {
            "figure": name,
            "claim": claim.what,
            "paper": claim.paper,
            "ours": claim.ours,
            "holds": claim.holds,
        }
    for file in files:
        yield {"figure": name, "plot": str(file)}


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
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
