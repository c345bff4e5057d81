"""Running an example as a user does, and comparing rows as bags."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"

Row = dict[str, object]


def rows_by_query(folder: Path, *queries: str) -> dict[str, list[Row]]:
    """What `headwater eval` prints for the example in a folder, by the name of the query."""
    named = [part for query in queries for part in ("--query", query)]
    command = ["eval", str(folder / "queries.cql"), "--input", str(folder / "data")]
    result = CliRunner().invoke(app, [*command, "--format", "json", *named])
    assert result.exit_code == 0, result.output
    found: dict[str, list[Row]] = defaultdict(list)
    for line in result.stdout.splitlines():
        row = json.loads(line)
        found[row["_query"]].append(row)
    return found


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows of one instant may come in any order; this is one that does not depend on the last bits."""
    return sorted(rows, key=lambda row: (str(row["_tau"]), json.dumps(_rounded(row))))


def assert_same_rows(got: Iterable[Row], expected: Iterable[Row]) -> None:
    """The same bags, with columns in the same order, and floating point up to the last bits."""
    left, right = in_order(got), in_order(expected)
    for a, b in zip(left, right, strict=False):
        assert list(a) == list(b)
        assert all(_same(a[name], b[name]) for name in a), f"{a}\nis not\n{b}"
    assert left[len(right) :] == [], "rows too many"
    assert right[len(left) :] == [], "rows missing"


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    return type(a) is type(b) and a == b


def _rounded(row: Row) -> Row:
    return {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in row.items()}
