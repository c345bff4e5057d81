"""Logs: which segments each consists of, and the position of each reader.

`commit` is the one transaction that makes work permanent: it registers segments and moves cursors
together, under a lease. Sequence numbers are assigned inside it, so within a log they have no gaps,
and a reader that has seen number n has seen all before it.

Paths below the directory of an SQLite catalog are stored relative to it, so that the directory can
be moved or copied; callers always get absolute paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from headwater.errors import CatalogError, CommitConflict
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import CatalogBase, Transaction, select_rows, upsert
from headwater.runtime.catalog.journal import (
    add_event,
    add_rejects,
    record_files,
    write_profiles,
    write_statistics,
)
from headwater.runtime.catalog.leases import check_lease
from headwater.runtime.catalog.records import (
    BatchRejects,
    Cursors,
    FileChanges,
    Json,
    Lease,
    LogEnd,
    LogStats,
    NewSegment,
    Segment,
    SegmentArrival,
    Statistics,
    StreamRow,
)
from headwater.runtime.durability import make_durable

MAX_BATCH_KEYS = 1_000
"""How many batch keys of a log are remembered, even after their segments are removed."""

_CHUNK = 5_000  # ids in one statement: SQLite takes at most 32,766 parameters, PostgreSQL 65,535
_MAX_SEQ = 2**63 - 1
_S = schema.segments
_Item = TypeVar("_Item", int, str)


def _is_within_span(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether all of a segment is in the span."""
    after: sa.BindParameter[int] = sa.bindparam("after")
    last: sa.BindParameter[int] = sa.bindparam("last")
    # seq > after follows from first_seq > after; it lets the database use the index on (log, seq).
    return sa.and_(table.c.first_seq > after, table.c.seq > after, table.c.seq <= last)


def _select_segments() -> sa.Select[Any]:
    """The segments within the span that are not pieces of a compacted one within it."""
    larger = _S.alias("larger")
    return (
        sa.select(_S)
        .outerjoin(larger, larger.c.id == _S.c.compacted_into)
        .where(_S.c.log == sa.bindparam("log"), _is_within_span(_S))
        .where(larger.c.id.is_(None) | sa.not_(_is_within_span(larger)))
        .order_by(_S.c.first_seq)
    )


def _select_split_segments() -> sa.Select[Any]:
    """Compacted segments that are partly in the span and whose pieces were removed."""
    piece = _S.alias("piece")
    piece_count = (
        sa.select(sa.func.count()).select_from(piece).where(piece.c.compacted_into == _S.c.id)
    )
    return (
        sa.select(_S.c.first_seq, _S.c.seq)
        .where(_S.c.log == sa.bindparam("log"))
        .where(_S.c.seq > sa.bindparam("after"), _S.c.first_seq <= sa.bindparam("last"))
        # A literal, not a parameter: the partial index is used only if its condition is recognised.
        .where(_S.c.pieces > sa.literal_column("0"))
        .where(sa.not_(_is_within_span(_S)), _S.c.pieces > piece_count.scalar_subquery())
    )


# Built once: building a statement takes longer than running it.
_SEGMENTS = _select_segments()
_OVERLAPPING_SEGMENTS = _SEGMENTS.where(
    _S.c.largest_time >= sa.bindparam("least"), _S.c.least_time <= sa.bindparam("largest")
)
_SPLIT_SEGMENTS = _select_split_segments()
_ARRIVALS = (
    sa.select(_S.c.seq, _S.c.rows, _S.c.created_at)
    .where(_S.c.log == sa.bindparam("log"), _S.c.seq > sa.bindparam("after"))
    .where(_S.c.compacted_into.is_(None), _S.c.rows > 0)
    .order_by(_S.c.seq)
)

_CURSORS = sa.select(schema.cursors.c.input, schema.cursors.c.position).where(
    schema.cursors.c.owner == sa.bindparam("owner")
)


