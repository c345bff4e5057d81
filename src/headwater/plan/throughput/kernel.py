"""The quality of a configuration and the moves, compiled: what `quality` and `moves` say, on arrays.

A swap of two operators changes neither the rate nor the columns of what leaves the pair, so only these
two are recomputed. To find the quality, all loads are summed as plain numbers at a guess; only the
constraint that is exceeded most is solved as a polynomial, which gives the next guess. The first guess
is the quality of the current configuration of the search, and is mostly right at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.jit import cached_njit_with
from headwater.plan.throughput.model import OperatorKind

EMIT, SELECT, PROJECT, JOIN = (
    int(OperatorKind.EMIT),
    int(OperatorKind.SELECT),
    int(OperatorKind.PROJECT),
    int(OperatorKind.JOIN),
)
SEMIJOIN, OUTERJOIN = int(OperatorKind.SEMIJOIN), int(OperatorKind.OUTERJOIN)
FULLJOIN, AGGREGATE = int(OperatorKind.FULLJOIN), int(OperatorKind.AGGREGATE)
DISTINCT, UNION = int(OperatorKind.DISTINCT), int(OperatorKind.UNION)

RATE, HELD, WORK, STATE_BYTES = range(4)
"""Polynomials of an operator: results per second, rows of them in memory, instructions, and bytes in memory."""

READS, DROPS, ADDS, KEYS = range(4)
"""Sets of columns of an operator."""

BASE, TRIAL = 0, 1
"""Computed loads: at the multiple of the current configuration, and at the one being tried."""

TOLERANCE = 1e-12
"""A load over its capacity by less than this share is no excess."""

WORSE = -0.5
"""A quality of which only this is known: it is below what is asked for."""

# Arrays are filled and copied by loops, since each slice that is assigned takes a second to compile.

jit_entry = cached_njit_with(error_model="numpy")
"""For functions that Python calls."""

jit_inner = cached_njit_with(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For functions that compiled code alone calls; without what Python needs they compile sooner."""


# ---- what follows from a plan


@jit_inner
def update_operator(f: Any, s: Any, o: int) -> None:
    """Compute an operator's flow and loads from those of its inputs."""
    kind, arity = f.op[o].kind, f.op[o].arity
    for w in range(s.columns.shape[1]):
        mask = np.uint64(0)
        for i in range(arity):
            if i == 0 or kind != SEMIJOIN:
                mask |= s.columns[s.child[o, i], w]
        s.columns[o, w] = (mask & ~f.sets[o, DROPS, w]) | f.sets[o, ADDS, w]
    width, arriving = f.op[o].width_change, 0.0
    for i in range(arity):
        arriving += s.op[s.child[o, i]].width
        if i == 0 or kind != SEMIJOIN:
            width += s.op[s.child[o, i]].width
    joins = JOIN <= kind <= FULLJOIN
    fixed = f.op[o].table * arity if joins else f.op[o].table
    # These hold the tuple at hand (WhiteWater, Table 4).
    if kind in (SELECT, PROJECT, UNION):
        fixed += arriving
    s.op[o].width, s.op[o].fixed = width, fixed
    for p in range(s.poly.shape[1]):
        if kind == EMIT:
            s.poly[RATE, p, o, 1] = f.emitted[p, o]
            s.poly[HELD, p, o, 0] = f.op[o].rows
            s.poly[HELD, p, o, 1] = max(f.op[o].window, 0.0) * f.emitted[p, o]
        elif joins:
            _update_join(f, s, p, o)
        else:
            _update_simple(f, s, p, o)
        for k in range(s.poly.shape[3]):
            coming = 0.0
            for i in range(arity):
                coming += s.poly[RATE, p, s.child[o, i], k]
            going = s.poly[RATE, p, o, k]
            s.poly[WORK, p, o, k] = f.op[o].cost * coming + f.op[o].result_cost * going
    _update_degree_range(s, o)
    for p in range(s.poly.shape[1]):
        _compute_loads(s, BASE, p, o)


