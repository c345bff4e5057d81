"""Continuous queries on Spark: the catalog, the stream log, sources, units and the loop.

One idea carries it: every stream, base or derived, is an append-only log of segments listed in
the catalog, and one catalog transaction registers output and moves cursors together.
"""
