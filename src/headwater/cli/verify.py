"""`headwater verify`: report damaged files of a state, and the queries they affect."""

from __future__ import annotations

import typer

from headwater.cli.output.formats import Format, pluralize, print_json
from headwater.cli.output.listing import format_size
from headwater.runtime.inspect.verify import Verification


def print_verification(done: Verification, format: Format) -> None:
    """Print each damaged file, then totals; as JSON, one object."""
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
            f"{pluralize(done.without_checksum, 'segment')} from an earlier release without a checksum: "
            "only sizes were compared"
        )
