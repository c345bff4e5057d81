"""Planners: which operators run where, and in which order."""
