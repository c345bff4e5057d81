"""One database, SQLite or PostgreSQL, with one writer at a time and errors a user can act on.

A write transaction begins by locking: BEGIN IMMEDIATE on SQLite, the lock of the only row of `meta`
on PostgreSQL. So writes are serialised across all processes, and code inside one may read, decide
and write without further locking. The same row counts the changes.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Executable, Table, event, exc

from headwater.errors import CatalogError, CatalogNotFound, CatalogUnavailable
from headwater.runtime.catalog import migrations
from headwater.runtime.catalog.errors import translate_error
from headwater.runtime.catalog.schema import meta
from headwater.runtime.durability import make_folder, owner_only_opener

CATALOG_FILE = "catalog.sqlite"
"""The name of the catalog within a state directory."""

Clock = Callable[[], float]
_Row = TypeVar("_Row")

_MIN_SQLITE = (3, 35, 0)
# The key of the advisory lock: arbitrary, but the same in every release. Two processes may create
# the schema concurrently, and `meta` with its row lock does not exist before that.
_MIGRATION_LOCK = 0x68656164

_COUNT_CHANGE = sa.update(meta).values(changes=meta.c.changes + 1)


@dataclass(frozen=True)
class Transaction:
    """A write transaction: its connection, and the single timestamp that all its rows carry."""

    connection: Connection
    now: float


class Database:
    """Read and write transactions on one catalog; may be shared by threads."""

    def __init__(self, where: str | Path, timeout: float, clock: Clock | None) -> None:
        self.timeout = timeout
        self._clock = clock
        self._write_lock = threading.Lock()
        self._local = threading.local()
        if "://" in str(where) and not isinstance(where, Path):
            url, self._schema = _parse_url(str(where))
        else:
            url, self._schema = _file_url(Path(where)), ""
        self.name = url.database or "" if self._is_sqlite(url) else _display_url(url)
        self.path = Path(url.database or "") if self._is_sqlite(url) else None
        self.root = self.path.parent.resolve() if self.path else None
        self._engine = self._create_engine(url)

    @staticmethod
    def _is_sqlite(url: sa.URL) -> bool:
        return url.get_backend_name() == "sqlite"

    def _create_engine(self, url: sa.URL) -> Engine:
        try:
            engine = (
                sa.create_engine(url, connect_args={"timeout": self.timeout}, max_overflow=20)
                if self._is_sqlite(url)
                else sa.create_engine(
                    url,
                    connect_args={"connect_timeout": max(2, round(self.timeout))},
                    max_overflow=20,
                    # A server that restarted leaves dead connections in the pool; without the ping
                    # each of them would fail one transaction.
                    pool_pre_ping=True,
                )
            )
        except ModuleNotFoundError as error:
            raise CatalogError(
                f"a catalog on PostgreSQL needs the package {error.name}: "
                "pip install 'headwater[postgres]'"
            ) from error
        if self._is_sqlite(url):
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            self._read_engine: Engine = engine
            self._write_engine: Engine = engine.execution_options(immediate=True)
        else:
            event.listen(engine, "connect", self._prepare_postgresql)
            # PostgreSQL's default, READ COMMITTED, sees a new state with every statement; reads
            # here consist of several statements that must agree.
            self._read_engine = engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._write_engine = engine
        return engine

    def _prepare_postgresql(self, connection: Any, _record: object) -> None:
        """Set the schema, durable commits and timeouts of a new connection."""
        limit = max(1, round(self.timeout * 1000))
        connection.autocommit = True
        connection.execute(f'SET search_path TO "{self._schema}"')
        # Files are deleted after the commit that forgets them. A commit that the server lost in a
        # crash would bring back segments without files. Stricter settings than "on" are kept.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        # All writers queue for one row: one that hangs must not block the others forever.
        connection.execute(f"SET lock_timeout TO {limit}")
        connection.execute(f"SET idle_in_transaction_session_timeout TO {max(3 * limit, 10_000)}")
        connection.autocommit = False

    def open(self, create: bool) -> None:
        """Create or migrate the schema where needed; raises CatalogError where that fails."""
        if self.path is not None:
            self._prepare_file(self.path, create)
        with self._translate_errors():
            with self._read_engine.connect() as connection, connection.begin():
                version = self._version(connection)
            if version == 0 and not create:
                raise CatalogNotFound(
                    f"there is no catalog in {self.name}: start Headwater with it first"
                )
            if version < len(migrations.MIGRATIONS):
                self._migrate()

    def _prepare_file(self, path: Path, create: bool) -> None:
        if sqlite3.sqlite_version_info < _MIN_SQLITE:
            raise CatalogError(
                f"SQLite {sqlite3.sqlite_version} is too old, 3.35 is needed: use a newer Python"
            )
        if not create and not path.exists():
            raise CatalogNotFound(
                f"there is no catalog {path}: start Headwater with it, or create it"
            )
        try:
            make_folder(path.parent.parent, 0o777)
            make_folder(path.parent)
        except OSError as error:
            raise CatalogError(
                f"cannot create the directory {path.parent}: {error.strerror}; name another one"
            ) from error
        if not path.exists():
            # SQLite gives its -wal and -shm files the mode of the main file, so that must be
            # private from the start. If this fails, SQLite fails next, and says why.
            with suppress(OSError):
                open(path, "ab", opener=owner_only_opener).close()
        self._enable_wal()

    def _enable_wal(self) -> None:
        """Put the file in WAL mode, where readers and the writer do not wait for each other.

        SQLite fails immediately with "locked" when two processes do this concurrently, whatever its
        busy timeout; hence the loop.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                with self._translate_errors(), self._engine.connect() as connection:
                    raw = connection.connection.driver_connection
                    assert isinstance(raw, sqlite3.Connection)
                    if raw.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                        raw.execute("PRAGMA journal_mode = WAL")
                    return
            except sqlite3.DatabaseError as error:
                fault = translate_error(error, self.name, self.timeout)
                if not isinstance(fault, CatalogUnavailable) or time.monotonic() > deadline:
                    raise fault from error
                time.sleep(0.02)

    def _migrate(self) -> None:
        """Bring the schema up to date; a second process waits, then has nothing left to do."""
        with self._hold_write_lock(), self._write_engine.begin() as connection:
            # The version is read again under the lock: another process may have migrated meanwhile.
            if self.path is None:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                self._create_schema(connection)
            migrations.migrate(connection, self._version(connection))

    def _create_schema(self, connection: Connection) -> None:
        exists = sa.select(sa.func.to_regnamespace(self._schema).is_not(None))
        if not connection.scalar(exists):
            connection.exec_driver_sql(f'CREATE SCHEMA "{self._schema}"')

    def _version(self, connection: Connection) -> int:
        if self.path is not None:
            tables = sa.text(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        else:
            tables = sa.text(
                "SELECT tablename FROM pg_tables WHERE schemaname = :schema"
            ).bindparams(schema=self._schema)
        return migrations.schema_version(connection, list(connection.scalars(tables)), self.name)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the catalog: the thread's snapshot, if any."""
        shared: Connection | None = getattr(self._local, "snapshot", None)
        if shared is not None:
            yield shared
            return
        with (
            self._translate_errors(),
            self._read_engine.connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads of this thread inside it see one state; writing inside it is an error."""
        with self.read() as connection:
            outer = getattr(self._local, "snapshot", None)
            self._local.snapshot = connection
            try:
                yield
            finally:
                self._local.snapshot = outer

    @contextmanager
    def write(self, quiet: bool = False) -> Iterator[Transaction]:
        """The one write transaction; committed when the block ends, rolled back if it raises.

        A quiet one is not counted as a change, so no waiting loop wakes up for it.
        """
        assert getattr(self._local, "snapshot", None) is None, "a snapshot would not see this write"
        with (
            self._translate_errors(),
            self._hold_write_lock(),
            self._write_engine.begin() as connection,
        ):
            yield Transaction(connection, self._begin_write(connection, quiet))

    def _begin_write(self, connection: Connection, quiet: bool) -> float:
        """Take the lock of `meta`, count the change, and return the time of the transaction."""
        if self.path is not None:  # BEGIN IMMEDIATE has the lock already
            if not quiet:
                connection.execute(_COUNT_CHANGE)
            return (self._clock or time.time)()
        # The server's clock, which all processes share, read after the lock was granted: now()
        # would be the time at which the transaction began to wait.
        clock: sa.ColumnElement[Any] = sa.extract("epoch", sa.func.clock_timestamp())
        if quiet:
            connection.execute(sa.select(meta.c.changes).with_for_update())
            statement: Executable = sa.select(clock)
        else:
            statement = _COUNT_CHANGE.returning(clock)
        now = float(connection.execute(statement).scalar_one())
        return self._clock() if self._clock else now

    @contextmanager
    def _hold_write_lock(self) -> Iterator[None]:
        """Queue the threads of this process, which is faster than SQLite's polling."""
        if not self._write_lock.acquire(timeout=self.timeout):
            raise CatalogUnavailable(
                f"the catalog {self.name} is locked by another thread of this process "
                f"(waited {self.timeout:g} s): try again"
            )
        try:
            yield
        finally:
            self._write_lock.release()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, exc.TimeoutError) as error:
            raise translate_error(error, self.name, self.timeout) from error

    def close(self) -> None:
        self._engine.dispose()


def redact_password(url: str) -> str:
    """A URL, valid or not, without its password.

    It hides up to the last `@`: rather too much than part of a password with odd characters.
    """
    hidden = re.sub(r"(://[^/:@]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)


def _display_url(url: sa.URL) -> str:
    return redact_password(url.render_as_string())


def _parse_url(text: str) -> tuple[sa.URL, str]:
    """The URL with its driver, and on PostgreSQL the schema that `?schema=` names."""
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise CatalogError(f"{redact_password(text)} is not the URL of a database") from None
    backend = url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise CatalogError("a catalog that several processes share needs a file, not memory")
        return _file_url(Path(url.database)), ""
    if backend not in ("postgresql", "postgres"):
        raise CatalogError(f"a catalog lives in SQLite or PostgreSQL, not in {backend}")
    schema = url.query.get("schema", "headwater")
    if not isinstance(schema, str) or not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
        raise CatalogError(f"schema={schema}: write a schema as lower-case letters, digits and _")
    return url.set(drivername="postgresql+psycopg").difference_update_query(["schema"]), schema


def _file_url(path: Path) -> sa.URL:
    """The URL of a file; absolute, as connections open later, maybe in another directory."""
    file = path / CATALOG_FILE if path.is_dir() else path
    return sa.URL.create("sqlite", database=str(file.absolute()))


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # By default sqlite3 begins a transaction only before the first write, so a read would not be
    # one snapshot; BEGIN is issued by _begin_sqlite instead.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # In WAL mode NORMAL may lose the last commits in a power cut, but the files that those commits
    # forgot are deleted by then.
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


class CatalogBase:
    """The base of the classes that make up a catalog: its database, and reading rows as records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _select_rows(
        self, row_type: Callable[..., _Row], statement: sa.Select[Any], **parameters: Any
    ) -> list[_Row]:
        """The rows that the statement selects, each passed to `row_type` as arguments."""
        with self._database.read() as connection:
            return select_rows(connection, row_type, statement, parameters)

    def _select_row(
        self, row_type: Callable[..., _Row], statement: sa.Select[Any], **parameters: Any
    ) -> _Row | None:
        selected = self._select_rows(row_type, statement, **parameters)
        return selected[0] if selected else None


def select_rows(
    connection: Connection,
    row_type: Callable[..., _Row],
    statement: sa.Select[Any],
    parameters: Mapping[str, Any] | None = None,
) -> list[_Row]:
    """The rows that the statement selects, each passed to `row_type` as arguments."""
    return [row_type(*row) for row in connection.execute(statement, parameters)]


def upsert(
    connection: Connection, table: Table, values: Sequence[Mapping[str, Any]], *keys: str
) -> None:
    """Insert the rows, or update those whose keys exist."""
    if not values:
        return
    # Importing both dialects would slow down every start; only the one in use is loaded.
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    statement = dialect.insert(table)
    replaced = {name: statement.excluded[name] for name in values[0] if name not in keys}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=replaced), list(values)
    )
