"""`headwater verify`: which files of a state are damaged, and the queries that this affects."""

from __future__ import annotations

import typer

from headwater.cli.formats import Format, pluralize, print_json
from headwater.cli.listing import format_size
from headwater.runtime.inspect.verify import Verification


def print_verification(done: Verification, format: Format) -> None:
    """Print each damaged file and a last line of totals; as JSON, all of it in one object."""
    if format is Format.json:
        print_json(done.as_json())
        return
    for problem in done.catalog:
        typer.echo(f"catalog: {problem}")
    for damage in done.damage:
        typer.echo(damage.problem)
        affected = ", ".join(damage.queries) or "no query"
        typer.echo(f"  in {damage.log}; affects {affected}")
    typer.echo(
        f"{pluralize(done.segments, 'segment')}, {format_size(done.bytes)}: {len(done.damage)} damaged"
    )
    if done.without_checksum:
        typer.echo(
            f"{pluralize(done.without_checksum, 'segment')} of an earlier release without a checksum: "
            "only their sizes were compared"
        )
