"""Database errors, translated into messages that say what to do.

A CatalogUnavailable may pass by itself, and is waited for; any other CatalogError does not.
"""

from __future__ import annotations

from sqlalchemy import exc

from headwater.errors import CatalogError, CatalogUnavailable

_LOCKED = "is locked by another process (waited {timeout:g} s): try again, or end that process"
_DISK_FULL = "is on a disk that is full: free some space and try again"

# SQLite has too few error codes to tell these apart, so its messages are matched:
# (part of its message, is transient, our message).
_SQLITE = (
    ("database is locked", True, _LOCKED),
    ("database table is locked", True, _LOCKED),
    ("database schema is locked", True, _LOCKED),
    # SQLite gives up after 10 s in which other processes were in the way of a read.
    ("locking protocol", True, _LOCKED),
    ("database or disk is full", True, _DISK_FULL),
    ("disk i/o error", True, "cannot be read or written: check its disk, then try again"),
    (
        "unable to open database file",
        False,
        "cannot be opened: check that it is a file in a directory where this user may write",
    ),
    (
        "readonly database",
        False,
        "is read-only: give this user permission to write the file and its directory",
    ),
    ("file is not a database", False, "is not a catalog: name another file, or restore a copy"),
    ("malformed", False, "is damaged: restore it from a copy, or start with a new one"),
)

# The same by the SQLSTATE of PostgreSQL.
_POSTGRESQL = {
    "55P03": (True, _LOCKED),  # lock_not_available
    "40P01": (True, _LOCKED),  # deadlock_detected
    "40001": (True, _LOCKED),  # serialization_failure
    "25P03": (True, "ended a transaction that was idle for too long: try again"),
    "53100": (True, _DISK_FULL),  # disk_full
    "53300": (True, "has too many connections: close some, or raise max_connections"),
    "25006": (False, "is read-only: name the primary server, not a standby"),
    "42501": (False, "refuses this user: grant it CREATE on the database, or the schema's tables"),
}


def translate_error(error: BaseException, name: str, timeout: float) -> CatalogError:
    """The error to raise instead of one of SQLAlchemy, sqlite3 or psycopg."""
    if isinstance(error, exc.TimeoutError):
        return CatalogUnavailable(
            f"the catalog {name} has no free connection (waited 30 s): use fewer threads"
        )
    original = error.orig if isinstance(error, exc.DBAPIError) else error
    message = str(original).strip()
    first = message.splitlines()[0] if message else type(original).__name__
    if "://" not in name:
        for part, is_transient, advice in _SQLITE:
            if part in message.lower():
                return _build_error(is_transient, name, advice.format(timeout=timeout))
    elif (state := getattr(original, "sqlstate", None)) in _POSTGRESQL:
        is_transient, advice = _POSTGRESQL[state]
        return _build_error(is_transient, name, advice.format(timeout=timeout))
    elif state is None and isinstance(error, exc.OperationalError | exc.InterfaceError):
        return _build_error(
            True,
            name,
            f"cannot be reached: {first}; check that the server runs, and the URL's host, port, "
            "user, password and database",
        )
    elif isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return _build_error(True, name, f"ended the connection: {first}; try again")
    return CatalogError(f"the catalog {name} failed: {first}")


def _build_error(is_transient: bool, name: str, advice: str) -> CatalogError:
    return (CatalogUnavailable if is_transient else CatalogError)(f"the catalog {name} {advice}")