@jit_inner
def _update_simple(f: Any, s: Any, p: int, o: int) -> None:
    """Select, project, distinct, union and aggregate."""
    kind, first = f.op[o].kind, s.child[o, 0]
    share = 1.0 if kind in (PROJECT, UNION) else f.op[o].selectivity
    for k in range(s.poly.shape[3]):
        rate, held, state_bytes = 0.0, 0.0, 0.0
        for i in range(f.op[o].arity):
            rate += s.poly[RATE, p, s.child[o, i], k]
            held += s.poly[HELD, p, s.child[o, i], k]
        if kind in (AGGREGATE, DISTINCT):
            state_bytes = held * s.op[first].width
        if kind == AGGREGATE:
            held = s.op[o].groups if k == 0 else 0.0
            state_bytes += held * s.op[o].width
            rate = held / f.op[o].period if f.op[o].period > 0 else share * rate
        else:
            rate, held = share * rate, share * held
        s.poly[RATE, p, o, k], s.poly[HELD, p, o, k], s.poly[STATE_BYTES, p, o, k] = (
            rate,
            held,
            state_bytes,
        )


@jit_inner
def _update_join(f: Any, s: Any, p: int, o: int) -> None:
    """Joins by the product rule: the product of what the inputs hold, and its change, are spare."""
    size, kind, window = s.poly.shape[3], f.op[o].kind, f.op[o].window
    for k in range(size):
        s.spare[0, k], s.spare[1, k] = 0.0, 0.0
        s.poly[STATE_BYTES, p, o, k] = 0.0
    s.spare[0, 0] = 1.0
    for i in range(f.op[o].arity):
        below = s.child[o, i]
        for k in range(size):
            coming = s.poly[RATE, p, below, k]
            s.spare[2, k] = s.poly[HELD, p, below, k] if window < 0 else window * coming
            s.spare[3, k] = coming
            s.poly[STATE_BYTES, p, o, k] += s.spare[2, k] * s.op[below].width
        _product_rule(s.spare)
    share, first, second = f.op[o].selectivity, s.child[o, 0], s.child[o, 1]
    for k in range(size):
        if kind == SEMIJOIN:
            s.poly[RATE, p, o, k] = share * s.poly[RATE, p, first, k]
            s.poly[HELD, p, o, k] = share * s.poly[HELD, p, first, k]
            continue
        s.poly[RATE, p, o, k] = share * s.spare[1, k]
        s.poly[HELD, p, o, k] = share * (s.spare[0, k] if window < 0 else window * s.spare[1, k])
        if kind != JOIN:
            s.poly[RATE, p, o, k] += s.poly[RATE, p, first, k]
            s.poly[HELD, p, o, k] += s.poly[HELD, p, first, k]
        if kind == FULLJOIN:
            s.poly[RATE, p, o, k] += s.poly[RATE, p, second, k]
            s.poly[HELD, p, o, k] += s.poly[HELD, p, second, k]


@jit_inner
def _product_rule(spare: Any) -> None:
    """With rows (held, rate, more held, more rate, ..): rate := rate * more held + held * more rate,
    and held := held * more held, from the highest power down."""
    for k in range(spare.shape[1] - 1, -1, -1):
        held, rate = 0.0, 0.0
        for i in range(k + 1):
            # The derivative of a product: a new row of either side meets what the other side holds.
            held += spare[0, i] * spare[2, k - i]
            rate += spare[1, i] * spare[2, k - i] + spare[0, i] * spare[3, k - i]
        spare[0, k], spare[1, k] = held, rate


@jit_inner
def _update_degree_range(s: Any, o: int) -> None:
    """Between which powers an operator has coefficients."""
    low, high = s.poly.shape[3], 0
    for p in range(s.poly.shape[1]):
        for k in range(s.poly.shape[3]):
            if s.poly[RATE, p, o, k] + s.poly[WORK, p, o, k] + s.poly[STATE_BYTES, p, o, k] > 0:
                low, high = min(low, k), max(high, k + 1)
    s.op[o].low, s.op[o].high = low, high