class Logs(CatalogBase):
    """Segments and cursors."""

    def commit(
        self,
        lease: Lease | None,
        *,
        segments: Sequence[NewSegment] = (),
        cursors: Cursors | None = None,
        statistics: Statistics | None = None,
        stream_progress: tuple[str, int] | None = None,
        rejects: Sequence[BatchRejects] = (),
        ended_stream: str | None = None,
        removed: Sequence[int] = (),
        profiles: Mapping[str, Json] | None = None,
        expected_cursors: Mapping[tuple[str, str], Json] | None = None,
        unit_version: tuple[str, int] | None = None,
        events: Sequence[tuple[str, str, Json]] = (),
        files: FileChanges | None = None,
    ) -> list[Segment]:
        """Commit the work of one step or batch, all of it or nothing; returns its segments.

        If the keys of its segments are already registered, the commit is a repetition: nothing
        changes, and what is left of its segments is returned. Raises LeaseLost if another holds the
        lease, CommitConflict if a cursor or the version of a unit is not as expected, and
        CatalogError if a log or stream was dropped, or a file swept, meanwhile.
        """
        # Before the transaction, as syncing may take long and other writers would wait for it.
        sync_files(s.path for s in segments if s.on_disk)
        with self._database.write() as transaction:
            # Inside the transaction: the lease cannot change hands between this check and the
            # commit.
            check_lease(transaction, lease)
            # Clients append without a lease: they are kept apart by the cursor that both expect to
            # move.
            check_cursors(transaction.connection, expected_cursors or {})
            if unit_version is not None:
                check_unit_version(transaction.connection, *unit_version)
            # After the checks: a process that lost its lease is refused even if it repeats a
            # commit.
            if _is_repeated(transaction.connection, segments):
                return self._with_absolute_paths(
                    _earlier_segments(transaction.connection, segments)
                )
            appended = [
                _append_segment(transaction, self._with_relative_path(segment))
                for segment in segments
            ]
            if removed:
                transaction.connection.execute(sa.delete(_S).where(_S.c.id.in_(removed)))
            move_cursors(transaction, cursors or {})
            write_statistics(transaction, statistics or {})
            write_profiles(transaction, profiles or {})
            add_rejects(transaction, rejects)
            # In the same transaction: no event then tells of something that a crash has undone.
            for kind, subject, detail in events:
                add_event(transaction, kind, subject, detail)
            if files is not None:
                record_files(transaction, files)
            if stream_progress is not None:
                _advance_stream(transaction.connection, *stream_progress)
            if ended_stream is not None:
                _change_stream(transaction.connection, ended_stream, ended=True, reopens=False)
                add_event(transaction, "stream ended", ended_stream.lower(), {})
            return self._with_absolute_paths(appended)

    def rewind_stream(
        self,
        lease: Lease,
        stream: StreamRow,
        removed: Sequence[int],
        remainder: NewSegment,
        max_event_time: int | None,
        closed_until: int | None,
        rejects: BatchRejects,
        cursors: Cursors,
    ) -> None:
        """Replace some segments of a stream by what is left of them, appended to its log.

        The largest event time of the stream and the watermark become the given ones, also where
        they were larger. Raises LeaseLost, and CommitConflict if the stream got more segments
        meanwhile.
        """
        log, logs, watermark = remainder.log, schema.logs, remainder.watermark
        with self._database.write() as transaction:
            connection = transaction.connection
            check_lease(transaction, lease)
            same = logs.c.log == log
            # A client may push without a lease, and its segment is not among those that were looked
            # at.
            if connection.scalar(sa.select(logs.c.next_seq).where(same)) != stream.next_seq:
                raise CommitConflict(f"{stream.spelled} got more segments meanwhile")
            gone = _with_pieces(connection, removed)
            # Only the outermost count: a compacted segment has the rows of its pieces again.
            live = [segment for segment in gone if segment.compacted_into is None]
            for ids in _chunks(segment.id for segment in gone):
                connection.execute(sa.delete(_S).where(_S.c.id.in_(ids)))
            updates = {
                "total_rows": logs.c.total_rows - sum(segment.rows for segment in live),
                "total_bytes": logs.c.total_bytes - sum(segment.bytes for segment in live),
                "watermark": watermark,
            }
            connection.execute(sa.update(logs).where(same).values(updates))
            lowest = -_MAX_SEQ if watermark is None else watermark
            # A reader takes the watermark of the last segment that it read, so none may be left
            # that promises more than the stream does now.
            ahead = sa.and_(_S.c.log == log, _S.c.watermark > lowest)
            connection.execute(sa.update(_S).where(ahead).values(watermark=watermark))
            _append_segment(transaction, self._with_relative_path(remainder))
            updates = {"max_event_time": max_event_time, "closed_until": closed_until}
            _change_stream(connection, stream.name, **updates)
            move_cursors(transaction, cursors)
            add_rejects(transaction, [rejects])

    def segments(
        self,
        log: str,
        after_seq: int = 0,
        up_to: int | None = None,
        overlapping: tuple[int, int] | None = None,
    ) -> list[Segment]:
        """The fewest segments that hold exactly the log after `after_seq` and up to `up_to`.

        A compacted segment that reaches beyond either end is represented by its pieces; raises
        CatalogError if those were removed. `overlapping` is a range of event times, both ends
        included: segments without a row in it are left out.
        """
        span = {"log": log, "after": after_seq, "last": _MAX_SEQ if up_to is None else up_to}
        statement = _SEGMENTS
        if overlapping is not None:
            statement = _OVERLAPPING_SEGMENTS
            span |= {"least": overlapping[0], "largest": overlapping[1]}
        with self._database.read() as connection:
            _check_pieces(connection, span)
            return select_rows(connection, self._build_segment, statement, span)

    def segments_after(self, log: str, after_seq: int, limit: int) -> list[Segment]:
        """The next segments of a log with rows after a sequence number, at most `limit`.

        The first may begin before that number, if it was compacted since the reader noted it.
        """
        statement = (
            sa.select(_S)
            .where(_S.c.log == log, _S.c.seq > after_seq, _S.c.compacted_into.is_(None))
            .order_by(_S.c.seq)
            .limit(limit)
        )
        return self._select_rows(self._build_segment, statement)

    def fragmented_logs(self, kind: str, min_segments: int) -> dict[str, int]:
        """The logs of a kind (say `unit`) with at least `min_segments` segments, and how many."""
        live = sa.and_(_S.c.compacted_into.is_(None), _S.c.log.startswith(f"{kind}:"))
        number = sa.func.count()
        statement = (
            sa.select(_S.c.log, number)
            .where(live)
            .group_by(_S.c.log)
            .having(number >= min_segments)
        )
        with self._database.read() as connection:
            return {row[0]: int(row[1]) for row in connection.execute(statement)}

    def compacted_pieces(self, log: str) -> list[Segment]:
        """The segments that were replaced by a compacted one and are not yet removed."""
        replaced = sa.and_(_S.c.log == log, _S.c.compacted_into.is_not(None))
        return self._select_rows(
            self._build_segment, sa.select(_S).where(replaced).order_by(_S.c.seq)
        )

    def log_stats(self, log: str) -> LogStats:
        """The size of a log now and in total; raises CatalogError if there is no such log."""
        live = sa.and_(_S.c.log == schema.logs.c.log, _S.c.compacted_into.is_(None))
        stats = self._select_row(
            LogStats,
            sa.select(
                sa.func.count(_S.c.id).label("segments"),
                # PostgreSQL adds BIGINTs up to a NUMERIC, which would arrive as a Decimal.
                sa.func.coalesce(sa.cast(sa.func.sum(_S.c.rows), sa.BigInteger), 0).label("rows"),
                sa.func.coalesce(sa.cast(sa.func.sum(_S.c.bytes), sa.BigInteger), 0).label("bytes"),
                sa.func.min(_S.c.least_time).label("least_time"),
                sa.func.max(_S.c.largest_time).label("largest_time"),
                schema.logs.c.total_rows,
                schema.logs.c.total_bytes,
            )
            # Outer, as a log without segments has a size too.
            .select_from(schema.logs.outerjoin(_S, live))
            .where(schema.logs.c.log == log)
            .group_by(schema.logs.c.log, schema.logs.c.total_rows, schema.logs.c.total_bytes),
        )
        if stats is None:
            raise CatalogError(_missing_log_message(log))
        return stats

    def log_ends(self) -> dict[str, LogEnd]:
        """The last sequence number and the watermark of every log, in one small read."""
        with self._database.read() as connection:
            ends = connection.execute(
                sa.select(schema.logs.c.log, schema.logs.c.next_seq, schema.logs.c.watermark)
            )
            return {log: LogEnd(next_seq - 1, watermark) for log, next_seq, watermark in ends}

    def arrivals(self, log: str, after_seq: int) -> list[SegmentArrival]:
        """The segments appended to a log after a sequence number, without empty ones."""
        after = {"log": log, "after": after_seq}
        return self._select_rows(SegmentArrival, _ARRIVALS.params(after))

    def replace_segments(self, lease: Lease | None, old: Sequence[int], new: NewSegment) -> Segment:
        """Replace neighbouring segments by one with the same rows (compaction).

        The old ones stay as its pieces, files included, until they are removed: readers in the
        middle of the span still need them. Raises CatalogError if they were removed or replaced
        already, are not neighbours, or differ in the number of rows.
        """
        sync_files([new.path] if new.on_disk else [])
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            pieces = _segments_by_ids(transaction.connection, old)
            _check_neighbours(transaction.connection, old, pieces, new)
            segment = insert_segment(
                transaction,
                self._with_relative_path(new),
                pieces[0].first_seq,
                pieces[-1].seq,
                pieces=len(pieces),
                # Retention goes by the age of the newest row, which compaction does not renew.
                created_at=pieces[-1].created_at,
            )
            for ids in _chunks(old):
                transaction.connection.execute(
                    sa.update(_S).where(_S.c.id.in_(ids)).values(compacted_into=segment.id)
                )
            return self._with_absolute_paths([segment])[0]

    def remove_segments(self, ids: Iterable[int], lease: Lease | None = None) -> list[Segment]:
        """Remove segments, and with a compacted one its pieces; returns all that were removed.

        Unknown ids are skipped, so that two sweeps may overlap. Delete the files afterwards: in the
        other order a crash between the two would leave segments without files.
        """
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            removed: dict[int, Segment] = {}
            for chunk in _chunks(ids):
                segments = _with_pieces(transaction.connection, chunk)
                removed.update((segment.id, segment) for segment in segments)
                # The pieces go with their segment, by the cascade of the schema.
                transaction.connection.execute(sa.delete(_S).where(_S.c.id.in_(chunk)))
            return self._with_absolute_paths(removed.values())

    def all_segments(self) -> list[Segment]:
        """The segments of all logs, pieces included."""
        return self._select_rows(self._build_segment, sa.select(_S).order_by(_S.c.log, _S.c.seq))

    def all_paths(self) -> set[str]:
        """The files of all segments, pieces included: any other file is an orphan."""
        with self._database.read() as connection:
            return self._paths(connection)

    def remove_unreferenced(self, paths: Iterable[str], remove: Callable[[str], None]) -> list[str]:
        """Remove the files that no segment names, and return them.

        Files are removed inside a write transaction, in which nothing can be registered; so a
        stalled step cannot commit a file that was removed here, and no committed file is removed.
        """
        removed = []
        # In small chunks, as all other writers wait meanwhile.
        for chunk in _chunks(paths, 100):
            with self._database.write(quiet=True) as transaction:
                referenced = self._paths(transaction.connection)
                for path in chunk:
                    if path not in referenced:
                        remove(path)
                        removed.append(path)
        return removed

    def _paths(self, connection: Connection) -> set[str]:
        paths = connection.scalars(sa.select(_S.c.path).where(_S.c.path != ""))
        return {self._absolute_path(path) for path in paths}

    def _absolute_path(self, path: str) -> str:
        """The absolute path of a stored one."""
        root = self._database.root
        return path if root is None or path.startswith("/") or not path else f"{root}/{path}"

    def _build_segment(
        self, id: int, log: str, first_seq: int, seq: int, path: str, *rest: Any
    ) -> Segment:
        return Segment(id, log, first_seq, seq, self._absolute_path(path), *rest)

    def _with_absolute_paths(self, segments: Iterable[Segment]) -> list[Segment]:
        """The segments with absolute paths."""
        return [replace(segment, path=self._absolute_path(segment.path)) for segment in segments]

    def _with_relative_path(self, new: NewSegment) -> NewSegment:
        """The segment with its path as stored; raises CatalogError if its file was removed.

        This runs inside the transaction: `remove_unreferenced` cannot remove the file any more.
        """
        if new.on_disk and not Path(new.path).exists():
            raise CatalogError(f"the file {new.path} was removed before it could be registered")
        root = self._database.root
        if root is None or not new.path or not Path(new.path).is_relative_to(root):
            return new
        return replace(new, path=str(Path(new.path).relative_to(root)))

    def cursor(self, owner: str, input: str) -> Json:
        """The position of the owner in that input, or None."""
        return self.cursors(owner).get(input)

    def reader_positions(self, log: str) -> dict[str, Json]:
        """The position of each reader of a log, by owner."""
        table = schema.cursors
        with self._database.read() as connection:
            selected = connection.execute(
                sa.select(table.c.owner, table.c.position).where(table.c.input == log)
            )
            return {row.owner: row.position for row in selected}

    def cursors(self, owner: str) -> dict[str, Json]:
        """The positions of an owner, by input."""
        with self._database.read() as connection:
            selected = connection.execute(_CURSORS, {"owner": owner})
            return {row.input: row.position for row in selected}


