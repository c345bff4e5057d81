"""`headwater calibrate`: measure operator costs on this machine, and store them with the state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import typer

from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.tables import console, table
from headwater.cli.running.spark import start_spark
from headwater.cost.operators import CostTable, format_costs
from headwater.runtime.calibration.calibrate import calibrate
from headwater.runtime.durability import OWNER_FILE, replace_file
from headwater.runtime.engine.engine import COSTS_FILE
from headwater.runtime.storage.state_dir import ensure_state_dir


def calibrate_state(
    state: Path, rows: int, master: str, settings: Mapping[str, str], format: Format
) -> None:
    """Measure, write the cost file, and print it."""
    path = ensure_state_dir(state) / COSTS_FILE
    typer.echo(f"starting Spark on {master}; keep the machine otherwise idle", err=True)
    spark = start_spark(state, master, lambda: settings)
    try:
        costs = calibrate(spark, rows, report=lambda message: typer.echo(message, err=True))
    finally:
        with suppress(Exception):  # Java may have exited already
            spark.stop()
    # Atomically: an engine may start while it is written.
    replace_file(path, format_costs(costs).encode())
    # It is part of the state, all of which is private.
    path.chmod(OWNER_FILE)
    unmeasured = [
        kind for kind, cost in costs.costs.items() if not cost.per_tuple + cost.per_result
    ]
    if unmeasured:
        names = ", ".join(unmeasured)
        typer.echo(f"headwater: too fast to measure: {names}; use more --rows", err=True)
    if format is Format.json:
        print_json({kind: vars(cost) for kind, cost in costs.costs.items()})
    else:
        print_costs(costs)
        typer.echo(f"\nwrote {path}, in core-seconds: a site with 4 cores has cpu = 4")


def print_costs(costs: CostTable) -> None:
    """Print the microseconds of each kind of operator, the most expensive first."""
    ordered = sorted(costs.costs.items(), key=lambda entry: -entry[1].per_tuple)
    rows = [(k, f"{c.per_tuple * 1e6:,.3f}", f"{c.per_result * 1e6:,.3f}") for k, c in ordered]
    columns = [("operator", False), ("us/tuple", True), ("us/result", True)]
    console().print(table("", columns, rows))
