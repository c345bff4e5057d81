"""Keeping logs small while they are in use: compaction, retention and sweeping of orphaned files.

Every change is a transaction of the catalog that readers survive: files are deleted only after no
segment names them, and never before the slowest reader has passed.
"""
