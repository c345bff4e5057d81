"""Leases: who may do a piece of work, with a fencing token that outlives a stalled holder.

Expiry decides only when another may take over. Whether work may be kept is decided by holder and
token, inside the transaction that keeps it; so clocks that disagree cost time, never correctness.
An expiry further off than any lease lasts was written by a clock that has been set right since, and
is void.
"""

from __future__ import annotations

import sqlalchemy as sa

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Store, Transaction, rows, upsert
from headwater.runtime.catalog.rows import Lease

LONGEST_LEASE = 600.0
"""Seconds that a claim may last when it is not renewed."""


def is_ahead(moment: float, now: float, longest: float) -> bool:
    """Whether a stored moment is still to be waited for. One that is further off than the longest
    wait of its kind was written by a clock that was wrong, and is void."""
    return now < moment <= now + longest


class Leases(Store):
    """Claims with an end."""

    def acquire(self, name: str, holder: str, ttl: float) -> Lease | None:
        """A new claim, with a token one larger than the last; None while another holds it.

        A holder that asks again gets it again, and what it held before is fenced: a process that
        restarts under its old name need not wait.
        """
        if not holder:
            raise CatalogError("a lease needs a holder")
        _check_ttl(ttl)
        with self._database.write(quiet=True) as transaction:
            known = _current(transaction, name)
            theirs = known is not None and known.holder not in ("", holder)
            if known and theirs and is_ahead(known.expires_at, transaction.now, LONGEST_LEASE):
                return None
            token = known.token + 1 if known else 1
            lease = Lease(name, holder, token, transaction.now + ttl)
            upsert(transaction.connection, schema.leases, [vars(lease)], "name")
            return lease

    def renew(self, lease: Lease, ttl: float) -> Lease:
        """The same claim with a later end; raises LeaseLost if another has taken it."""
        _check_ttl(ttl)
        with self._database.write(quiet=True) as transaction:
            check_lease(transaction, lease)
            renewed = Lease(lease.name, lease.holder, lease.token, transaction.now + ttl)
            upsert(transaction.connection, schema.leases, [vars(renewed)], "name")
            return renewed

    def release(self, lease: Lease) -> bool:
        """Give the claim up; False if it was lost already."""
        with self._database.write() as transaction:
            table = schema.leases
            given_up = transaction.connection.execute(
                sa.update(table)
                .where(table.c.name == lease.name)
                .where(table.c.holder == lease.holder)
                .where(table.c.token == lease.token)
                .values(holder="", expires_at=0.0)
            )
            return given_up.rowcount == 1

    def leases(self) -> list[Lease]:
        """Every claim that was not given up, expired ones included."""
        table = schema.leases
        held = sa.select(table).where(table.c.holder != "")
        return self._rows(Lease, held.order_by(table.c.name))


def _check_ttl(ttl: float) -> None:
    if not 0 < ttl <= LONGEST_LEASE:
        raise CatalogError(
            f"a lease needs a time to live above 0 and up to {LONGEST_LEASE:.0f} s, not {ttl}"
        )


def check_lease(transaction: Transaction, lease: Lease | None) -> None:
    """Raises LeaseLost unless the lease is still its holder's; no lease, no check."""
    if lease is None:
        return
    known = _current(transaction, lease.name)
    if known is None or (known.holder, known.token) != (lease.holder, lease.token):
        taken = f"{known.holder} took it" if known and known.holder else "it was given up"
        raise LeaseLost(f"{lease.holder} no longer holds {lease.name}: {taken}")


def _current(transaction: Transaction, name: str) -> Lease | None:
    table = schema.leases
    found = rows(transaction.connection, Lease, sa.select(table).where(table.c.name == name))
    return found[0] if found else None
