"""How option and argument values are converted, and which options were renamed.

Typer has Pydantic convert every value, even a string to a string, and loading it takes longer than most
commands run. Strings, paths, choices and integers are converted here. Any other type, and any value that
does not fit and needs an error message, is left to Typer.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

RENAMED_OPTIONS = {
    "--at-once": "--max-concurrency",
    "--rows-ahead": "--max-backlog-rows",
    "--longest-wait": "--max-wait-seconds",
}
"""Options of `headwater run` by the names that earlier releases gave them."""


class Commands(TyperGroup):
    """A command group that converts simple values without Pydantic."""

    def get_params(self, ctx: Any) -> Any:
        return _use_plain_conversion(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _use_plain_conversion(command.get_params(ctx))
        return command


class CommandWithRenamedOptions(TyperCommand):
    """A command that refuses the old name of an option and says the new one.

    Hidden options would do the same, at the price of an unused parameter for each.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for argument in args:
            name = argument.partition("=")[0]
            if name in RENAMED_OPTIONS:
                ctx.fail(f"{name} is now called {RENAMED_OPTIONS[name]}")
        return super().parse_args(ctx, args)


def _use_plain_conversion(parameters: Any) -> Any:
    """Set `PlainConversion` on each parameter; returns the parameters."""
    for parameter in parameters:
        # Typer creates this attribute on first use; releases without Pydantic never read it.
        vars(parameter)["_runtime_param"] = PlainConversion()
    return parameters


class PlainConversion:
    """Replaces the converter that Typer keeps for a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        descriptor = param.type_descriptor
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            return convert_value(value, descriptor.annotation, descriptor.parameter_info)
        except ValueError:
            # Cleared, so that Typer builds its own converter, whose error messages users know.
            param._runtime_param = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def convert_value(value: Any, kind: Any, info: Any) -> Any:
    """Convert a value to its annotated type; raises ValueError if it does not fit or is not simple."""
    if get_origin(kind) is list and isinstance(value, list | tuple):
        (each,) = get_args(kind)
        return [convert_value(item, each, info) for item in value]
    if not isinstance(kind, type) or info.parser is not None:
        raise ValueError(value)
    if isinstance(value, str):
        value = _parse_text(value, kind)
    if not isinstance(value, kind) or (kind in (int, float) and not _within(value, info)):
        raise ValueError(value)
    return value


def _parse_text(text: str, kind: type) -> Any:
    """Parse a string as this type; returns the string itself if Typer has to decide."""
    if issubclass(kind, Enum):
        return kind(text)
    if kind is int and text.isascii() and text.isdigit():
        return int(text)
    # An existing path that cannot be read is left to Typer, which checks permissions.
    if kind is Path and (os.access(text, os.R_OK) or not os.access(text, os.F_OK)):
        return Path(text)
    return text


def _within(number: Any, info: Any) -> bool:
    return (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
