"""The calculus of conditions: one form for equal conditions, and whether one implies another.

No rule may change the value of an expression, NULL included.
"""
