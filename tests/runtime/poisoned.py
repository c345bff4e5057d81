"""Runs a state in a process of its own, in which `reverse` of the text b ends Java, or does not.

The text it makes of it is larger than the memory that Java has.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headwater

MEMORY = "600m"


def run(state: Path, deadly: bool) -> None:
    """Run the state until nothing is left to do, in another process."""
    command = [sys.executable, __file__, str(state), "deadly" if deadly else ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def work(state: str, deadly: bool) -> None:
    from headwater.runtime import sparksql

    if deadly:
        sparksql._SPECIAL["reverse"] = lambda _, args: (
            f"IF({args[0]} = 'b', repeat({args[0]}, 2000000000), reverse({args[0]}))"
        )
    with headwater.open(state, master="local[2]", memory=MEMORY) as opened:
        opened.run(until_idle=True, interval=0.05)
        opened.engine.spark.stop()


if __name__ == "__main__":
    work(sys.argv[1], bool(sys.argv[2]))
