"""Spark itself: sessions, clusters, memory, libraries, expressions as SQL, metrics, errors.

Sessions have fixed settings under which an expression has exactly the value that the reference
evaluator computes, and problems with Java or a cluster become errors that say what to check.
"""
