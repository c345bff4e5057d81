"""`headwater explain` of queries of a state: where they run and why, or what was measured of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from headwater.cli.files import errors_of, fail, is_name, read
from headwater.cli.formats import Format, json_line
from headwater.cli.listing import count, moment, seconds, times
from headwater.cli.listing import names as names_of
from headwater.cli.queries import queries_of, select
from headwater.cli.state import exists, opened, run_again
from headwater.cli.tables import console, table
from headwater.cql import parse
from headwater.errors import nearest
from headwater.runtime.analysis import analysis, lines
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.placement import lines as placement_lines
from headwater.runtime.placement import placement
from headwater.runtime.scheduling import SCHEDULE


def explain_measured(
    what: Path, names: Sequence[str], state: Path, url: str | None, format: Format
) -> None:
    """Print what was measured of a query by name, or of the queries of a file."""
    if not exists(state, url):
        fail(
            f"--analyze shows what was measured while queries ran, and there is no state in "
            f"{state}: {run_again(state, url, 'FILE.cql')}, then headwater explain NAME --analyze"
        )
    _explain(_names(what, names), state, url, format, analysis, lines)


def explain_placed(
    name: str, names: Sequence[str], state: Path, url: str | None, format: Format
) -> None:
    """Print where queries run, with whom and why."""
    _explain([name, *names], state, url, format, placement, placement_lines)


def explain_schedule(state: Path, url: str | None, format: Format) -> None:
    """Print which unit was chosen last, by which policy, and how the others stood."""
    with opened(state, url) as catalog:
        found = catalog.profile(SCHEDULE)
        if found is None:
            fail("no unit was chosen yet: nothing has run on this state")
        asked = {
            row.id: [query.spelled for query in catalog.members(row.id) if not query.hidden]
            for row in catalog.units(dropped=True)
        }
    choice = dict(found.value, at=moment(found.value["at"]))
    for one in choice["ranking"]:
        one["queries"] = asked.get(one["name"], [])
    if format is Format.json:
        json_line(choice)
        return
    typer.echo(f"{choice['at']}, by {choice['policy']} (the highest {choice['formula']}):")
    typer.echo(f"  {choice['why']}\n")
    heading = [("unit", False), ("of", False), ("rank", True), ("pending", True)]
    heading += [("wait", True), ("slowdown", True), ("", False)]
    rows = [
        [
            one["name"],
            names_of(one["queries"]),
            f"{one['rank']:.4g}",
            count(one["pending"]),
            seconds(one["wait"]),
            times(one["slowdown"]),
            "overdue" if one["overdue"] else "",
        ]
        for one in choice["ranking"]
    ]
    console().print(table("", heading, rows))


def _explain(
    wanted: Sequence[str],
    state: Path,
    url: str | None,
    format: Format,
    find: Callable[[Catalog, QueryRow], dict[str, Any]],
    as_lines: Callable[[dict[str, Any]], list[str]],
) -> None:
    with opened(state, url) as catalog:
        known = {row.name: row for row in catalog.queries()}
        for name in wanted:
            if name.lower() not in known:
                spelled = [row.spelled for row in known.values()]
                fail(f"there is no query {name} in {state}; {nearest(name, spelled)}")
        for place, name in enumerate(wanted):
            found = find(catalog, known[name.lower()])
            if format is Format.json:
                json_line(found)
            else:
                typer.echo("\n" * (place > 0) + "\n".join(as_lines(found)))


def _names(what: Path, names: Sequence[str]) -> list[str]:
    """The queries of a file, or the one that is named."""
    if is_name(what):
        return [str(what), *names]
    source = read(what)
    with errors_of(source):
        return [named.name for named in select(queries_of(parse(source.text)), names)]
