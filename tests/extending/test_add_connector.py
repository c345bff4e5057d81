"""Recipe: a connector from outside of the package is declared, checked, read from and sent to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from headwater.algebra.catalog import Stream
from headwater.cql import Connector, CreateStream, parse, unparse
from headwater.cql.connector_kinds import ConnectorKind
from headwater.errors import CqlErrors, HeadwaterError, InputError
from headwater.runtime.api import open_state
from headwater.runtime.connectors.base import Batch, Position, TupleChunk
from headwater.runtime.connectors.options import OptionReader
from headwater.runtime.connectors.registry import (
    CONNECTORS,
    ConnectorSpec,
    SinkSpec,
    SourceSpec,
    open_source,
    option_names,
    register_connector,
    required_jars,
    unregister_connector,
)
from headwater.runtime.connectors.sink_batch import SinkBatch
from headwater.runtime.engine.engine import Engine
from headwater.runtime.storage.columns import ARRIVAL, arrow_type

STREAM = "CREATE STREAM s (n BIGINT, ts TIMESTAMP) TIMESTAMP BY ts FROM countdown(start => 3)"
SINK = "CREATE QUERY q TO countdown(start => 7) AS SELECT n FROM s WHERE n > 1"

# ---- the connector, as somebody else would write it


@dataclass(frozen=True)
class CountdownOptions:
    """From which number to count down."""

    EXAMPLE: ClassVar[str] = "countdown(start => 3)"

    start: int


def countdown_options(connector: Connector) -> CountdownOptions:
    return CountdownOptions(OptionReader.of(connector, CountdownOptions).whole_number("start", 9))


@dataclass(frozen=True)
class CountdownSource:
    """The numbers from the start down to one, all in one batch."""

    options: CountdownOptions
    stream: Stream
    finite: bool = True
    expects_more: bool = False

    def poll(self, _spark: Any, position: Position) -> Batch | None:
        if position.get("done"):
            return None
        numbers = range(self.options.start, 0, -1)
        columns = {
            field.name: pa.array(numbers, pa.int64()).cast(arrow_type(field.type))
            for field in self.stream.schema
        }
        table = pa.table({**columns, ARRIVAL: pa.array(range(len(numbers)), pa.int64())})
        return Batch([TupleChunk(table)], {"done": True})

    def close(self) -> None:
        pass


SENT: list[dict[str, Any]] = []


def send(options: CountdownOptions, batch: SinkBatch) -> None:
    for chunk in batch.chunks:
        SENT.extend(
            {"from": options.start, "n": row.values[0]} for row in chunk.rows(batch.columns)
        )


COUNTDOWN = ConnectorSpec(
    ConnectorKind(
        "countdown", "numbers in falling order", is_source=True, is_sink=True, finite=True
    ),
    SourceSpec(CountdownOptions, countdown_options, CountdownSource),
    SinkSpec(CountdownOptions, countdown_options, send),
    jars=lambda: [Path("/opt/countdown.jar")],
)


@pytest.fixture
def registered() -> Iterator[None]:
    register_connector(COUNTDOWN)
    SENT.clear()
    yield
    unregister_connector("countdown")


# ---- what follows from it


def test_it_is_parsed_checked_and_written_back(registered: None, tmp_path: Path) -> None:
    (statement,) = parse(STREAM)
    assert isinstance(statement, CreateStream)
    assert statement.source == Connector("countdown", (("start", 3),))
    assert statement.stream.ahead is None, "its input is finite: times are not bound by the clock"
    assert parse(unparse(statement)) == (statement,)
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(f"{STREAM}; {SINK}")
        assert headwater.query("q").row.sink == {"kind": "countdown", "options": {"start": 7}}
        with pytest.raises(InputError, match="start is a whole number from 1 to 9, not 12"):
            headwater.execute(STREAM.replace("3", "12").replace(" s ", " t "))
        with pytest.raises(InputError, match=r"countdown needs start: countdown\(start => 3\)"):
            headwater.execute(SINK.replace("start => 7", "").replace(" q ", " r "))
        assert headwater._connector_kinds() == {"countdown"}
    assert required_jars({"countdown"}) == [Path("/opt/countdown.jar")]


def test_its_source_is_opened(registered: None) -> None:
    (statement,) = parse(STREAM)
    assert isinstance(statement, CreateStream) and statement.source is not None
    batch = open_source(statement.source, statement.stream).poll(None, {})  # type: ignore[arg-type]
    assert batch is not None and batch.chunks is not None
    assert [row for chunk in batch.chunks for row in chunk.table["n"].to_pylist()] == [3, 2, 1]


@pytest.mark.spark
def test_rows_go_from_its_source_to_its_sink(registered: None, spark: Any, tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater._engine = Engine(headwater.catalog, headwater.state, spark)
        headwater.execute(f"{STREAM}; {SINK}")
        headwater.run(until_idle=True)
        assert sorted(row["n"] for row in headwater.query("q").results()) == [2, 3]
    assert sorted(sent["n"] for sent in SENT) == [2, 3]


def test_without_it_the_others_are_listed() -> None:
    with pytest.raises(CqlErrors, match="there is: CLIENT, files, kafka, rate, replay, socket"):
        parse(STREAM)
    with pytest.raises(CqlErrors, match="there is: files, kafka"):
        parse(f"{STREAM.replace('countdown(start => 3)', 'CLIENT')}; {SINK}")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(HeadwaterError, match="there is a connector files already"):
        register_connector(CONNECTORS["files"])
    with pytest.raises(HeadwaterError, match="there is no connector countdown"):
        unregister_connector("countdown")
    with pytest.raises(HeadwaterError, match="is not what its kind says"):
        ConnectorSpec(ConnectorKind("in_only", "", is_source=True), sink=COUNTDOWN.sink)


# ---- the connectors that come with Headwater

GUIDE = (Path(__file__).parents[2] / "docs" / "cql.md").read_text()


@pytest.mark.parametrize("end", ["source", "sink"])
def test_the_tables_of_the_guide_are_those_of_the_registry(end: str) -> None:
    table = re.search(rf"^\| {end} \| .*\n\|.*\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    assert table is not None
    expected = []
    for connector in CONNECTORS.values():
        spec = getattr(connector, end)
        if spec is not None:
            own = option_names(spec.options)
            more = ", and [those for TLS and logins](runtime.md#kafka)"
            rest = more if len(own) < len(fields(spec.options)) else ""
            options = ", ".join(f"`{name}`" for name in own) + rest
            expected.append(f"| `{connector.kind.name}` | {connector.kind.summary} | {options} |")
    assert table[1].splitlines() == expected


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_source_is_finite_if_its_kind_is(name: str) -> None:
    connector = CONNECTORS[name]
    assert connector.source is not None
    (statement,) = parse(STREAM.replace("countdown(start => 3)", connector.source.options.EXAMPLE))
    assert isinstance(statement, CreateStream) and statement.source is not None
    assert open_source(statement.source, statement.stream).finite == connector.kind.finite
