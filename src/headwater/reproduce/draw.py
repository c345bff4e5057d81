"""Plots as PNG files.

Matplotlib is imported when the first plot is drawn, so that commands which draw nothing do not
wait for it; it only draws into files and needs no display.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from headwater.report import Plot

STYLES = ("-", "--", "-.", ":")
"""Lines that lie on each other stay visible."""


def draw_plot(plot: Plot, folder: Path) -> Path:
    """Draw a plot into `folder`, which has to exist; returns the file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    # Not by pyplot, which would keep every figure in memory and look for a display.
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for line, style in zip(plot.lines, cycle(STYLES), strict=False):
        (drawn,) = axes.plot(line.x, line.y, style, label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, alpha=0.2, color=drawn.get_color())
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.logarithmic:
        axes.set_yscale("log")
    elif all(y >= 0 for line in plot.lines for y in (*line.y, *line.low)):
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    path = folder / f"{plot.name}.png"
    figure.savefig(path, dpi=120)
    return path
