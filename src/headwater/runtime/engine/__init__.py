"""The loop: ingest, step units in the order of a policy, commit, and handle what fails.

A step reads segments, writes files, and ends in one catalog transaction; killed anywhere, it is repeated.
"""