def sync_files(paths: Iterable[str]) -> None:
    """Sync files to the disk, to be called before the transaction that names them.

    The commit itself is durable; without this a power cut could leave the name of a file that has
    lost its content.
    """
    try:
        make_durable(paths)
    except FileNotFoundError as error:
        raise CatalogError(
            f"the file {error.filename} was removed before it could be registered"
        ) from None


def create_log(transaction: Transaction, log: str) -> None:
    """Create an empty log."""
    # Numbers begin at 1: 0 is the position of a reader that has read nothing.
    values = {"log": log, "next_seq": 1, "total_rows": 0, "total_bytes": 0}
    transaction.connection.execute(sa.insert(schema.logs), values)


def drop_log(transaction: Transaction, log: str) -> None:
    """Remove a log, its segments (by cascade) and the cursors in it; its files become orphans."""
    for table, column in ((schema.logs, "log"), (schema.cursors, "input")):
        transaction.connection.execute(sa.delete(table).where(table.c[column] == log))


def move_cursors(transaction: Transaction, cursors: Cursors) -> None:
    """Set each cursor, whatever its position was."""
    values = [
        {"owner": owner, "input": input, "position": position}
        for (owner, input), position in cursors.items()
    ]
    # `check_cursors` takes None for a cursor that is not there.
    if any(value["position"] is None for value in values):
        raise CatalogError("a cursor needs a position")
    upsert(transaction.connection, schema.cursors, values, "owner", "input")


