"""All plans of a problem, and the best places for one of them, compiled.

The places are found by trying all, or by branch and bound: at a quality just above the best that is
known, every load is a plain number, so it is asked whether the operators can be packed into sites and
links at all; they are tried from the heaviest down, and what does not fit is not looked into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headwater.plan.throughput.kernel import (
    CLOSE,
    compiled,
    evaluate,
    inner,
    move_to,
    settle_all,
    stand,
    swap,
    swap_allowed,
)
from headwater.plan.throughput.walks import note

BETTER = 1e-9
"""By how much, relatively, a configuration has to be better for branch and bound to look for it."""


class Plans(NamedTuple):
    """Room for plans, and a hash table of their places in it."""

    child: Any
    order: Any
    outputs: Any
    uses: Any
    groups: Any
    table: Any
    marks: Any


def plans_for(state: Any, room: int) -> Plans:
    """Room for that many plans of the problem of a state."""
    count, widest = state.child.shape
    size = 1 << (2 * room).bit_length()
    return Plans(
        np.zeros((room, count, widest), np.int16),
        np.zeros((room, count), np.int16),
        np.zeros((room, len(state.outputs)), np.int16),
        np.zeros((room, count), np.int16),
        np.zeros((room, count)),
        np.full(size, -1, np.int64),
        np.zeros(room, np.uint64),
    )


@inner
def _save(s: Any, plans: Any, count: int) -> int:
    """Keep the plan if it is new and there is room; returns how many there are then."""
    mask = np.uint64(len(plans.table) - 1)
    place = s.mark[0] & mask
    while plans.table[place] >= 0:
        if plans.marks[plans.table[place]] == s.mark[0]:
            return count
        place = (place + np.uint64(1)) & mask
    if count == len(plans.marks):
        return count + 1
    plans.table[place], plans.marks[count] = count, s.mark[0]
    for q in range(len(s.outputs)):
        plans.outputs[count, q] = s.outputs[q]
    for o in range(len(s.op)):
        for i in range(s.child.shape[1]):
            plans.child[count, o, i] = s.child[o, i]
        plans.order[count, o], plans.uses[count, o] = s.order[o], s.op[o].uses
        plans.groups[count, o] = s.op[o].groups
    return count + 1


@compiled
def restore(f: Any, s: Any, plans: Any, number: int) -> None:
    """Put a kept plan into the state; operators stay where they are."""
    for q in range(len(s.outputs)):
        s.outputs[q] = plans.outputs[number, q]
    for o in range(len(s.op)):
        for i in range(s.child.shape[1]):
            s.child[o, i] = plans.child[number, o, i]
        s.order[o], s.op[o].uses = plans.order[number, o], plans.uses[number, o]
        s.op[o].groups = plans.groups[number, o]
    settle_all(f, s)


@compiled
def all_plans(f: Any, s: Any, plans: Any) -> int:
    """Keep every plan that swaps lead to; returns how many, or more than there is room for."""
    count = _save(s, plans, 0)
    done = 0
    while done < count <= len(plans.marks):
        restore(f, s, plans, done)
        for top in range(len(s.op)):
            for slot in range(f.op[top].arity):
                bottom = s.child[top, slot]
                for deep in range(f.op[bottom].arity):
                    if swap_allowed(f, s, top, slot, deep):
                        swap(f, s, top, slot, deep)
                        count = _save(s, plans, count)
                        swap(f, s, bottom, deep, slot)
                        if count > len(plans.marks):
                            return count
        done += 1
    return count


@compiled
def all_places(f: Any, s: Any, best: Any, most: int) -> bool:
    """Look at all places of the plan; False if they are more than `most`."""
    n = len(s.op)
    total = 1.0
    for o in range(n):
        total *= f.op[o].options
        move_to(f, s, o, f.op[o].first)
    if total > most:
        return False
    while True:
        stand(s, best.quality[0])
        note(s, best, evaluate(f, s, best.quality[0])[0])
        best.seen[0] += 1
        o = 0
        while o < n and s.op[o].pick == f.op[o].first + f.op[o].options - 1:
            move_to(f, s, o, f.op[o].first)
            o += 1
        if o == n:
            return True
        move_to(f, s, o, s.op[o].pick + 1)


@inner
def _heaviest(f: Any, s: Any, order: Any) -> None:
    """The operators by their work, relatively to the fastest site that may do it, heaviest first."""
    weight = np.zeros(len(order))
    for o in range(len(order)):
        fastest = 0.0
        for option in range(f.op[o].first, f.op[o].first + f.op[o].options):
            fastest = max(fastest, f.capacity[f.hosts[option, 1]] * f.hosts[option, 0])
        for p in range(s.known.shape[1]):
            weight[o] = max(weight[o], s.known[0, p, o, 0] / fastest)
        place = o
        while place > 0 and weight[order[place - 1]] < weight[o]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = o


@inner
def _put(f: Any, s: Any, sums: Any, placed: Any, o: int, sign: float) -> bool:
    """Add an operator's loads, or take them away; False if a capacity is exceeded."""
    sites, fits = f.sites, True
    here = s.op[o].pick
    copies = f.hosts[here, 0]
    for p in range(sums.shape[0]):
        for c in range(1, copies + 1):
            host = f.hosts[here, c]
            sums[p, host] += sign * s.known[0, p, o, 0] / copies
            kept = s.known[0, p, o, 1] / copies + s.op[o].fixed
            sums[p, sites + host] += sign * kept
            fits = fits and sums[p, host] <= f.capacity[host] * (1 + CLOSE)
            fits = fits and sums[p, sites + host] <= f.capacity[sites + host] * (1 + CLOSE)
        for i in range(f.op[o].arity):
            if placed[s.child[o, i]]:
                fits = _send(f, s, sums, p, s.child[o, i], o, sign) and fits
        for reader in range(len(s.op)):
            if placed[reader]:
                for i in range(f.op[reader].arity):
                    if s.child[reader, i] == o:
                        fits = _send(f, s, sums, p, o, reader, sign) and fits
    return fits


