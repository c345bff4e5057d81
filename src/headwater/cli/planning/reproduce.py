"""`headwater reproduce`: compute a figure of a paper, and compare it with the paper's claims."""

from __future__ import annotations

from pathlib import Path

from headwater.cli.cql_files import fail
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.reports import draw_plots, show_report
from headwater.cli.output.tables import console, table
from headwater.errors import suggest
from headwater.reproduce import FIGURES, FigureSettings


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
    # A smoke test shows that it runs, for which one seed is enough.
    report = figure.run(FigureSettings(seeds or (1 if quick else figure.seeds), quick, data))
    files = draw_plots(report, out, "--out")
    show_report(figure.title, report, files, format, figure=name)
