"""Every mistake is reported at its position, with what was expected or what exists."""

from __future__ import annotations

import pytest
from cql_texts import NAMES

from golden import Case, cases, rewrite
from headwater.cql import parse, parse_query
from headwater.errors import CqlError, CqlErrors


def query_error(case: Case) -> str:
    with pytest.raises(CqlError) as raised:
        parse_query(case.input, NAMES)
    return str(raised.value)


def text_errors(case: Case) -> str:
    with pytest.raises(CqlErrors) as raised:
        parse(case.input, NAMES)
    return str(raised.value)


@pytest.mark.parametrize("case", cases("cql/errors.txt"), ids=lambda case: case.title)
def test_mistakes_in_queries(case: Case, update_golden: bool) -> None:
    if not update_golden:
        assert query_error(case) == case.outcome


@pytest.mark.parametrize("case", cases("cql/statement_errors.txt"), ids=lambda case: case.title)
def test_mistakes_in_statements(case: Case, update_golden: bool) -> None:
    if not update_golden:
        assert text_errors(case) == case.outcome


def test_golden_errors_are_written_again(update_golden: bool) -> None:
    if update_golden:
        rewrite("cql/errors.txt", query_error)
        rewrite("cql/statement_errors.txt", text_errors)
