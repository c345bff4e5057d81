"""Without a Java that Spark can use there is a sentence that says so, and no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import RuntimeFailure
from headwater.runtime.spark.session import authentication_settings, open_session


def java(folder: Path, script: str) -> Path:
    """A program named java in a home of its own."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    return folder


def test_no_java_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeFailure, match=r"there is none: install Java 17 .* set JAVA_HOME"):
        open_session()


def test_no_java_in_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeFailure, match=f"none in JAVA_HOME, which is {tmp_path}"):
        open_session()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2",
            "17 or later, .*java is 11: inst",
        ),
        ("#!/bin/sh\necho 'java version \"1.8.0_292\"' >&2", "17 or later, .*java is 8: install"),
        ("#!/bin/sh\necho broken library >&2; exit 127", "does not work: broken library; install"),
        ("#!/bin/sh\nexit 3", "does not work: it exits with status 3; install"),
        ("#!/nowhere/sh\n", "cannot be run: No such file or directory; install"),
    ],
)
def test_java_that_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, script)))
    with pytest.raises(RuntimeFailure, match=message):
        open_session()


def test_the_parts_of_spark_know_a_secret_wherever_they_can() -> None:
    on = {"spark.authenticate": "true"}
    assert authentication_settings("local", {}) == authentication_settings("local[*]", {}) == on
    made = authentication_settings("local-cluster[1,1,512]", {})
    assert made["spark.authenticate"] == "true" and len(made["spark.authenticate.secret"]) == 64
    assert authentication_settings("spark://host:7077", {}) == {}
    assert authentication_settings("spark://host:7077", {"spark.authenticate.secret": "x"}) == on


@pytest.mark.spark
def test_a_session_authenticates(spark: Any) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    assert spark.range(100).repartition(3).selectExpr("sum(id)").first()[0] == sum(range(100))
