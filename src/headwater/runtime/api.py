"""Headwater from Python: open a state directory, execute statements, run, read results.

```python
import headwater

with headwater.open("state") as hw:
    hw.execute(open("airline.cql").read())
    hw.run(until_idle=True)
    for row in hw.query("gate_a7").results():
        print(row)
```
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from headwater.algebra.times import from_micros
from headwater.errors import HeadwaterError, QueryRefused, RuntimeFailure, suggest
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.ingest.client_push import push
from headwater.runtime.inspect.explain import Placement, describe_placement
from headwater.runtime.inspect.explain import format_placement as placement_lines
from headwater.runtime.inspect.explain_analyze import Analysis, analyze_query, format_analysis
from headwater.runtime.inspect.verify import Verification, verify
from headwater.runtime.results import reader
from headwater.runtime.results.subscribers import expired_position
from headwater.runtime.spark.memory import memory_setting
from headwater.runtime.storage.paths import allow_paths as restrict_paths
from headwater.runtime.storage.state_dir import check_state_dir, ensure_state_dir
from headwater.runtime.submit.scripts import execute

DEFAULT_STATE = ".headwater"
log = logging.getLogger("headwater")


class Headwater:
    """One catalog and its state directory; Spark starts with the first `run`."""

    def __init__(
        self, catalog: Catalog, state: Path, master: str, settings: Mapping[str, str]
    ) -> None:
        self.catalog = catalog
        self.state = state
        self.definitions = Definitions(catalog)
        self._master = master
        self._spark_settings = settings
        self._engine: Any = None

    @property
    def engine(self) -> Any:
        """The engine of this process, with its Spark session."""
        if self._engine is None:
            from headwater.runtime.engine.engine import Engine
            from headwater.runtime.spark.cluster import check_cluster
            from headwater.runtime.spark.session import open_session

            def start() -> Any:
                spark = open_session(self._master, settings=self.session_settings())
                check_cluster(spark, self.state)
                return spark

            self._engine = Engine(self.catalog, self.state, start(), restart_spark=start)
        return self._engine

    def session_settings(self) -> dict[str, str]:
        """What a Spark session needs for all that is declared: with Kafka, also the connector.

        Where that cannot be fetched it is said, and streams from elsewhere go on without it.
        """
        from headwater.runtime.spark.session import check_user_settings

        check_user_settings(self._spark_settings)
        settings = dict(self._spark_settings)
        if self._uses_kafka():
            from headwater.runtime.spark.jars import fetch, missing_from_spark

            try:
                connector_jars = [str(path) for path in missing_from_spark(fetch("connector"))]
                user_jars = [settings["spark.jars"]] if settings.get("spark.jars") else []
                settings["spark.jars"] = ",".join([*user_jars, *connector_jars])
            except RuntimeFailure as error:
                log.warning("%s", error)
        return settings

    def _uses_kafka(self) -> bool:
        sources = [declared.source for declared in self.definitions.streams.values()]
        kinds = {source.kind for source in sources if source is not None}
        kinds |= {query.sink["kind"] for query in self.catalog.queries(with_sink=True)}
        return "kafka" in kinds

    def execute(self, text: str) -> list[str]:
        """Carry out the statements of a text, none if one is wrong; a sentence about each.

        What is declared already, in the same words, is left as it is; the same name for something
        else raises HeadwaterError. Where sites run the state, a query that does not fit raises
        Refused, when all other statements are carried out.
        """
        done = execute(self.catalog, self.definitions, text)
        refused = [outcome.sentence for outcome in done if outcome.refused]
        if refused:
            raise QueryRefused("\n".join(refused))
        return [outcome.sentence for outcome in done]

    def push(
        self,
        stream: str,
        rows: Iterable[Mapping[str, object] | Sequence[object]],
        timestamp_unit: str | None = None,
    ) -> int:
        """Append tuples to a stream declared FROM CLIENT; returns how many were taken in.

        Times are datetimes, or texts as in files; numbers are times with a `timestamp_unit`, which is
        what they count since the epoch: s, ms, us or ns. Raises InputError for what does not fit.
        """
        declared = self.definitions.streams.get(stream.lower())
        if declared is None:
            raise HeadwaterError(f"no stream {stream}; {suggest(stream, self.definitions.streams)}")
        if declared.source is not None:
            raise HeadwaterError(
                f"{stream} reads from {declared.source.kind}; push needs FROM CLIENT"
            )
        return push(self.catalog, self.state, declared.stream, rows, timestamp_unit)

    def run(self, until_idle: bool = False, **options: Any) -> None:
        """Ingest and step until `stop` is called, or with `until_idle` until nothing is left to do."""
        engine = self.engine
        try:
            engine.run(until_idle=until_idle, **options)
        finally:
            engine.stop_requested.clear()  # it was meant for this run: the next one goes on

    def stop(self) -> None:
        """Have `run`, which another thread is in, return after the steps that are under way."""
        if self._engine is not None:
            self._engine.stop()

    def verify(self) -> Verification:
        """Compare every file of the state with what was written; it may run beside an engine."""
        return verify(self.catalog)

    def query(self, name: str) -> QueryHandle:
        """A query by name; raises HeadwaterError, naming what there is."""
        row = self.catalog.query(name)
        if row is None:
            existing = [q.spelled for q in self.catalog.queries()]
            raise HeadwaterError(f"no query {name}; {suggest(name, existing)}")
        return QueryHandle(self.catalog, row)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.release()
        self.catalog.close()

    def __enter__(self) -> Headwater:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class QueryHandle:
    """A submitted query, to read from."""

    def __init__(self, catalog: Catalog, row: QueryRow) -> None:
        self.catalog = catalog
        self.row = row

    def arrow(self) -> pa.Table:
        """All results so far, as an Arrow table."""
        return reader.read(self.catalog, self.row)[0]

    def results(self, follow: bool = False, poll: float = 0.5) -> Iterator[reader.ResultRow]:
        """Results so far; with `follow` also those to come, until it is finished or dropped."""
        at = 0
        while True:
            current = self.catalog.query(self.row.name)
            over = current is None or current.state in ("finished", "dropped")
            for table, position in reader.read_by_segment(self.catalog, self.row, at):
                yield from reader.rows(table)
                at = position
            if not follow or over:
                return
            time.sleep(poll)

    def expired_until(self) -> datetime | None:
        """The `_tau` up to which results have expired, as they were kept for long enough; None if all are
        there."""
        position = expired_position(self.catalog, self.row)
        return None if position is None else from_micros(position["tau"])

    def explain(self, analyze: bool = False) -> str:
        """What the query means, as a tree, where it runs, with whom and why; with `analyze` instead
        what it was measured to do."""
        return "\n".join(
            format_analysis(self.analysis()) if analyze else placement_lines(self.placement())
        )

    def analysis(self) -> Analysis:
        """What the query was measured to do, as `headwater explain --analyze --format json` has it."""
        current = self.catalog.query(self.row.name)
        return analyze_query(self.catalog, current or self.row)

    def placement(self) -> Placement:
        """Where the query runs and why, as `headwater explain --format json` has it."""
        current = self.catalog.query(self.row.name)
        return describe_placement(self.catalog, current or self.row)


def open_state(
    where: str | Path = DEFAULT_STATE,
    *,
    catalog: str | None = None,
    state: str | Path | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    memory: str | None = None,
    allow_paths: Iterable[str | Path] = (),
) -> Headwater:
    """Open a state directory, made if it is not there, or by its URL a catalog on PostgreSQL.

    With a catalog elsewhere the state directory (`state`, `.headwater` if not said) holds the log
    alone. `memory` is what Spark's driver may use, such as `2g`; a quarter of the machine's if not
    said. `allow_paths` are the folders that sources, tables and sinks may use from now on, also when
    it is opened without them; none given leaves that as it is. Raises RuntimeFailure if the directory
    cannot be made, CatalogError for the catalog.
    """
    amount = {} if memory is None else memory_setting(memory)
    if isinstance(where, str) and re.match(r"(postgres|sqlite)[^/]*://", where):
        catalog, where = where, state or DEFAULT_STATE
    state_dir = ensure_state_dir(Path(where))
    opened_catalog = Catalog.open(catalog or state_dir)
    try:
        check_state_dir(opened_catalog, state_dir)
        if roots := list(allow_paths):
            restrict_paths(opened_catalog, roots)
    except BaseException:
        opened_catalog.close()
        raise
    return Headwater(opened_catalog, state_dir, master, {**amount, **(settings or {})})
