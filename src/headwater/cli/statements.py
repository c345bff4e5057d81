"""Executes the statements of a CQL file in a state, and reports what is wrong in them by line and column."""

from __future__ import annotations

from headwater.cli.cql_files import CqlSource
from headwater.errors import CqlError, HeadwaterError
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.submit.scripts import StatementOutcome, execute, locate_mistakes


def execute_source(
    catalog: Catalog, definitions: Definitions, source: CqlSource
) -> list[StatementOutcome]:
    """Execute all statements of a source or none; relative paths are relative to its file."""
    folder = None if source.is_stdin else source.path.resolve().parent
    try:
        return execute(catalog, definitions, source.text, folder)
    except CqlError:
        raise
    except HeadwaterError:
        # Only now, as the positions of mistakes cost a second check of every statement.
        locate_mistakes(definitions, source.text)
        raise