@jit_inner
def _compute_loads(s: Any, which: int, p: int, o: int) -> None:
    """The operator's loads: instructions, bytes kept, and bytes sent to whoever reads it."""
    work, state_bytes, rate = 0.0, 0.0, 0.0
    for k in range(s.op[o].low, s.op[o].high):
        power = s.powers[which, k]
        work += s.poly[WORK, p, o, k] * power
        state_bytes += s.poly[STATE_BYTES, p, o, k] * power
        rate += s.poly[RATE, p, o, k] * power
    s.known[which, p, o, 0], s.known[which, p, o, 1] = work, state_bytes
    s.known[which, p, o, 2] = rate * s.op[o].width


@jit_inner
def _set_powers(s: Any, which: int, x: float) -> None:
    for k in range(1, s.powers.shape[1]):
        s.powers[which, k] = s.powers[which, k - 1] * x


@jit_inner
def set_base_multiple(s: Any, x: float) -> None:
    """Compute all loads at the multiple of the current configuration."""
    if 0 < x < np.inf and x != s.powers[BASE, 1]:
        _set_powers(s, BASE, x)
        for p in range(s.poly.shape[1]):
            for o in range(len(s.op)):
                _compute_loads(s, BASE, p, o)


@jit_entry
def update_all_operators(f: Any, s: Any) -> None:
    """Compute everything that follows from inputs, options and groups."""
    for o in s.order:
        update_operator(f, s, o)
    n = len(s.op)
    mark = np.uint64(0)
    for o in range(n):
        mark ^= f.mark_option[s.op[o].pick]
        for i in range(f.op[o].arity):
            mark ^= f.mark_edge[o, s.child[o, i]]
    for q in range(len(s.outputs)):
        mark ^= f.mark_edge[n + q, s.outputs[q]]
    s.mark[0] = mark


# ---- quality


@jit_inner
def _sum_loads(f: Any, s: Any, which: int, p: int) -> tuple[float, int]:
    """Sum known loads over sites and links; the largest share of a capacity, and of which."""
    n, sites = len(s.op), f.sites
    worst, binding = 0.0, -1
    for c in range(len(s.sums)):
        s.sums[c] = 0.0
    for o in range(n):
        here = s.op[o].pick
        copies = f.hosts[here, 0]
        for c in range(1, copies + 1):
            host = f.hosts[here, c]
            s.sums[host] += s.known[which, p, o, 0] / copies
            s.sums[sites + host] += s.known[which, p, o, 1] / copies + s.op[o].fixed
        for i in range(f.op[o].arity):
            below = s.child[o, i]
            there = s.op[below].pick
            part = s.known[which, p, below, 2] / (copies * f.hosts[there, 0])
            for a in range(1, f.hosts[there, 0] + 1):
                for b in range(1, copies + 1):
                    source, target = f.hosts[there, a], f.hosts[here, b]
                    if source != target and part > 0:
                        link = (4 + source) * sites + target
                        s.sums[2 * sites + target] += part
                        s.sums[3 * sites + source] += part
                        s.sums[link] += part
                        if s.sums[link] > worst * f.capacity[link]:
                            worst, binding = s.sums[link] / f.capacity[link], link
    for c in range(4 * sites):
        if s.sums[c] > worst * f.capacity[c]:
            worst, binding = s.sums[c] / f.capacity[c], c
    return worst, binding


@jit_inner
def _load_polynomial(f: Any, s: Any, p: int, constraint: int) -> None:
    """The load under one constraint as a polynomial, into the first row of the spare space."""
    n, sites, load = len(s.op), f.sites, s.spare[0]
    family, site = constraint // sites, constraint % sites
    for k in range(len(load)):
        load[k] = 0.0
    for o in range(n):
        here = s.op[o].pick
        copies = f.hosts[here, 0]
        if family < 2:
            part = WORK if family == 0 else STATE_BYTES
            for c in range(1, copies + 1):
                if f.hosts[here, c] == site:
                    for k in range(s.op[o].low, s.op[o].high):
                        load[k] += s.poly[part, p, o, k] / copies
                    if family == 1:
                        load[0] += s.op[o].fixed
            continue
        for i in range(f.op[o].arity):
            below = s.child[o, i]
            there = s.op[below].pick
            for a in range(1, f.hosts[there, 0] + 1):
                for b in range(1, copies + 1):
                    source, target = f.hosts[there, a], f.hosts[here, b]
                    if source == target:
                        continue
                    if (
                        (family == 2 and target == site)
                        or (family == 3 and source == site)
                        or (family == 4 + source and target == site)
                    ):
                        share = s.op[below].width / (copies * f.hosts[there, 0])
                        for k in range(s.op[below].low, s.op[below].high):
                            load[k] += share * s.poly[RATE, p, below, k]


