"""The `headwater` command.

Exit status: 0 success; 1 the CQL text is wrong (or, for `format --check`, not in the standard format);
2 the command failed: a file cannot be read, or data does not fit.
"""

from __future__ import annotations

import copy
import gc
import os
import sys

import typer

from headwater.cli import state_commands
from headwater.cli.commands import app
from headwater.lazy import hide_module

READING = ("results", "status", "show queries")
"""Commands for which Arrow reads rows. It would load NumPy where that is installed, which takes as long
again and is not needed to read and count."""


def main() -> None:
    """Run the command line; ends quietly when the reader of its output has gone (`| head`)."""
    # Objects created by imports live until the end: collecting garbage among them takes a tenth of
    # the time of a short command. Long-running commands still collect from time to time.
    gc.set_threshold(50_000, 20, 50)
    if " ".join(sys.argv[1:]).startswith(READING):
        hide_module("numpy")
    for stream in (sys.stdout, sys.stderr):
        # Tables use box characters, which a terminal without Unicode cannot encode.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        _app_of(sys.argv[1:2])(prog_name="headwater", standalone_mode=True)
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()


def _app_of(words: list[str]) -> typer.Typer:
    """The application with the command that is named first alone, as Typer evaluates the types of all
    options of all its commands; the whole application if none is."""
    commands = [*app.registered_commands, *state_commands.app.registered_commands]
    named = [c for c in commands if c.callback is not None and words == [c.callback.__name__]]
    if not named:
        return app
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = named, []
    return only


def _discard_output() -> None:
    """Send standard output to /dev/null, as Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
