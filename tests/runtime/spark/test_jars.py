"""Java libraries: what is there is used, and what cannot be had is said."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark
import pytest

from headwater.errors import RuntimeFailure
from headwater.runtime.api import open_state
from headwater.runtime.spark.jars import (
    DIGESTS_VARIABLE,
    FOLDER_VARIABLE,
    connector_modules,
    fetch,
    jar_folder,
    list_jars,
    missing_from_spark,
    verify_digests,
)

KAFKA = """
    CREATE STREAM s (n BIGINT, ts TIMESTAMP) TIMESTAMP BY ts
      FROM kafka(servers => '127.0.0.1:9092', topic => 't')
    """


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and no Java to fetch anything with."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "jars"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library where those of the connector are kept, and its digest."""
    jar_folder("connector").mkdir(parents=True)
    library = jar_folder("connector") / "some-1.0.jar"
    library.write_bytes(b"classes")
    (tmp_path / "digests").write_text(f"{hashlib.sha256(b'classes').hexdigest()}  some-1.0.jar\n")
    monkeypatch.setenv(DIGESTS_VARIABLE, str(tmp_path / "digests"))
    return library


def test_what_is_there_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch)
    assert [path.name for path in fetch("connector")] == ["some-1.0.jar"]


def test_a_library_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = put(tmp_path, monkeypatch)
    library.write_bytes(b"classes of another")
    with pytest.raises(RuntimeFailure, match=r"some-1\.0\.jar is not the one .* so it is not used"):
        fetch("connector")
    monkeypatch.delenv(DIGESTS_VARIABLE)
    with pytest.raises(RuntimeFailure, match=r"is not among those .* add the line that sha256sum"):
        fetch("connector")


def test_every_library_that_is_kept_here_has_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has fetched before, if it has, is what was written down."""
    monkeypatch.delenv(FOLDER_VARIABLE)
    for kind in ("connector", "broker"):
        assert verify_digests(list_jars(kind)) == list_jars(kind)


def test_the_locked_packages_have_hashes() -> None:
    text = (Path(__file__).parents[3] / "requirements.lock").read_text()
    packages = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert packages and text.count("--hash=sha256:") >= len(packages)
    assert all(line.endswith("\\") for line in packages)


def test_what_cannot_be_fetched_is_said_with_a_way_on() -> None:
    with pytest.raises(RuntimeFailure, match="there is no Java") as refused:
        fetch("connector")
    assert str(jar_folder("connector")) in str(refused.value)
    assert str(connector_modules()[0]) in str(refused.value)


def test_the_connector_of_another_spark_is_fetched_once_its_digest_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [module.version for module in connector_modules()] == ["4.2.0"]
    name = f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar"
    (tmp_path / "digests").write_text(f"{'0' * 64}  {name}\n")
    monkeypatch.setenv(DIGESTS_VARIABLE, str(tmp_path / "digests"))
    assert [module.version for module in connector_modules()] == [pyspark.__version__, "4.2.0"]


def test_what_spark_has_in_any_version_is_left_out() -> None:
    own = next(Path(pyspark.__file__).parent.glob("jars/spark-core_*.jar"))
    other = own.with_name(own.name.replace(pyspark.__version__, "1.2.3-x4"))
    new = Path("kafka-clients-3.9.2.jar")
    assert missing_from_spark([own, other, new]) == [new]


def test_a_session_has_the_connector_only_where_kafka_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_state(tmp_path / "state", settings={"spark.jars": "mine.jar"}) as headwater:
        assert headwater.session_settings() == {"spark.jars": "mine.jar"}
        headwater.execute(KAFKA)
        assert headwater.session_settings() == {"spark.jars": "mine.jar"}
        assert "cannot be fetched" in caplog.text
        found = put(tmp_path, monkeypatch)
        assert headwater.session_settings() == {"spark.jars": f"mine.jar,{found}"}
