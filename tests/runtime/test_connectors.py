"""What cannot be read or written is refused when it is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cql import Connector
from headwater.errors import HeadwaterError, InputError
from headwater.runtime.api import open_state
from headwater.runtime.connectors import FileOptions, file_options


def files(**options: object) -> Connector:
    return Connector("files", tuple(options.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source, options",
    [
        (files(path="in"), FileOptions("in", "json")),
        (files(path="in/x.csv"), FileOptions("in/x.csv", "csv")),
        (files(path="in/x.jsonl"), FileOptions("in/x.jsonl", "json")),
        (files(path="in", format="PARQUET", files_per_step=3), FileOptions("in", "parquet", 3)),
    ],
)
def test_options_of_files(source: Connector, options: FileOptions) -> None:
    assert file_options(source) == options


@pytest.mark.parametrize(
    "source, said",
    [
        (files(), "needs a path"),
        (files(path="in", formt="csv"), "no option formt; did you mean format"),
        (files(path="in", format="xml"), "cannot read xml"),
        (files(path="in", files_per_step=0), "from 1 on, not 0"),
        (Connector("kafka", (("topic", "t"),)), r"kafka\(..\) cannot be read yet"),
    ],
)
def test_options_that_do_not_fit(source: Connector, said: str) -> None:
    with pytest.raises(InputError, match=said):
        file_options(source)


@pytest.mark.parametrize(
    "text, said",
    [
        ("CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM kafka(topic => 't')", "kafka"),
        ("CREATE TABLE t (a INT) FROM files(pth => 'x')", "did you mean path"),
        (
            "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            "CREATE QUERY q TO files(path => 'out') AS SELECT a FROM s",
            "cannot be written yet",
        ),
    ],
)
def test_nothing_of_a_text_is_done_if_a_part_cannot_run(
    tmp_path: Path, text: str, said: str
) -> None:
    with open_state(tmp_path / "state") as headwater:
        with pytest.raises(HeadwaterError, match=said):
            headwater.execute(text)
        assert not headwater.catalog.streams()
        assert not headwater.catalog.queries()