@jit_inner
def largest_within(load: Any, capacity: float) -> float:
    """The largest x >= 0 at which the load is within the capacity."""
    room = capacity - load[0]
    if room < 0:
        return 0.0
    high, terms, top = np.inf, 0, 0
    for k in range(1, len(load)):
        if load[k] > 0:
            if room == 0:
                return 0.0
            terms, top = terms + 1, k
            high = min(high, (room / load[k]) ** (1.0 / k))
    if terms < 2 or high == np.inf:
        return high
    # There no term takes more than its part of the room, so the root is not below.
    low, x = high / terms, high
    for _ in range(200):
        value, slope = 0.0, 0.0
        for k in range(top, -1, -1):
            slope = slope * x + value
            value = value * x + load[k]
        over = value - capacity
        if over > 0:
            high = x
        else:
            low = x
        step = x - over / slope
        if not low <= step <= high:
            step = (low + high) / 2
        if abs(step - x) <= 1e-15 * x:
            return step
        x = step
    return x


@jit_inner
def _exceeds_latency(f: Any, s: Any) -> bool:
    """Whether the slowest path to a result takes longer than is allowed."""
    for o in s.order:
        here = s.op[o].pick
        for c in range(1, f.hosts[here, 0] + 1):
            host, arrival = f.hosts[here, c], 0.0
            for i in range(f.op[o].arity):
                below = s.child[o, i]
                there = s.op[below].pick
                for a in range(1, f.hosts[there, 0] + 1):
                    delay = f.delay[f.hosts[there, a], host]
                    arrival = max(arrival, s.reached[below, a] + delay)
            s.reached[o, c] = arrival + f.op[o].cost / f.capacity[host]
    for o in s.outputs:
        for c in range(1, f.hosts[s.op[o].pick, 0] + 1):
            if s.reached[o, c] > f.latency:
                return True
    return False


@jit_inner
def _least_allowed(f: Any, s: Any, p: int) -> tuple[float, int]:
    """The least of what all constraints allow, each solved for itself."""
    least, binding = np.inf, -1
    for c in range(len(f.capacity)):
        if s.sums[c] > 0:
            _load_polynomial(f, s, p, c)
            x = largest_within(s.spare[0], f.capacity[c])
            if x < least:
                least, binding = x, c
    return least, binding


@jit_entry
def evaluate(f: Any, s: Any, enough: float) -> tuple[float, int, int]:
    """The quality, the constraint that binds and the point of the profile.

    The quality is WORSE if it turns out to be below that of the current configuration, and that is
    not more than `enough`; then nothing needs to be solved.
    """
    if f.latency < np.inf and _exceeds_latency(f, s):
        return 0.0, -2, 0
    x, which, binding, at = s.powers[BASE, 1], BASE, -1, 0
    for p in range(s.poly.shape[1]):
        if which == TRIAL:
            for o in range(len(s.op)):
                _compute_loads(s, TRIAL, p, o)
        for _ in range(100):
            worst, constraint = _sum_loads(f, s, which, p)
            if constraint < 0 or (binding >= 0 and worst <= 1 + TOLERANCE):
                break
            if abs(worst - 1) <= TOLERANCE:
                binding, at = constraint, p
                break
            if worst > 1 and x <= enough:
                return WORSE, constraint, p
            _load_polynomial(f, s, p, constraint)
            x, binding, at = largest_within(s.spare[0], f.capacity[constraint]), constraint, p
            if x == np.inf:
                x, binding = _least_allowed(f, s, p)
            if x == 0.0 or x == np.inf:
                return x, binding, at
            which = TRIAL
            _set_powers(s, TRIAL, x)
            for o in range(len(s.op)):
                _compute_loads(s, TRIAL, p, o)
    return (x if binding >= 0 else np.inf), binding, at


