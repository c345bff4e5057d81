"""Java libraries that do not come with PySpark, fetched from Maven Central when first needed.

The Kafka connector must be present when a Spark session starts, so it is fetched before, with the
Ivy that Spark includes, into a cache folder. `python -m headwater.runtime.spark.jars connector`
fetches it ahead of time; `broker` is the Kafka server that the tests start. A library is used only
if its SHA-256 is the one in `jars.sha256`, wherever it came from.
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

FOLDER_VARIABLE = "HEADWATER_JARS"
"""The environment variable that names another folder for the libraries."""

DIGESTS_VARIABLE = "HEADWATER_JAR_DIGESTS"
"""The environment variable that names a file with digests of other libraries, as `sha256sum` prints
them."""

PINNED_DIGESTS = Path(__file__).with_name("jars.sha256")
FETCH_SECONDS = 300
SPARK = "org.apache.spark"
CONNECTOR, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
KAFKA_VERSION = "4.1.2"


@dataclass(frozen=True)
class MavenModule:
    """A library and its version; `override` has other versions for some of its dependencies."""

    organisation: str
    name: str
    version: str
    override: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"

    def to_ivy_xml(self) -> str:
        """An Ivy file that depends on this module alone."""
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


def connector_modules() -> list[MavenModule]:
    """The Kafka connector for this Spark if its digest is known, then the tested one."""
    own = MavenModule(SPARK, CONNECTOR, pyspark.__version__)
    tested = MavenModule(SPARK, CONNECTOR, "4.2.0", ((TOKENS, "4.0.0"),))
    return [own, tested] if f"{own.name}-{own.version}.jar" in known_digests() else [tested]


def broker_modules() -> list[MavenModule]:
    """A Kafka server."""
    return [MavenModule("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)]


KINDS = {"connector": connector_modules, "broker": broker_modules}


def jar_folder(kind: str) -> Path:
    """The folder of the libraries of a kind."""
    configured = os.environ.get(FOLDER_VARIABLE)
    root = Path(configured) if configured else Path.home() / ".cache" / "headwater" / "jars"
    version = {"connector": pyspark.__version__, "broker": KAFKA_VERSION}[kind]
    return root / f"{kind}-{version}"


def list_jars(kind: str) -> list[Path]:
    """The libraries of a kind that were fetched already."""
    return sorted(jar_folder(kind).glob("*.jar"))


def missing_from_spark(libraries: Sequence[Path]) -> list[Path]:
    """The libraries that Spark does not include in any version.

    A second version of one that it includes would clash on the class path.
    """
    own = {_artifact(path) for path in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    return [path for path in libraries if _artifact(path) not in own]


def _artifact(path: Path) -> str:
    """The name of a library without its version."""
    return re.sub(r"-\d[^-]*(-.*)?$", "", path.stem)


def fetch(kind: str) -> list[Path]:
    """The libraries of a kind, fetched if necessary, with their digests verified.

    Raises RuntimeFailure that says what to do.
    """
    cached = list_jars(kind)
    # Verified each time: whoever may write to the folder may have changed them since.
    if cached:
        return verify_digests(cached)
    reasons = []
    for module in KINDS[kind]():
        reason = _retrieve(module, jar_folder(kind))
        if not reason:
            return verify_digests(list_jars(kind))
        reasons.append(f"{module}: {reason}")
    raise RuntimeFailure(
        f"the libraries for Kafka cannot be fetched ({'; '.join(reasons)}): try again with a network, "
        f"or put the jar files of {KINDS[kind]()[0]} and its dependencies into {jar_folder(kind)}"
    )


def verify_digests(libraries: Sequence[Path]) -> list[Path]:
    """The same libraries; raises RuntimeFailure if a digest differs or is unknown."""
    pinned = known_digests()
    for path in libraries:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.name not in pinned:
            raise RuntimeFailure(
                f"the library {path} is not among those that Headwater was tested with, so it is not "
                f"used: if you trust it, add the line that sha256sum prints for it to a file that the "
                f"variable {DIGESTS_VARIABLE} names"
            )
        if digest != pinned[path.name]:
            raise RuntimeFailure(
                f"the library {path} is not the one that Headwater was tested with (its SHA-256 is "
                f"{digest}, not {pinned[path.name]}), so it is not used: remove {path.parent} to have "
                "it fetched again; if the result is the same, do not trust its origin"
            )
    return list(libraries)


def known_digests() -> dict[str, str]:
    """The digests of the libraries that may be used, by file name."""
    own = os.environ.get(DIGESTS_VARIABLE)
    return _read_digests(PINNED_DIGESTS) | (_read_digests(Path(own)) if own else {})


def _read_digests(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise RuntimeFailure(f"{path} cannot be read: {error.strerror}") from error
    return {Path(name).name: digest for digest, name in (line.split() for line in lines if line)}


def _retrieve(module: MavenModule, target: Path) -> str:
    """Fetch a module and its dependencies into a new folder; returns an error message, or ""."""
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    java = _find_java()
    if ivy is None or java is None:
        return "there is no Java" if ivy else "this Spark has no Ivy"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Fetched beside the target and renamed, so that the target never holds half of the libraries.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as temp_dir:
        ivy_file = Path(temp_dir, "ivy.xml")
        ivy_file.write_text(module.to_ivy_xml())
        pattern = f"{temp_dir}/jars/[artifact]-[revision](-[classifier]).[ext]"
        options: list[str | Path] = [
            "-ivy",
            ivy_file,
            "-cache",
            target.parent / "ivy",
            "-retrieve",
            pattern,
        ]
        command = [java, "-jar", ivy, *options, "-types", "jar", "bundle"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            return f"no answer within {FETCH_SECONDS} s"
        if done.returncode or not any(Path(temp_dir, "jars").glob("*.jar")):
            return _ivy_failure(done.stdout + done.stderr)
        shutil.rmtree(target, ignore_errors=True)
        Path(temp_dir, "jars").rename(target)
    return ""


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def _ivy_failure(output: str) -> str:
    """The line of Ivy's report that names what is missing."""
    messages = [line.strip(" :") for line in output.splitlines() if "not found" in line]
    return messages[-1] if messages else "Ivy failed"


def main(arguments: Sequence[str]) -> int:
    """Fetch the given kinds; returns the exit status."""
    try:
        for kind in arguments:
            print(f"{kind}: {len(fetch(kind))} jars in {jar_folder(kind)}")
    except RuntimeFailure as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
