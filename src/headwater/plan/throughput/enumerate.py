"""All plans of a problem, and the best places for one of them, compiled.

The places are found by trying all, or by branch and bound: at a quality just above the best that is
known, every load is a plain number, so it is asked whether the operators can be packed into sites and
links at all; they are tried from the heaviest down, and what does not fit is not looked into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headwater.plan.throughput.kernel import (
    TOLERANCE,
    can_swap,
    evaluate,
    jit_entry,
    jit_inner,
    move_to,
    set_base_multiple,
    swap,
    update_all_operators,
)
from headwater.plan.throughput.local_search import record_best

MIN_IMPROVEMENT = 1e-9
"""By how much, relatively, a configuration has to be better for branch and bound to look for it."""


class PlanStore(NamedTuple):
    """Room for plans, and a hash table of their places in it."""

    child: Any
    order: Any
    outputs: Any
    uses: Any
    groups: Any
    table: Any
    marks: Any


def new_plan_store(state: Any, capacity: int) -> PlanStore:
    """Room for that many plans of the problem of a state."""
    count, widest = state.child.shape
    # At most half full, so that a free place is near.
    size = 1 << (2 * capacity).bit_length()
    return PlanStore(
        np.zeros((capacity, count, widest), np.int16),
        np.zeros((capacity, count), np.int16),
        np.zeros((capacity, len(state.outputs)), np.int16),
        np.zeros((capacity, count), np.int16),
        np.zeros((capacity, count)),
        np.full(size, -1, np.int64),
        np.zeros(capacity, np.uint64),
    )


@jit_inner
def _store_plan(s: Any, plans: Any, count: int) -> int:
    """Keep the plan if it is new and there is room; returns how many there are then."""
    mask = np.uint64(len(plans.table) - 1)
    slot = s.mark[0] & mask
    while plans.table[slot] >= 0:
        if plans.marks[plans.table[slot]] == s.mark[0]:
            return count
        slot = (slot + np.uint64(1)) & mask
    if count == len(plans.marks):
        # Nobody asks how many more there are.
        return count + 1
    plans.table[slot], plans.marks[count] = count, s.mark[0]
    for q in range(len(s.outputs)):
        plans.outputs[count, q] = s.outputs[q]
    for o in range(len(s.op)):
        for i in range(s.child.shape[1]):
            plans.child[count, o, i] = s.child[o, i]
        plans.order[count, o], plans.uses[count, o] = s.order[o], s.op[o].uses
        plans.groups[count, o] = s.op[o].groups
    return count + 1


@jit_entry
def restore_plan(f: Any, s: Any, plans: Any, number: int) -> None:
    """Put a kept plan into the state; operators stay where they are."""
    for q in range(len(s.outputs)):
        s.outputs[q] = plans.outputs[number, q]
    for o in range(len(s.op)):
        for i in range(s.child.shape[1]):
            s.child[o, i] = plans.child[number, o, i]
        s.order[o], s.op[o].uses = plans.order[number, o], plans.uses[number, o]
        s.op[o].groups = plans.groups[number, o]
    update_all_operators(f, s)


@jit_entry
def enumerate_plans(f: Any, s: Any, plans: Any) -> int:
    """Keep every plan that swaps lead to; returns how many, or more than there is room for."""
    count = _store_plan(s, plans, 0)
    done = 0
    while done < count <= len(plans.marks):
        restore_plan(f, s, plans, done)
        for top in range(len(s.op)):
            for slot in range(f.op[top].arity):
                bottom = s.child[top, slot]
                for deep in range(f.op[bottom].arity):
                    if can_swap(f, s, top, slot, deep):
                        swap(f, s, top, slot, deep)
                        count = _store_plan(s, plans, count)
                        swap(f, s, bottom, deep, slot)
                        if count > len(plans.marks):
                            return count
        done += 1
    return count


@jit_entry
def try_all_placements(f: Any, s: Any, best: Any, most: int) -> bool:
    """Look at all places of the plan; False if they are more than `most`."""
    n = len(s.op)
    total = 1.0
    for o in range(n):
        total *= f.op[o].options
        move_to(f, s, o, f.op[o].first)
    if total > most:
        return False
    while True:
        set_base_multiple(s, best.quality[0])
        record_best(s, best, evaluate(f, s, best.quality[0])[0])
        best.seen[0] += 1
        o = 0
        while o < n and s.op[o].pick == f.op[o].first + f.op[o].options - 1:
            move_to(f, s, o, f.op[o].first)
            o += 1
        if o == n:
            return True
        move_to(f, s, o, s.op[o].pick + 1)


@jit_inner
def _order_by_weight(f: Any, s: Any, order: Any) -> None:
    """The operators by their work, relatively to the fastest site that may do it, heaviest first."""
    weight = np.zeros(len(order))
    for o in range(len(order)):
        fastest = 0.0
        for option in range(f.op[o].first, f.op[o].first + f.op[o].options):
            fastest = max(fastest, f.capacity[f.hosts[option, 1]] * f.hosts[option, 0])
        for p in range(s.known.shape[1]):
            weight[o] = max(weight[o], s.known[0, p, o, 0] / fastest)
        position = o
        while position > 0 and weight[order[position - 1]] < weight[o]:
            order[position] = order[position - 1]
            position -= 1
        order[position] = o


@jit_inner
def _add_operator_load(f: Any, s: Any, sums: Any, placed: Any, o: int, sign: float) -> bool:
    """Add an operator's loads, or take them away; False if a capacity is exceeded."""
    sites, fits = f.sites, True
    here = s.op[o].pick
    copies = f.hosts[here, 0]
    for p in range(sums.shape[0]):
        for c in range(1, copies + 1):
            host = f.hosts[here, c]
            sums[p, host] += sign * s.known[0, p, o, 0] / copies
            memory = s.known[0, p, o, 1] / copies + s.op[o].fixed
            sums[p, sites + host] += sign * memory
            fits = fits and sums[p, host] <= f.capacity[host] * (1 + TOLERANCE)
            fits = fits and sums[p, sites + host] <= f.capacity[sites + host] * (1 + TOLERANCE)
        for i in range(f.op[o].arity):
            if placed[s.child[o, i]]:
                # Called whether all fits so far or not: what is added here is taken away as a
                # whole.
                fits = _add_transfer_load(f, s, sums, p, s.child[o, i], o, sign) and fits
        for reader in range(len(s.op)):
            if placed[reader]:
                for i in range(f.op[reader].arity):
                    if s.child[reader, i] == o:
                        fits = _add_transfer_load(f, s, sums, p, o, reader, sign) and fits
    return fits


