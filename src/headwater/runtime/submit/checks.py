"""Checks of a statement by itself, the same for `headwater check`, `submit` and `run`.

What depends on a state (whether a name is in use, whether a path is allowed) is checked when the
statements are executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwater.algebra.canonical import CanonicalQuery
from headwater.algebra.catalog import Namespace
from headwater.cql import Statement, parse
from headwater.errors import CqlError, HeadwaterError
from headwater.runtime.submit.actions import find_action


def check_statement(statement: Statement) -> CanonicalQuery | None:
    """The canonical form of a query that is created; raises HeadwaterError if the statement could
    not be carried out in any state."""
    return find_action(statement).check(statement)


def check_script(text: str, names: Namespace | None = None) -> tuple[Statement, ...]:
    """The statements of a text over existing streams and tables and those that it declares; raises
    CqlErrors with all that is wrong, each with its position."""

    def check(statement: Statement, tokens: Sequence[Any]) -> None:
        try:
            check_statement(statement)
        except HeadwaterError as problem:
            raise _locate_problem(problem, text, tokens) from problem

    return parse(text, names, check)


def _locate_problem(problem: HeadwaterError, text: str, tokens: Sequence[Any]) -> CqlError:
    """The problem at the first of its words that the statement has too, or where that begins."""
    # The message names the option or column that is wrong, so its first word that the text has
    # is nearly always the right one. First occurrences win: the tokens are read backwards.
    message, _, hint = str(problem).partition("; ")
    written = {token.text.lower(): token for token in reversed(tokens[1:])}
    words = (word.lower() for word in re.findall(r"[\w-]+", message))
    at = next((written[word] for word in words if word in written), tokens[0])
    return CqlError(message, text, at.start, at.end - at.start + 1, hint)
