"""Spark on a cluster: what is refused, which address the driver gives, and a worker elsewhere."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from engine_helpers import expected, result_rows
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cql import CreateQuery, CreateStream, parse
from headwater.errors import HeadwaterError, InputError, RuntimeFailure
from headwater.reference.data import load_rows
from headwater.runtime.api import open_state
from headwater.runtime.spark.cluster import (
    AUTHENTICATE,
    DRIVER_BIND,
    DRIVER_HOST,
    SECRET,
    SECRET_FILE,
    check_master,
    check_settings,
    cluster_settings,
    read_secret,
)

ELSEWHERE = "s3a://bucket/x"


# ---- what is refused


@pytest.mark.parametrize(
    "master, said",
    [
        ("sc://localhost:15002", "Spark Connect server, on which Headwater does not run yet"),
        ("lokal[2]", "is not a master: write local"),
        ("spark://127.0.0.1:1", "cannot be reached: .*; start it"),
        ("spark://127.0.0.1:x", "cannot be reached"),
    ],
)
def test_masters_that_cannot_be(master: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match=said):
        check_master(master)
    text = tmp_path / "a.cql"
    text.write_text("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
    words = ["run", str(text), "--master", master, "--state", str(tmp_path / "state")]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, (tmp_path / "state").exists()) == (2, False)
    assert master in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["submit", "-e", "SET interval = 1"],
        ["show", "streams"],
        ["status"],
        ["results"],
        ["clean"],
        ["site", "a"],
        ["up", "sites.toml"],
        ["calibrate"],
    ],
)
def test_a_state_is_in_a_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--state", ELSEWHERE])
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "a state is kept in a folder of this machine, not at s3a:/" in done.output


def test_a_state_is_in_a_folder_from_python(tmp_path: Path) -> None:
    for given in ({"where": ELSEWHERE}, {"where": Path(ELSEWHERE)}, {"where": "hdfs://a/b"}):
        with pytest.raises(HeadwaterError, match="in a folder of this machine, not at"):
            open_state(**given)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM {kind}(path => '{path}')",
        "CREATE TABLE t (a INT) FROM files(path => '{path}')",
        "CREATE QUERY q TO files(path => '{path}') AS SELECT ts FROM client [NOW]",
    ],
)
@pytest.mark.parametrize("kind", ["files", "replay"])
def test_files_are_in_folders(statement: str, kind: str, tmp_path: Path) -> None:
    with open_state(tmp_path) as headwater:
        headwater.execute("CREATE STREAM client (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
        with pytest.raises(InputError, match=f"a folder of this machine, not {ELSEWHERE}"):
            headwater.execute(statement.format(kind=kind, path=ELSEWHERE))


@pytest.mark.parametrize(
    "key, said",
    [
        ("ui.enabled", "is not a Spark setting"),
        ("spark.master", "name the master with --master"),
        (SECRET, f"set {SECRET_FILE}=/path"),
        ("spark.sql.ansi.enabled", "the results of queries rely on it"),
    ],
)
def test_settings_that_are_not_the_users(key: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match=said):
        check_settings({key: "x"}, {"spark.sql.ansi.enabled"})
    done = CliRunner().invoke(app, ["run", "--state", str(tmp_path), "--conf", f"{key}=x"])
    assert (done.exit_code, said in done.output) == (2, True)
    with (
        open_state(tmp_path, settings={key: "x"}) as headwater,
        pytest.raises(RuntimeFailure, match=said),
    ):
        _ = headwater.engine


# ---- addresses and secrets


def test_the_address_of_the_driver() -> None:
    here = {DRIVER_HOST: "127.0.0.1", DRIVER_BIND: "127.0.0.1"}
    assert cluster_settings("local[*]", {}) == cluster_settings("spark://localhost:7", {}) == here
    assert cluster_settings("yarn", {}) == {}
    given = cluster_settings("spark://localhost:7077", {DRIVER_HOST: "192.0.2.1"})
    assert given == {DRIVER_HOST: "192.0.2.1", DRIVER_BIND: "0.0.0.0"}, (
        "as behind a translated address"
    )


def test_the_secret_of_a_standalone_cluster(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    on = {AUTHENTICATE: "true"}
    assert read_secret("local[2]", on) is read_secret("spark://a:7077", {}) is None
    for settings in (on, {**on, SECRET_FILE: str(file)}):
        with pytest.raises(RuntimeFailure, match=SECRET_FILE):
            read_secret("spark://a:7077", settings)
    file.write_text("s\n")
    assert read_secret("spark://a:7077", {**on, SECRET_FILE: str(file)}) == "s"


# ---- a worker at another address

OURS, THEIRS = "10.231.77.1", "10.231.77.2"
CLUSTER_SECRET = "cluster-77c1"


@contextmanager
def namespace() -> Iterator[str]:
    """A network of its own, joined to ours by one cable; skips the test where that is not allowed."""
    name, cable = f"headwater-{os.getpid()}", f"hw{os.getpid() % 100_000}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {cable}a type veth peer name {cable}b",
        f"ip link set {cable}b netns {name}",
        f"ip addr add {OURS}/30 dev {cable}a",
        f"ip link set {cable}a up",
        f"ip netns exec {name} ip addr add {THEIRS}/30 dev {cable}b",
        f"ip netns exec {name} ip link set {cable}b up",
        f"ip netns exec {name} ip link set lo up",
    ]
    if shutil.which("ip") is None:
        pytest.skip("a worker elsewhere needs the command ip (Debian: iproute2)")
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network of its own: {command}: {done.stderr.strip()}")
        yield name
    finally:
        for command in (f"ip netns del {name}", f"ip link del {cable}a"):
            subprocess.run(command.split(), capture_output=True)


@contextmanager
def daemon(log: Path, *words: str, before: tuple[str, ...] = ()) -> Iterator[None]:
    """One of Spark's own servers, ended with the block."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*before, str(home / "bin" / "spark-class"), *words],
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def cluster(tmp_path: Path, workers: bool = True) -> Iterator[tuple[str, Path]]:
    """A standalone master here and a worker elsewhere, which want a secret; the master's URL and
    the file with the secret."""
    secret, settings = tmp_path / "secret", tmp_path / "cluster.conf"
    secret.write_text(CLUSTER_SECRET + "\n")
    settings.write_text(f"{AUTHENTICATE} true\n{SECRET} {CLUSTER_SECRET}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = ["--webui-port", "0", "--properties-file", str(settings)]
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        elsewhere = stack.enter_context(namespace())
        words = [f"{deploy}.master.Master", "--host", OURS, "--port", str(port), *common]
        stack.enter_context(daemon(tmp_path / "master.log", *words))
        url = f"spark://{OURS}:{port}"
        _await(lambda: "I have been elected leader" in (tmp_path / "master.log").read_text())
        if workers:
            words = [f"{deploy}.worker.Worker", "--host", THEIRS, "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(tmp_path / "work"), *common, url]
            before = ("ip", "netns", "exec", elsewhere)
            stack.enter_context(daemon(tmp_path / "worker.log", *words, before=before))
        yield url, secret


def _await(happened: Callable[[], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.1)


TEXT = """
CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM files(path => 'in', format => 'csv');
CREATE QUERY sums AS SELECT a % 3 AS g, SUM(a) AS n FROM s [RANGE 10 SEC SLIDE 5 SEC] GROUP BY a % 3;
CREATE QUERY pairs AS SELECT x.a, y.a AS b FROM s [RANGE 3 SEC] x, s [NOW] y WHERE x.a = y.a;
"""


@pytest.mark.spark
def test_a_worker_at_another_address(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with (folder / "s.csv").open("w", newline="") as file:
        rows = [(n * 7 % 5, f"2026-03-01T08:00:{n:02}Z") for n in range(40)]
        csv.writer(file).writerows([("a", "ts"), *rows])
    (tmp_path / "a.cql").write_text(TEXT)
    state = tmp_path / "state"
    with cluster(tmp_path) as (url, secret):
        words = ["run", "a.cql", "--until-idle", "--master", url, "--state", str(state)]
        settings = [f"{SECRET_FILE}={secret}", "spark.executor.memory=512m"]
        command = [sys.executable, "-m", "headwater", *words]
        for one in settings:
            command += ["--conf", one]
        with (tmp_path / "said").open("wb") as said:
            process = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)
            seen: set[str] = set()
            while process.poll() is None:
                seen |= {line for line in _command_lines() if CLUSTER_SECRET in line}
                time.sleep(0.2)
        assert process.returncode == 0, (tmp_path / "said").read_text()
    assert not seen
    statements = parse(TEXT)
    assert isinstance(statements[0], CreateStream)
    data = {"s": load_rows(folder, "s", statements[0].stream.schema, time="ts")}
    with open_state(state) as headwater:
        for one in statements[1:]:
            assert isinstance(one, CreateQuery)
            wanted = expected(one.query, data, {})
            assert wanted
            assert result_rows(headwater, one.name, one.query) == wanted
    executed = list((tmp_path / "work").glob("app-*/0/stderr"))
    assert executed, "an executor of the worker did it"


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace")
        except OSError:
            continue


@pytest.mark.spark
@pytest.mark.slow
def test_a_cluster_without_workers(tmp_path: Path) -> None:
    (tmp_path / "a.cql").write_text(TEXT)
    with cluster(tmp_path, workers=False) as (url, secret):
        words = ["run", "a.cql", "--master", url, "--state", str(tmp_path / "state")]
        words += ["--conf", f"{SECRET_FILE}={secret}"]
        command = [sys.executable, "-m", "headwater", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2
        said = f"{url} started no executor within {{}} s; it has 0 workers, 0 of 0 cores free"
        assert said.format(30) in done.stderr and said.format(120) in done.stderr
        secret.write_text("another")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, f"{url} did not accept this application" in done.stderr) == (
            2,
            True,
        )
