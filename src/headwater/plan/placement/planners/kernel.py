"""The cheapest way to have each stream at each site, compiled by Numba.

Streams are ordered so that each follows its inputs. For each, first the sites
that hold it or could compute it, then the cheapest transfer to all others: from one best sender where
links are no limit, along links by Dijkstra's algorithm where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.jit import cached_njit

UNOBTAINABLE = np.iinfo(np.int32).min
HELD = -1
"""In `how`: numbers from 0 are operators, those below HELD senders."""


@cached_njit
def cheapest_ways(
    rates: Any,
    held: Any,
    outputs: Any,
    inputs: Any,
    cpu: Any,
    memory: Any,
    favour: Any,
    free: Any,
    price: Any,
    start: Any,
    barred: Any,
    links: Any,
) -> Any:
    """For each stream and site the price of having it there, and how.

    `free` and `price` have rows for cpu, memory, bandwidth in and out; `start` is the price of using a
    site for the first time. `barred` has for each stream and site the bits 1 (not made here), 2 (not
    received here), 4 (not sent from here). `links` is what is left of each, empty if they are no limit.
    """
    count, sites = held.shape
    cost = np.full((count, sites), np.inf)
    how = np.full((count, sites), UNOBTAINABLE, np.int32)
    done = np.empty(sites, np.bool_)
    at = 0
    for stream in range(count):
        row, by, rate = cost[stream], how[stream], rates[stream]
        for site in range(sites):
            if held[stream, site]:
                row[site], by[site] = 0.0, HELD
        while at < len(outputs) and outputs[at] == stream:
            for site in range(sites):
                if (
                    by[site] == HELD
                    or barred[stream, site] & 1
                    or free[0, site] < cpu[at]
                    or free[1, site] < memory[at]
                ):
                    continue
                total = favour[at] * (cpu[at] * price[0, site] + memory[at] * price[1, site])
                total += start[site]
                for k in range(inputs.shape[1]):
                    if inputs[at, k] >= 0:
                        total += cost[inputs[at, k], site]
                if total < row[site]:
                    row[site], by[site] = total, at
            at += 1
        # Without tight links the price of a transfer is a sum of a part of the sender and one of
        # the receiver, so one sender is the best for every receiver: linear in sites instead of
        # quadratic.
        if len(links) == 0:
            best, sender = np.inf, -1
            for site in range(sites):
                if free[3, site] >= rate and not barred[stream, site] & 4:
                    total = row[site] + rate * price[3, site]
                    if total < best:
                        best, sender = total, site
            for site in range(sites):
                if free[2, site] >= rate and not barred[stream, site] & 2:
                    total = best + rate * price[2, site]
                    if total < row[site]:
                        row[site], by[site] = total, HELD - 1 - sender
            continue
        done[:] = False
        for _ in range(sites):
            sender = -1
            for site in range(sites):
                if not done[site] and (sender < 0 or row[site] < row[sender]):
                    sender = site
            if row[sender] == np.inf:
                break
            done[sender] = True
            if free[3, sender] < rate or barred[stream, sender] & 4:
                continue
            for site in range(sites):
                if (
                    not done[site]
                    and links[sender, site] >= rate
                    and free[2, site] >= rate
                    and not barred[stream, site] & 2
                ):
                    total = row[sender] + rate * (price[3, sender] + price[2, site])
                    if total < row[site]:
                        row[site], by[site] = total, HELD - 1 - sender
    return cost, how
