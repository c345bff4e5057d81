"""A catalog that is not in the state directory: named by URL, from Python and on every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import headwater
from headwater.cli.commands import app
from headwater.errors import CatalogError
from headwater.runtime.api import open_state
from headwater.runtime.catalog.database import redact_password

STREAM = "CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
QUERY = "CREATE QUERY q AS SELECT item FROM s;"
RECORD = {"item": 1, "ts": "2026-01-01T00:00:00Z"}
COMMANDS = [
    ("submit", "-e", "SHOW QUERIES"),
    ("drop", "q"),
    ("pause", "q"),
    ("resume", "q"),
    ("rewind", "s", "2026-01-01"),
    ("show", "streams"),
    ("results", "q"),
    ("status",),
    ("clean",),
    ("run",),
]


@pytest.fixture
def url(where: str) -> str:
    """The URL of a catalog that does not exist yet."""
    if "://" not in where:
        return f"sqlite:///{where}"
    return sa.make_url(where).set(password="geheim").render_as_string(hide_password=False)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def run(*words: str | Path) -> tuple[int, str]:
    """The exit status of a command and all it printed."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert "geheim" not in done.output
    return done.exit_code, done.output


def test_from_python(url: str, state: Path) -> None:
    with headwater.open(url, state=state) as opened:
        opened.execute(STREAM + QUERY)
        assert opened.push("s", [RECORD], timestamp_unit="us") == 1
        assert "geheim" not in opened.catalog.name
    assert [path.name for path in state.iterdir()] == ["log"], "the catalog is elsewhere"
    with headwater.open(state, catalog=url) as opened:
        (segment,) = opened.catalog.segments("stream:s")
        assert Path(segment.path).is_relative_to(state) and Path(segment.path).exists()


def test_commands(url: str, state: Path, tmp_path: Path) -> None:
    with open_state(url, state=state) as opened:
        opened.execute(STREAM)
        opened.push("s", [RECORD], timestamp_unit="us")
    place = ("--state", state, "--catalog", url)
    assert "query q runs" in run("submit", "-e", QUERY, *place)[1]
    assert run("pause", "q", *place) == (0, "query q paused\n")
    assert run("resume", "q", *place) == (0, "query q resumed\n")
    shown = json.loads(run("show", "streams", "-f", "json", *place)[1])
    assert shown["rows"] == 1
    status = json.loads(run("status", "-f", "json", *place)[1])
    assert status["queries"] == {"running": 1} and status["catalog"]
    assert run("results", "q", *place)[1].startswith("q: 0 rows")
    assert run("clean", "--older-than", "0", *place) == (0, "removed 0 files, 0 B\n")
    assert list((state / "log").rglob("*.parquet"))
    assert run("drop", "q", *place)[0] == 0


def test_the_environment_may_name_it(
    url: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_state(url, state=state).close()
    monkeypatch.setenv("HEADWATER_CATALOG", url)
    status, out = run("status", "-f", "json", "--state", state)
    assert status == 0 and json.loads(out)["streams"] == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_a_catalog_the_message_says_how_to_get_one(
    url: str, state: Path, command: tuple[str, ...]
) -> None:
    status, out = run(*command, "--state", state, "--catalog", url)
    assert status == 2
    assert "there is no catalog in" in out
    assert f"headwater run FILE.cql --state {state} --catalog" in out
    assert not state.exists()


def test_files_are_only_touched_where_they_are(where: str, state: Path, tmp_path: Path) -> None:
    """Cleaning the wrong directory would remove nothing that is right."""
    if "://" not in where:
        pytest.skip("files beside an SQLite catalog are found wherever it is")
    with open_state(where, state=state) as opened:
        opened.execute(STREAM + QUERY)
        opened.push("s", [RECORD], timestamp_unit="us")
    other = tmp_path / "other"
    assert run("results", "q", "--state", other, "--catalog", where)[0] == 0
    status, out = run("clean", "--state", other, "--catalog", where)
    assert status == 2
    assert f"are in {state}, not in {other}: name that directory with --state" in out
    with pytest.raises(CatalogError, match="name that directory with --state"):
        open_state(where, state=other)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:geheim@host:x/db", "postgresql://me:***@host:x/db"),
        ("postgresql://me:ge/hei?m@h@host/db?a=b", "postgresql://me:***@host/db?a=b"),
        ("postgresql://host/db?user=me&password=geheim", "postgresql://host/db?user=me&password=***"),
        ("postgresql://host/db?sslpassword=geheim&a=b", "postgresql://host/db?sslpassword=***&a=b"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:///a/b@c", "sqlite:///a/b@c"),
    ],
)  # fmt: skip
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact_password(url) == shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=geheim",
        "postgresql://me:geheim@127.0.0.1:port/db",
        "postgresql://me:geheim@127.0.0.1/db?schema=Wrong",
        "oracle://me:geheim@127.0.0.1/db",
    ],
)
def test_no_message_shows_a_password(url: str, command: tuple[str, ...], state: Path) -> None:
    status, out = run(*command, "--state", state, "--catalog", url)
    assert status == 2 and out.startswith("headwater: ")
    assert "Traceback" not in out
