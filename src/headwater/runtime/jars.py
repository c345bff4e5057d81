"""Java libraries that do not come with PySpark, fetched from Maven Central when they are first needed.

The Kafka connector has to be there when a Spark session starts, so it is fetched before, with the Ivy
that Spark brings along, into a folder that is kept. `python -m headwater.runtime.jars connector`
fetches it ahead of time; `broker` is the Kafka server that the tests start. A library is used only if its
SHA-256 is the one in `jars.sha256`, whoever it came from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headwater.errors import RuntimeFailure

PLACE = "HEADWATER_JARS"
"""The variable that names another folder for the libraries."""

DIGESTS = "HEADWATER_JAR_DIGESTS"
"""The variable that names a file with the digests of other libraries, as `sha256sum` prints them."""

PINNED = Path(__file__).with_name("jars.sha256")
SECONDS = 300
SPARK = "org.apache.spark"
CONNECTOR, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
KAFKA = "4.1.2"


@dataclass(frozen=True)
class Module:
    """A library with its version; `override` has versions for some that it needs in turn."""

    organisation: str
    name: str
    version: str
    override: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"

    def ivy(self) -> str:
        """What to fetch, in the words of Ivy."""
        overrides = "".join(
            f'<override org="{self.organisation}" module="{name}" rev="{version}"/>'
            for name, version in self.override
        )
        return f"""<ivy-module version="2.0">
          <info organisation="headwater" module="{self.name}"/>
          <configurations><conf name="default"/></configurations>
          <dependencies>
            <dependency org="{self.organisation}" name="{self.name}" rev="{self.version}"
              conf="default->default"/>
            {overrides}
          </dependencies>
        </ivy-module>"""


def connector() -> list[Module]:
    """The Kafka connector of this Spark, if its digest is known; else the one that was tested."""
    own = Module(SPARK, CONNECTOR, pyspark.__version__)
    tested = Module(SPARK, CONNECTOR, "4.2.0", ((TOKENS, "4.0.0"),))
    return [own, tested] if f"{own.name}-{own.version}.jar" in known_digests() else [tested]


def broker() -> list[Module]:
    """A Kafka server."""
    return [Module("org.apache.kafka", "kafka_2.13", KAFKA)]


KINDS = {"connector": connector, "broker": broker}


def folder(kind: str) -> Path:
    """Where the libraries of a kind are kept."""
    place = os.environ.get(PLACE)
    root = Path(place) if place else Path.home() / ".cache" / "headwater" / "jars"
    version = {"connector": pyspark.__version__, "broker": KAFKA}[kind]
    return root / f"{kind}-{version}"


def jars(kind: str) -> list[Path]:
    """The libraries of a kind that are there; none if they were not fetched yet."""
    return sorted(folder(kind).glob("*.jar"))


def beside_spark(found: Sequence[Path]) -> list[Path]:
    """Those of the libraries that Spark does not have already, in whatever version."""
    own = {_artifact(path) for path in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    return [path for path in found if _artifact(path) not in own]


def _artifact(path: Path) -> str:
    """The name of a library without its version."""
    return re.sub(r"-\d[^-]*(-.*)?$", "", path.stem)


def fetch(kind: str) -> list[Path]:
    """The libraries of a kind, fetched if need be; raises RuntimeFailure with what to do, also for
    one that is not what was fetched when its digest was written down."""
    found = jars(kind)
    if found:
        return checked(found)
    reasons = []
    for module in KINDS[kind]():
        reason = _retrieve(module, folder(kind))
        if not reason:
            return checked(jars(kind))
        reasons.append(f"{module}: {reason}")
    raise RuntimeFailure(
        f"the libraries for Kafka cannot be fetched ({'; '.join(reasons)}): try again with a "
        f"network, or put the jar files of {KINDS[kind]()[0]} and what it needs into {folder(kind)}"
    )


def checked(found: Sequence[Path]) -> list[Path]:
    """The same libraries; raises RuntimeFailure if the digest of one is another, or not known."""
    known = known_digests()
    for path in found:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.name not in known:
            raise RuntimeFailure(
                f"the library {path} is not among those that Headwater was tested with, so it is not "
                f"used: if you trust it, add the line that sha256sum prints for it to a file that the "
                f"variable {DIGESTS} names"
            )
        if digest != known[path.name]:
            raise RuntimeFailure(
                f"the library {path} is not the one that Headwater was tested with (its SHA-256 is "
                f"{digest}, not {known[path.name]}), so it is not used: remove {path.parent} to have "
                "it fetched again; if that gives the same, do not trust where it comes from"
            )
    return list(found)


def known_digests() -> dict[str, str]:
    """The digest of each library that may be used, by the name of its file."""
    own = os.environ.get(DIGESTS)
    return _digests(PINNED) | (_digests(Path(own)) if own else {})


def _digests(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise RuntimeFailure(f"{path} cannot be read: {error.strerror}") from error
    return {Path(name).name: digest for digest, name in (line.split() for line in lines if line)}


def _retrieve(module: Module, target: Path) -> str:
    """Fetch a module and all it needs into a new folder; returns what went wrong, if anything."""
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    java = _java()
    if ivy is None or java is None:
        return "there is no Java" if ivy else "this Spark has no Ivy"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as place:
        wanted = Path(place, "ivy.xml")
        wanted.write_text(module.ivy())
        pattern = f"{place}/jars/[artifact]-[revision](-[classifier]).[ext]"
        options: list[str | Path] = [
            "-ivy",
            wanted,
            "-cache",
            target.parent / "ivy",
            "-retrieve",
            pattern,
        ]
        command = [java, "-jar", ivy, *options, "-types", "jar", "bundle"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no answer within {SECONDS} s"
        if done.returncode or not any(Path(place, "jars").glob("*.jar")):
            return _reason(done.stdout + done.stderr)
        shutil.rmtree(target, ignore_errors=True)
        Path(place, "jars").rename(target)
    return ""


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def _reason(output: str) -> str:
    """The line of Ivy's report that says what is missing."""
    said = [line.strip(" :") for line in output.splitlines() if "not found" in line]
    return said[-1] if said else "Ivy failed"


def main(arguments: Sequence[str]) -> int:
    """Fetch the named kinds; returns the exit status."""
    try:
        for kind in arguments:
            print(f"{kind}: {len(fetch(kind))} jars in {folder(kind)}")
    except RuntimeFailure as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
