"""Reading CQL files, and reporting their errors."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NoReturn

import typer

from headwater.errors import CqlError, CqlErrors, HeadwaterError, InputError, suggest

EXIT_WRONG = 1
EXIT_FAILED = 2


@dataclass(frozen=True)
class CqlSource:
    """A CQL text, with the name that messages use for it."""

    name: str
    text: str
    path: Path

    @property
    def is_stdin(self) -> bool:
        return str(self.path) == "-"

    def replace(self, text: str) -> None:
        """Replace the file atomically; ends the command if that fails."""
        # Resolved, so that a symbolic link stays one and the file it points to is replaced. The
        # temporary file is in the same folder because a rename cannot cross file systems.
        target = self.path.resolve()
        try:
            with NamedTemporaryFile(
                "w", encoding="utf-8", newline="", dir=target.parent, delete=False
            ) as file:
                file.write(text)
            # A temporary file is for its owner alone, which the file that it replaces may not be.
            shutil.copymode(target, file.name)
            Path(file.name).replace(target)
        except OSError as error:
            fail(f"{self.name}: cannot be written: {error.strerror or error}")


def fail(message: str, status: int = EXIT_FAILED) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"headwater: {message}", err=True)
    raise typer.Exit(status)


def is_query_name(what: Path) -> bool:
    """Whether an argument is the name of a query rather than a file."""
    if what.suffix == ".cql" or str(what) == "-":
        return False
    try:
        return not what.is_file()
    except OSError:  # let reading it report what is wrong
        return False


def read_source(path: Path) -> CqlSource:
    """Read a file (`-`: standard input); ends the command if it cannot be read or is empty."""
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if name == "<stdin>" else path.read_bytes()
    except FileNotFoundError:
        fail(f"{name}: no such file{_suggest_file(path)}")
    except IsADirectoryError:
        fail(f"{name} is a directory, not a file")
    except OSError as error:
        fail(f"{name}: cannot be read: {error.strerror or error}")
    try:
        # With the mark that some editors put in front of UTF-8, or without.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(
            f"{name}: not UTF-8 text: byte {error.start} (line {line}) is 0x{data[error.start]:02x}"
        )
    if not text.strip():
        fail(f"{name} is empty")
    return CqlSource(name, text, path)


def _suggest_file(path: Path) -> str:
    """A hint at a file with a similar name in the same folder."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix == ".cql"]
    except OSError:
        return ""
    return f"; {suggest(path.name, names)}" if names else ""


def describe_errors(error: CqlError, name: str) -> Iterator[str]:
    """Each error as `file:line:column: message`, then its line with a caret, and the hint."""
    for single in flatten_errors(error):
        location = f"line {single.line}, column {single.column}: "
        yield f"{name}:{single.line}:{single.column}: {str(single).removeprefix(location)}"


def flatten_errors(error: CqlError) -> tuple[CqlError, ...]:
    """The single errors of an error that may hold several."""
    return error.errors if isinstance(error, CqlErrors) else (error,)


@contextmanager
def report_errors(source: CqlSource) -> Iterator[None]:
    """Turn Headwater's errors into messages that name this file, and an exit status."""
    try:
        yield
    except CqlError as error:
        typer.echo("\n\n".join(describe_errors(error, source.name)), err=True)
        raise typer.Exit(EXIT_WRONG) from None
    except InputError as error:
        fail(str(error))
    except HeadwaterError as error:
        fail(f"{source.name}: {error}", EXIT_WRONG)
