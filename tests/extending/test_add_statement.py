"""Recipe: a statement from outside of the package is read, written, checked and carried out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cql import parse, statements, unparse
from headwater.cql.cursor import TokenCursor
from headwater.cql.statement_parts import parse_last_name
from headwater.cql.statement_syntax import STATEMENT_SYNTAX, Script, StatementSyntax
from headwater.cql.statements import PauseQuery, Statement
from headwater.cql.writer import name_text
from headwater.errors import CqlErrors, HeadwaterError
from headwater.runtime.api import open_state
from headwater.runtime.submit.actions import (
    STATEMENT_ACTIONS,
    ScriptState,
    StatementAction,
    StatementContext,
    register_statement,
    unregister_statement,
)

DECLARED = "CREATE STREAM s (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"

# ---- the statement, as somebody else would write it


@dataclass(frozen=True)
class TouchStream(Statement):
    """Record that somebody looked at a stream."""

    name: str


def parse_touch(script: Script, cursor: TokenCursor) -> TouchStream:
    return TouchStream(parse_last_name(cursor, "stream"))


def write_touch(statement: TouchStream) -> list[str]:
    return [f"TOUCH STREAM {name_text(statement.name)}"]


def check_touch(statement: TouchStream) -> None:
    if statement.name.startswith("_"):
        raise HeadwaterError(f"{statement.name} is not to be touched")


def prepare_touch(statement: TouchStream, state: ScriptState) -> bool:
    state.require_declared("stream", statement.name)
    return True


def apply_touch(context: StatementContext, statement: TouchStream) -> str:
    context.catalog.record_event("stream touched", statement.name)
    return f"stream {statement.name} touched"


SYNTAX = StatementSyntax(TouchStream, ("TOUCH", "STREAM"), parse_touch, write_touch)
ACTION = StatementAction(TouchStream, apply_touch, prepare_touch, check_touch)


@pytest.fixture
def registered() -> Iterator[None]:
    register_statement(SYNTAX, ACTION)
    yield
    unregister_statement(TouchStream)


# ---- what follows from it


def test_it_is_read_and_written_back(registered: None) -> None:
    (statement,) = parse("touch stream `a b`")
    assert statement == TouchStream("a b")
    assert unparse(statement) == "TOUCH STREAM `a b`"
    with pytest.raises(CqlErrors, match="expected STREAM, found QUERY"):
        parse("TOUCH QUERY q")
    with pytest.raises(CqlErrors, match="did you mean TOUCH"):
        parse("TUOCH STREAM s")


def test_it_is_checked_and_carried_out(registered: None, tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        done = headwater.execute(f"{DECLARED} TOUCH STREAM s")
        assert done == ["stream s declared", "stream s touched"]
        assert "stream touched" in [event.kind for event in headwater.catalog.events()]
        with pytest.raises(HeadwaterError, match="there is no stream z; there is: s"):
            headwater.execute("TOUCH STREAM z")
    file = tmp_path / "q.cql"
    file.write_text("TOUCH STREAM _s;")
    outcome = CliRunner().invoke(app, ["check", str(file)])
    assert outcome.exit_code == 1
    assert "_s is not to be touched" in outcome.output


def test_without_it_the_text_is_refused() -> None:
    with pytest.raises(CqlErrors, match="expected a statement, found TOUCH"):
        parse("TOUCH STREAM s")
    with pytest.raises(TypeError, match="not a statement"):
        unparse(TouchStream("s"))


def test_words_and_types_are_taken_once() -> None:
    with pytest.raises(HeadwaterError, match="there is a statement PauseQuery already"):
        register_statement(STATEMENT_SYNTAX[PauseQuery], STATEMENT_ACTIONS[PauseQuery])
    with pytest.raises(HeadwaterError, match="SHOW begins another statement"):
        register_statement(
            StatementSyntax(TouchStream, ("SHOW", "TOUCHED"), parse_touch, write_touch), ACTION
        )


# ---- the statements that come with Headwater


def test_every_statement_has_a_syntax_and_an_action() -> None:
    classes = {
        each
        for _, each in inspect.getmembers(statements, inspect.isclass)
        if issubclass(each, Statement) and each is not Statement
    }
    assert set(STATEMENT_SYNTAX) == set(STATEMENT_ACTIONS) == classes
