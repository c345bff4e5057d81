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

from headwater.errors import CqlError, CqlErrors, HeadwaterError, InputError, nearest

WRONG = 1
FAILED = 2


@dataclass(frozen=True)
class Source:
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


def fail(message: str, status: int = FAILED) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"headwater: {message}", err=True)
    raise typer.Exit(status)


def is_name(what: Path) -> bool:
    """Whether that is the name of a query, and not of a file."""
    if what.suffix == ".cql" or str(what) == "-":
        return False
    try:
        return not what.is_file()
    except OSError:
        return False


def read(path: Path) -> Source:
    """The text of a file (`-`: standard input); ends the command if there is none to be had."""
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if name == "<stdin>" else path.read_bytes()
    except FileNotFoundError:
        fail(f"{name}: no such file{_similar(path)}")
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
    return Source(name, text, path)


def _similar(path: Path) -> str:
    """A hint at a file of nearly that name in the same folder."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix == ".cql"]
    except OSError:
        return ""
    return f"; {nearest(path.name, names)}" if names else ""


def describe(error: CqlError, name: str) -> Iterator[str]:
    """Each mistake as `file:line:column: message`, the line of text with a caret, and the hint."""
    for one in flatten(error):
        place = f"line {one.line}, column {one.column}: "
        yield f"{name}:{one.line}:{one.column}: {str(one).removeprefix(place)}"


def flatten(error: CqlError) -> tuple[CqlError, ...]:
    return error.errors if isinstance(error, CqlErrors) else (error,)


@contextmanager
def errors_of(source: Source) -> Iterator[None]:
    """Turn Headwater's errors into messages about this file and an exit status."""
    try:
        yield
    except CqlError as error:
        typer.echo("\n\n".join(describe(error, source.name)), err=True)
        raise typer.Exit(WRONG) from None
    except InputError as error:
        fail(str(error))
    except HeadwaterError as error:
        fail(f"{source.name}: {error}", WRONG)
