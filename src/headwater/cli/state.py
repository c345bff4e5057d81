"""The state directory that a command works on, and the messages when it cannot be used.

Every command except `run`, `up` and `site` uses the catalog only, so it works while another process runs
the engine.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headwater.cli.cql_files import EXIT_FAILED, EXIT_WRONG, CqlSource, describe_errors, fail
from headwater.errors import (
    CatalogError,
    CatalogNotFound,
    CqlError,
    HeadwaterError,
    InputError,
    RuntimeFailure,
    is_url,
    remote_state_message,
)

if TYPE_CHECKING:
    from headwater.runtime.catalog import Catalog

DEFAULT_STATE = Path(".headwater")


def _check_state(state: Path) -> Path:
    """End the command if the state is a URL, which would silently become a folder of that name."""
    if is_url(state):
        fail(remote_state_message(state), EXIT_FAILED)
    return state


State = Annotated[
    Path,
    typer.Option(
        "--state",
        callback=_check_state,
        metavar="DIR",
        envvar="HEADWATER_STATE",
        show_envvar=False,
        help="State directory, or set HEADWATER_STATE.",
    ),
]

CatalogUrl = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        envvar="HEADWATER_CATALOG",
        show_envvar=False,
        help="PostgreSQL catalog of the state, or set HEADWATER_CATALOG.",
    ),
]


@contextmanager
def report_failures(source: CqlSource | None = None) -> Iterator[None]:
    """Turn errors that the user can act on into a message and an exit status."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "py4j", "sqlalchemy", "pyarrow"):
            raise  # a bug of ours, which deserves its traceback
        fail(f"this needs the package {package}, which is not installed: pip install {package}")
    except CqlError as error:
        name = source.name if source else "<text>"
        typer.echo("\n\n".join(describe_errors(error, name)), err=True)
        raise typer.Exit(EXIT_WRONG) from None
    # Before HeadwaterError, which these are too: it is not the text that is wrong.
    except (CatalogError, InputError, RuntimeFailure) as error:
        fail(str(error), EXIT_FAILED)
    except HeadwaterError as error:
        fail(f"{source.name}: {error}" if source else str(error), EXIT_WRONG)
    except (FileNotFoundError, PermissionError) as error:
        fail(f"a file of the state cannot be read: {error}; restore it from a backup", EXIT_FAILED)


def state_exists(state: Path, url: str | None = None) -> bool:
    """Whether the directory, or the URL if given, holds a catalog."""
    from headwater.runtime.catalog import Catalog
    from headwater.runtime.catalog.database import CATALOG_FILE

    try:
        if url is None:
            return (state / CATALOG_FILE).is_file()
        Catalog.open(url, create=False).close()
    except CatalogNotFound:
        return False
    except OSError as error:
        raise CatalogError(f"{state} cannot be read: {error.strerror}; name another one") from error
    return True


@contextmanager
def open_catalog(
    state: Path,
    url: str | None = None,
    source: CqlSource | None = None,
    files: bool = False,
    create: bool = False,
) -> Iterator[Catalog]:
    """Open the catalog of a state; ends the command if there is none and `create` is false, or on an error.

    `files` is for commands that read or remove segment files: the directory must belong to the catalog.
    """
    with report_failures(source):
        if not create and not state_exists(state, url):
            fail_without_state(state, url)
        from headwater.runtime.catalog import Catalog
        from headwater.runtime.storage.state_dir import check_state_dir, ensure_state_dir

        if create or url is None:
            ensure_state_dir(state)
        with Catalog.open(url or state, create=create) as catalog:
            if files or url is None:
                check_state_dir(catalog, state)
            yield catalog


def fail_without_state(state: Path, url: str | None) -> NoReturn:
    """End the command with a message that says how to create a state."""
    from headwater.runtime.catalog.database import redact_password

    start = run_command_line(state, url, "FILE.cql")
    where = f"catalog in {redact_password(url)}" if url else f"state in {state}"
    fail(f"there is no {where}: {start} creates and runs one, headwater submit only creates it")


def run_command_line(state: Path, url: str | None = None, *words: str) -> str:
    """The `headwater run` command line for this state, as messages suggest it; without a password."""
    from headwater.runtime.catalog.database import redact_password

    options = [] if state == DEFAULT_STATE else ["--state", shlex.quote(str(state))]
    if url is not None:
        options += ["--catalog", shlex.quote(redact_password(url))]
    return " ".join(["headwater run", *words, *options])
