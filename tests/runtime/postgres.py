"""A private PostgreSQL server for tests, from the programs of Debian's package.

It lives in a temporary directory, listens on a socket there and nowhere else, and forgets all when
stopped. PostgreSQL refuses to run as root, so root starts it as the user of the package.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

REQUIRED = "HEADWATER_REQUIRE_POSTGRESQL"
"""Set this variable to 1 where a missing server is a failure, not a reason to skip."""


class Missing(Exception):
    """Why there is no server here."""


class Server:
    """A running server; every catalog gets a schema of its own."""

    def __init__(self, directory: Path, user: str) -> None:
        self.directory = directory
        self.user = user
        self._schemas = 0

    def url(self, schema: str | None = None) -> str:
        """The URL of a catalog that is new unless its schema is named."""
        if schema is None:
            self._schemas += 1
            schema = f"catalog_{self._schemas}"
        query = f"host={self.directory}&schema={schema}"
        return f"postgresql+psycopg://{self.user}@/postgres?{query}"

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.directory), user=self.user, dbname="postgres", autocommit=True
        )


def programs() -> Path:
    """The directory of initdb and postgres, newest version first; raises Missing."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: float(path.parts[-3]),
        reverse=True,
    )
    other = shutil.which("initdb")
    if found:
        return found[0].parent
    if other:
        return Path(other).resolve().parent
    raise Missing("no PostgreSQL server is installed (on Debian: apt install postgresql)")


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """Start one with `name=value` settings, stop it at the end; raises Missing."""
    directory = Path(tempfile.mkdtemp(prefix="headwater-pg-"))
    try:
        identity, user = _identity(directory)
        data, log = directory / "data", directory / "log"
        initdb = [programs() / "initdb", "-D", data, "-A", "trust", "-U", user, "--no-sync"]
        made = subprocess.run(
            [*initdb, "-E", "UTF8", "--locale=C"],
            capture_output=True,
            text=True,
            cwd=directory,
            **identity,
        )
        if made.returncode:
            raise Missing(f"initdb failed: {made.stderr.strip()}")
        options = [f"-c{setting}" for setting in ("listen_addresses=", *settings)]
        with log.open("w") as output:
            process = subprocess.Popen(
                [programs() / "postgres", "-D", data, "-k", directory, *options],
                stdout=output,
                stderr=output,
                cwd=directory,
                **identity,
            )
        started = Server(directory, user)
        try:
            _wait(started, process, log)
            yield started
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing here is worth keeping
            process.wait(timeout=20)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _identity(directory: Path) -> tuple[dict[str, Any], str]:
    if os.geteuid() != 0:
        return {}, pwd.getpwuid(os.geteuid()).pw_name
    try:
        found = pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("root cannot run PostgreSQL, and there is no user postgres") from None
    os.chown(directory, found.pw_uid, found.pw_gid)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}, "postgres"


def _wait(started: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            started.connect().close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Missing(f"PostgreSQL did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)
