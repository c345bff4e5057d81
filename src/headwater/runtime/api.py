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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.algebra.times import from_micros
from headwater.errors import HeadwaterError, QueryRefused, RuntimeFailure, suggest
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.connectors.registry import required_jars
from headwater.runtime.ingest.client_push import push
from headwater.runtime.inspect.explain import Placement, describe_placement
from headwater.runtime.inspect.explain import format_placement as placement_lines
from headwater.runtime.inspect.explain_analyze import Analysis, analyze_query, format_analysis
from headwater.runtime.inspect.health import Health, check_health
from headwater.runtime.inspect.listing import list_views
from headwater.runtime.inspect.summary import StatusSummary, summarize
from headwater.runtime.inspect.verify import Verification, verify
from headwater.runtime.inspect.views import View
from headwater.runtime.results import reader
from headwater.runtime.results.subscribers import expired_position
from headwater.runtime.settings import SettingValue
from headwater.runtime.spark.memory import memory_setting
from headwater.runtime.storage.paths import allow_paths as restrict_paths
from headwater.runtime.storage.state_dir import check_state_dir, ensure_state_dir
from headwater.runtime.submit.revisit import Revisit
from headwater.runtime.submit.scripts import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.runtime.engine.engine import Engine

DEFAULT_STATE = ".headwater"
log = logging.getLogger("headwater")