def check_cursors(connection: Connection, expected: Mapping[tuple[str, str], Json]) -> None:
    """Raise CommitConflict unless each cursor has that position; None: there is none."""
    table = schema.cursors
    for (owner, input), position in expected.items():
        same = sa.and_(table.c.owner == owner, table.c.input == input)
        if connection.scalar(sa.select(table.c.position).where(same)) != position:
            raise CommitConflict(f"{owner} has advanced in {input}: another commit came first")


def check_unit_version(connection: Connection, unit_id: str, version: int) -> None:
    """Raise CommitConflict if the queries of a unit have changed since this version."""
    units = schema.units
    if connection.scalar(sa.select(units.c.version).where(units.c.id == unit_id)) != version:
        raise CommitConflict(f"the queries of unit {unit_id} have changed")


def _check_pieces(connection: Connection, span: Mapping[str, Any]) -> None:
    """Raise CatalogError if a compacted segment across an end of the span has lost its pieces."""
    split = connection.execute(_SPLIT_SEGMENTS, span).first()
    if split is not None:
        raise CatalogError(
            f"{span['log']} after {span['after']} and up to {span['last']} cannot be read: "
            f"{split.first_seq} to {split.seq} were compacted into one, and the pieces removed"
        )


def _is_repeated(connection: Connection, segments: Sequence[NewSegment]) -> bool:
    keyed = {(segment.log, segment.key) for segment in segments if segment.key is not None}
    repeated = {pair for pair in keyed if _batch_seq(connection, *pair) is not None}
    # To register the rest would give the batch other rows than it had the first time.
    if repeated and repeated != keyed:
        raise CatalogError(
            f"a commit repeats {', '.join(f'{key} of {log}' for log, key in sorted(repeated))}, "
            "but with other segments than before"
        )
    return bool(repeated)


