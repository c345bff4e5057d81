"""Opening a catalog: its migrations, and every way in which it cannot be had."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgres
import psycopg
import pytest
import sqlalchemy as sa
from catalog_helpers import S, segment
from sqlalchemy import Engine, event, exc

from headwater.errors import CatalogError, CatalogUnavailable
from headwater.runtime.catalog import BatchRejects, Catalog, migrations, schema
from headwater.runtime.catalog.errors import translate_error

SECOND = ("ALTER TABLE streams ADD COLUMN owner TEXT NOT NULL DEFAULT 'us'",)


def engine(where: str) -> Engine:
    """The database itself, without a catalog in between."""
    if "://" not in where:
        return sa.create_engine(sa.URL.create("sqlite", database=where))
    url = sa.make_url(where)
    made = sa.create_engine(url.difference_update_query(["schema"]))
    return made.execution_options(schema_translate_map={None: url.query["schema"]})


@contextmanager
def changed(where: str, statement: sa.Executable) -> Iterator[sa.Connection]:
    """A change that is not committed before the block ends."""
    database = engine(where)
    try:
        with database.begin() as connection:
            connection.execute(statement)
            yield connection
    finally:
        database.dispose()


class TestMigrations:
    def test_the_tables_are_those_of_the_schema(self, where: str) -> None:
        Catalog.open(where).close()
        database = engine(where)
        name = None if "://" not in where else sa.make_url(where).query["schema"]
        inspector = sa.inspect(database)
        try:
            assert set(inspector.get_table_names(name)) == set(schema.metadata.tables)
            for table in schema.metadata.tables.values():
                columns = {column["name"] for column in inspector.get_columns(table.name, name)}
                assert columns == set(table.c.keys()), table.name
                keys = inspector.get_pk_constraint(table.name, name)["constrained_columns"]
                assert keys == [column.name for column in table.primary_key], table.name
        finally:
            database.dispose()

    def test_an_old_catalog_is_brought_up_to_date(
        self, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Catalog.open(where) as catalog:
            made = catalog.declare_stream("s", "")
        monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, SECOND))
        for _ in range(2):
            with Catalog.open(where, create=False) as catalog:
                assert catalog.streams() == [made]
        with changed(where, sa.select(schema.meta.c.version)) as connection:
            assert connection.scalar(sa.select(schema.meta.c.version)) == len(migrations.MIGRATIONS)

    def test_a_migration_is_all_or_nothing(
        self, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Catalog.open(where).close()
        first = migrations.MIGRATIONS
        monkeypatch.setattr(migrations, "MIGRATIONS", (*first, SECOND, ("CREATE TABLE (",)))
        with pytest.raises(CatalogError, match="failed"):
            Catalog.open(where)
        monkeypatch.setattr(migrations, "MIGRATIONS", (*first, SECOND))
        Catalog.open(where).close()

    def test_a_newer_catalog_is_left_alone(self, where: str) -> None:
        Catalog.open(where).close()
        with changed(where, sa.update(schema.meta).values(version=99)):
            pass
        with pytest.raises(CatalogError, match="version 99, written by a newer Headwater"):
            Catalog.open(where)

    def test_a_catalog_without_a_version(self, where: str) -> None:
        Catalog.open(where).close()
        with changed(where, sa.delete(schema.meta)):
            pass
        with pytest.raises(CatalogError, match="has lost its version number"):
            Catalog.open(where)

    def test_nothing_is_made_where_that_was_not_asked(self, where: str, tmp_path: Path) -> None:
        with pytest.raises(CatalogError, match="there is no catalog"):
            Catalog.open(where, create=False)
        assert list(tmp_path.iterdir()) == []

    def test_opened_again_it_holds_the_same(self, where: str) -> None:
        with Catalog.open(where) as catalog:
            made = catalog.declare_stream("s", "CREATE STREAM s (é)")
            kept = catalog.commit(None, segments=[segment()])
        with Catalog.open(where, create=False) as catalog:
            assert catalog.streams()[0].definition == made.definition
            assert catalog.segments(S) == kept


@contextmanager
def writing(where: str) -> Iterator[None]:
    """Another process in the middle of a change."""
    if "://" in where:
        with changed(where, sa.update(schema.meta).values(changes=7)):
            yield
        return
    connection = sqlite3.connect(where, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.rollback()
    connection.close()


class TestLocked:
    def test_a_lock_is_named_and_goes_by(self, where: str) -> None:
        with Catalog.open(where, timeout=0.1) as catalog:
            catalog.declare_stream("s", "")
            with writing(where):
                with pytest.raises(
                    CatalogUnavailable, match=r"locked by another process.*try again"
                ):
                    catalog.commit(None, segments=[segment()])
                with pytest.raises(CatalogUnavailable, match="locked"):
                    catalog.record_event("started", "u")
                assert len(catalog.streams()) == 1, "readers do not wait"
            catalog.commit(None, segments=[segment()])
            assert len(catalog.segments(S)) == 1

    def test_a_thread_that_keeps_it_is_named(self, where: str) -> None:
        with (
            Catalog.open(where, timeout=0.1) as catalog,
            catalog._database.write(),
            pytest.raises(CatalogUnavailable, match="another thread of this process"),
        ):
            catalog.declare_stream("s", "")

    def test_a_new_file_that_another_writes_at_that_moment(self, tmp_path: Path) -> None:
        """SQLite refuses WAL mode at once here, without waiting for the other."""
        where = str(tmp_path / "catalog.sqlite")
        Path(where).touch()
        with ThreadPoolExecutor() as pool:
            with writing(where):
                opening = pool.submit(Catalog.open, where)
                time.sleep(0.1)
                assert not opening.done()
            opening.result(10).close()
        with (
            writing(str(tmp_path / "other.sqlite")),
            pytest.raises(CatalogUnavailable, match="locked by another process"),
        ):
            Catalog.open(tmp_path / "other.sqlite", timeout=0.1)


class TestFiles:
    def test_a_state_directory_holds_it(self, tmp_path: Path) -> None:
        with Catalog.open(tmp_path) as catalog:
            assert catalog.name == str(tmp_path / "catalog.sqlite")
        with Catalog.open(f"sqlite:///{tmp_path}/catalog.sqlite", create=False) as catalog:
            assert catalog.name == str(tmp_path / "catalog.sqlite")

    def test_it_stays_where_it_was_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        with Catalog.open("catalog.sqlite") as catalog:
            catalog.declare_stream("s", "")
            catalog.close()
            monkeypatch.chdir("elsewhere")
            assert len(catalog.streams()) == 1

    def test_a_path_may_hold_any_character_and_new_directories(self, tmp_path: Path) -> None:
        where = tmp_path / "a b%20?é#" / "c" / "catalog.db"
        Catalog.open(where).close()
        assert where.exists()

    def test_a_file_in_the_place_of_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CatalogError, match=r"cannot create the directory .*file"):
            Catalog.open(tmp_path / "file" / "sub" / "catalog.sqlite")

    def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        where = tmp_path / "catalog.sqlite"
        where.write_bytes(b"not a database at all, but long enough to look" * 100)
        with pytest.raises(CatalogError, match="is not a catalog: name another file"):
            Catalog.open(where)

    def test_a_database_of_something_else(self, tmp_path: Path) -> None:
        where = tmp_path / "other.sqlite"
        connection = sqlite3.connect(where)
        connection.execute("CREATE TABLE books (title TEXT)")
        connection.close()
        with pytest.raises(
            CatalogError, match=r"other.sqlite is not a catalog: it holds other tables \(books\)"
        ):
            Catalog.open(where)

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        where = tmp_path / "catalog.sqlite"
        with Catalog.open(where) as catalog:
            catalog.declare_stream("s", "")
        content = bytearray(where.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        where.write_bytes(content)
        with (
            pytest.raises(CatalogError, match="is damaged: restore it from a copy"),
            Catalog.open(where) as catalog,
        ):
            catalog.streams()

    def test_a_full_disk_keeps_what_was_there(self, tmp_path: Path) -> None:
        with Catalog.open(tmp_path) as catalog:
            catalog.declare_stream("s", "")
        many = BatchRejects("s", 1, records=tuple(("bad", "x" * 8_000) for _ in range(500)))

        def limit(connection: Any, _record: object) -> None:
            connection.execute("PRAGMA max_page_count = 100")

        event.listen(Engine, "connect", limit)
        try:
            with Catalog.open(tmp_path) as catalog:
                with pytest.raises(CatalogUnavailable, match="disk that is full: free some space"):
                    catalog.commit(None, segments=[segment(key="1")], rejects=[many])
                assert catalog.segments(S) == [] == catalog.rejects("s")
                assert catalog.commit(None, segments=[segment(key="1")])[0].seq == 1
        finally:
            event.remove(Engine, "connect", limit)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs another user")
    def test_a_directory_that_may_not_be_written(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            Catalog.open(directory / "old.sqlite").close()
            directory.chmod(0o555)
            for file in directory.iterdir():
                file.chmod(0o444)
            for file, message in (
                ("old.sqlite", "is read-only|cannot be opened"),
                ("new.sqlite", "cannot be opened"),
            ):
                with as_nobody(), pytest.raises(CatalogError, match=message):
                    Catalog.open(directory / file)
            directory.chmod(0o755)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so it becomes another user for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("mysql://host/db", "SQLite or PostgreSQL, not in mysql"),
            ("sqlite://", "needs a file, not memory"),
            ("sqlite:///:memory:", "needs a file, not memory"),
            ("postgresql://host:port/db", "is not the URL of a database"),
            ("postgresql://host/db?schema=Bad-Name", "schema=Bad-Name: write a schema as"),
        ],
    )
    def test_what_is_no_place_for_a_catalog(self, url: str, message: str) -> None:
        with pytest.raises(CatalogError, match=message):
            Catalog.open(url)

    def test_without_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(CatalogError, match=r"pip install 'headwater\[postgres\]'"):
            Catalog.open("postgresql://host/db")

    def test_a_server_that_is_not_there(self) -> None:
        with pytest.raises(CatalogUnavailable, match=r"cannot be reached.*check that") as caught:
            Catalog.open("postgres://user:secret@127.0.0.1:1/db")
        assert "user:***@127.0.0.1:1/db" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.postgresql
class TestPostgresql:
    def test_catalogs_share_a_database(self, postgresql: postgres.Server) -> None:
        with Catalog.open(postgresql.url()) as one, Catalog.open(postgresql.url()) as other:
            one.declare_stream("s", "")
            assert other.streams() == [] and other.change_count() == 0

    def test_a_connection_that_broke_is_replaced(self, postgresql: postgres.Server) -> None:
        with Catalog.open(postgresql.url()) as catalog, postgresql.connect() as connection:
            catalog.declare_stream("s", "")
            self.end_all(connection)
            assert len(catalog.streams()) == 1

    def test_a_connection_that_breaks_in_a_change(self, postgresql: postgres.Server) -> None:
        with Catalog.open(postgresql.url()) as catalog, postgresql.connect() as connection:

            def end(*_: object) -> None:
                self.end_all(connection)

            event.listen(Engine, "commit", end)
            try:
                with pytest.raises(CatalogUnavailable, match=r"ended the connection|be reached"):
                    catalog.declare_stream("s", "")
            finally:
                event.remove(Engine, "commit", end)
            assert catalog.streams() == []

    @staticmethod
    def end_all(connection: psycopg.Connection[Any]) -> None:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )

    def test_a_user_without_rights(self, postgresql: postgres.Server) -> None:
        with postgresql.connect() as connection:
            connection.execute("CREATE USER guest")
        url = sa.make_url(postgresql.url()).set(username="guest")
        with pytest.raises(CatalogError, match="refuses this user: grant it CREATE"):
            Catalog.open(url.render_as_string(hide_password=False))
        wrong = sa.make_url(postgresql.url()).set(database="none")
        with pytest.raises(CatalogError, match=r'cannot be reached: .*database "none" does not'):
            Catalog.open(wrong.render_as_string(hide_password=False))

    def test_text_that_postgresql_refuses(self, postgresql: postgres.Server) -> None:
        with (
            Catalog.open(postgresql.url()) as catalog,
            pytest.raises(CatalogError, match=r"failed: .*NUL"),
        ):
            catalog.declare_stream("s", "a\x00b")


def test_other_faults_keep_their_first_line() -> None:
    fault = exc.InternalError("SELECT", {}, Exception("odd\nmore"))
    error = translate_error(fault, "catalog.sqlite", 1.0)
    assert type(error) is CatalogError and str(error) == "the catalog catalog.sqlite failed: odd"
    busy = translate_error(exc.TimeoutError("pool"), "catalog.sqlite", 1.0)
    assert isinstance(busy, CatalogUnavailable) and "no free connection" in str(busy)


def test_a_read_that_others_kept_from_beginning_may_be_repeated() -> None:
    fault = exc.OperationalError("BEGIN", {}, sqlite3.OperationalError("locking protocol"))
    assert isinstance(translate_error(fault, "catalog.sqlite", 1.0), CatalogUnavailable)