@inner
def _send(f: Any, s: Any, sums: Any, p: int, source: int, target: int, sign: float) -> bool:
    """The same for what one operator sends to another."""
    sites, fits = f.sites, True
    there, here = s.op[source].pick, s.op[target].pick
    part = s.known[0, p, source, 2] / (f.hosts[there, 0] * f.hosts[here, 0])
    if part == 0:
        return True
    for a in range(1, f.hosts[there, 0] + 1):
        for b in range(1, f.hosts[here, 0] + 1):
            x, y = f.hosts[there, a], f.hosts[here, b]
            if x != y:
                for c in (2 * sites + y, 3 * sites + x, (4 + x) * sites + y):
                    sums[p, c] += sign * part
                    fits = fits and sums[p, c] <= f.capacity[c] * (1 + CLOSE)
    return fits


@inner
def _pack(f: Any, s: Any, best: Any, most: int) -> int:
    """Find places for all operators at the known loads; 1 if there are, 0 if not, -1 if it took
    more than `most` steps to know."""
    n = len(s.op)
    order = np.zeros(n, np.int64)
    _heaviest(f, s, order)
    sums = np.zeros((s.known.shape[1], len(f.capacity)))
    placed = np.zeros(n, np.bool_)
    tried = np.zeros(n, np.int64)
    depth, steps = 0, 0
    while depth >= 0:
        o = order[depth]
        if placed[o]:
            placed[o] = False
            _put(f, s, sums, placed, o, -1.0)
        if tried[depth] == f.op[o].options:
            tried[depth] = 0
            depth -= 1
            continue
        move_to(f, s, o, f.op[o].first + tried[depth])
        tried[depth] += 1
        steps += 1
        best.seen[0] += 1
        if steps > most:
            return -1
        fits = _put(f, s, sums, placed, o, 1.0)
        placed[o] = True
        if fits and depth == n - 1:
            if evaluate(f, s, -1.0)[0] > best.quality[0]:
                return 1
        elif fits:
            depth += 1
    return 0


@compiled
def bound_places(
    f: Any, s: Any, best: Any, plans: Any, number: int, until: int, most: int
) -> tuple[int, int]:
    """Improve on the best over the plans from `number` to `until`; returns how many of them could not
    be decided within `most` steps each, and how many were looked into."""
    open_, looked = 0, 0
    for plan in range(number, until):
        restore(f, s, plans, plan)
        while True:
            stand(s, best.quality[0] * (1 + BETTER))
            if _hopeless(f, s):
                break
            looked += 1
            found = _pack(f, s, best, most)
            if found == 1:
                note(s, best, evaluate(f, s, -1.0)[0])
                continue
            open_ += found == -1
            break
    return open_, looked


@inner
def _hopeless(f: Any, s: Any) -> bool:
    """Whether the work is more than all sites together can do."""
    for p in range(s.known.shape[1]):
        work, power = 0.0, 0.0
        for o in range(len(s.op)):
            work += s.known[0, p, o, 0]
        for site in range(f.sites):
            power += f.capacity[site]
        if work > power:
            return True
    return False