def _earlier_segments(connection: Connection, segments: Sequence[NewSegment]) -> list[Segment]:
    earlier = []
    for segment in segments:
        seq = _batch_seq(connection, segment.log, segment.key)
        # A compacted segment may end in the same number: the one that was committed is meant.
        same = sa.and_(_S.c.log == segment.log, _S.c.seq == seq, _S.c.pieces == 0)
        earlier += select_rows(connection, Segment, sa.select(_S).where(same))
    return earlier


def _batch_seq(connection: Connection, log: str, key: str | None) -> int | None:
    table = schema.batches
    same = sa.and_(table.c.log == log, table.c.key == key)
    return connection.scalar(sa.select(table.c.seq).where(same))


def _append_segment(transaction: Transaction, new: NewSegment) -> Segment:
    logs = schema.logs
    changes: dict[str, Any] = {
        "next_seq": logs.c.next_seq + 1,
        "total_rows": logs.c.total_rows + new.rows,
        "total_bytes": logs.c.total_bytes + new.bytes,
    }
    if new.watermark is not None:
        # What a log has promised is never taken back, whatever the order of commits.
        changes["watermark"] = _larger_of(logs.c.watermark, new.watermark)
    next_seq = transaction.connection.scalar(
        sa.update(logs).where(logs.c.log == new.log).values(changes).returning(logs.c.next_seq)
    )
    if next_seq is None:
        raise CatalogError(_missing_log_message(new.log))
    seq = next_seq - 1
    if new.key is not None:
        _remember_batch(transaction.connection, new.log, new.key, seq)
    return insert_segment(transaction, new, seq, seq, pieces=0)


