"""Polynomials without negative coefficients, as tuples: place k has the coefficient of x^k.

Along the ray through a profile every load is such a polynomial of one variable, which rises and
curves upwards; so it meets a capacity once, and Newton's method comes down to that place.
"""

from __future__ import annotations

import math
from itertools import zip_longest

Polynomial = tuple[float, ...]

ZERO: Polynomial = ()


def add(*terms: Polynomial) -> Polynomial:
    return tuple(math.fsum(c) for c in zip_longest(*terms, fillvalue=0.0))


def scale(factor: float, p: Polynomial) -> Polynomial:
    return tuple(factor * c for c in p)


def multiply(*factors: Polynomial) -> Polynomial:
    product: Polynomial = (1.0,)
    for p in factors:
        longer = [0.0] * (len(product) + len(p) - 1) if p else []
        for i, a in enumerate(product):
            for j, b in enumerate(p):
                longer[i + j] += a * b
        product = tuple(longer)
    return product


def value(p: Polynomial, x: float) -> float:
    total = 0.0
    for c in reversed(p):
        total = total * x + c
    return total


def slope(p: Polynomial, x: float) -> float:
    return value(tuple(k * c for k, c in enumerate(p))[1:], x)


def largest_within(load: Polynomial, capacity: float) -> float:
    """The largest x >= 0 at which the load is within the capacity; infinite if it never exceeds it,
    and 0 if it does even at 0.

    One term has a closed form; several are solved by Newton's method inside a bracket.
    """
    fixed = load[0] if load else 0.0
    terms = [(k, c) for k, c in enumerate(load) if k and c > 0]
    room = capacity - fixed
    if room < 0 or (terms and room == 0):
        return 0.0
    if not terms or room == math.inf:
        return math.inf
    high = min(math.pow(room / c, 1 / k) for k, c in terms)
    if len(terms) == 1:
        return high
    # At high / len(terms) no term takes more than its part of the room.
    return _newton(load, capacity, high / len(terms), high)


def _newton(load: Polynomial, capacity: float, low: float, high: float) -> float:
    """The root between low and high, from above: the load is convex, so steps do not overshoot;
    if rounding moves one out of the bracket, the midpoint is taken instead."""
    x = high
    for _ in range(200):
        over = value(load, x) - capacity
        if over > 0:
            high = x
        else:
            low = x
        step = x - over / slope(load, x)
        if not low <= step <= high:
            step = (low + high) / 2
        if abs(step - x) <= 1e-15 * x:
            return step
        x = step
    return x
