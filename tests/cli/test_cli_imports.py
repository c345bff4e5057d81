"""What commands load: those that need no Spark load nothing that takes longer than their work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run
from runtime_states import make

from headwater.network.sites import read_deployment
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.deployment import deploy

QUERIES = """
CREATE STREAM s (a INT, b INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY q AS SELECT a, b FROM s [RANGE 1 MINUTE] WHERE a > 3;
CREATE STREAM t (c INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY small AS SELECT c FROM t [NOW] WHERE c < 3;
"""

DECLARED = "CREATE STREAM v (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
SHARED = """
CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY few STARTING AT TIMESTAMP '1970-01-01 00:00:01' AS SELECT a FROM s [NOW] WHERE a > 3;
CREATE QUERY many AS SELECT a FROM s [NOW] WHERE a > 1;
"""

NEVER = {"matplotlib", "networkx", "numba", "ortools", "pandas", "pyspark", "scipy"}
"""What only Spark, plans and figures need."""

QUICK = NEVER | {"numpy", "pyarrow", "pydantic", "rich.console", "sqlalchemy.dialects.postgresql"}
"""What is not needed either where no rows are read."""

READING = QUICK | {"sqlglot"}
"""What is not needed either where no CQL is read."""

PRINTING = (NEVER | READING) - {"pyarrow"} | {
    "headwater.reference.evaluator",
    "headwater.runtime.compile",
}
"""What is not needed to print rows."""

LOADED = """
import json, sys
from headwater.cli import main
sys.argv = ["headwater", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as end:
    print(file=sys.stderr)
    loaded = sorted(name for name, module in sys.modules.items() if module is not None)
    print(json.dumps([end.code, loaded]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make(tmp_path_factory.mktemp("imports") / "state", QUERIES)
    assert made.answer("small", {"t": [(1, 2)]})
    return made.path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state with results of a unit that two queries share, some from before one began."""
    made = make(tmp_path_factory.mktemp("imports") / "shared", SHARED)
    assert made.answer("few", {"s": [(5, 0), (6, 2_000_000)]}) == 2
    return made.path


@pytest.mark.long
@pytest.mark.parametrize(
    "command, unneeded",
    [
        (("--help",), READING | {"sqlalchemy"}),
        (("show", "queries"), READING),
        (("show", "streams"), READING),
        (("show", "units"), READING),
        (("show", "events"), READING),
        (("status",), READING),
        (("results", "q"), READING | PRINTING),
        (("results", "small", "--limit", "5", "--format", "table"), PRINTING),
        (("submit", "-e", "CREATE QUERY q AS SELECT a, b FROM s [RANGE 1 MIN] WHERE a > 3"), QUICK),
        (("submit", "-e", "CREATE QUERY r AS SELECT a FROM s [RANGE 1 MIN] WHERE a > 4"), QUICK),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_commands_load_only_what_they_need(
    state: Path, command: tuple[str, ...], unneeded: set[str]
) -> None:
    words = [*command, *(() if command == ("--help",) else ("--state", str(state)))]
    _check_loaded(words, unneeded)


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [("show", "queries"), ("status",), ("results", "few")], ids=" ".join
)
def test_rows_of_shared_units_are_counted_and_read_without_pandas(
    shared: Path, command: tuple[str, ...]
) -> None:
    _check_loaded([*command, "--state", str(shared)], PRINTING, {"pyarrow"})


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [("show", "queries"), ("show", "sites"), ("show", "links"), ("status",), ("results", "few")],
    ids=" ".join,
)
def test_what_is_hidden_is_not_needed_where_sites_run_a_state(
    shared: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "sites.toml").write_text('[[site]]\nname = "one"\n[[site]]\nname = "two"\n')
    shutil.copytree(shared, tmp_path / "state")
    with Catalog.open(tmp_path / "state") as catalog:
        deploy(catalog, read_deployment(tmp_path / "sites.toml"))
    _check_loaded([*command, "--state", str(tmp_path / "state")], set(), status={0, 1})


def _check_loaded(
    words: list[str],
    unneeded: set[str],
    needed: frozenset[str] | set[str] = frozenset(),
    status: frozenset[int | None] | set[int] = frozenset({0, None}),
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(words)], capture_output=True, text=True
    )
    ended, loaded = json.loads(done.stderr.splitlines()[-1])
    assert ended in status, done.stderr
    assert unneeded.intersection(loaded) == set()
    assert needed.issubset(loaded)


def test_submit_creates_a_state(run: Run, tmp_path: Path) -> None:
    state, file = tmp_path / "new" / "state", tmp_path / "q.cql"
    file.write_text(QUERIES)
    done = run("submit", file, "--state", state)
    assert done.status == 0
    assert f"headwater run --state {state}" in done.err, "it says how to go on"
    assert run("show", "queries", "--state", state, "--format", "json").out.count("\n") == 2
    assert "created" not in run("submit", file, "--state", state).err


@pytest.mark.parametrize(
    "mistake, where",
    [
        ("CREATE QUERY q AS SELECT a FROM nowhere", "no stream or table nowhere"),
        (f"{DECLARED} SET interval = -5", "interval must be a number of seconds"),
        (
            f"{DECLARED} CREATE TABLE f (a INT) FROM files(path => 's3://b/x')",
            "the path of files is in a folder of this machine",
        ),
        (
            f"{DECLARED} CREATE TABLE f (a INT) FROM files(path => 'x', colour => 'red')",
            "files has no option colour",
        ),
    ],
    ids=["query", "setting", "path", "option"],
)
@pytest.mark.parametrize("state", ["new", "there"])
def test_a_mistake_is_located_and_nothing_is_carried_out(
    run: Run, tmp_path: Path, mistake: str, where: str, state: str
) -> None:
    if state == "there":
        assert run("submit", "-e", QUERIES, "--state", tmp_path / state).status == 0
    submitted = run("submit", "-e", mistake, "--state", tmp_path / state)
    checked = run("check", "-", stdin=mistake)
    assert submitted.status == checked.status == 1
    said = checked.out.splitlines()[0].removeprefix("<stdin>")
    assert re.match(rf":1:[0-9]+: {re.escape(where)}", said)
    assert submitted.err.splitlines()[0] == f"--execute{said}"
    assert (tmp_path / state).exists() == (state == "there")
    if state == "there":
        there = run("show", "streams", "--state", tmp_path / state, "--format", "json").out
        assert [json.loads(line)["stream"] for line in there.splitlines()] == ["s", "t"]
