"""What one step of a unit reads and writes, one module for each kind of plan.

A step writes files and returns what is to be committed with them; it commits nothing itself.
"""
