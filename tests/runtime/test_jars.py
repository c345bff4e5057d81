"""Java libraries: what is there is used, and what cannot be had is said."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from headwater.errors import RuntimeFailure
from headwater.runtime.api import open_state
from headwater.runtime.jars import PLACE, beside_spark, connector, fetch, folder

KAFKA = """
    CREATE STREAM s (n BIGINT, ts TIMESTAMP) TIMESTAMP BY ts
      FROM kafka(servers => '127.0.0.1:9092', topic => 't')
    """


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and no Java to fetch anything with."""
    monkeypatch.setenv(PLACE, str(tmp_path / "jars"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_what_is_there_is_not_fetched() -> None:
    folder("connector").mkdir(parents=True)
    (folder("connector") / "some-1.0.jar").touch()
    assert [path.name for path in fetch("connector")] == ["some-1.0.jar"]


def test_what_cannot_be_fetched_is_said_with_a_way_on() -> None:
    with pytest.raises(RuntimeFailure, match="there is no Java") as refused:
        fetch("connector")
    assert str(folder("connector")) in str(refused.value)
    assert str(connector()[0]) in str(refused.value)


def test_what_spark_has_in_any_version_is_left_out() -> None:
    own = next(Path(pyspark.__file__).parent.glob("jars/spark-core_*.jar"))
    other = own.with_name(own.name.replace(pyspark.__version__, "1.2.3-x4"))
    new = Path("kafka-clients-3.9.2.jar")
    assert beside_spark([own, other, new]) == [new]


def test_a_session_has_the_connector_only_where_kafka_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_state(tmp_path / "state", settings={"spark.jars": "mine.jar"}) as headwater:
        assert headwater.session_settings() == {"spark.jars": "mine.jar"}
        headwater.execute(KAFKA)
        assert headwater.session_settings() == {"spark.jars": "mine.jar"}
        assert "cannot be fetched" in caplog.text
        folder("connector").mkdir(parents=True)
        (folder("connector") / "some-1.0.jar").touch()
        found = folder("connector") / "some-1.0.jar"
        assert headwater.session_settings() == {"spark.jars": f"mine.jar,{found}"}
