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

    def __init__(
        self, directory: Path, user: str, settings: tuple[str, ...], identity: dict[str, Any]
    ) -> None:
        self.directory = directory
        self.user = user
        self._schemas = 0
        self._settings = settings
        self._identity = identity
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or begin again with what was there; raises Missing."""
        log = self.directory / "log"
        options = [f"-c{setting}" for setting in ("listen_addresses=", *self._settings)]
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [
                    programs() / "postgres",
                    "-D",
                    self.directory / "data",
                    "-k",
                    self.directory,
                    *options,
                ],
                stdout=output,
                stderr=output,
                cwd=self.directory,
                **self._identity,
            )
        _wait(self, self._process, log)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End all connections and the server; what was committed is kept."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=20)
            self._process = None

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
        initdb = [
            programs() / "initdb",
            "-D",
            directory / "data",
            "-A",
            "trust",
            "-U",
            user,
            "--no-sync",
        ]
        made = subprocess.run(
            [*initdb, "-E", "UTF8", "--locale=C"],
            capture_output=True,
            text=True,
            cwd=directory,
            **identity,
        )
        if made.returncode:
            raise Missing(f"initdb failed: {made.stderr.strip()}")
        started = Server(directory, user, settings, identity)
        try:
            started.start()
            yield started
        finally:
            started.stop(signal.SIGQUIT)  # at once: nothing here is worth keeping
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
