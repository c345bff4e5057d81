"""The state directory that a command works on, and what to say when it cannot.

Every command but `run` only uses the catalog, so it works while another process runs the engine.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headwater.cli.files import FAILED, WRONG, Source, describe, fail
from headwater.errors import (
    CatalogError,
    CqlError,
    HeadwaterError,
    InputError,
    NoCatalog,
    RuntimeFailure,
    is_url,
    local_only,
)

if TYPE_CHECKING:
    from headwater.runtime.catalog import Catalog

DEFAULT = Path(".headwater")


def _checked_state(state: Path) -> Path:
    """Ends the command if the state is to be at a URL, which would become a folder of that name."""
    if is_url(state):
        fail(local_only(state), FAILED)
    return state


State = Annotated[
    Path,
    typer.Option(
        "--state",
        callback=_checked_state,
        metavar="DIR",
        envvar="HEADWATER_STATE",
        show_envvar=False,
        help="Holds the catalog and the log; HEADWATER_STATE names another default.",
    ),
]

CatalogUrl = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        envvar="HEADWATER_CATALOG",
        show_envvar=False,
        help="A catalog on PostgreSQL instead; HEADWATER_CATALOG names one too.",
    ),
]


@contextmanager
def failures(source: Source | None = None) -> Iterator[None]:
    """Turn errors that are the user's into a message and an exit status."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "py4j", "sqlalchemy", "pyarrow"):
            raise
        fail(f"this needs the package {package}, which is not installed: pip install {package}")
    except CqlError as error:
        name = source.name if source else "<text>"
        typer.echo("\n\n".join(describe(error, name)), err=True)
        raise typer.Exit(WRONG) from None
    except (CatalogError, InputError, RuntimeFailure) as error:
        fail(str(error), FAILED)
    except HeadwaterError as error:
        fail(f"{source.name}: {error}" if source else str(error), WRONG)
    except (FileNotFoundError, PermissionError) as error:
        fail(f"a file of the state cannot be read: {error}; restore it from a copy", FAILED)


def exists(state: Path, url: str | None = None) -> bool:
    """Whether the directory holds a catalog, or there is one at the URL."""
    from headwater.runtime.catalog import Catalog
    from headwater.runtime.catalog.database import FILE

    try:
        if url is None:
            return (state / FILE).is_file()
        Catalog.open(url, create=False).close()
    except NoCatalog:
        return False
    except OSError as error:
        raise CatalogError(f"{state} cannot be read: {error.strerror}; name another one") from error
    return True


@contextmanager
def opened(
    state: Path,
    url: str | None = None,
    source: Source | None = None,
    files: bool = False,
    create: bool = False,
) -> Iterator[Catalog]:
    """The catalog of a state; ends the command if there is none and none is to be created, or on a
    failure.

    `files` is for commands that touch the log: its directory has to be the right one.
    """
    with failures(source):
        if not create and not exists(state, url):
            no_state(state, url)
        from headwater.runtime.catalog import Catalog
        from headwater.runtime.place import check_place, made

        if create or url is None:
            made(state)
        with Catalog.open(url or state, create=create) as catalog:
            if files or url is None:
                check_place(catalog, state)
            yield catalog


def no_state(state: Path, url: str | None) -> NoReturn:
    """End the command, and say how a state is made."""
    from headwater.runtime.catalog.database import without_password

    again = run_again(state, url, "FILE.cql")
    where = f"catalog in {without_password(url)}" if url else f"state in {state}"
    fail(f"there is no {where}: {again} creates it and runs it, headwater submit creates it")


def run_again(state: Path, url: str | None = None, *words: str) -> str:
    """The command line of `headwater run` on this state."""
    from headwater.runtime.catalog.database import without_password

    place = [] if state == DEFAULT else ["--state", shlex.quote(str(state))]
    if url is not None:
        place += ["--catalog", shlex.quote(without_password(url))]
    return " ".join(["headwater run", *words, *place])
