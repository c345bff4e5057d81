"""A private Kafka broker for tests: one node that is its own controller.

Its jars come from Maven Central (`scripts/ensure kafka`). It lives in a temporary directory, listens on
free ports of the loopback address, and forgets all when stopped for good. One port takes everybody, one
takes those who log in over TLS, and one takes those who show a certificate.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

REQUIRED = "HEADWATER_REQUIRE_KAFKA"
"""Set this variable to 1 where a missing broker is a failure, not a reason to skip."""

SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control},LOGIN://127.0.0.1:{login},\
MUTUAL://127.0.0.1:{mutual}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{control}
log.dirs={directory}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
offsets.topic.num.partitions=1
ssl.keystore.type=PEM
ssl.keystore.location={directory}/broker.both.pem
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_{user}="{escaped}";
listener.name.login.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.login.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""

USER = "alice"
PASSWORD = "sesame-5c0e"
ODD_PASSWORD = 'ses"ame\\3fd1'
"""For mechanism PLAIN: with what has to be escaped."""


class Missing(Exception):
    """Why there is no broker here."""


class Broker:
    """A broker that can go away and come back with what it had."""

    def __init__(self, directory: Path, jars: str) -> None:
        self.directory = directory
        self._java = [*java(), "-Xmx256m", "-cp", jars]
        self._ports = free_ports(4)
        self._settings = directory / "settings"
        names = dict(zip(("port", "control", "login", "mutual"), self._ports, strict=True))
        escaped = ODD_PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
        self._settings.write_text(
            SETTINGS.format(**names, directory=directory, user=USER, escaped=escaped)
        )
        make_certificates(directory)
        self._process: subprocess.Popen[bytes] | None = None
        formatted = [*self._java, "kafka.tools.StorageTool", "format", "-t", "A" * 22]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            formatted += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
        done = subprocess.run([*formatted, "-c", self._settings], capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"Kafka's storage was not made: {done.stderr[-2000:]}")

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def login_servers(self) -> str:
        """Where clients have to log in, over TLS."""
        return f"127.0.0.1:{self._ports[2]}"

    @property
    def mutual_servers(self) -> str:
        """Where clients have to show a certificate."""
        return f"127.0.0.1:{self._ports[3]}"

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


def free_ports(number: int) -> list[int]:
    """Ports that nothing listens on."""
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)
        ]
        return [server.getsockname()[1] for server in opened]


def make_certificates(directory: Path) -> None:
    """An authority (`ca`), what it signed for the broker (which it names by its address alone) and
    for a client, and another authority (`other`) that signed nothing."""
    for name in ("ca", "other"):
        openssl(directory, "req", "-x509", *NEW_KEY, f"{name}.key", "-out", f"{name}.pem",
                "-subj", f"/CN={name}", "-days", "2")  # fmt: skip
    for name, names in (("broker", "IP:127.0.0.1"), ("client", "DNS:client")):
        openssl(directory, "req", "-x509", *NEW_KEY, f"{name}.key", "-out", f"{name}.pem",
                "-subj", f"/CN={name}", "-days", "2", "-addext", f"subjectAltName={names}",
                "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")  # fmt: skip
        both = [(directory / f"{name}.{kind}").read_text() for kind in ("key", "pem")]
        (directory / f"{name}.both.pem").write_text("".join(both))


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout")


def openssl(directory: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=directory, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"openssl made no certificates: {done.stderr[-1000:]}")


def java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise Missing("Kafka needs Java")
    return [found]


@contextmanager
def broker() -> Iterator[Broker]:
    """Start one, stop it at the end; raises Missing."""
    from headwater.runtime.spark.jars import jar_folder, list_jars

    for kind in ("connector", "broker"):
        if not list_jars(kind):
            raise Missing(
                f"no {kind} of Kafka in {jar_folder(kind)} (scripts/ensure kafka fetches it)"
            )
    directory = Path(tempfile.mkdtemp(prefix="headwater-kafka-"))
    started = Broker(directory, f"{jar_folder('broker')}/*")
    try:
        started.start()
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory, ignore_errors=True)
