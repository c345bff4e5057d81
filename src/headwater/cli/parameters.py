"""Values of options and arguments, converted without Pydantic where they are plain.

Typer has Pydantic convert every value, even a text into a text, and loading it takes longer than most
commands work. Texts, paths, choices and whole numbers are converted here; whatever else there is, or does
not fit and needs a message, is left to Typer.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperGroup


class Commands(TyperGroup):
    """Commands whose plain values are converted here."""

    def get_params(self, ctx: Any) -> Any:
        return _use_plain_conversion(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _use_plain_conversion(command.get_params(ctx))
        return command


def _use_plain_conversion(parameters: Any) -> Any:
    """Have the values of parameters converted here."""
    for parameter in parameters:
        # Typer makes its own when it is first needed; releases without Pydantic do not look at this.
        vars(parameter)["_runtime_param"] = PlainConversion()
    return parameters


class PlainConversion:
    """Stands where Typer keeps what converts the values of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        described = param.type_descriptor
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            return convert_value(value, described.annotation, described.parameter_info)
        except ValueError:
            param._runtime_param = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def convert_value(value: Any, kind: Any, info: Any) -> Any:
    """A value as its annotation has it; raises ValueError if it does not fit or is not plain."""
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
    """What a text stands for; the text itself if that is not for us to say."""
    if issubclass(kind, Enum):
        return kind(text)
    if kind is int and text.isascii() and text.isdigit():
        return int(text)
    if kind is Path and (os.access(text, os.R_OK) or not os.access(text, os.F_OK)):
        return Path(text)
    return text


def _within(number: Any, info: Any) -> bool:
    return (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
