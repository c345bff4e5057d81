"""Values of options and arguments: what is converted without Typer is what Typer makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Run
from typer.main import get_command

from headwater.cli.commands import app
from headwater.cli.parameters import PlainConversion

TEXTS = [
    *(
        "",
        " ",
        "-",
        "0",
        "1",
        "007",
        "-1",
        "+3",
        "1_000",
        "1.0",
        "2.5",
        "1e3",
        "nan",
        "٣",
        "10000000000000",
    ),
    *(
        "table",
        "Table",
        "json",
        "csv",
        "queries",
        "true",
        "no/such/file",
        "a\nb",
        __file__,
        "x" * 5000,
    ),
]
COMMANDS: Any = get_command(app)
CONTEXT: Any = COMMANDS.make_context("headwater", ["status"])


def parameters() -> list[Any]:
    return [
        pytest.param(name, parameter, id=f"{name} {parameter.name}")
        for name, command in COMMANDS.commands.items()
        for parameter in command.get_params(CONTEXT)
    ]


def outcome(parameter: Any, value: Any) -> Any:
    """The value after conversion with its type, or the message."""
    try:
        found = parameter.get_runtime_param().coerce(value, param=parameter, ctx=CONTEXT)
    except typer.BadParameter as error:
        return str(error)
    return repr(found)


@pytest.mark.parametrize("name, parameter", parameters())
def test_values_are_what_typer_makes_of_them(name: str, parameter: Any) -> None:
    several = parameter.multiple or parameter.nargs == -1
    given = [(text,) for text in TEXTS] + [tuple(TEXTS), ()] if several else TEXTS
    for value in [None, parameter.default, *given]:
        parameter._runtime_param = None
        usual = outcome(parameter, value)
        parameter._runtime_param = PlainConversion()
        assert outcome(parameter, value) == usual, f"{name} {parameter.name} of {value!r}"


def test_a_value_that_does_not_fit_has_the_usual_message(run: Run, tmp_path: Path) -> None:
    done = run("show", "nothing", "--state", tmp_path)
    assert done.status == 2
    assert "streams" in done.err, "it says what there is"
    done = run("results", "--limit", "-1", "--state", tmp_path)
    assert done.status == 2
    assert "--limit" in done.err
