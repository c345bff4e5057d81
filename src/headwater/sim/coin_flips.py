"""Whether a tuple passes an operator: a pure function of the seed, the tuple and the operator.

Nothing is drawn during the simulation, so under every policy the same tuples pass the same operators,
and queues need not store what can be recomputed.
"""

from __future__ import annotations

import numpy as np

from headwater.jit import cached_njit

CERTAIN = 1 << 53
"""A threshold that every tuple passes."""

_MASK = (1 << 64) - 1
# The constants and shifts of SplitMix64 (Steele, Lea and Flood 2014), but for the second, an odd
# constant for the operators.
_STEPS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_TUPLE, _OPERATOR, _MIX, _STIR = (np.uint64(step) for step in _STEPS)


def pass_threshold(selectivity: float) -> int:
    """A tuple passes if its coin flip is below this number."""
    return round(selectivity * CERTAIN)


def run_key(seed: int) -> int:
    """The key of a run; neighbouring seeds have nothing in common."""
    return _mix_bits(seed * _STEPS[3] + _STEPS[0])


def coin_flip(key: int, number: int, operator: int) -> int:
    """A number below CERTAIN, evenly spread over tuples and operators."""
    # 53 bits are what a float holds exactly: a flip is a fraction of CERTAIN without rounding.
    return _mix_bits(key + number * _STEPS[0] + operator * _STEPS[1]) >> 11


def _mix_bits(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _STEPS[2]) & _MASK
    value = ((value ^ (value >> 27)) * _STEPS[3]) & _MASK
    return value ^ (value >> 31)


@cached_njit
def fast_coin_flip(key: np.uint64, number: int, operator: int) -> np.int64:
    """`coin_flip`, compiled."""
    value = key + np.uint64(number) * _TUPLE + np.uint64(operator) * _OPERATOR
    value = (value ^ (value >> np.uint64(30))) * _MIX
    value = (value ^ (value >> np.uint64(27))) * _STIR
    return np.int64((value ^ (value >> np.uint64(31))) >> np.uint64(11))
