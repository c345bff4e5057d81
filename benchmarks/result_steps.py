"""Reading the results of a query after very many steps, whose segments were merged as housekeeping does.

A million steps of one row each are registered as the segments that are left after merging by tiers, which is
checked against real merges of fewer steps. What is measured: a look of a follower that has read all, one
that stopped in the middle of a merged segment, a count of all rows (`show queries`), and reading all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.runtime.catalog import Catalog, NewQuery, NewUnit, QueryRow, Segment, unit_log
from headwater.runtime.inspect.status import Observer
from headwater.runtime.maintenance.result_logs import compact_results, size_tier
from headwater.runtime.results import reader
from headwater.runtime.results.subscribers import SEQ
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment

MOST_ROWS = 8**5
"""A segment of more steps would have more rows than are merged."""


def rows(first: int, last: int) -> pa.Table:
    """The rows of steps, one each, whose value is the number of the step."""
    numbers = pa.array(range(first, last + 1), pa.int64())
    return pa.table({"c0": numbers, "_tau": numbers, SEQ: numbers})


def spans(steps: int) -> list[tuple[int, int]]:
    """The segments that merging leaves: as many of eight to the fifth as there can be, and so on."""
    found, at, size = [], 1, MOST_ROWS
    while size:
        while steps - at + 1 >= size:
            found.append((at, at + size - 1))
            at += size
        size //= 8
    return found


def check_spans(folder: Path) -> None:
    """Raises if real merges of real steps leave other tiers than `spans` says."""
    steps = 8**3 + 8**2 * 2 + 8 * 3 + 5
    with Catalog.open(folder / "check.sqlite") as catalog:
        query = accepted(catalog)
        unit = catalog.unit(query.unit_id)
        assert unit is not None
        log = unit_log(unit.id)
        for number in range(1, steps + 1):
            written = segment_files.write_arrow(
                rows(number, number).drop_columns([SEQ]), folder / "check", ("_tau", "_tau")
            )
            assert written is not None
            catalog.commit(None, segments=[replace(build_segment(log, written, None), keys=None)])
            if number % 8 == 0:
                compact_results(catalog, unit, folder / "check", None)
        left = [size_tier(s) for s in catalog.segments(log)]
        table, _ = reader.read(catalog, query)
        expected = [(last - first + 1).bit_length() // 3 for first, last in spans(steps)]
    if left != expected or table["c"].to_pylist() != list(range(1, steps + 1)):
        raise SystemExit(
            f"merging leaves {len(left)} segments of tiers {left[:20]}, not {expected}"
        )


def accepted(catalog: Catalog) -> QueryRow:
    return catalog.accept_query(
        NewQuery("q", "SELECT 1", "d", [["c", 0]]), NewUnit("d", "SELECT 1")
    )


def fill(catalog: Catalog, query: QueryRow, folder: Path, steps: int) -> int:
    """Register the merged segments of so many steps; returns how many there are."""
    log, copies = unit_log(query.unit_id), []
    for first, last in spans(steps):
        written = segment_files.write_arrow(rows(first, last), folder, ("_tau", "_tau"))
        assert written is not None
        known: dict[str, Any] = vars(build_segment(log, written, None)) | {"keys": None}
        del known["key"], known["on_disk"]
        known |= {"id": 0, "first_seq": first, "seq": last, "pieces": 1, "compacted_into": None}
        copies.append((Segment(**known, created_at=0.0), written.path))
    catalog.register_copies(None, log, copies, steps)
    return len(copies)


def timed(what: str, work: Callable[[], object], expected: object) -> float:
    begun = time.perf_counter()
    found = work()
    spent = time.perf_counter() - begun
    if found != expected:
        raise SystemExit(f"{what}: {found}, not {expected}")
    print(f"{what:<44}{spent * 1000:>10.1f} ms", flush=True)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_spans(folder)
        with Catalog.open(folder / "catalog.sqlite") as catalog:
            query = accepted(catalog)
            number = fill(catalog, query, folder / "log", steps)
            print(f"{steps:,} steps in {number} segments")
            middle = spans(steps)[0][1] // 2
            timed(
                "a look of one who has read all",
                lambda: reader.read(catalog, query, steps)[1],
                steps,
            )
            timed(
                "the next 100 segments from the middle of one",
                lambda: next(reader.read_by_segment(catalog, query, middle))[0].num_rows,
                spans(steps)[0][1] - middle,
            )
            timed(
                "rows of the query, as show queries counts them",
                lambda: Observer(catalog).query_views([query])[0].rows,
                steps,
            )
            spent = timed("all rows", lambda: reader.read(catalog, query)[0].num_rows, steps)
    print(f"ratio {spent / steps * 1e6:.2f} us a row")


if __name__ == "__main__":
    main()
