"""CQL: reads the text that people write into algebra, and writes algebra as text."""

from headwater.cql.grammar import parse, parse_query
from headwater.cql.statements import (
    BareQuery,
    Connector,
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    EndStream,
    Explain,
    PauseQuery,
    RestartStream,
    ResumeQuery,
    RewindStream,
    SetOption,
    Show,
    Start,
    Statement,
)
from headwater.cql.tree import tree
from headwater.cql.unparse import unparse
from headwater.cql.writer import expr_text

__all__ = [
    "BareQuery",
    "Connector",
    "CreateQuery",
    "CreateStream",
    "CreateTable",
    "DropQuery",
    "DropStream",
    "DropTable",
    "EndStream",
    "Explain",
    "PauseQuery",
    "RestartStream",
    "ResumeQuery",
    "RewindStream",
    "SetOption",
    "Show",
    "Start",
    "Statement",
    "expr_text",
    "parse",
    "parse_query",
    "tree",
    "unparse",
]