def _remember_batch(connection: Connection, log: str, key: str, seq: int) -> None:
    table = schema.batches
    connection.execute(sa.insert(table), {"log": log, "key": key, "seq": seq})
    if seq % 100 == 0:  # not with every commit, as it would add a statement to each
        old = sa.and_(table.c.log == log, table.c.seq <= seq - MAX_BATCH_KEYS)
        connection.execute(sa.delete(table).where(old))


def insert_segment(
    transaction: Transaction,
    new: NewSegment,
    first_seq: int,
    seq: int,
    pieces: int,
    created_at: float | None = None,
) -> Segment:
    """Register a file under sequence numbers, with the age of its newest rows (default: now)."""
    values = asdict(new)
    del values["key"], values["on_disk"]
    values |= {"first_seq": first_seq, "seq": seq, "pieces": pieces, "compacted_into": None}
    values["created_at"] = transaction.now if created_at is None else created_at
    statement = sa.insert(_S).values(values).returning(_S.c.id)
    return Segment(id=transaction.connection.execute(statement).scalar_one(), **values)


def _check_neighbours(
    connection: Connection, old: Sequence[int], pieces: Sequence[Segment], new: NewSegment
) -> None:
    if not pieces or len(pieces) != len(set(old)):
        raise CatalogError(f"only {len(pieces)} of the segments {list(old)} exist")
    replaced = [piece.id for piece in pieces if piece.compacted_into is not None]
    if replaced:
        raise CatalogError(f"segments {replaced} were replaced already")
    if {piece.log for piece in pieces} != {new.log}:
        raise CatalogError(f"segments of other logs cannot be replaced by one of {new.log}")
    if sum(piece.rows for piece in pieces) != new.rows:
        raise CatalogError(
            f"{sum(piece.rows for piece in pieces)} rows cannot be replaced by {new.rows}"
        )
    between = sa.and_(_S.c.first_seq >= pieces[0].first_seq, _S.c.seq <= pieces[-1].seq)
    live = sa.and_(_S.c.log == new.log, _S.c.compacted_into.is_(None), between)
    if connection.scalar(sa.select(sa.func.count()).select_from(_S).where(live)) != len(pieces):
        raise CatalogError("only neighbouring segments of a log can be replaced by one")


