"""Planners: functions over a ledger that admit queries and place their operators, chosen by name.

`ladder` is ours and tries cheap rungs first; `flows`, `heuristic` and `soda` are the baselines of the SQPR paper.
"""
