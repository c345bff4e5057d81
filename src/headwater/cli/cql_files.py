"""Reading CQL files, and saying what is wrong with them."""

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
    """A text and the name under which messages speak of it."""

    name: str
    text: str
    path: Path

    @property
    def is_stdin(self) -> bool:
        return str(self.path) == "-"

    def replace(self, text: str) -> None:
        """Write the file anew: all of it, or nothing; ends the command if that fails."""
        target = self.path.resolve()
        try:
            with NamedTemporaryFile(
                "w", encoding="utf-8", newline="", dir=target.parent, delete=False
            ) as file:
                file.write(text)
            shutil.copymode(target, file.name)
            Path(file.name).replace(target)
        except OSError as error:
            fail(f"{self.name}: cannot be written: {error.strerror or error}")


def fail(message: str, status: int = EXIT_FAILED) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"headwater: {message}", err=True)
    raise typer.Exit(status)


def is_query_name(what: Path) -> bool:
    """Whether that is the name of a query, and not of a file."""
    if what.suffix == ".cql" or str(what) == "-":
        return False
    try:
        return not what.is_file()
    except OSError:
        return False


def read_source(path: Path) -> CqlSource:
    """The text of a file (`-`: standard input); ends the command if there is none to be had."""
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
    """A hint at a file of nearly that name in the same folder."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix == ".cql"]
    except OSError:
        return ""
    return f"; {suggest(path.name, names)}" if names else ""


def describe_errors(error: CqlError, name: str) -> Iterator[str]:
    """Each mistake as `file:line:column: message`, the line of text with a caret, and the hint."""
    for mistake in flatten_errors(error):
        location = f"line {mistake.line}, column {mistake.column}: "
        yield f"{name}:{mistake.line}:{mistake.column}: {str(mistake).removeprefix(location)}"


def flatten_errors(error: CqlError) -> tuple[CqlError, ...]:
    return error.errors if isinstance(error, CqlErrors) else (error,)


@contextmanager
def report_errors(source: CqlSource) -> Iterator[None]:
    """Turn Headwater's errors into messages about this file and an exit status."""
    try:
        yield
    except CqlError as error:
        typer.echo("\n\n".join(describe_errors(error, source.name)), err=True)
        raise typer.Exit(EXIT_WRONG) from None
    except InputError as error:
        fail(str(error))
    except HeadwaterError as error:
        fail(f"{source.name}: {error}", EXIT_WRONG)
