"""Statements and queries as CQL text: what `parse` returns reads back as the same."""

from __future__ import annotations

from headwater.algebra.nodes import Query
from headwater.cql.query_text import query_lines
from headwater.cql.statement_syntax import write_statement
from headwater.cql.statements import Statement


def unparse(what: Statement | Query) -> str:
    """The statement or query as text, over several lines, without a `;`."""
    return "\n".join(query_lines(what) if isinstance(what, Query) else write_statement(what))
