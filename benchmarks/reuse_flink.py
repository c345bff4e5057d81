"""Overlapping airline queries: Headwater against one Flink job for all of them.

The 20 and 100 queries of `_airline.py` are one StatementSet on Flink's local mini-cluster, where it
shares what its planner finds to be identical: interval joins on event time with the exact conditions of
the SLIDE, on the heap. Both sides read the same JSON files, one a stream, so that Flink meets no event
late, with as many tasks as there are cores, and write files. The results of each query are compared row
by row, with their instants. The time of Flink is what it says its job ran, without planning.

Flink comes from PyPI into an environment of its own (`~/.cache/headwater/flink`), made by the first
run. Where that is impossible it is said, and there is no ratio. `--rows` and `--queries` set the size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import json as pa_json

from _airline import (
    ALIASES,
    DELAY_SECONDS,
    Asked,
    Run,
    check,
    everyday,
    flights_for,
    shared,
    sql,
    streams,
    table,
    write_streams,
)
from _common import Differ, session
from headwater.algebra.catalog import Stream

FLINK = "apache-flink==2.3.0"
PLACE = Path.home() / ".cache" / "headwater" / "flink"
TYPES = {"TIMESTAMP": "TIMESTAMP_LTZ(3)"}
MINUTE = (
    "TIMESTAMPDIFF(MINUTE, TIMESTAMP '1970-01-01 00:00:00', {}(CAST(ts AS TIMESTAMP(3)) TO MINUTE))"
)
SETTINGS = {
    "parallelism.default": str(os.cpu_count() or 2),
    "table.local-time-zone": "UTC",
    "taskmanager.memory.network.min": "1gb",
    "taskmanager.memory.network.max": "1gb",
}


def environment() -> Path | None:
    """The Python that has Flink, installed if it is not there; None if that cannot be."""
    python = PLACE / "bin" / "python"
    if _has_flink(python):
        return python
    print(f"installing {FLINK} in {PLACE}", flush=True)
    venv.create(PLACE, clear=True, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FLINK]
    done = subprocess.run(command, check=False)
    return python if done.returncode == 0 and _has_flink(python) else None


def _has_flink(python: Path) -> bool:
    if not python.exists():
        return False
    return subprocess.run([python, "-c", "import pyflink.table"], check=False).returncode == 0


def flink(python: Path, folder: Path, asked: Sequence[Asked]) -> Run:
    """The queries as one job of Flink.

    A tenth of the queries run before in the same process, so that it does not start cold.
    """
    out = Path(tempfile.mkdtemp(dir=folder))
    warm = [replace(one, name=f"warm_{one.name}") for one in asked[::10]]
    declared = streams(folder)
    types = {
        f"{ALIASES[stream.name]}.{column.name}": str(column.type)
        for stream in declared
        for column in stream.schema
    }
    task = {
        "settings": SETTINGS,
        "tables": [_source(folder, stream) for stream in declared]
        + [_sink(out, one, types) for one in (*warm, *asked)],
        "jobs": [[f"INSERT INTO {one.name} {sql(one)}" for one in job] for job in (warm, asked)],
    }
    command = [python, Path(__file__).with_name("_flink_side.py")]
    done = subprocess.run(
        command, input=json.dumps(task), text=True, stdout=subprocess.PIPE, check=True
    )
    job = json.loads(done.stdout.splitlines()[-1])[-1]
    results = {one.name: _read(out, one) for one in asked}
    return Run(job["submitted"], job["seconds"], results)


def _source(folder: Path, stream: Stream) -> str:
    columns = [f"`{c.name}` {TYPES.get(c.type.name, c.type)}" for c in stream.schema]
    return (
        f"CREATE TABLE {table(stream.name)} ({', '.join(columns)}, "
        f"since AS {MINUTE.format('FLOOR')}, until AS {MINUTE.format('CEIL')}, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder / stream.name}', "
        "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
    )


def _sink(out: Path, asked: Asked, types: Mapping[str, str]) -> str:
    columns = [f"{n} {types[c]}" for c, n in zip(asked.columns, asked.names, strict=True)]
    return (
        f"CREATE TABLE {asked.name} ({', '.join(columns)}, tau BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{out / asked.name}', 'format' = 'json')"
    )


def _read(out: Path, asked: Asked) -> pa.Table:
    """What Flink wrote for a query."""
    files = sorted((out / asked.name).glob("part-*")) if (out / asked.name).exists() else []
    tables = [pa_json.read_json(file) for file in files if file.stat().st_size]
    return pa.concat_tables(tables) if tables else pa.table({"tau": []})


def measure(python: Path, rows: int, counts: Sequence[int], folder: Path) -> float:
    """Print the throughput of both sides; for the most queries, Headwater's over Flink's.

    Flink is done before Headwater's session starts, so that neither keeps memory from the other.
    """
    flights = flights_for(rows, least=max(counts))
    rows = write_streams(folder, flights, files=1)
    sets = [everyday(queries, flights) for queries in counts]
    theirs = [flink(python, folder, asked) for asked in sets]
    spark = session()
    shared(spark, folder, sets[-1][::10])
    print(f"{rows:,} rows")
    print(f"{'':<10} {'queries':>8} {'results':>9} {'planned in':>11} {'seconds':>8} {'rows/s':>8}")
    ratio = 0.0
    for asked, job in zip(sets, theirs, strict=True):
        ours = shared(spark, folder, asked)
        results = check(asked, ours.results, job.results, "Flink")
        for side, run in (("Headwater", ours), ("Flink", job)):
            print(
                f"{side:<10} {len(asked):>8} {results:>9,} {run.submitted:>10.1f}s "
                f"{run.seconds:>8.1f} {rows / run.seconds:>8,.0f}",
                flush=True,
            )
        ratio = job.seconds / ours.seconds
    return ratio


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--queries", type=int, nargs="+", default=[20, 100])
    chosen = options.parse_args()
    python = environment()
    if python is None:
        print(f"no ratio: {FLINK} cannot be installed in {PLACE}")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        try:
            ratio = measure(python, chosen.rows, chosen.queries, Path(temporary))
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    print(f"ratio: {max(chosen.queries)} airline queries at {ratio:.2f}x the throughput of Flink")
    return 0


if __name__ == "__main__":
    sys.exit(main())
