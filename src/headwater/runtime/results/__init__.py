"""Reading results: which rows of a unit's log belong to which query, and what sinks have sent.

Rows of a shared unit carry a row class, not a query; the subscribers of each class are kept beside
them, by version, so that queries can come and go without rewriting rows.
"""
