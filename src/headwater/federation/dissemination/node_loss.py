"""What one node of a dissemination tree adds to the loss of fidelity below it.

A message waits in the node's queue, and then for the children that are served before. Both follow from a few
numbers of the node itself, so that a change can be priced without looking at the entire tree.
The functions are plain Python when called from Python, and part of the machine code when called from a kernel.
"""

from __future__ import annotations

from numba.extending import register_jitable

FULL_LOAD = 0.999
"""From this load on a queue is priced by a straight line, so that searches can climb out of overload."""

OVERLOAD_SECONDS = 1000.0
"""Seconds by which the price of a queue rises when its load rises by one."""


@register_jitable
def queue_seconds(load: float, arrivals: float, second: float, general: bool) -> float:
    """The mean wait in the queue of a node.

    `load` is the share of time it is busy, `arrivals` its messages a second, `second` these times the mean
    square of a message's service time; with `general` the queue is M/G/1 (Pollaczek and Khinchine), else M/M/1.
    """
    if arrivals <= 0.0:
        return 0.0
    capped = min(load, FULL_LOAD)
    # M/M/1: the load times the mean service time, which is load / arrivals.
    work = second / 2.0 if general else load * load / arrivals
    return work / (1.0 - capped) + OVERLOAD_SECONDS * (load - capped)


@register_jitable
def square_of_service(
    filtered: float, sent: float, arrivals: float, filter_seconds: float, transmit_seconds: float
) -> float:
    """Arrivals a second times the mean square of a message's service time.

    Filtering and sending take exponential times; children want a message independently of each other, each with
    the mean probability.
    """
    if arrivals <= 0.0 or filtered <= 0.0:
        return 0.0
    tests, sends = filtered / arrivals, sent / arrivals
    mean = filter_seconds * tests + transmit_seconds * sends
    variance = filter_seconds * filter_seconds * tests
    # A child gets a message with probability p = sends / tests: variance (2 p - p^2) tc^2 a test.
    variance += transmit_seconds * transmit_seconds * (2.0 * sends - sends * sends / tests)
    # Products, not powers: these are rounded alike in machine code and in Python.
    return arrivals * (mean * mean + variance)


@register_jitable
def node_loss(
    children: float,
    filtered: float,
    sent: float,
    arrivals: float,
    weight: float,
    filter_seconds: float,
    transmit_seconds: float,
    other_load: float,
    other_arrivals: float,
    other_second: float,
    other_weight: float,
    general: bool,
) -> float:
    """The loss that a node's processing delay causes below it.

    `filtered` and `sent` are tests and messages for children, `arrivals` messages, each a second; `weight` is that
    of all nodes below. The last four numbers are of the node in other trees: their
    messages wait in the same queue.
    """
    # A leaf may have children in other trees; equation (4.5) itself would divide by zero.
    if children == 0:
        return other_weight * queue_seconds(other_load, other_arrivals, other_second, general)
    load = filter_seconds * filtered + transmit_seconds * sent
    second = 0.0
    if general:
        second = square_of_service(filtered, sent, arrivals, filter_seconds, transmit_seconds)
    queue = queue_seconds(
        load + other_load, arrivals + other_arrivals, second + other_second, general
    )
    service = load / arrivals if arrivals > 0.0 else 0.0
    # On average half of the other children are served before a child, then the child itself.
    before = service / 2.0 * (1.0 - 1.0 / children)
    return weight * (queue + before + filter_seconds + transmit_seconds) + other_weight * queue
