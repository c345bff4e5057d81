"""The `headwater` command.

Exit status: 0 success; 1 the CQL text is wrong (or, for `format --check`, not in the standard format);
2 the command failed: a file cannot be read, or data does not fit.
"""

from __future__ import annotations

import gc
import os
import sys

from headwater.cli.commands import app


def main() -> None:
    """Run the command line; ends quietly when the reader of its output has gone (`| head`)."""
    # Objects created by imports live until the end: collecting garbage among them takes a tenth of
    # the time of a short command. Long-running commands still collect from time to time.
    gc.set_threshold(50_000, 20, 50)
    for stream in (sys.stdout, sys.stderr):
        # Tables use box characters, which a terminal without Unicode cannot encode.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="headwater", standalone_mode=True)
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()


def _discard_output() -> None:
    """Send standard output to /dev/null, as Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
