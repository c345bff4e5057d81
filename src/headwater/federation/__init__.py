"""Providers of streams and queries that work together over a wide-area network.

Which provider runs which query, and how streams reach the providers (chapters 3 and 4 of the COSMOS thesis). Everything
here is pure: a protocol is a state machine that takes a message and returns messages, without clock or
I/O, so that the simulator and the running service drive the same code.
"""
