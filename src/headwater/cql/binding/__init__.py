"""Names and types for a parsed query: the syntax tree becomes algebra.

Whatever the binder does not handle is refused, so that nothing of a query is ignored silently.
"""