@jit_inner
def _add_transfer_load(
    f: Any, s: Any, sums: Any, p: int, source: int, target: int, sign: float
) -> bool:
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
                    fits = fits and sums[p, c] <= f.capacity[c] * (1 + TOLERANCE)
    return fits


@jit_inner
def _pack_operators(f: Any, s: Any, best: Any, most: int) -> int:
    """Find places for all operators at the known loads; 1 if there are, 0 if not, -1 if it took
    more than `most` steps to know."""
    n = len(s.op)
    order = np.zeros(n, np.int64)
    _order_by_weight(f, s, order)
    sums = np.zeros((s.known.shape[1], len(f.capacity)))
    placed = np.zeros(n, np.bool_)
    tried = np.zeros(n, np.int64)
    depth, steps = 0, 0
    while depth >= 0:
        o = order[depth]
        if placed[o]:
            placed[o] = False
            _add_operator_load(f, s, sums, placed, o, -1.0)
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
        fits = _add_operator_load(f, s, sums, placed, o, 1.0)
        placed[o] = True
        if fits and depth == n - 1:
            # Packing looks at loads only; latency is no load.
            if evaluate(f, s, -1.0)[0] > best.quality[0]:
                return 1
        elif fits:
            depth += 1
    return 0


@jit_entry
def bound_placements(
    f: Any, s: Any, best: Any, plans: Any, number: int, until: int, most: int
) -> tuple[int, int]:
    """Improve on the best over the plans from `number` to `until`; returns how many of them could not
    be decided within `most` steps each, and how many were looked into."""
    open_, examined = 0, 0
    for plan in range(number, until):
        restore_plan(f, s, plans, plan)
        while True:
            set_base_multiple(s, best.quality[0] * (1 + MIN_IMPROVEMENT))
            if _exceeds_total_cpu(f, s):
                break
            examined += 1
            packed = _pack_operators(f, s, best, most)
            if packed == 1:
                record_best(s, best, evaluate(f, s, -1.0)[0])
                continue
            open_ += packed == -1
            break
    return open_, examined


@jit_inner
def _exceeds_total_cpu(f: Any, s: Any) -> bool:
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
