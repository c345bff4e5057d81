"""The `headwater` command.

Exit status: 0 all well; 1 the text is wrong (or, for `format --check`, not in the one format);
2 the command could not do its work: a file that cannot be read, data that does not fit.
"""

from __future__ import annotations

import gc
import os
import sys

from headwater.cli.commands import app


def main() -> None:
    """Run the command line; a reader that went away (`| head`) ends it quietly."""
    # Loading modules makes objects that stay: looking for garbage among them takes a tenth of the time
    # of a short command. Commands that stay collect from time to time all the same.
    gc.set_threshold(50_000, 20, 50)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="headwater", standalone_mode=True)
    except BrokenPipeError:
        _forget_output()
        sys.exit(1)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()


def _forget_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