class Headwater:
    """One catalog and its state directory; Spark starts with the first `run`."""

    def __init__(
        self,
        catalog: Catalog,
        state: Path,
        master: str,
        settings: Mapping[str, str],
        spark: SparkSession | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.catalog = catalog
        self.state = state
        self.definitions = Definitions(catalog)
        self._master = master
        self._spark_settings = settings
        self._spark = spark
        self._clock = clock
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine of this process, with its Spark session."""
        if self._engine is None:
            # A session that was handed in belongs to the caller, who alone may start it again.
            restart = self._start_spark if self._spark is None else None
            return self.start_engine(self._spark or self._start_spark(), restart)
        return self._engine

    def start_engine(
        self,
        spark: SparkSession,
        restart_spark: Callable[[], SparkSession] | None,
        overrides: Mapping[str, SettingValue] | None = None,
    ) -> Engine:
        """Make the engine of this process, in a session that the caller has started; `restart_spark`
        starts another after that has ended, and `overrides` are settings that `SET` does not change."""
        # Imported only here: PySpark takes a second to load, and submitting does not need it.
        from headwater.runtime.engine.engine import Engine

        revisit = Revisit(self.catalog, self.definitions, self._move_queries, clock=self._clock)
        self._engine = Engine(
            self.catalog,
            self.state,
            spark,
            overrides=overrides or {},
            clock=self._clock,
            revisit=revisit.look,
            restart_spark=restart_spark,
        )
        return self._engine

    def _move_queries(self, unit_id: str, names: Sequence[str], why: Mapping[str, Any]) -> bool:
        return self.engine.move_queries(unit_id, names, why)

    def _start_spark(self) -> SparkSession:
        from headwater.runtime.spark.cluster import check_cluster
        from headwater.runtime.spark.session import open_session

        spark = open_session(self._master, settings=self.session_settings())
        check_cluster(spark, self.state)
        return spark

    def session_settings(self) -> dict[str, str]:
        """The settings of a Spark session for all that is declared: with Kafka, also the connector.

        If that cannot be fetched, a warning says so, and streams from other sources run without it.
        """
        from headwater.runtime.spark.session import check_user_settings

        check_user_settings(self._spark_settings)
        settings = dict(self._spark_settings)
        try:
            jars = required_jars(self._connector_kinds())
        except RuntimeFailure as error:
            log.warning("%s", error)
            return settings
        if jars:
            from headwater.runtime.spark.jars import missing_from_spark

            user_jars = [settings["spark.jars"]] if settings.get("spark.jars") else []
            settings["spark.jars"] = ",".join([*user_jars, *map(str, missing_from_spark(jars))])
        return settings

    def _connector_kinds(self) -> set[str]:
        sources = [declared.source for declared in self.definitions.streams.values()]
        kinds = {source.kind for source in sources if source is not None}
        kinds |= {query.sink["kind"] for query in self.catalog.queries(with_sink=True)}
        return kinds

    def execute(self, text: str) -> list[str]:
        """Execute the statements of a text, none if one is wrong; returns a sentence about each.

        A declaration that exists already, with the same definition, changes nothing; the same name
        with another definition raises HeadwaterError. Where sites run the state, a query that does
        not fit raises QueryRefused, after all other statements were executed.
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
        """Append tuples to a stream declared FROM CLIENT; returns how many were ingested.

        Times are datetimes, or texts as in files. With a `timestamp_unit` they may be numbers, which
        count s, ms, us or ns since the epoch. Raises InputError for values that do not fit.
        """
        declared = self.definitions.streams.get(stream.lower())
        if declared is None:
            raise HeadwaterError(f"no stream {stream}; {suggest(stream, self.definitions.streams)}")
        if declared.source is not None:
            raise HeadwaterError(
                f"{stream} reads from {declared.source.kind}; push needs FROM CLIENT"
            )
        return push(self.catalog, self.state, declared.stream, rows, timestamp_unit, self._clock)

    def run(self, until_idle: bool = False, **options: Any) -> None:
        """Ingest streams and step units until `stop` is called or, with `until_idle`, until nothing is
        left to do. Options are those of `Engine.run`."""
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
        """Compare every file of the state with its size and checksum; it may run beside an engine."""
        return verify(self.catalog)

    def query(self, name: str) -> QueryHandle:
        """A query by name; raises HeadwaterError if there is none, suggesting others."""
        row = self.catalog.query(name)
        if row is None:
            existing = [q.spelled for q in self.catalog.queries()]
            raise HeadwaterError(f"no query {name}; {suggest(name, existing)}")
        return QueryHandle(self.catalog, row)

    def show(self, kind: str, name: str | None = None) -> list[View]:
        """The streams, tables, queries, units, segments, rejects, sites or links of the state, as
        `headwater show` lists them; raises UnknownObject if there is none of that name."""
        return list_views(self.catalog, kind, name)

    def status(self) -> StatusSummary:
        """The state in a few numbers, as `headwater status` prints it."""
        return summarize(self.catalog, str(self.state))

    def health(self) -> Health:
        """Whether the state is healthy, and if not, why, as `headwater health` prints it."""
        return check_health(self.catalog)

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
    """A submitted query: its results, and where it runs."""

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
            # The state is read before the rows: a query that finishes in between is read once more.
            current = self.catalog.query(self.row.name)
            over = current is None or current.state in ("finished", "dropped")
            for table, position in reader.read_by_segment(self.catalog, self.row, at):
                yield from reader.rows(table)
                at = position
            if not follow or over:
                return
            time.sleep(poll)

    def expired_until(self) -> datetime | None:
        """The `_tau` up to which results have expired, as their retention is over; None if all are kept."""
        position = expired_position(self.catalog, self.row)
        return None if position is None else from_micros(position["tau"])

    def explain(self, analyze: bool = False) -> str:
        """What the query means, as a tree, where it runs, what it shares and why; with `analyze` instead
        what its unit was measured to do."""
        return "\n".join(
            format_analysis(self.analysis()) if analyze else placement_lines(self.placement())
        )

    def analysis(self) -> Analysis:
        """What the query was measured to do; its `as_json` is what `headwater explain --analyze --format
        json` prints."""
        current = self.catalog.query(self.row.name)
        return analyze_query(self.catalog, current or self.row)

    def placement(self) -> Placement:
        """Where the query runs and why; its `as_json` is what `headwater explain --format json` prints."""
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
    spark: SparkSession | None = None,
    clock: Callable[[], float] | None = None,
) -> Headwater:
    """Open a state directory, which is created if it does not exist, or a catalog on PostgreSQL by URL.

    With a catalog elsewhere the state directory (`state`, by default `.headwater`) holds only the
    log. `memory` is what Spark's driver may use, such as `2g`, by default a quarter of the machine's.
    `allow_paths` are the only folders that sources, tables and sinks may use from now on, also when
    the state is opened without them; with none given, what was allowed before stays. `spark` is a
    session with Headwater's settings to use instead of starting one, which the caller stops; `clock` replaces the time of day,
    in seconds since 1970. Raises RuntimeFailure if the directory cannot be created, CatalogError if
    the catalog cannot be opened.
    """
    amount = {} if memory is None else memory_setting(memory)
    if isinstance(where, str) and re.match(r"(postgres|sqlite)[^/]*://", where):
        catalog, where = where, state or DEFAULT_STATE
    state_dir = ensure_state_dir(Path(where))
    opened_catalog = Catalog.open(catalog or state_dir, clock=clock)
    try:
        check_state_dir(opened_catalog, state_dir)
        if roots := list(allow_paths):
            restrict_paths(opened_catalog, roots)
    except BaseException:
        opened_catalog.close()
        raise
    spark_settings = {**amount, **(settings or {})}
    return Headwater(opened_catalog, state_dir, master, spark_settings, spark, clock or time.time)
