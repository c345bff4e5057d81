"""CPU seconds of the commands that need no Spark, on a small state.

Each command is run several times and the least is taken, as other work on the machine only adds. With
`--against SRC`, the sources of another version, both are run, each on a state of its own, and must print the same rows; the last line is
by how many times less they take in all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
QUERIES = """
CREATE STREAM s (a INT, b INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM t (a INT, c STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY few AS SELECT a, b FROM s [RANGE 1 MINUTE] WHERE a > 3;
CREATE QUERY counted AS SELECT a, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY a;
CREATE QUERY joined AS SELECT s.a, t.c FROM s [RANGE 1 MIN], t [RANGE 1 MIN] WHERE s.a = t.a;
"""
MADE = """
import sys
from pathlib import Path
import headwater, pyarrow as pa
from headwater.runtime.catalog import unit_log
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.segment_files import write_arrow
state, queries = Path(sys.argv[1]), sys.argv[2]
with headwater.open(state) as opened:
    opened.execute(queries)
    unit = opened.catalog.query("few").unit_id
    rows = pa.table({"c0": range(1000), "c1": range(1000), "_tau": range(1000)})
    written = write_arrow(rows, state / "log" / "units" / unit, ("_tau", "_tau"))
    opened.catalog.commit(None, segments=[build_segment(unit_log(unit), written, None)])
"""
STATE = "--state {state}"
COMMANDS = {
    "--help": "",
    "show queries": STATE,
    "show streams": STATE,
    "show units": STATE,
    "status": STATE,
    "results counted": STATE,
    "results few": STATE,
    "submit {file}": STATE,
    "check {file}": "",
}


def cpu_seconds(sources: Path, words: list[str], runs: int) -> tuple[float, str]:
    """The least CPU seconds of a command, and what it prints."""
    command = [sys.executable, "-m", "headwater", *words]
    environment = os.environ | {"PYTHONPATH": str(sources)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as it is where Headwater is installed
    environment["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "headwater-bytecode")
    times, printed = [], ""
    for _ in range(runs + 1):  # the first writes the bytecode
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as done:
            assert done.stdout is not None
            printed = done.stdout.read()
            _, status, used = os.wait4(done.pid, 0)
            done.returncode = os.waitstatus_to_exitcode(status)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
        times.append(used.ru_utime + used.ru_stime)
    return min(times), printed


def made(sources: Path, state: Path) -> None:
    """A state with the queries and rows of one, as a version makes it."""
    environment = os.environ | {"PYTHONPATH": str(sources)}
    command = [sys.executable, "-c", MADE, str(state), QUERIES]
    subprocess.run(command, check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path, help="the sources (src) of another version")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, state = Path(folder) / "queries.cql", Path(folder) / "state"
        file.write_text(QUERIES)
        made(SOURCES, state)
        if asked.against:
            made(asked.against, state.with_name("before"))
        now_all = before_all = 0.0
        print(f"{'command':<16}{'seconds':>9}{'before':>9}")
        for name, options in COMMANDS.items():
            words = f"{name} {options}".format(state=state, file=file).split()
            now, printed = cpu_seconds(SOURCES, words, asked.runs)
            now_all += now
            line = f"{name.format(file='FILE'):<16}{now:>9.2f}"
            if asked.against:
                there = [word.replace(str(state), str(state.with_name("before"))) for word in words]
                before, other = cpu_seconds(asked.against, there, asked.runs)
                if name.startswith(("results", "check")) and printed != other:
                    raise SystemExit(f"{name} prints something else:\n{printed}\n{other}")
                before_all += before
                line += f"{before:>9.2f}"
            print(line, flush=True)
    if asked.against:
        print(f"ratio {before_all / now_all:.2f}")


if __name__ == "__main__":
    main()
