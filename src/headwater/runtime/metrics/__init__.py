"""Measurements of a running state: backlog, rates, and what steps cost.

They are statistics in the catalog, smoothed over time; the scheduler, the planner and every view
read the same numbers.
"""
