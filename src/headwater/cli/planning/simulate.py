"""`headwater simulate`: run a world of the user's own, and report what each policy makes of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from headwater.cli.output.formats import Format
from headwater.cli.output.reports import draw_plots, show_report
from headwater.report import Report
from headwater.sim.worlds.model import SimulatedWorld
from headwater.sim.worlds.read import read_world
from headwater.sim.worlds.simulate import simulate_world


def simulate_file(
    file: Path, plots: Path | None, seed: int | None, quiet: bool, format: Format
) -> None:
    """Simulate the world of a file and print its report; plots are drawn if a folder is given."""
    world = read_world(file)
    if seed is not None:
        world = replace(world, seeds=(seed,))
    report = _simulate(world, quiet)
    files = draw_plots(report, plots, "--plots") if plots is not None else []
    show_report(f"The world of {file}", report, files, format, world=str(file))


def _simulate(world: SimulatedWorld, quiet: bool) -> Report:
    """With a bar on standard error, if that is a terminal."""
    # Standard output is for the report, which a program may read.
    console = Console(file=sys.stderr)
    disabled = quiet or not console.is_terminal
    with Progress(console=console, transient=True, disable=disabled) as bar:
        task = bar.add_task("simulating", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        return simulate_world(world, show)