def _segments_by_ids(connection: Connection, ids: Iterable[int]) -> list[Segment]:
    selected = [
        segment
        for chunk in _chunks(ids)
        for segment in select_rows(connection, Segment, sa.select(_S).where(_S.c.id.in_(chunk)))
    ]
    return sorted(selected, key=lambda segment: segment.first_seq)


def _with_pieces(connection: Connection, ids: Sequence[int]) -> list[Segment]:
    """These segments and, at any depth, the pieces they were compacted from."""
    tree = sa.select(_S.c.id).where(_S.c.id.in_(ids)).cte("tree", recursive=True)
    tree = tree.union(sa.select(_S.c.id).join(tree, _S.c.compacted_into == tree.c.id))
    inside = sa.select(_S).join(tree, tree.c.id == _S.c.id).order_by(_S.c.id)
    return select_rows(connection, Segment, inside)


def _chunks(items: Iterable[_Item], size: int | None = None) -> Iterable[list[_Item]]:
    remaining = iter(sorted(set(items)))
    return iter(lambda: list(islice(remaining, size or _CHUNK)), [])


def _larger_of(column: sa.ColumnElement[Any], value: int) -> sa.ColumnElement[Any]:
    return sa.case((column > value, column), else_=value)


def _advance_stream(connection: Connection, stream: str, event_time: int) -> None:
    """Raise the largest event time of a stream; it never falls, nor rises after the end."""
    table = schema.streams
    ended = sa.select(table.c.ended).where(table.c.name == stream.lower())
    # Queries may have finished, and instants been emitted, on the strength of the end.
    if connection.scalar(ended):
        raise CatalogError(f"stream {stream} has ended: nothing can be added to it")
    largest = _larger_of(table.c.max_event_time, event_time)
    _change_stream(connection, stream, max_event_time=largest)


def _change_stream(connection: Connection, name: str, **values: object) -> None:
    table = schema.streams
    change = sa.update(table).where(table.c.name == name.lower()).values(values)
    if connection.execute(change).rowcount != 1:
        raise CatalogError(f"there is no stream {name}: it was dropped")


def _missing_log_message(log: str) -> str:
    kind, _, name = log.partition(":")
    return f"there is no {kind} {name}, or it was dropped" if name else f"{log} is not a log"
