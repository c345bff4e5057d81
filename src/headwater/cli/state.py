"""The state directory that a command works on, and what to say when it cannot.

Every command but `run` only uses the catalog, so it works while another process runs the engine.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.files import FAILED, WRONG, Source, describe, fail
from headwater.errors import (
    CatalogError,
    CqlError,
    HeadwaterError,
    InputError,
    RuntimeFailure,
)

if TYPE_CHECKING:
    from headwater.runtime.catalog import Catalog

DEFAULT = Path(".headwater")

State = Annotated[
    Path,
    typer.Option(
        "--state",
        metavar="DIR",
        envvar="HEADWATER_STATE",
        show_envvar=False,
        help="Holds the catalog and the log; HEADWATER_STATE names another default.",
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


def exists(state: Path) -> bool:
    """Whether the directory holds a catalog."""
    from headwater.runtime.catalog.database import FILE

    return (state / FILE).is_file()


@contextmanager
def opened(state: Path, source: Source | None = None) -> Iterator[Catalog]:
    """The catalog of a state directory; ends the command if there is none, or on a failure."""
    with failures(source):
        if not exists(state):
            fail(f"there is no state in {state}: {run_again(state, 'FILE.cql')} creates it")
        from headwater.runtime.catalog import Catalog

        with Catalog.open(state, create=False) as catalog:
            check_place(catalog, state)
            yield catalog


def check_place(catalog: Catalog, state: Path) -> None:
    """End the command if the directory was moved: its segments are known by their whole paths."""
    paths = catalog.all_paths()
    here = state.resolve()
    if paths and not any(Path(path).is_relative_to(here) for path in paths):
        log = next((p for p in Path(min(paths)).parents if p.name == "log"), Path(min(paths)))
        fail(f"{state} was moved: its segments are in {log.parent}; move it back there")


def run_again(state: Path, *words: str) -> str:
    """The command line of `headwater run` on this state."""
    place = [] if state == DEFAULT else ["--state", shlex.quote(str(state))]
    return " ".join(["headwater run", *words, *place])
