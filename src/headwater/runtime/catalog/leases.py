"""Leases: who may do a piece of work, with a fencing token that outlives a stalled holder.

Expiry decides only when another process may take over. Whether work is committed is decided by
holder and token, inside the committing transaction; so clocks that disagree cost time, never
correctness. An expiry further ahead than any lease lasts was written by a clock that has been set
back since, and is void.
"""

from __future__ import annotations

import sqlalchemy as sa

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import CatalogBase, Transaction, select_rows, upsert
from headwater.runtime.catalog.records import Lease

MAX_LEASE_SECONDS = 600.0
"""The longest time to live of a lease."""


def is_in_future(moment: float, now: float, max_wait: float) -> bool:
    """Whether a stored time is still to be waited for.

    One further ahead than the longest wait of its kind was written before a clock was set back, and
    counts as past: otherwise a clock set back by an hour would block the work for an hour.
    """
    return now < moment <= now + max_wait


class Leases(CatalogBase):
    """Exclusive leases that expire."""

    def acquire(self, name: str, holder: str, ttl: float) -> Lease | None:
        """Take a lease, with a token one larger than the last; None while another holds it.

        The current holder gets a new lease and its old one is fenced off, so a process that
        restarts under the same name need not wait.
        """
        if not holder:
            raise CatalogError("a lease needs a holder")
        _check_ttl(ttl)
        with self._database.write(quiet=True) as transaction:
            current = _current_lease(transaction, name)
            if (
                current is not None
                and current.holder not in ("", holder)
                and is_in_future(current.expires_at, transaction.now, MAX_LEASE_SECONDS)
            ):
                return None
            # A released lease keeps its row, so that tokens never repeat.
            token = current.token + 1 if current else 1
            lease = Lease(name, holder, token, transaction.now + ttl)
            upsert(transaction.connection, schema.leases, [vars(lease)], "name")
            return lease

    def renew(self, lease: Lease, ttl: float) -> Lease:
        """Extend a lease; raises LeaseLost if another holder has taken it."""
        _check_ttl(ttl)
        with self._database.write(quiet=True) as transaction:
            check_lease(transaction, lease)
            renewed = Lease(lease.name, lease.holder, lease.token, transaction.now + ttl)
            upsert(transaction.connection, schema.leases, [vars(renewed)], "name")
            return renewed

    def release(self, lease: Lease) -> bool:
        """Release a lease; False if it was lost already."""
        with self._database.write() as transaction:
            table = schema.leases
            update = transaction.connection.execute(
                sa.update(table)
                .where(table.c.name == lease.name)
                .where(table.c.holder == lease.holder)
                # By the token too: the holder may have acquired the lease again since.
                .where(table.c.token == lease.token)
                .values(holder="", expires_at=0.0)
            )
            return update.rowcount == 1

    def leases(self) -> list[Lease]:
        """Every lease that was not released, expired ones included."""
        table = schema.leases
        active = sa.select(table).where(table.c.holder != "")
        return self._select_rows(Lease, active.order_by(table.c.name))


def _check_ttl(ttl: float) -> None:
    if not 0 < ttl <= MAX_LEASE_SECONDS:
        raise CatalogError(
            f"a lease needs a time to live above 0 and up to {MAX_LEASE_SECONDS:.0f} s, not {ttl}"
        )


def check_lease(transaction: Transaction, lease: Lease | None) -> None:
    """Raise LeaseLost unless the lease is still valid; nothing is checked without one.

    An expired lease that nobody else took is still valid: its holder is the only one working.
    """
    if lease is None:
        return
    current = _current_lease(transaction, lease.name)
    if current is None or (current.holder, current.token) != (lease.holder, lease.token):
        reason = f"{current.holder} took it" if current and current.holder else "it was released"
        raise LeaseLost(f"{lease.holder} no longer holds {lease.name}: {reason}")


def revoke_lease(transaction: Transaction, name: str) -> None:
    """Take a lease from its holder, whose commits under it are refused from now on."""
    table = schema.leases
    transaction.connection.execute(
        sa.update(table)
        .where(table.c.name == name)
        .values(holder="", token=table.c.token + 1, expires_at=0.0)
    )


def _current_lease(transaction: Transaction, name: str) -> Lease | None:
    table = schema.leases
    selected = select_rows(
        transaction.connection, Lease, sa.select(table).where(table.c.name == name)
    )
    return selected[0] if selected else None
