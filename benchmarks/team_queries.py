"""Five hundred queries of ten teams, as each would write them: how many units they need, and which share with which.

The queries are drawn from the templates of `_teams`, with constants, windows and columns of their own, and come in random
order. They run on Spark while events arrive; each is compared with the reference evaluator, and nothing is reported if
one differs. `--count` only submits them. The last line is how many queries a unit serves.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from _common import Differ, check_units, compare_with_reference, session, settled, state
from _teams import STREAMS, TEMPLATES, asked, events
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.compile.unit_plans import UnitPlanner

SECONDS = 600


def submit(opened: Headwater, queries: dict[str, tuple[str, str]]) -> float:
    """Submit all; milliseconds for each."""
    opened.execute(STREAMS)
    begun = time.perf_counter()
    for name, (_, text) in queries.items():
        opened.execute(f"CREATE QUERY {name} AS {text}")
    return (time.perf_counter() - begun) / len(queries) * 1_000


def report(opened: Headwater, queries: dict[str, tuple[str, str]]) -> int:
    """Print the units with the templates that each serves; how many units there are."""
    planner = UnitPlanner(opened.definitions)
    units: dict[str, list[str]] = defaultdict(list)
    rows = {row.name: row for row in opened.catalog.queries()}
    for name, (template, _) in queries.items():
        units[rows[name].unit_id].append(template)
    groups = []
    for unit, templates in units.items():
        row = opened.catalog.unit(unit)
        assert row is not None
        signature = planner.signature(opened.catalog.subscribers(unit)[0])
        sources = ", ".join(name.partition(":")[2] for name in row.inputs)
        groups.append((sources, signature.kind.value, templates))
    print(f"{'reads':<30}{'shares as':<11}{'queries':>8}  templates")
    for sources, kind, templates in sorted(groups):
        print(f"{sources:<30}{kind:<11}{len(templates):>8}  {', '.join(sorted({*templates}))}")
    spread = defaultdict(set)
    for unit, templates in units.items():
        for template in templates:
            spread[template].add(unit)
    several = [f"{name} ({len(of)})" for name, of in sorted(spread.items()) if len(of) > 1]
    print(f"in several units: {', '.join(several) or 'none'}")
    return len(units)


def run(opened: Headwater, queries: dict[str, tuple[str, str]], rows: int, rounds: int) -> int:
    """Bring events in some rounds, and compare; the number of result rows. Raises Differ."""
    streams = events(1, SECONDS, rows)
    last = max(row[-1] for of in streams.values() for row in of)
    first = min(row[-1] for of in streams.values() for row in of)
    assert isinstance(first, int) and isinstance(last, int)
    before = first
    for number in range(1, rounds + 1):
        until = last + 1 if number == rounds else first + (last - first) * number // rounds
        for name, of in streams.items():
            new = [row for row in of if before <= int(row[-1]) < until]
            if new:
                opened.push(name, new, timestamp_unit="us")
        before = until
        print(f"round {number}: {settled(opened):.1f} s", flush=True)
        check_units(opened)
    for name in streams:
        opened.execute(f"END STREAM {name}")
    settled(opened)
    check_units(opened)
    texts = {name: text for name, (_, text) in queries.items()}
    return compare_with_reference(opened, texts, streams)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rows", type=int, default=40, help="of each stream")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--count", action="store_true", help="submit the queries only")
    chosen = options.parse_args()
    queries = {f"q{n}": pair for n, pair in enumerate(asked(chosen.queries, chosen.seed))}
    print(f"{len(queries)} queries of {len(TEMPLATES)} templates")
    with tempfile.TemporaryDirectory() as folder:
        if chosen.count:
            with open_state(Path(folder) / "state") as opened:
                print(f"submitted in {submit(opened, queries):.1f} ms each")
                units = report(opened, queries)
        else:
            with state(session(), Path(folder) / "state") as opened:
                print(f"submitted in {submit(opened, queries):.1f} ms each")
                units = report(opened, queries)
                try:
                    found = run(opened, queries, chosen.rows, chosen.rounds)
                except Differ as differ:
                    print(f"not reported: {differ}")
                    return 1
                print(f"all {found} rows are those that the reference evaluator gives")
    print(f"ratio: {len(queries) / units:.1f} queries in a unit ({units} units)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