# ---- moves


@jit_entry
def can_swap(f: Any, s: Any, top: int, slot: int, deep: int) -> bool:
    """Whether `top` may change places with its input number `slot`, above that one's number `deep`."""
    bottom = s.child[top, slot]
    kt, kb = f.op[top].kind, f.op[bottom].kind
    # Whoever else reads the lower one would get what the upper one makes of it.
    if not f.rules[kt, kb] or s.op[bottom].uses != 1:
        return False
    if kb in (SEMIJOIN, OUTERJOIN) and deep != 0:
        return False
    if kt == JOIN and kb == JOIN and f.op[top].window != f.op[bottom].window:
        return False
    keyed = False
    for w in range(f.sets.shape[2]):
        others = f.sets[bottom, ADDS, w]
        for i in range(f.op[bottom].arity):
            if i != deep:
                others |= s.columns[s.child[bottom, i], w]
        if (f.sets[top, READS, w] | f.sets[top, DROPS, w]) & others:
            return False
        if kb == AGGREGATE:
            if f.sets[top, READS, w] & ~f.sets[bottom, KEYS, w]:
                return False
            keyed = keyed or f.sets[bottom, KEYS, w] != 0
        elif kt == AGGREGATE:
            if f.sets[bottom, READS, w] & ~f.sets[top, KEYS, w]:
                return False
            keyed = keyed or f.sets[top, KEYS, w] != 0
        elif f.sets[top, DROPS, w] & f.sets[bottom, READS, w]:
            return False
    return keyed or (kb != AGGREGATE and kt != AGGREGATE)


@jit_entry
def swap(f: Any, s: Any, top: int, slot: int, deep: int) -> None:
    """Let `top` and its input number `slot` change places; `top` then reads that one's number `deep`.

    Undone by `swap(f, s, bottom, deep, slot)`.
    """
    n, bottom = len(s.op), s.child[top, slot]
    x = s.child[bottom, deep]
    mark = s.mark[0] ^ f.mark_edge[top, bottom] ^ f.mark_edge[bottom, x]
    mark ^= f.mark_edge[bottom, top] ^ f.mark_edge[top, x]
    for o in range(n):
        for i in range(f.op[o].arity):
            if s.child[o, i] == top:
                s.child[o, i] = bottom
                mark ^= f.mark_edge[o, top] ^ f.mark_edge[o, bottom]
    for q in range(len(s.outputs)):
        if s.outputs[q] == top:
            s.outputs[q] = bottom
            mark ^= f.mark_edge[n + q, top] ^ f.mark_edge[n + q, bottom]
    s.mark[0] = mark
    s.child[top, slot], s.child[bottom, deep] = x, top
    s.op[bottom].uses, s.op[top].uses = s.op[top].uses, 1
    _move_behind(s.order, bottom, top)
    if f.op[bottom].kind == AGGREGATE:
        # A selection below leaves its share of the groups, one above all of them.
        s.op[bottom].groups *= f.op[top].selectivity
    elif f.op[top].kind == AGGREGATE:
        s.op[top].groups /= f.op[bottom].selectivity
    update_operator(f, s, top)
    update_operator(f, s, bottom)


@jit_inner
def _move_behind(order: Any, bottom: int, top: int) -> None:
    """Put one operator behind another that came after it."""
    position = 0
    while order[position] != bottom:
        position += 1
    while order[position] != top:
        order[position] = order[position + 1]
        if order[position] != top:
            position += 1
    order[position + 1] = bottom


@jit_inner
def move_to(f: Any, s: Any, o: int, option: int) -> None:
    """Take an operator to another of its options."""
    s.mark[0] ^= f.mark_option[s.op[o].pick] ^ f.mark_option[option]
    s.op[o].pick = option
