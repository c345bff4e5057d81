"""One lock a provider: first come, first served, until its lease runs out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.federation.dissemination.protocol.locks import (
    LEASE_SECONDS,
    AttemptId,
    ProviderLock,
    provider_number,
)

FIRST, SECOND, THIRD = (AttemptId(holder, 0, 1) for holder in (1, 2, 3))


def test_queue_in_order_of_requests() -> None:
    lock = ProviderLock()
    for attempt in (SECOND, FIRST, THIRD):
        lock = lock.request(attempt, 0.0)
    assert (lock.owner, lock.queue) == (SECOND, (FIRST, THIRD))
    lock = lock.release(SECOND, 1.0)
    assert (lock.owner, lock.expires) == (FIRST, 1.0 + LEASE_SECONDS)
    assert lock.release(THIRD, 1.0).queue == ()


def test_leases_end_unless_they_are_renewed() -> None:
    lock = ProviderLock().request(FIRST, 0.0).request(SECOND, 0.0)
    assert lock.expire(LEASE_SECONDS - 0.1).owner == FIRST
    assert lock.expire(LEASE_SECONDS).owner == SECOND
    renewed = lock.renew(FIRST, 3.0).renew(SECOND, 4.0)
    assert renewed.expire(LEASE_SECONDS).owner == FIRST
    assert renewed.expire(3.0 + LEASE_SECONDS).owner == SECOND


def test_the_dead_lose_lock_and_places_in_the_queue() -> None:
    lock = ProviderLock()
    for attempt in (FIRST, SECOND, AttemptId(1, 5, 2), THIRD):
        lock = lock.request(attempt, 0.0)
    lock = lock.forget_holder(1, 1.0)
    assert (lock.owner, lock.queue) == (SECOND, (THIRD,))
    assert lock.forget_holder(3, 1.0).queue == ()


def test_a_new_attempt_voids_the_earlier_one_of_its_tree() -> None:
    lock = ProviderLock().request(FIRST, 0.0).request(SECOND, 0.0)
    later = AttemptId(1, 0, 2)
    lock = lock.request(later, 1.0)
    assert (lock.owner, lock.queue) == (SECOND, (later,))
    other_tree = AttemptId(1, 1, 3)
    assert lock.request(other_tree, 1.0).queue == (later, other_tree)


@given(st.lists(st.tuples(st.sampled_from(["request", "release"]), st.integers(1, 4))))
def test_the_lock_is_a_queue_whose_head_owns_it(steps: list[tuple[str, int]]) -> None:
    lock, model = ProviderLock(), list[AttemptId]()
    for step, holder in steps:
        attempt = AttemptId(holder, 0, 1)
        if step == "request":
            lock = lock.request(attempt, 0.0)
            model += [] if attempt in model else [attempt]
        else:
            lock = lock.release(attempt, 0.0)
            model = [one for one in model if one != attempt]
        assert [one for one in (lock.owner, *lock.queue) if one] == model


def test_numbers_are_those_of_names() -> None:
    numbers = {provider_number(name) for name in ("paris", "oslo", "rome")}
    assert len(numbers) == 3
    assert provider_number("paris") in numbers
