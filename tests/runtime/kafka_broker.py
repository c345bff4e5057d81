"""A private Kafka broker for tests: one node that is its own controller.

Its jars come from Maven Central (`scripts/ensure kafka`). It lives in a temporary directory, listens on
two free ports of the loopback address, and forgets all when stopped for good.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIRED = "HEADWATER_REQUIRE_KAFKA"
"""Set this variable to 1 where a missing broker is a failure, not a reason to skip."""

SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{control}
log.dirs={directory}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Missing(Exception):
    """Why there is no broker here."""


class Broker:
    """A broker that can go away and come back with what it had."""

    def __init__(self, directory: Path, jars: str) -> None:
        self.directory = directory
        self._java = [*java(), "-Xmx256m", "-cp", jars]
        self._ports = free_ports()
        self._settings = directory / "settings"
        port, control = self._ports
        self._settings.write_text(SETTINGS.format(port=port, control=control, directory=directory))
        self._process: subprocess.Popen[bytes] | None = None
        formatted = [*self._java, "kafka.tools.StorageTool", "format", "-t", "A" * 22]
        done = subprocess.run([*formatted, "-c", self._settings], capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"Kafka's storage was not made: {done.stderr[-2000:]}")

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Run; returns when the broker takes connections."""
        log = self.directory / "log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", self._settings], stdout=output, stderr=output
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._ports[0]), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise Missing(f"Kafka did not start: {log.read_text()[-2000:]}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        """End the process at once; its files stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=20)
        self._process = None


def free_ports() -> tuple[int, int]:
    """Two ports that nothing listens on."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        return one.getsockname()[1], other.getsockname()[1]


def java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise Missing("Kafka needs Java")
    return [found]


@contextmanager
def broker() -> Iterator[Broker]:
    """Start one, stop it at the end; raises Missing."""
    from headwater.runtime.jars import folder, jars

    for kind in ("connector", "broker"):
        if not jars(kind):
            raise Missing(f"no {kind} of Kafka in {folder(kind)} (scripts/ensure kafka fetches it)")
    directory = Path(tempfile.mkdtemp(prefix="headwater-kafka-"))
    started = Broker(directory, f"{folder('broker')}/*")
    try:
        started.start()
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory, ignore_errors=True)
